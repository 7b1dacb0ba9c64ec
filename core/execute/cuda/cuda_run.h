// cuda_run.h - the executor on the GPU: queues, streams, events, completions.
//
// The caller's thread makes every CUDA call. Nothing waits for the device as a whole: an event
// stands at the end of each batch of launches, each piece of a link and each copy of activations,
// and wait() asks them in turn. In the decode loop nothing is allocated on the device.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "core/execute/cuda/cpu_experts.h"
#include "core/execute/cuda/cuda_device.h"
#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/cuda/forward.h"

namespace moorage::core::cuda {

// Only files compiled for the GPU make it.
extern template class forward<cuda_device>;

class cuda_run final : public executor, public pass_results {
public:
    explicit cuda_run(const cuda_executor_options &options);
    ~cuda_run() override;
    // Memory, weights, images. Once, before anything else.
    status prepare();
    uint64_t device_bytes() const { return device_bytes_; }
    uint64_t pinned_bytes() const { return experts_.bytes() + pinned_scratch_bytes_; }
    const std::string &device_name() const { return device_->name(); }

    const uint64_t *clock() const override { return &now_; }
    void begin(const pass &tokens) override;
    void attention(uint32_t layer, const pass &tokens) override;
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override;
    void expert_on_gpu(const expert_work &work) override;
    void expert_on_cpu(const expert_work &work) override;
    bool predicts() const override { return options_.limits.predict; }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override;
    void move_top(const expert_work &work, uint64_t to_row) override;
    void divided() override;
    void head(uint32_t tokens) override;
    void expect(uint32_t transfer) override { arrived_[transfer] = 0; }
    void arrived(uint32_t transfer) override { arrived_[transfer] = 1; }
    void send(const link_piece &piece) override;
    bool idle(uint32_t link) const override { return !links_[link].busy; }
    completion wait() override;
    busy_ns busy() const override { return busy_; }
    bool virtual_time() const override { return false; }
    bool unified_memory() const override { return false; }
    std::string failure() const override { return device_->notes().text(); }

    std::span<const float> router_logits() const override;
    std::span<const float> next_router_logits() const override;
    std::span<const float> logits() const override;

private:
    struct event_pair {
        cudaEvent_t begin = nullptr, end = nullptr;
    };
    struct operation {
        event_kind kind;
        expert_work work;
        uint32_t layer;
        uint64_t to_row = 0;  // of a move
    };
    // Launches under way that end together.
    struct batch {
        event_pair events;
        std::vector<completion> done;
        bool ahead = false;  // nobody has asked for it yet
    };
    struct link_state {
        bool busy = false;
        bool nothing = false;  // a piece without bytes to copy
        event_pair events;
    };

    status plan_memory(uint64_t &weights_bytes, uint64_t &buffers_bytes);
    status refuse(uint64_t weights_bytes, uint64_t buffers_bytes, uint64_t free_bytes) const;
    uint64_t arena_bytes() const { return options_.places->rows_total() * experts_.row_bytes(); }
    static uint32_t packing_threads();
    bool make_events();
    uint64_t elapsed_ns() const;
    std::byte *slot_address(uint32_t page, uint32_t segment) const;
    bool ready(const operation &next) const;
    void flush();
    void launch_part(event_kind kind, uint32_t layer);
    void run_ahead();
    bool adopt();
    void leave_ahead();
    void launch_move(const operation &move);
    void launch_experts();
    void launch_batch(uint32_t layer, std::span<const operation> work);
    batch &open_batch();
    void close_batch(batch &of);
    void copy_piece(const link_piece &piece, cudaStream_t stream);
    bool poll(completion &out);
    void watch(uint64_t &waiting_since_ns);
    bool poll_link(uint32_t which, completion &out);
    bool poll_batch();
    void poll_cpu();
    void join_cpu();
    bool passed(cudaEvent_t event);
    uint64_t between_ns(const event_pair &events);

    cuda_executor_options options_;
    std::vector<uint32_t> moe_layers_;
    uint32_t experts_count_, intermediate_;
    std::unique_ptr<cuda_device> device_;
    pinned_experts experts_;
    std::unique_ptr<cpu_experts> cpu_;
    device_weights weights_;
    forward_buffers buffers_;
    std::unique_ptr<forward<cuda_device>> compute_;
    uint64_t device_bytes_ = 0, pinned_scratch_bytes_ = 0;
    std::byte *slots_ = nullptr;                            // the arena
    float *cpu_inputs_ = nullptr, *cpu_outputs_ = nullptr;  // pinned

    std::chrono::steady_clock::time_point begun_;
    uint64_t now_ = 0, stalled_since_ = MOORAGE_NEVER;
    busy_ns busy_;
    std::vector<uint8_t> arrived_;
    link_state links_[link_count];
    std::deque<operation> queue_;  // not launched yet
    std::vector<batch> batches_;   // a ring
    size_t batch_first_ = 0, batch_count_ = 0;
    std::deque<completion> done_;           // not handed out yet
    std::vector<operation> run_, picked_;   // scratch of launch_experts()
    std::vector<expert_in_slot> in_slots_;  // scratch of launch_batch()
    uint32_t layer_ = 0, expected_ = 0, queued_ = 0;
    bool routed_ = false;            // the layer's experts may be queued
    bool ahead_ = false;             // what comes after the layer is launched, not yet asked for
    std::vector<completion> early_;  // of that, if it has ended

    std::vector<cpu_task> cpu_queue_;
    cudaEvent_t inputs_ready_ = nullptr, outputs_ready_ = nullptr;
    bool inputs_copied_ = false, outputs_pending_ = false;
    std::vector<float> equal_weights_;    // where the source has none
    std::vector<uint32_t> predict_from_;  // of the prediction that is queued
};

}  // namespace moorage::core::cuda
