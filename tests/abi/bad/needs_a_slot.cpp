// needs_a_slot.cpp - breaks a rule: divides by the number of slots, which may be zero.
#include "first_fit.hpp"

namespace {

class needs_a_slot : public first_fit {
public:
    static constexpr moorage::about about{.name = "needs_a_slot", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void activate(const moorage::limits &limits) {
        first_fit::activate(limits);
        share_ = limits.experts / static_cast<uint32_t>(volatile_slots(limits));
    }

private:
    static uint32_t volatile_slots(const moorage::limits &limits) {
        const volatile uint32_t slots = limits.slots;
        return slots;
    }
    uint32_t share_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.needs_a_slot", "1.0.0", needs_a_slot)
