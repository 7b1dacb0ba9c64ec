// crashes.cpp - breaks a rule: follows a null pointer when it is asked for victims.
#include "first_fit.hpp"

namespace {

class crashes : public first_fit {
public:
    static constexpr moorage::about about{.name = "crashes", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void victims(const moorage::room &room, moorage::pages &victims) {
        const volatile uint32_t *nowhere = nullptr;
        if (room.count <= *nowhere) first_fit::victims(room, victims);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.crashes", "1.0.0", crashes)
