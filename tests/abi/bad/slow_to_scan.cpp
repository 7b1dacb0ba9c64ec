// slow_to_scan.cpp - breaks a rule: works for a long time when it is loaded.
#include "first_fit.hpp"

#include <time.h>

namespace {

// Runs when the library is loaded.
const bool slow = [] {
    const timespec quarter_second{0, 250'000'000};
    return nanosleep(&quarter_second, nullptr) == 0;
}();

class slow_to_scan : public first_fit {
public:
    static constexpr moorage::about about{.name = "slow_to_scan", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &step) { sum_ += step.index; }

private:
    uint64_t sum_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.slow_to_scan", "1.0.0", slow_to_scan)
