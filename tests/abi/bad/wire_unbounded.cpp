// wire_unbounded.cpp - a wire that accepts more connections than allowed.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_unbounded", .summary = "breaks a rule"};
    using wire_base::wire_base;
    void open(const moorage_wire_limits &limits) {
        moorage_wire_limits raised_limits = limits;
        raised_limits.connections_max = 1000;
        wire_base::open(raised_limits);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_unbounded", "1.0.0", bad)
