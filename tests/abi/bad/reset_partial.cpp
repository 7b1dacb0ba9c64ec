// reset_partial.cpp - breaks a rule: learned state survives a reset.
#include "first_fit.hpp"

namespace {

class reset_partial : public first_fit {
public:
    static constexpr moorage::about about{.name = "reset_partial", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &) { ++steps_; }
    void victims(const moorage::room &room, moorage::pages &victims) {
        if (steps_ % 3 == 0)
            first_fit::victims(room, victims);
        else
            victims_from_top(room, victims);
    }

private:
    uint64_t steps_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.reset_partial", "1.0.0", reset_partial)
