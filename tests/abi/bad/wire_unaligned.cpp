// wire_unaligned.cpp - a wire whose messages begin at any address.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_unaligned", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t poll(events polled_events, uint64_t wait_ns) {
        const uint32_t count = wire_base::poll(polled_events, wait_ns);
        const std::lock_guard lock(guard());
        for (uint32_t i = 0; i < count; ++i) {
            const auto entry = lent_.find(polled_events[i].message);
            if (polled_events[i].kind != MOORAGE_WIRE_MESSAGE || entry == lent_.end()) continue;
            moved_.emplace_back(polled_events[i].bytes + 1);
            std::memcpy(&moved_.back()[1], polled_events[i].plugin_data, polled_events[i].bytes);
            polled_events[i].plugin_data = &moved_.back()[1];
        }
        return count;
    }

private:
    std::deque<std::vector<char>> moved_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_unaligned", "1.0.0", bad)
