// leaks.cpp - breaks a rule: never frees the memory of activate.
#include "first_fit.hpp"

namespace {

class leaks : public first_fit {
public:
    static constexpr moorage::about about{.name = "leaks", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void activate(const moorage::limits &limits) {
        first_fit::activate(limits);
        notes_ = new uint32_t[pages_];
        for (uint32_t page = 0; page < pages_; ++page) notes_[page] = page;
    }
    void observe(const moorage::step &step) { ++notes_[step.page(0)]; }

private:
    uint32_t *notes_ = nullptr;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.leaks", "1.0.0", leaks)
