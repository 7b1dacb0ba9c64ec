// gives_up.cpp - breaks a rule: names one victim, even if more are asked for.
#include "first_fit.hpp"

namespace {

class gives_up : public first_fit {
public:
    static constexpr moorage::about about{.name = "gives_up", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &room, moorage::pages &victims) {
        for (uint32_t page = 0; page < pages_ && victims.size() == 0; ++page)
            if (in_pool(page, room) && moorage::evictable(state_[page])) victims.push(page);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.gives_up", "1.0.0", gives_up)
