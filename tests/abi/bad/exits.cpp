// exits.cpp - breaks a rule: ends the process from within a step.
#include "first_fit.hpp"

#include <cstdlib>

namespace {

class exits : public first_fit {
public:
    static constexpr moorage::about about{.name = "exits", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &step) {
        if (step.index == 5) std::_Exit(0);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.exits", "1.0.0", exits)
