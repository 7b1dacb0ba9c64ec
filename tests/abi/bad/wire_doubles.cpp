// wire_doubles.cpp - a wire that delivers every fiftieth message twice.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_doubles", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t send(uint64_t to, parts of, uint64_t user) {
        const uint32_t did = wire_base::send(to, of, user);
        if (did == MOORAGE_WIRE_DONE && ++sent_ % 50 == 0) wire_base::send(to, of, user);
        return did;
    }

private:
    uint32_t sent_ = 0;
};
}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_doubles", "1.0.0", bad)
