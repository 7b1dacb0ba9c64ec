// kernel_alone.cpp - a run with the kernel and nothing else: a trace in memory, bundled policies
// and the emulator.
//
// Six tokens, one layer of four experts, one expert a token, two slots, least recently used. By
// hand:
//
//   token      0  1  2  3  4  5
//   expert     0  1  0  2  1  0
//   before     -  0  01 01 02 12     (experts in the cache)
//   result     m  m  h  m  m  m      (miss, hit)
//   evicted    -  -  -  1  0  2
//
// So 1 hit, 5 misses, 5 experts loaded. The exit code is 1 if a figure differs.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/dispatch/machine_table.h"
#include "core/execute/emulator.h"
#include "core/host/registry.h"
#include "core/pipeline/pipeline.h"

namespace {

using namespace moorage::core;

const std::vector<uint32_t> experts_of_tokens{0, 1, 0, 2, 1, 0};
constexpr uint32_t expert_count = 4, slot_count = 2, transfers_max = 64, expert_rows = 32;
constexpr uint64_t expert_bytes = 3 * 32 * 64 * 2;

class trace_in_memory final : public source {
public:
    uint32_t layers() const override { return 1; }
    uint32_t experts() const override { return expert_count; }
    uint32_t top_k() const override { return 1; }
    uint32_t tokens_max() const override { return 1; }
    uint32_t streams() const override { return 1; }
    uint32_t predictions_max() const override { return 0; }
    uint32_t offers() const override { return 0; }
    bool idle() override { return row_ == 0 || row_ == experts_of_tokens.size(); }
    bool scored_predictions() const override { return false; }
    bool next(pass &out) override {
        out.tokens.clear();
        if (row_ == experts_of_tokens.size()) return false;
        pass_token token;
        token.row = row_;
        token.position = static_cast<uint32_t>(row_);
        token.first = row_ == 0;
        ++row_;
        token.last = row_ == experts_of_tokens.size();
        if (!token.last) token.next_row = row_;
        out.phase = MOORAGE_DECODE;
        out.tokens.push_back(token);
        return true;
    }
    void route(const pass &tokens, uint32_t, uint32_t *chosen) override {
        chosen[0] = experts_of_tokens[tokens.tokens[0].row];
    }
    void weights(const pass &, uint32_t, float *out) override { out[0] = 1; }
    void gate_scores(const pass &, uint32_t, float *) override {}
    void weigh(const pass &, uint32_t, const uint32_t *, float *out) override { out[0] = 1; }
    uint32_t predict(uint64_t, uint32_t, uint32_t *, float *) override { return 0; }

private:
    uint64_t row_ = 0;
};

hardware_profile make_hardware() {
    hardware_profile hardware;
    hardware.id = "hand";
    hardware.device.memory_bytes = 1 << 20;
    hardware.device.memory_bytes_per_s = 1e9;
    hardware.device.flops_per_s = 1e12;
    hardware.link.h2d_bytes_per_s = hardware.link.d2h_bytes_per_s = 1e8;
    hardware.node.memory_bytes_per_s = hardware.node.cpu_bytes_per_s = 1e9;
    hardware.node.cpu_flops_per_s = 1e10;
    return hardware;
}

model_shape make_shape() {
    model_shape shape;
    shape.layers = shape.moe_layers = 1;
    shape.experts = expert_count;
    shape.top_k = 1;
    shape.hidden = 64;
    shape.moe_intermediate = expert_rows;
    shape.expert_bytes = expert_bytes;
    shape.non_expert_bytes = shape.dense_bytes = 4096;
    shape.vocabulary = 16;
    return shape;
}

// An active policy of the bundled ones.
class policy_maker {
public:
    policy_maker(const environment &services, const moorage_limits &limits)
        : services_(services), limits_(limits) {
        const std::vector<std::filesystem::path> folders{registry::bundled_folder()};
        scanned_ = registry_.scan(folders);
    }
    instance *make(const char *name, const char *kind) {
        if (!scanned_) return fail(scanned_.failure());
        const auto found = registry_.find(name, kind);
        if (!found) return fail(found.failure());
        auto created = instance::create(**found, {}, services_);
        if (!created) return fail(created.failure());
        instances_.push_back(std::move(created).value());
        const status activated = instances_.back()->activate(limits_);
        return activated ? instances_.back().get() : fail(activated.failure());
    }

private:
    static instance *fail(const error &reason) {
        std::fprintf(stderr, "%s\n", reason.text.c_str());
        std::exit(1);
    }

    const environment services_;
    const moorage_limits limits_;
    registry registry_;
    status scanned_ = success();
    std::vector<std::unique_ptr<instance>> instances_;
};

bool is_equal(const char *figure, uint64_t value, uint64_t expected) {
    std::printf("%-16s %8llu\n", figure, static_cast<unsigned long long>(value));
    if (value == expected) return true;
    std::printf("  %s: %llu expected\n", figure, static_cast<unsigned long long>(expected));
    return false;
}

}  // namespace

int main() {
    trace_in_memory trace;
    cost_model costs(make_hardware(), make_shape());
    moorage_costs policy_costs = costs.summary(1);
    emulator device(costs, transfers_max, nullptr);
    ledger memory(1, expert_count, {slot_count},
                  std::make_unique<arena>(1, expert_count, expert_rows, slot_count,
                                          pipeline::staging_slots + 1));
    memory.divide(std::vector<uint32_t>{expert_rows});
    fault_log faults;

    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = limits.top_k = limits.tokens_max = limits.requests_max = limits.pools =
        limits.segments = 1;
    limits.experts = limits.predictions_max = expert_count;
    limits.slots = slot_count;
    limits.transfers_max = transfers_max;
    limits.expert_bytes = expert_bytes;
    const machine_table table({costs, {}}, std::vector<uint32_t>{slot_count}, MOORAGE_NONE, {});
    table.show_in(limits);
    policy_maker policies({memory.view(), &policy_costs, device.clock(), nullptr, 0, &faults},
                          limits);

    const stages run_stages{
        policies.make("topk", "router"),       policies.make("lru", "cache"),
        policies.make("uniform", "budget"),    policies.make("none", "prefetch"),
        policies.make("load_all", "dispatch"), policies.make("direct", "transport")};
    run_report report;
    pipeline line({.pass_source = &trace,
                   .run_executor = &device,
                   .costs = &costs,
                   .policy_costs = &policy_costs,
                   .device_memories = memories(&memory),
                   .faults = &faults,
                   .policies = run_stages,
                   .slots = {slot_count},
                   .buffer_slots = 1,
                   .transfers_max = transfers_max,
                   .needs = 0});
    while (line.next_pass()) {
    }
    if (!faults.fatal().empty()) std::printf("%s\n", faults.fatal().c_str());
    line.finish(report);
    const bool equal = faults.fatal().empty() & is_equal("tokens", report.tokens, 6) &
                       is_equal("requested", report.experts.requested, 6) &
                       is_equal("hits", report.experts.hits, 1) &
                       is_equal("misses", report.experts.misses, 5) &
                       is_equal("loaded", report.experts.loaded, 5) &
                       is_equal("loaded bytes", report.bytes.h2d, 5 * expert_bytes);
    return equal ? 0 : 1;
}
