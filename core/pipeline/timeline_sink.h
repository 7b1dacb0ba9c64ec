// timeline_sink.h - a run as rows of a timeline: work of devices and links, tokens and requests,
// evictions, and counters.
//
// Emulators show the work of their devices themselves, to the nanosecond (span()). On a real
// machine the pipeline reports completions (computed()). Everything else comes from the pipeline in
// both cases.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/causes.h"
#include "core/execute/operations.h"
#include "core/pipeline/run_events.h"
#include "core/report/timeline.h"
#include "core/source/source.h"

namespace moorage::core {

class policy_set;

class timeline_sink final : public span_sink, public run_events {
public:
    // Tokens whose time is shown: [first, second).
    using window = std::pair<uint64_t, uint64_t>;
    static constexpr window everything{0, UINT64_MAX};

    // `timeline` is borrowed. `experts`: of a layer. The device's rows are under `device`, its
    // host's rows under `host`.
    timeline_sink(timeline &timeline, uint32_t experts, std::string_view device = "GPU",
                  std::string_view host = "host", window tokens = everything);

    void span(track track_id, const char *kind, uint32_t layer, uint32_t page, uint64_t start_ns,
              uint64_t end_ns) override;

    void copied(const transfer_record &record, uint64_t bytes, uint64_t duration_ns,
                uint64_t now_ns) override;
    void computed(event_kind kind, uint32_t layer, uint32_t page, uint64_t duration_ns,
                  uint64_t now_ns) override;
    void pass_begins(const pass &pass, uint64_t tokens_done, uint64_t loaded_bytes,
                     uint64_t now_ns) override;
    void pass_ended(const pass &pass, const sums &now, uint64_t now_ns) override;
    void decided(const memories &memories, uint64_t now_ns) override;
    // From now on its policies are asked after every pass for facts about themselves. Borrowed.
    void ask_facts(const policy_set &policies) { policies_ = &policies; }

private:
    uint32_t track_of(track track);
    void show_span(uint32_t row, const char *kind, uint32_t layer, uint32_t page, uint64_t start_ns,
                   uint64_t end_ns);
    void show_requests(const pass &pass, uint64_t now_ns);
    void show_causes(const time_causes &causes, uint64_t now_ns);

    timeline &timeline_;
    uint32_t experts_;
    std::string device_, host_;
    window tokens_;
    uint32_t disk_ = MOORAGE_NONE, passes_, requests_, causes_, evictions_, resident_, hit_rate_,
             queue_, bandwidth_;
    uint32_t tracks_[4];
    uint64_t flows_ = 0, pass_ns_ = 0, pass_token_ = 0;
    sums previous_{};
    std::vector<uint64_t> page_flows_;  // [pages] the flow of its last transfer; 0: used since
    std::vector<uint8_t> present_;      // [pages] at the last step
    struct request {
        uint64_t number, begun_ns;
    };
    std::map<uint32_t, request> open_requests_;  // by stream
    const policy_set *policies_ = nullptr;
};

}  // namespace moorage::core
