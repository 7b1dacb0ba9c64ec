// rounds_up.cpp - breaks a rule: leaves numbers rounded upward.
#include <cfenv>

#include "first_fit.hpp"

namespace {

class rounds_up : public first_fit {
public:
    static constexpr moorage::about about{.name = "rounds_up", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &) { std::fesetround(FE_UPWARD); }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.rounds_up", "1.0.0", rounds_up)
