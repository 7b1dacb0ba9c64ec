// allocates.cpp - breaks a rule: takes memory from the heap inside a step.
#include "first_fit.hpp"

#include <vector>

namespace {

class allocates : public first_fit {
public:
    static constexpr moorage::about about{.name = "allocates", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void observe(const moorage::step &step) {
        const auto experts = step.distinct();
        seen_ = std::vector<uint32_t>(experts.begin(), experts.end());
    }

private:
    std::vector<uint32_t> seen_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.allocates", "1.0.0", allocates)
