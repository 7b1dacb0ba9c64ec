// wire_loses.cpp - a wire that loses every hundredth message.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_loses", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t send(uint64_t connection, parts message, uint64_t user) {
        return ++sent_ % 100 == 0 && message.size() == 1
                   ? uint32_t{MOORAGE_WIRE_DONE}
                   : wire_base::send(connection, message, user);
    }

private:
    uint32_t sent_ = 0;
};
}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_loses", "1.0.0", bad)
