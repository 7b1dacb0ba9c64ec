// wire_reorders.cpp - a wire that lets every tenth event pass the one before it.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_reorders", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t poll(events polled_events, uint64_t wait_ns) {
        const uint32_t count = wire_base::poll(polled_events, wait_ns);
        const auto is_message = [&](uint32_t i) {
            return polled_events[i].kind == MOORAGE_WIRE_MESSAGE;
        };
        for (uint32_t i = 1; i < count; ++i)
            if (++seen_ % 10 == 0 && is_message(i) && is_message(i - 1))
                std::swap(polled_events[i], polled_events[i - 1]);
        return count;
    }

private:
    uint32_t seen_ = 0;
};
}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_reorders", "1.0.0", bad)
