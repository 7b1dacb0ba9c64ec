// wire_borrows.cpp - a wire that copies sent memory when the receiver polls, long after DONE.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_borrows", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t send(uint64_t connection, parts message, uint64_t user) {
        const uint32_t status = wire_base::send(connection, message, user);
        if (status != MOORAGE_WIRE_DONE || message[0].bytes < 8) return status;
        const std::lock_guard lock(guard());
        wire_base &peer = *connections_.at(connection).peer;
        late_copies().push_back(
            {peer_of(peer).lent_.rbegin()->second.data.get(), message[0].host_data});
        return status;
    }
    uint32_t poll(events polled_events, uint64_t wait_ns) {
        for (const auto &[target, source] : std::exchange(late_copies(), {}))
            std::memcpy(target, source, 8);
        return wire_base::poll(polled_events, wait_ns);
    }

private:
    static bad &peer_of(wire_base &peer) { return static_cast<bad &>(peer); }
    static std::vector<std::pair<uint64_t *, const void *>> &late_copies() {
        static std::vector<std::pair<uint64_t *, const void *>> copies;
        return copies;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_borrows", "1.0.0", bad)
