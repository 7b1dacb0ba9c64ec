// wall_clock.cpp - breaks a rule: lets the day of the week decide.
#include "first_fit.hpp"

#include <time.h>

namespace {

class wall_clock : public first_fit {
public:
    static constexpr moorage::about about{.name = "wall_clock", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &room, moorage::pages &victims) {
        if (time(nullptr) / 86'400 % 2 == 0)
            first_fit::victims(room, victims);
        else
            victims_from_top(room, victims);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.wall_clock", "1.0.0", wall_clock)
