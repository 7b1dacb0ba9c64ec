// blocks.cpp - breaks a rule: sleeps inside a step.
#include "first_fit.hpp"

#include <time.h>

namespace {

class blocks : public first_fit {
public:
    static constexpr moorage::about about{.name = "blocks", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &) {
        const timespec moment{0, 1};
        nanosleep(&moment, nullptr);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.blocks", "1.0.0", blocks)
