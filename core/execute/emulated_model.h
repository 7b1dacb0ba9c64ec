// emulated_model.h - real tokens in virtual time: computes a model here, with the times of a
// profile's hardware.
//
// The emulator keeps the time. The arithmetic runs on the CPU of this machine, outside that time.
// Experts are computed together when the layer ends, or when a prediction is asked for: only then
// does anything depend on them.
#pragma once

#include <vector>

#include "core/execute/executor.h"
#include "core/execute/model_compute.h"

namespace moorage::core {

class emulated_model final : public executor {
public:
    // All borrowed. `small_model`: the experts' second version, or null.
    emulated_model(executor &emulator, model_compute &compute, const model_config &config,
                   const model *small_model)
        : emulator_(emulator),
          compute_(compute),
          experts_per_layer_(config.experts),
          intermediate_(config.moe_intermediate) {
        if (!small_model) return;
        small_experts_ = experts_of(*small_model);
        small_part_unit_ = small_model->config().part_unit;
    }

    const uint64_t *clock() const override { return emulator_.clock(); }
    void begin(const pass &tokens) override {
        compute_.begin(tokens);
        emulator_.begin(tokens);
    }
    void attention(uint32_t layer, const pass &tokens) override {
        compute_pending();
        compute_.run_attention(layer);
        layer_ = layer;
        emulator_.attention(layer, tokens);
    }
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override {
        compute_.route(chosen, weights);
    }
    void expert_on_device(const expert_work &work) override {
        add_expert(work);
        emulator_.expert_on_device(work);
    }
    void expert_on_cpu(const expert_work &work) override {
        add_expert(work);
        emulator_.expert_on_cpu(work);
    }
    bool predicts() const override { return emulator_.predicts(); }
    // The prediction is there at once, but nobody asks before the time it takes has passed.
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override {
        compute_pending();
        compute_.predict(layer, experts);
        emulator_.predict(layer, tokens, experts);
    }
    void move_top(const expert_work &work, uint64_t to_row) override {
        emulator_.move_top(work, to_row);
    }
    void divided() override { emulator_.divided(); }
    void hidden_states(uint32_t device, uint32_t tokens, bool back) override {
        emulator_.hidden_states(device, tokens, back);
    }
    void policies_took(uint64_t ns) override { emulator_.policies_took(ns); }
    busy_ns busy_of(uint32_t device) const override { return emulator_.busy_of(device); }
    void head(uint32_t tokens) override {
        compute_pending();
        compute_.run_head();
        emulator_.head(tokens);
    }
    void expect(uint32_t transfer) override { emulator_.expect(transfer); }
    void arrived(uint32_t transfer) override { emulator_.arrived(transfer); }
    void send(const link_piece &piece) override { emulator_.send(piece); }
    uint32_t pieces_at_once(uint32_t link) const override { return emulator_.pieces_at_once(link); }
    completion wait() override { return emulator_.wait(); }
    busy_ns busy() const override { return emulator_.busy(); }
    uint64_t stall_ns() const override { return emulator_.stall_ns(); }
    void charge(time_causes &causes) override { emulator_.charge(causes); }
    bool virtual_time() const override { return true; }
    bool unified_memory() const override { return emulator_.unified_memory(); }

private:
    // An expert counts once, whole: its bottom segment follows its top.
    void add_expert(const expert_work &work) {
        if ((work.segments & first_segment) == 0) return;
        const uint32_t expert = work.page % experts_per_layer_;
        if (work.version == 0)
            pending_experts_.push_back({expert, 0, intermediate_, nullptr});
        else
            pending_experts_.push_back(
                {expert, 0, intermediate_, small_experts_[work.page], small_part_unit_});
    }
    void compute_pending() {
        if (pending_experts_.empty()) return;
        compute_.run_experts(layer_, pending_experts_);
        pending_experts_.clear();
    }

    executor &emulator_;
    model_compute &compute_;
    uint32_t layer_ = 0, experts_per_layer_, intermediate_, small_part_unit_ = 0;
    std::vector<expert_call> pending_experts_;
    std::vector<const mlp_weights *> small_experts_;  // [pages]
};

}  // namespace moorage::core
