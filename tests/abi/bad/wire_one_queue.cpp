// wire_one_queue.cpp - a wire whose channels share one limit of held bytes.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_one_queue", .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t send(uint64_t connection, parts message, uint64_t user) {
        {
            const std::lock_guard lock(guard());
            for (auto &[number, entry] : connections_)
                if (number != connection && entry.full) return MOORAGE_WIRE_FULL;
        }
        return wire_base::send(connection, message, user);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_one_queue", "1.0.0", bad)
