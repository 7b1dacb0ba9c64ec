// cuda_run.h - the executor on the GPU: streams, events, completions.
//
// The caller's thread makes every CUDA call, all by way of cuda_device and its events. Nothing
// waits for the device as a whole: an event stands at the end of each batch of launches, each piece
// of a link and each copy of activations, and wait() asks them in turn. In the decode loop nothing
// is allocated on the device.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "core/execute/cuda/cpu_experts.h"
#include "core/execute/cuda/cuda_device.h"
#include "core/execute/cuda/cuda_event.h"
#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/cuda/forward.h"
#include "core/execute/load_link.h"
#include "core/execute/stream_executor.h"

namespace moorage::core::cuda {

// Only files compiled for the GPU make it.
extern template class forward<cuda_device>;

class cuda_run final : public stream_executor<cuda_run>, public pass_results {
public:
    explicit cuda_run(const cuda_executor_options &options);
    ~cuda_run() override;
    // Memory, weights, images. Once, before anything else.
    status prepare();
    uint64_t device_bytes() const { return device_bytes_; }
    uint64_t pinned_bytes() const { return experts_.bytes() + pinned_scratch_bytes_; }
    const std::string &device_name() const { return gpu_->name(); }

    const uint64_t *clock() const override { return &now_; }
    void begin(const pass &tokens) override;
    void attention(uint32_t layer, const pass &tokens) override;
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override;
    void expert_on_gpu(const expert_work &work) override;
    void expert_on_cpu(const expert_work &work) override;
    bool predicts() const override { return options_.limits.predict; }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override;
    void divided() override;
    void head(uint32_t tokens) override;
    void send(const link_piece &piece) override;
    uint32_t pieces_at_once(uint32_t link) const override {
        return link == link_h2d ? pieces_max : 1;
    }
    completion wait() override;
    bool virtual_time() const override { return false; }
    bool unified_memory() const override { return false; }
    std::string failure() const override { return gpu_->notes().text(); }

    std::span<const float> router_logits() const override { return compute_->router(layer_); }
    std::span<const float> next_router_logits() const override;
    std::span<const float> logits() const override;

private:
    friend stream_executor<cuda_run>;
    static constexpr size_t batches_max = 64;  // under way at one time; more wait in the queue
    // Two pieces at once: while the host sees the end of one the next crosses.
    static constexpr uint32_t pieces_max = 2;
    // Launches under way that end together.
    struct batch {
        event_pair events;
        std::vector<completion> done;
        bool ahead = false;  // nobody has asked for it yet
        bool gate = false;
        uint32_t telling = 0;  // the host is told before the end, with this number; 0: at the end
    };
    struct sent_piece {
        cudaStream_t stream = nullptr;
        event_pair events;
    };

    status plan_memory(uint64_t &weights_bytes, uint64_t &buffers_bytes);
    status refuse(uint64_t weights_bytes, uint64_t buffers_bytes, uint64_t free_bytes) const;
    uint64_t arena_bytes() const { return options_.places->rows_total() * experts_.row_bytes(); }
    static uint32_t packing_threads();
    uint64_t elapsed_ns() const;
    uint64_t hidden() const { return options_.of->config().hidden; }
    std::byte *slot_address(uint32_t page, uint32_t segment) const;
    sent_piece &piece(uint32_t number) { return pieces_[(piece_first_ + number) % pieces_max]; }
    void copy_piece(const link_piece &piece, cudaStream_t stream);

    // What stands at the end of a queue waits for the rest of the layer's: they share launches.
    void queued(stream &) {
        if (queued_ >= expected_) flush();
    }
    void settle();
    void account_idle();
    void account_batch(uint64_t duration_ns);
    void flush();
    template <class Body>
    batch &launch(Body &&body);
    void launch_part(event_kind kind, uint32_t layer);
    void launch_move(const operation &move);
    void launch_experts();
    void run_ahead();
    bool adopt();
    void leave_ahead();
    void join_cpu();
    bool poll(completion &out);
    bool poll_h2d(completion &out);
    bool poll_disk(completion &out);
    void poll_cpu();
    void poll_batch();
    void hand_out(batch &of, uint64_t duration_ns);
    void watch(uint64_t &waiting_since_ns);
    // Whose ends the GPU does not tell.
    bool others_work() const { return helper_->busy() || (disk_ && disk_->busy()); }

    cuda_executor_options options_;
    std::vector<uint32_t> moe_layers_;
    uint32_t experts_count_, intermediate_;
    std::unique_ptr<cuda_device> gpu_;
    pinned_experts experts_;
    std::unique_ptr<cpu_experts> helper_;
    std::unique_ptr<load_link> disk_;  // null: host memory holds everything
    device_weights weights_;
    forward_buffers buffers_;
    std::unique_ptr<forward<cuda_device>> compute_;
    uint64_t device_bytes_ = 0, pinned_scratch_bytes_ = 0;
    std::byte *slots_ = nullptr;                            // the arena
    float *cpu_inputs_ = nullptr, *cpu_outputs_ = nullptr;  // pinned

    std::chrono::steady_clock::time_point begun_;
    // Time as policies see it; when wait() returned; and what the host did while the GPU had work.
    uint64_t now_ = 0, returned_ns_ = 0, beside_ns_ = 0;
    std::array<sent_piece, pieces_max> pieces_;  // rings
    std::array<batch, batches_max> batches_;
    uint32_t piece_first_ = 0, piece_count_ = 0;
    size_t batch_first_ = 0, batch_count_ = 0;
    ring<completion> done_;                 // not handed out yet
    std::vector<operation> run_;            // scratch of launch_experts()
    std::vector<expert_in_slot> in_slots_;  // the same
    uint32_t expected_ = 0, queued_ = 0;    // experts of the layer
    bool routed_ = false;                   // they may be queued
    bool ahead_ = false;             // what comes after the layer is launched, not yet asked for
    std::vector<completion> early_;  // of that, if it has ended
    uint64_t gate_ns_ = 0;           // of the last attention that has ended; 0: none has
    uint32_t looked_ = 0;            // for what is told, since an event was asked for

    std::vector<cpu_task> tasks_;  // not handed to the CPU yet
    cuda_event inputs_ready_, outputs_ready_;
    bool inputs_copied_ = false, outputs_pending_ = false;
    std::vector<float> equal_weights_;    // where the source has none
    std::vector<uint32_t> predict_from_;  // of the prediction that is queued
};

}  // namespace moorage::core::cuda
