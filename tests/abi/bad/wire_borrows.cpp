// wire_borrows.cpp - a wire that copies sent memory when the receiver polls, long after DONE.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_borrows", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t send(uint64_t to, parts of, uint64_t user) {
        const uint32_t did = wire_base::send(to, of, user);
        if (did != MOORAGE_WIRE_DONE || of[0].bytes < 8) return did;
        const std::lock_guard lock(guard());
        wire_base &peer = *connections_.at(to).peer;
        late().push_back({peer_of(peer).lent_.rbegin()->second.data.get(), of[0].host_data});
        return did;
    }
    uint32_t poll(events out, uint64_t wait_ns) {
        for (const auto &[into, from] : std::exchange(late(), {})) std::memcpy(into, from, 8);
        return wire_base::poll(out, wait_ns);
    }

private:
    static bad &peer_of(wire_base &of) { return static_cast<bad &>(of); }
    static std::vector<std::pair<uint64_t *, const void *>> &late() {
        static std::vector<std::pair<uint64_t *, const void *>> all;
        return all;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_borrows", "1.0.0", bad)
