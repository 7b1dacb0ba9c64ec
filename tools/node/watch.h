// watch.h - finds out which nodes are alive, by heartbeats on a thread that never computes.
//
// It has a wire and connections of its own, so neither a long computation here nor a long message
// there delays a beat. It pings each server with an address for it every `beat_ns`. A server is
// dead if its connection is lost, or if it does not answer for `dead_after` beats. It stays dead
// until it answers again. A server that was never reached is unknown, and nobody acts on that: it
// may have no such address. A stopped process is found this way, too. A process whose loop stands
// still is alive; the deadlines of its calls find it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tools/node/clock_offset.h"
#include "tools/node/links.h"

namespace moorage::core {

enum class pulse : uint8_t { unknown, alive, dead };

class watch final : public link_events {
public:
    static constexpr uint64_t beat_ns_usual = 400'000'000, dead_after = 3;

    // Takes the wire. The plan's addresses are those of heartbeats. The plan and the rest are
    // borrowed. `changed` is called on this object's thread when a server has died.
    watch(std::unique_ptr<wire> message_wire, const node_plan &plan, const node_identity &identity,
          std::function<void()> changed, uint64_t beat_ns = beat_ns_usual);
    ~watch() override;
    // Call this before begin().
    result<std::string> listen(const std::string &address) { return links_.listen(address); }
    void begin();

    // From any thread.
    pulse pulse_of(uint32_t server) const {
        return pulses_[server].load(std::memory_order_relaxed);
    }
    uint64_t round_trip_ns(uint32_t server) const {
        return trips_ns_[server].load(std::memory_order_relaxed);
    }

    // Time of its thread's last round.
    uint64_t turned_ns() const { return turned_ns_.load(std::memory_order_relaxed); }

    // Why it cannot be reached. Empty: it can, or nobody tried.
    std::string trouble(uint32_t server) const {
        const std::lock_guard lock(guard_);
        return troubles_[server];
    }

    // Whether it refuses this node for good (links::is_refused_by).
    bool is_refused_by(uint32_t server) const {
        const std::lock_guard lock(guard_);
        return refused_[server] != 0;
    }

    // How far its clock is ahead of this one's. error_ns 0: not known.
    clock_sample clock_of(uint32_t server) const {
        const std::lock_guard lock(guard_);
        return clocks_[server].best(steady_ns());
    }

private:
    void run();
    void beat(uint64_t now_ns);
    void set_pulse(uint32_t server, pulse now);
    void ready(link &peer) override;
    bool arrived(link &sender, const frame &message, uint64_t wire_message) override;
    void gone(link &peer) override;

    std::unique_ptr<wire> wire_;
    const node_plan &plan_;
    const node_identity identity_;
    links links_;
    const std::function<void()> changed_;
    const uint64_t beat_ns_;
    std::vector<std::atomic<pulse>> pulses_;       // [servers]
    std::vector<std::atomic<uint64_t>> trips_ns_;  // [servers] round trip of the latest answer
    std::vector<uint64_t> heard_ns_;               // [servers] time of the latest answer
    mutable std::mutex guard_;                     // guards what other threads read
    std::vector<clock_offset> clocks_;             // [servers]
    std::vector<std::string> troubles_;            // [servers]
    std::vector<uint8_t> refused_;                 // [servers]
    uint64_t next_beat_ns_ = 0;
    std::atomic<bool> stopping_ = false;
    std::atomic<uint64_t> turned_ns_ = steady_ns();
    std::thread thread_;
};

}  // namespace moorage::core
