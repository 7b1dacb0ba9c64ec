// wire_no_writable.cpp - a wire that says FULL and never WRITABLE.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_no_writable", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t poll(events polled_events, uint64_t wait_ns) {
        const uint32_t count = wire_base::poll(polled_events, wait_ns);
        const auto left =
            std::remove_if(polled_events.begin(), polled_events.begin() + count,
                           [](const auto &event) { return event.kind == MOORAGE_WIRE_WRITABLE; });
        return static_cast<uint32_t>(left - polled_events.begin());
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_no_writable", "1.0.0", bad)
