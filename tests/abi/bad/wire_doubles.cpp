// wire_doubles.cpp - a wire that delivers every fiftieth message twice.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_doubles", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t send(uint64_t connection, parts message, uint64_t user) {
        const uint32_t status = wire_base::send(connection, message, user);
        if (status == MOORAGE_WIRE_DONE && ++sent_ % 50 == 0)
            wire_base::send(connection, message, user);
        return status;
    }

private:
    uint32_t sent_ = 0;
};
}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_doubles", "1.0.0", bad)
