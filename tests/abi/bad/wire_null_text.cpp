// wire_null_text.cpp - a wire whose events have null for an absent text.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_null_text", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t poll(events polled_events, uint64_t wait_ns) {
        const uint32_t count = wire_base::poll(polled_events, wait_ns);
        for (uint32_t i = 0; i < count; ++i)
            if (polled_events[i].kind == MOORAGE_WIRE_CONNECTED)
                polled_events[i].plugin_identity = nullptr;
        return count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_null_text", "1.0.0", bad)
