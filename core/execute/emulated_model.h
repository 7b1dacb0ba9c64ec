// emulated_model.h - real tokens in virtual time: computes a model here, with the times of a
// profile's hardware.
//
// The emulator keeps the time. The arithmetic runs on the CPU of this machine, outside that time.
// Experts are computed together when the layer ends, or when a prediction is asked for: only then
// does anything depend on them.
#pragma once

#include <vector>

#include "core/execute/cpu/cpu_model.h"
#include "core/execute/executor.h"

namespace moorage::core {

class emulated_model final : public executor {
public:
    // All borrowed. `small`: the experts' second version, or null.
    emulated_model(executor &time, cpu_model &compute, const model_config &of, const model *small)
        : time_(time),
          compute_(compute),
          experts_per_layer_(of.experts),
          intermediate_(of.moe_intermediate) {
        if (!small) return;
        small_ = experts_of(*small);
        small_unit_ = small->config().part_unit;
    }

    const uint64_t *clock() const override { return time_.clock(); }
    void begin(const pass &tokens) override {
        compute_.begin(tokens);
        time_.begin(tokens);
    }
    void attention(uint32_t layer, const pass &tokens) override {
        flush();
        compute_.attention(layer);
        layer_ = layer;
        time_.attention(layer, tokens);
    }
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override {
        compute_.route(chosen, weights);
    }
    void expert_on_gpu(const expert_work &work) override {
        note(work);
        time_.expert_on_gpu(work);
    }
    void expert_on_cpu(const expert_work &work) override {
        note(work);
        time_.expert_on_cpu(work);
    }
    bool predicts() const override { return time_.predicts(); }
    // The prediction is there at once, but nobody asks before the time it takes has passed.
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override {
        flush();
        compute_.predict(layer, experts);
        time_.predict(layer, tokens, experts);
    }
    void move_top(const expert_work &work, uint64_t to_row) override {
        time_.move_top(work, to_row);
    }
    void divided() override { time_.divided(); }
    void hidden_states(uint32_t device, uint32_t tokens, bool back) override {
        time_.hidden_states(device, tokens, back);
    }
    void policies_took(uint64_t ns) override { time_.policies_took(ns); }
    busy_ns busy_of(uint32_t device) const override { return time_.busy_of(device); }
    void head(uint32_t tokens) override {
        flush();
        compute_.head();
        time_.head(tokens);
    }
    void expect(uint32_t transfer) override { time_.expect(transfer); }
    void arrived(uint32_t transfer) override { time_.arrived(transfer); }
    void send(const link_piece &piece) override { time_.send(piece); }
    uint32_t pieces_at_once(uint32_t link) const override { return time_.pieces_at_once(link); }
    completion wait() override { return time_.wait(); }
    busy_ns busy() const override { return time_.busy(); }
    uint64_t stall_ns() const override { return time_.stall_ns(); }
    void charge(time_causes &to) override { time_.charge(to); }
    bool virtual_time() const override { return true; }
    bool unified_memory() const override { return time_.unified_memory(); }

private:
    // An expert counts once, whole: its bottom segment follows its top.
    void note(const expert_work &work) {
        if ((work.segments & first_segment) == 0) return;
        const uint32_t expert = work.page % experts_per_layer_;
        if (work.version == 0)
            experts_.push_back({expert, 0, intermediate_, nullptr});
        else
            experts_.push_back({expert, 0, intermediate_, small_[work.page], small_unit_});
    }
    void flush() {
        if (experts_.empty()) return;
        compute_.experts(layer_, experts_);
        experts_.clear();
    }

    executor &time_;
    cpu_model &compute_;
    uint32_t layer_ = 0, experts_per_layer_, intermediate_, small_unit_ = 0;
    std::vector<expert_call> experts_;
    std::vector<const mlp_weights *> small_;  // [pages]
};

}  // namespace moorage::core
