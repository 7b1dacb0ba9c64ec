// writes_to_inputs.cpp - breaks a rule: changes the residency view, which is lent for reading.
#include "first_fit.hpp"

namespace {

class writes_to_inputs : public first_fit {
public:
    static constexpr moorage::about about{.name = "writes_to_inputs", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &) {
        const_cast<uint32_t *>(state_)[0] |= MOORAGE_STATE_PINNED;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.writes_to_inputs", "1.0.0", writes_to_inputs)
