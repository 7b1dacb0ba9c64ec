// prints.cpp - breaks a rule: writes to standard output.
#include <cstdio>

#include "first_fit.hpp"

namespace {

class prints : public first_fit {
public:
    static constexpr moorage::about about{.name = "prints", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void activate(const moorage::limits &limits) {
        first_fit::activate(limits);
        std::printf("hello\n");
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.prints", "1.0.0", prints)
