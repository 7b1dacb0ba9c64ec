// wire_deaf_to_wake.cpp - a wire whose poll ignores wake.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_deaf_to_wake", .summary = "breaks a rule"};
    using wire_base::wire_base;
    void wake() {}
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_deaf_to_wake", "1.0.0", bad)
