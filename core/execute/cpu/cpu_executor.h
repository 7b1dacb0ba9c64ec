// cpu_executor.h - the executor whose device is the CPU: real arithmetic, wall clock.
//
// Fast memory is an arena of slots in main memory, slow memory the mapped files of the model: a
// load copies an expert from one to the other on a thread of its own, while the arithmetic of the
// step runs on the pool. Experts that the dispatch policy leaves on the CPU are computed in place,
// from the mapping. Where all experts fit, nothing is copied at all (`in_place`): both memories are
// the same one then.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/memory_block.h"
#include "core/execute/cpu/cpu_model.h"
#include "core/execute/turns_executor.h"
#include "core/model/segment.h"
#include "core/store/arena.h"
#include "core/store/disk_reader.h"

namespace moorage::core {

struct cpu_executor_options {
    const model *of = nullptr;
    cpu_model *compute = nullptr;
    const arena *places = nullptr;
    uint32_t transfers_max = 0;
    bool in_place = false;  // experts are read where the model has them; loads copy nothing
    // The files are larger than memory: loads read them past the page cache (disk_reader.h), and
    // nothing is computed from the mapping.
    bool from_disk = false;
};

class cpu_executor final : public turns_executor {
public:
    // Everything in the options is borrowed. An error when the arena would take more memory than
    // the machine has, or experts are to come from disk that lie in no file.
    static result<std::unique_ptr<cpu_executor>> create(const cpu_executor_options &options);
    ~cpu_executor() override;

    const uint64_t *clock() const override { return &now_; }
    void begin(const pass &tokens) override;
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override;
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override;
    void send(const link_piece &piece) override;
    bool idle(uint32_t link) const override { return !links_[link].busy; }
    bool virtual_time() const override { return false; }
    bool unified_memory() const override { return options_.in_place; }

    std::string failure() const override { return failure_; }

    uint64_t memory_bytes() const { return arena_.bytes(); }

private:
    struct link_state {
        bool busy = false;  // from send() until its completion is handed out
        link_piece piece;
        std::byte *targets[2] = {nullptr, nullptr};  // of the top and the bottom segment
        uint32_t top_rows = 0;
        uint64_t started_ns = 0, ended_ns = 0;
        std::string failure = {};  // of a read
    };

    explicit cpu_executor(const cpu_executor_options &options);
    uint64_t elapsed_ns() const;
    uint64_t time_ns() const override { return elapsed_ns(); }
    void compute(std::span<const operation> experts) override;
    void compute(const operation &one) override;
    bool take_piece(completion &out) override;
    void wait_for_piece() override;
    void returns() override { now_ = elapsed_ns(); }
    mlp_weights view_of(const expert_work &work) const;
    void copy_loop();
    std::string copy(const link_state &link);
    std::string read(const segment_image &image, uint64_t begin, uint64_t end, std::byte *target);
    std::byte *address(uint32_t page, uint8_t segment) const;
    void move(const operation &work);
    const mlp_weights &expert_of(uint32_t page) const;

    cpu_executor_options options_;
    std::vector<uint32_t> moe_layers_;
    uint32_t experts_ = 0, intermediate_ = 0;
    uint64_t row_bytes_ = 0;  // of the arena
    memory_block arena_;
    std::chrono::steady_clock::time_point begun_;
    uint64_t now_ = 0;
    std::vector<uint32_t> predict_from_;  // experts of the prediction that is queued
    std::vector<expert_call> calls_;
    std::vector<mlp_weights> views_;

    std::unique_ptr<disk_reader> reader_;  // the copy thread's; null: loads copy from the mapping
    std::vector<segment_image::source> sources_;
    std::vector<disk_range> ranges_;
    std::string failure_;

    // Pieces on their way to the copy thread, one a link, and back.
    link_state links_[link_count];
    std::mutex mutex_;
    std::condition_variable wanted_, finished_;
    bool pending_[link_count] = {}, copied_[link_count] = {}, stop_ = false;
    std::thread copier_;
};

}  // namespace moorage::core
