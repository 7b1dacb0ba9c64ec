// wire_any_address.cpp - a wire that accepts impossible addresses.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_any_address", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint64_t connect(const moorage::wire_target &target) {
        static const char *const somewhere[] = {"somewhere"};
        moorage::wire_target changed_target = target;
        if (std::string_view(target.host_addresses[0]).empty())
            changed_target.host_addresses = somewhere;
        return wire_base::connect(changed_target);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_any_address", "1.0.0", bad)
