// needs_log.cpp - breaks a rule: takes for granted a service that a host may not have.
#include "first_fit.hpp"

namespace {

class needs_log : public first_fit {
public:
    static constexpr moorage::about about{.name = "needs_log", .summary = "breaks a rule"};
    using first_fit::first_fit;

    void activate(const moorage::limits &limits) {
        first_fit::activate(limits);
        const auto *log = host_.service<moorage_log>(MOORAGE_SERVICE_LOG);
        log->write(host_.table(), MOORAGE_LOG_INFO, "active");
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.needs_log", "1.0.0", needs_log)
