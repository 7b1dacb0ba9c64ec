// closes_output.cpp - breaks a rule: closes standard output.
#include <unistd.h>

#include "first_fit.hpp"

namespace {

class closes_output : public first_fit {
public:
    static constexpr moorage::about about{.name = "closes_output", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void activate(const moorage::limits &limits) {
        first_fit::activate(limits);
        close(STDOUT_FILENO);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.closes_output", "1.0.0", closes_output)
