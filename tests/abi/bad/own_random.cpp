// own_random.cpp - breaks a rule: draws from a generator of its own that all instances share.
#include "first_fit.hpp"

namespace {

uint64_t state = 1;

class own_random : public first_fit {
public:
    static constexpr moorage::about about{.name = "own_random", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &room, moorage::pages &victims) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (state >> 63)
            first_fit::victims(room, victims);
        else
            victims_from_top(room, victims);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.own_random", "1.0.0", own_random)
