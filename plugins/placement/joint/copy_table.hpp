// copy_table.hpp - which device of which server holds which expert, for the joint policy.
//
// An expert is on a server at most once.
#pragma once

#include <bit>
#include <vector>

#include "terms.hpp"

namespace moorage::joint {

// The expert is then on `device` of `server`, or no longer there (none).
struct copy_change {
    uint32_t expert, server, device;
};
inline copy_change unchanged(uint32_t expert) { return {expert, none, none}; }

class copy_table {
public:
    explicit copy_table(const latency_model &latency)
        : latency_(latency),
          servers_(latency.cluster().servers),
          server_words_((servers_ + 63) / 64),
          placement_(size_t{latency.experts()} * servers_, none),
          copy_count_(latency.experts(), 0),
          server_bits_(size_t{latency.experts()} * server_words_, 0),
          free_bytes_(latency.cluster().host_device_bytes,
                      latency.cluster().host_device_bytes + latency.cluster().devices) {}

    // The device of the expert on the server, or none.
    uint32_t device_at(uint32_t expert, uint32_t server) const {
        return placement_[size_t{expert} * servers_ + server];
    }
    uint32_t device_after(const copy_change &change, uint32_t server) const {
        return server == change.server ? change.device : device_at(change.expert, server);
    }
    const std::vector<uint32_t> &placement() const { return placement_; }
    uint32_t copy_count(uint32_t expert) const { return copy_count_[expert]; }
    size_t count_all() const {
        size_t sum = 0;
        for (const uint32_t copies : copy_count_) sum += copies;
        return sum;
    }
    uint64_t bytes(uint32_t expert) const {
        return latency_.demand().host_expert_bytes[latency_.model_of(expert)];
    }
    // Below 0: the device holds more than it can.
    int64_t free_bytes(uint32_t device) const { return free_bytes_[device]; }

    // Calls `call(server, device)` for all holders of the expert after the change.
    template <class Each>
    void each_holder(const copy_change &change, Each call) const {
        const size_t row = size_t{change.expert} * server_words_;
        for (uint32_t word = 0; word < server_words_; ++word) {
            uint64_t left = server_bits_[row + word];
            if (change.server / 64 == word) {
                const uint64_t bit = uint64_t{1} << (change.server % 64);
                left = change.device == none ? left & ~bit : left | bit;
            }
            for (; left != 0; left &= left - 1) {
                const uint32_t server = word * 64 + static_cast<uint32_t>(std::countr_zero(left));
                call(server, device_after(change, server));
            }
        }
    }

    // The two halves of a change: its memory and number of copies, then its place.
    void account(const copy_change &change) {
        const uint32_t old_device = device_at(change.expert, change.server);
        const auto size = static_cast<int64_t>(bytes(change.expert));
        if (old_device != none) free_bytes_[old_device] += size, --copy_count_[change.expert];
        if (change.device != none) free_bytes_[change.device] -= size, ++copy_count_[change.expert];
    }
    void set(const copy_change &change) {
        const uint64_t bit = uint64_t{1} << (change.server % 64);
        uint64_t &word = server_bits_[size_t{change.expert} * server_words_ + change.server / 64];
        word = change.device == none ? word & ~bit : word | bit;
        placement_[size_t{change.expert} * servers_ + change.server] = change.device;
    }

private:
    const latency_model &latency_;
    const uint32_t servers_, server_words_;
    std::vector<uint32_t> placement_;    // [experts, servers] devices
    std::vector<uint32_t> copy_count_;   // [experts]
    std::vector<uint64_t> server_bits_;  // [experts, server words] servers that hold the expert
    std::vector<int64_t> free_bytes_;    // [devices]
};

}  // namespace moorage::joint
