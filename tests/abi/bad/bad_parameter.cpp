// bad_parameter.cpp - breaks a rule: dies of an extreme value of its parameter.
#include "first_fit.hpp"

namespace {

class bad_parameter : public first_fit {
public:
    static constexpr moorage::about about{.name = "bad_parameter", .summary = "breaks a rule"};
    static constexpr moorage::param params[] = {
        moorage::integer("window_tokens", 8, 0, 64, "tokens that count"),
    };
    explicit bad_parameter(const moorage::setup &setup)
        : first_fit(setup), window_(setup.integer("window_tokens")) {}
    void observe(const moorage::step &step) {
        const volatile int64_t window = window_;
        if (static_cast<int64_t>(step.token) % window == 0) ++windows_;
    }

private:
    int64_t window_;
    uint64_t windows_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.bad_parameter", "1.0.0", bad_parameter)
