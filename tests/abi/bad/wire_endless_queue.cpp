// wire_endless_queue.cpp - a wire that is never full.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_endless_queue", .summary = "breaks a rule"};
    using wire_base::wire_base;
    // Counts messages only when they are released.
    uint32_t send(uint64_t connection, parts message, uint64_t user) {
        {
            const std::lock_guard lock(guard());
            const auto entry = connections_.find(connection);
            if (entry != connections_.end() && entry->second.peer)
                static_cast<bad *>(entry->second.peer)->forget_held(entry->second.peer_number);
        }
        return wire_base::send(connection, message, user);
    }

private:
    void forget_held(uint64_t number) { connections_.at(number).held = 0; }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_endless_queue", "1.0.0", bad)
