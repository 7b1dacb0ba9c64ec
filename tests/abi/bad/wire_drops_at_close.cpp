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
            const auto at = connections_.find(number);
            if (at != connections_.end() && at->second.peer)
                static_cast<bad *>(at->second.peer)->drop(at->second.peer_number);
        }
        wire_base::close(number, at_once);
    }

private:
    void drop(uint64_t number) {
        std::erase_if(events_, [&](const auto &one) {
            return one.kind == MOORAGE_WIRE_MESSAGE && one.connection == number;
        });
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_drops_at_close", "1.0.0", bad)
