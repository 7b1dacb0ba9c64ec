// wire_takes_too_long.cpp - a wire that takes messages longer than both sides do.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_takes_too_long",
                                          .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint32_t send(uint64_t connection, parts message, uint64_t user) {
        {
            const std::lock_guard lock(guard());
            if (const auto entry = connections_.find(connection); entry != connections_.end())
                entry->second.bytes_max = 16 << 20;
        }
        return wire_base::send(connection, message, user);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_takes_too_long", "1.0.0", bad)
