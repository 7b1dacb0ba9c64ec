// wire_truncates.cpp - a wire that cuts messages at 64 KiB.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_truncates", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t poll(events polled_events, uint64_t wait_ns) {
        const uint32_t count = wire_base::poll(polled_events, wait_ns);
        for (uint32_t i = 0; i < count; ++i)
            if (polled_events[i].kind == MOORAGE_WIRE_MESSAGE)
                polled_events[i].bytes = std::min<uint64_t>(polled_events[i].bytes, 64 << 10);
        return count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_truncates", "1.0.0", bad)
