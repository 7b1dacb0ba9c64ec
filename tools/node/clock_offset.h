// clock_offset.h - how far another node's clock is ahead of this one's, from the times of
// heartbeats.
//
// A beat says when it was sent, when it was received and answered, and when the answer came. If
// both ways take the same time, the middle between sent and heard equals the middle between
// received and answered, by the two clocks. So the error is at most half of the time on the way.
// The best of the latest beats is used. Older beats count as worse by the possible drift of clocks.
// Only for timelines: no deadline uses it.
#pragma once

#include <array>
#include <cstdint>

namespace moorage::core {

struct clock_sample {
    int64_t offset_ns = 0;  // the other's clock minus this one's
    uint64_t error_ns = 0;  // the most, if clocks do not drift; 0: nothing is known
    uint64_t taken_ns = 0;  // by this one's clock
};

// Requires: sent <= heard, received <= answered, by the two clocks.
constexpr clock_sample clock_sample_of(uint64_t sent_ns, uint64_t received_ns, uint64_t answered_ns,
                                       uint64_t heard_ns) {
    const auto outward_ns = static_cast<int64_t>(received_ns - sent_ns);
    const auto return_ns = static_cast<int64_t>(answered_ns - heard_ns);
    const uint64_t away_ns = heard_ns - sent_ns, held_ns = answered_ns - received_ns;
    const uint64_t way_ns = away_ns > held_ns ? away_ns - held_ns : 0;
    return {outward_ns / 2 + return_ns / 2 + (outward_ns % 2 + return_ns % 2) / 2, way_ns / 2 + 1,
            heard_ns};
}

class clock_offset {
public:
    static constexpr size_t samples = 64;
    static constexpr uint64_t drift_per_s_ns = 50'000;  // of two unsynchronised clocks

    void add(const clock_sample &sample) { kept_[count_++ % samples] = sample; }
    void forget() { count_ = 0; }
    clock_sample best(uint64_t now_ns) const {
        clock_sample best_sample;
        for (size_t i = 0; i < samples && i < count_; ++i) {
            clock_sample sample = kept_[i];
            sample.error_ns += (now_ns - sample.taken_ns) / 1'000 * drift_per_s_ns / 1'000'000;
            if (best_sample.error_ns == 0 || sample.error_ns < best_sample.error_ns)
                best_sample = sample;
        }
        return best_sample;
    }

private:
    std::array<clock_sample, samples> kept_{};
    uint64_t count_ = 0;
};

}  // namespace moorage::core
