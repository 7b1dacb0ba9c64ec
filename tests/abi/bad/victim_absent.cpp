// victim_absent.cpp - breaks a rule: names a victim that is not resident.
#include "first_fit.hpp"

namespace {

class victim_absent : public first_fit {
public:
    static constexpr moorage::about about{.name = "victim_absent", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &room, moorage::pages &victims) {
        for (uint32_t page = 0; page < pages_ && !victims.full(); ++page)
            if (in_pool(page, room) && !moorage::resident(state_[page]) && state_[page] == 0)
                victims.push(page);
        if (!victims.full()) first_fit::victims(room, victims);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.victim_absent", "1.0.0", victim_absent)
