// victim_pinned.cpp - breaks a rule: names a victim that the running step uses.
#include "first_fit.hpp"

namespace {

class victim_pinned : public first_fit {
public:
    static constexpr moorage::about about{.name = "victim_pinned", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &room, moorage::pages &victims) {
        for (uint32_t page = 0; page < pages_ && !victims.full(); ++page)
            if (in_pool(page, room) && moorage::resident(state_[page]) &&
                !(state_[page] & MOORAGE_STATE_BUFFERED))
                victims.push(page);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.victim_pinned", "1.0.0", victim_pinned)
