// hangs.cpp - breaks a rule: never comes back from a step.
#include "first_fit.hpp"

namespace {

class hangs : public first_fit {
public:
    static constexpr moorage::about about{.name = "hangs", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &) {
        for (volatile bool forever = true; forever;) {
        }
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.hangs", "1.0.0", hangs)
