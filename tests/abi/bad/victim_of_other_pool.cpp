// victim_of_other_pool.cpp - breaks a rule: names victims of whichever layer comes first.
#include "first_fit.hpp"

namespace {

class victim_of_other_pool : public first_fit {
public:
    static constexpr moorage::about about{.name = "victim_of_other_pool",
                                          .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &, moorage::pages &victims) {
        for (uint32_t page = 0; page < pages_ && !victims.full(); ++page)
            if (moorage::evictable(state_[page])) victims.push(page);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.victim_of_other_pool", "1.0.0", victim_of_other_pool)
