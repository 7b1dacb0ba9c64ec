// wire_frees_early.cpp - a wire that reuses lent memory at the next poll but one.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_frees_early", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t poll(events polled_events, uint64_t wait_ns) {
        {
            const std::lock_guard lock(guard());
            for (const uint64_t number : std::exchange(old_, std::exchange(new_, {})))
                if (const auto entry = lent_.find(number); entry != lent_.end())
                    std::memset(entry->second.data.get(), 0xee, entry->second.bytes);
        }
        const uint32_t count = wire_base::poll(polled_events, wait_ns);
        for (uint32_t i = 0; i < count; ++i)
            if (polled_events[i].kind == MOORAGE_WIRE_MESSAGE)
                new_.push_back(polled_events[i].message);
        return count;
    }

private:
    std::vector<uint64_t> old_, new_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_frees_early", "1.0.0", bad)
