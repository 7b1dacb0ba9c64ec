// cpu_executor.h - the executor whose device is the CPU: real arithmetic, wall clock.
//
// Fast memory is an arena of slots in main memory. Slow memory is the mapped files of the model. A
// load copies an expert from slow to fast memory on a thread of its own, while the pool computes
// the step. Experts that the dispatch policy leaves on the CPU are computed in place, from the
// mapping. If all experts fit, nothing is copied (`in_place`): both memories are then the same.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/memory_block.h"
#include "core/base/steady_time.h"
#include "core/execute/cpu/cpu_model.h"
#include "core/execute/load_link.h"
#include "core/execute/side_work.h"
#include "core/execute/turns_executor.h"
#include "core/store/arena.h"

namespace moorage::core {

struct cpu_executor_options {
    const model *source_model = nullptr;
    cpu_model *compute = nullptr;
    const arena *places = nullptr;
    uint32_t transfers_max = 0;
    bool in_place = false;  // experts are read where the model has them; loads copy nothing
    // The files are larger than memory: loads read them past the page cache (disk_reader.h), and
    // nothing is computed from the mapping.
    bool from_disk = false;
    side_work *beside = nullptr;         // null: nothing. Otherwise loads copy nothing (in_place)
    const model *small_model = nullptr;  // the experts' second version; null: there is none
};

class cpu_executor final : public turns_executor<cpu_executor> {
public:
    // Everything in the options is borrowed. An error if the arena needs more memory than the
    // machine has. Also an error if experts have to come from disk but are in no file.
    static result<std::unique_ptr<cpu_executor>> create(const cpu_executor_options &options);

    const uint64_t *clock() const override { return &now_; }
    void begin_run() override { begun_ns_ = steady_ns(); }
    void begin(const pass &tokens) override;
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override;
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override;
    void send(const link_piece &piece) override;
    bool virtual_time() const override { return false; }
    bool unified_memory() const override { return options_.in_place; }
    std::string failure() const override { return failure_; }

    uint64_t memory_bytes() const { return memory_.bytes(); }

private:
    template <class, class>
    friend class stream_executor;
    friend turns_executor;
    explicit cpu_executor(const cpu_executor_options &options);
    status take_slots();
    void compute(std::span<const operation> experts);
    void compute(const operation &next);
    void move(const operation &work);
    bool take_piece(completion &completed);
    bool take_beside(completion &completed);
    void wait_for_piece() {
        options_.beside ? options_.beside->wait() : link_->help(options_.compute->pool());
    }
    void returns() { now_ = time_ns(); }
    uint64_t time_ns() const { return steady_ns() - begun_ns_; }
    std::byte *row(uint64_t row) const { return memory_.data() + row * row_bytes_; }
    std::byte *address(uint32_t page, uint8_t segment) const;
    const mlp_weights &weights_of(const operation &expert) const {
        return *weights_[expert.version][expert.page];
    }

    cpu_executor_options options_;
    uint32_t experts_, intermediate_;
    uint64_t now_ = 0;
    std::vector<uint32_t> predict_from_;  // experts of the queued prediction
    std::vector<expert_call> calls_;
    std::vector<mlp_weights> views_;
    std::string failure_;
    std::vector<const mlp_weights *> weights_[2];  // [version][pages]
    uint32_t small_unit_ = 0;                      // part unit of the second version
    uint64_t row_bytes_ = 0;
    memory_block memory_;              // memory of the slots
    std::unique_ptr<load_link> link_;  // null: in place
    ring<completion> at_once_;         // pieces that copy nothing
    uint64_t begun_ns_;
};

}  // namespace moorage::core
