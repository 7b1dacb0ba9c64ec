// thread_bound.cpp - breaks a rule: keeps its count in a variable of the thread.
#include "first_fit.hpp"

namespace {

thread_local uint64_t steps = 0;

class thread_bound : public first_fit {
public:
    static constexpr moorage::about about{.name = "thread_bound", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void reset() { steps = 0; }
    void observe(const moorage::step &) { ++steps; }
    void victims(const moorage::room &room, moorage::pages &victims) {
        if (steps % 3 == 0)
            first_fit::victims(room, victims);
        else
            victims_from_top(room, victims);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.thread_bound", "1.0.0", thread_bound)
