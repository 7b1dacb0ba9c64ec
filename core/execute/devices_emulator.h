// devices_emulator.h - several GPUs of one machine in virtual time: a queue for each, one host.
//
// The first GPU computes attention, head and its own experts, as in emulator.h. The others compute
// experts of their own memory. Hidden states go to them and come back as operations of their queue:
// over a link between the GPUs, or through host memory, which all copies and the CPU share
// (memory_flows.h). Such a copy is small and takes nothing from the link of loads. Loads on a
// device's own link slow the device (work_pace.h). Events at the same time are taken in the order:
// links by their numbers, hidden states, the CPU, the GPUs.
//
// Time is charged to the first GPU while it computes, otherwise to the first GPU that does. If none
// computes, it goes to the cause for which the step waits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/execute/emulated_prices.h"
#include "core/execute/links.h"
#include "core/execute/memory_flows.h"
#include "core/execute/stream_executor.h"
#include "core/execute/timed_executor.h"
#include "core/execute/work_pace.h"

namespace moorage::core {

class devices_emulator final : public stream_executor<devices_emulator, timed_executor> {
public:
    // transfers_max: ids of transfers are below it. Costs are borrowed, `sink` may be null.
    devices_emulator(const device_costs &costs, uint32_t transfers_max, span_sink *sink);

    bool predicts() const override { return true; }
    void expert_on_device(const expert_work &work) override {
        queue_work<event_kind::device_expert>(stream_of(work.device), work);
    }
    void move_top(const expert_work &work, uint64_t to_row) override {
        queue_work<event_kind::moved>(stream_of(work.device), work, to_row);
    }
    void hidden_states(uint32_t device, uint32_t tokens, bool back) override;
    void send(const link_piece &piece) override;
    uint64_t due() const override;
    void catch_up() override { settle(); }
    std::optional<completion> step() override;
    bool unified_memory() const override { return false; }
    busy_ns busy_of(uint32_t device) const override { return device_busy_[device]; }

private:
    template <class, class>
    friend class stream_executor;
    using flows = basic_memory_flows<links_max + devices_max>;
    static constexpr uint32_t states_flow(uint32_t device) { return links_max + device; }

    stream &stream_of(uint32_t device) {
        return device == 0 ? device_ : further_streams_[device - 1];
    }
    const stream &stream_of(uint32_t device) const {
        return device == 0 ? device_ : further_streams_[device - 1];
    }
    uint32_t device_count() const { return static_cast<uint32_t>(device_busy_.size()); }
    // Whether its front computes or is being copied.
    bool is_occupied(uint32_t device) const {
        return stream_of(device).running() || flows_.is_under_way(states_flow(device));
    }

    uint64_t price_of_attention(const pass &tokens) const {
        return costs_.first.attention_ns(tokens.tokens.size(), tokens.context(),
                                         tokens.sequences()) +
               costs_.first.sync_ns();
    }
    uint64_t price_of_head(uint32_t tokens) {
        drawing_ns_ = costs_.first.draw_ns(tokens);
        return costs_.first.head_ns(tokens) + drawing_ns_;
    }
    uint64_t price_of(event_kind kind, const expert_work &work) const {
        return price_of_work(costs_.of_device(work.device), kind, work);
    }
    void queued(stream &stream);
    void opened();
    void settle() {
        if (now_ != accounted_ns()) settle_until_now();
    }
    void settle_until_now();
    cause waits_for() const;

    void start(uint32_t device);
    void change_pace(uint32_t link, bool busy);
    void start_cpu(uint64_t handover_ns);  // 0 if the pool was busy
    void finish(uint32_t device, uint64_t duration_ns, completion &done);
    void finish_cpu(completion &done);

    const device_costs costs_;
    flows flows_;
    std::vector<stream> further_streams_;  // the queues of the devices beyond the first
    std::vector<work_pace> paces_;         // [devices]
    std::vector<busy_ns> device_busy_;     // [devices]
    uint32_t pages_[links_max] = {};       // pages of the pieces under way
    uint64_t drawing_ns_ = 0;              // part of the head's price: drawing by the host
    uint32_t loading_links_ = 0;           // links towards devices with a piece under way
};

}  // namespace moorage::core
