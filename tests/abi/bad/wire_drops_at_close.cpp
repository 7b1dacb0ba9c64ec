// wire_drops_at_close.cpp - a wire whose close drops messages that it had taken.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_drops_at_close",
                                          .summary = "breaks a rule"};
    using wire_base::wire_base;
    void close(uint64_t number, bool at_once) {
        {
            const std::lock_guard lock(guard());
            const auto entry = connections_.find(number);
            if (entry != connections_.end() && entry->second.peer)
                static_cast<bad *>(entry->second.peer)->drop(entry->second.peer_number);
        }
        wire_base::close(number, at_once);
    }

private:
    void drop(uint64_t number) {
        std::erase_if(events_, [&](const auto &event) {
            return event.kind == MOORAGE_WIRE_MESSAGE && event.connection == number;
        });
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_drops_at_close", "1.0.0", bad)
