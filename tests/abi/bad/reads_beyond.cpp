// reads_beyond.cpp - breaks a rule: reads one element beyond the experts of a step.
#include "first_fit.hpp"

namespace {

class reads_beyond : public first_fit {
public:
    static constexpr moorage::about about{.name = "reads_beyond", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &step) {
        sum_ = sum_ + step.host_distinct[step.distinct_count];
    }

private:
    volatile uint32_t sum_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.reads_beyond", "1.0.0", reads_beyond)
