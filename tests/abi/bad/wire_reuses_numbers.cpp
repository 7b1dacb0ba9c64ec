// wire_reuses_numbers.cpp - a wire whose connections are numbered modulo 4.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_reuses_numbers",
                                          .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint64_t connect(const moorage::wire_target &target) {
        {
            const std::lock_guard lock(guard());
            last_number_ %= 4;
        }
        return wire_base::connect(target);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_reuses_numbers", "1.0.0", bad)
