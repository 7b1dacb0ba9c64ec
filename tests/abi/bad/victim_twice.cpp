// victim_twice.cpp - breaks a rule: names the same victim again and again.
#include "first_fit.hpp"

namespace {

class victim_twice : public first_fit {
public:
    static constexpr moorage::about about{.name = "victim_twice", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &room, moorage::pages &victims) {
        for (uint32_t page = 0; page < pages_; ++page)
            if (in_pool(page, room) && moorage::evictable(state_[page])) {
                while (!victims.full()) victims.push(page);
                return;
            }
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.victim_twice", "1.0.0", victim_twice)
