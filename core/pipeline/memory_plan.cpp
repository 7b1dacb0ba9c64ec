// memory_plan.cpp - counts experts, slots and segments, and says what will not go well.
#include "core/pipeline/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/cache/replay.h"
#include "core/model/weights.h"
#include "core/pipeline/pipeline.h"

namespace moorage::core {

namespace {

class planner {
public:
    planner(const memory_request &of, std::vector<std::string> &warnings)
        : of_(of), config_(*of.config), costs_(*of.costs), warnings_(warnings) {}
    result<memory_plan> operator()();

private:
    result<uint64_t> wanted_experts(uint64_t all) const;
    result<uint64_t> counted(std::optional<uint32_t> experts, std::optional<uint64_t> bytes,
                             std::string_view key) const;
    status plan_host(uint64_t all);
    result<uint64_t> experts_on_gpu(uint64_t all) const;
    void warn_of_size();
    void warn(std::string text) { warnings_.push_back(std::move(text)); }
    // The processor as the device, for real or emulated.
    bool on_host() const {
        const fast_memory where = config_.runs_on().memory;
        return where == fast_memory::host ||
               (where == fast_memory::of_profile && costs_.hardware().device.is_host);
    }

    const memory_request &of_;
    const run_config &config_;
    const cost_model &costs_;
    std::vector<std::string> &warnings_;
    memory_plan plan_;
};

// `key`: of the bytes.
result<uint64_t> planner::counted(std::optional<uint32_t> experts, std::optional<uint64_t> bytes,
                                  std::string_view key) const {
    if (experts) return uint64_t{*experts};
    const model_shape &shape = costs_.shape();
    const uint64_t count = *bytes / shape.expert_bytes;
    if (count != 0) return count;
    return error{format("{}: [memory] {} = {} is less than one expert of {} ({} bytes)",
                        config_.file.string(), key, *bytes, shape.name, shape.expert_bytes),
                 true};
}

// What host memory holds. A processor computes from there, so then it is fast memory itself.
status planner::plan_host(uint64_t all) {
    if (!config_.reads_disk()) return success();
    const std::string_view key = config_.host_experts ? "host_experts" : "host_bytes";
    if (config_.runs_on().memory == fast_memory::gpu)
        return error{
            format("{}: [memory] {}: executor {} keeps every expert in pinned host memory; leave "
                   "it out, or choose executor cpu or emulator",
                   config_.file.string(), key, config_.executor),
            true};
    const auto held = counted(config_.host_experts, config_.host_bytes, key);
    if (!held) return held.failure();
    plan_.from_disk = on_host() && *held < all;
    if (!on_host()) plan_.host_experts = static_cast<uint32_t>(std::min(*held, all));
    if (on_host() && (config_.experts || config_.bytes))
        warn(
            format("[memory] {} is not used: the processor computes from host memory, which "
                   "{} describes",
                   config_.experts ? "experts" : "bytes", key));
    if (on_host() && config_.host_cache_given)
        warn(
            "[cache.host] is not used: the processor computes from host memory, whose policy is "
            "that of [cache]");
    if (!on_host() && *held < plan_.experts)
        warn(
            format("[memory] {} leaves host memory room for {} experts, and fast memory has room "
                   "for {}: what is evicted there is read from disk again",
                   key, *held, plan_.experts));
    return success();
}

// Whole experts that the cache is to hold: as configured, or as many as there is room for.
result<uint64_t> planner::wanted_experts(uint64_t all) const {
    const model_shape &shape = costs_.shape();
    if (config_.reads_disk() && on_host())
        return counted(config_.host_experts, config_.host_bytes, "host_bytes");
    if (config_.experts || config_.bytes) return counted(config_.experts, config_.bytes, "bytes");
    if (on_host()) return all;
    if (config_.runs_on().memory == fast_memory::gpu) return experts_on_gpu(all);
    const device_profile &device = costs_.hardware().device;
    const uint64_t beside = device.reserved_bytes + shape.non_expert_bytes +
                            uint64_t{plan_.beside()} * shape.expert_bytes;
    const uint64_t left = device.memory_bytes - std::min(device.memory_bytes, beside);
    const uint64_t fit = std::min(all, left / shape.expert_bytes);
    if (fit != 0) return fit;
    return error{format(
        "{}: no expert of {} fits on {} beside the {} of everything else; choose a "
        "larger device, or say [memory] experts",
        config_.file.string(), shape.name, device.name, human_bytes(static_cast<double>(beside)))};
}

// As many as the GPU has room for beside everything else.
result<uint64_t> planner::experts_on_gpu(uint64_t all) const {
    const uint64_t room = of_.gpu_room_bytes.value_or(0);
    const uint64_t beside = plan_.beside();
    const uint64_t fit = room / costs_.shape().expert_bytes;
    if (fit > beside) return std::min(all, fit - beside);
    return error{
        format("{}: the GPU has {} for experts, and {} of {} beside the cache take more; "
               "lower [memory] buffer_experts, the batch or the context",
               config_.file.string(), human_bytes(static_cast<double>(room)), beside,
               human_bytes(static_cast<double>(costs_.shape().expert_bytes)))};
}

result<memory_plan> planner::operator()() {
    const model_shape &shape = costs_.shape();
    const uint64_t all = uint64_t{of_.layers} * of_.experts;
    plan_.buffer_slots = config_.buffer_experts.value_or(of_.top_k);
    plan_.transfers_max =
        pipeline::transfers_for(of_.experts, plan_.buffer_slots, config_.reads_disk());
    const auto asked = wanted_experts(all);
    if (!asked) return asked.failure();
    if (*asked > all)
        warn(format(
            "[memory] room for {} experts, and {} has {}: all are resident after their first use",
            *asked, shape.name, all));
    plan_.experts = static_cast<uint32_t>(std::min(*asked, all));
    if (const status planned = plan_host(all); !planned) return planned.failure();
    plan_.rows = shape.moe_intermediate;
    plan_.top_rows = top_rows(shape.moe_intermediate, config_.split);
    plan_.share = static_cast<double>(plan_.top_rows) / shape.moe_intermediate;
    plan_.slots = static_cast<uint32_t>(
        std::min(static_cast<double>(all), std::floor(plan_.experts / plan_.share + 1e-9)));
    if (config_.split != 1 && plan_.top_rows == shape.moe_intermediate)
        warn(
            format("[memory] split = {}: the {} rows of an expert of {} are not divided there, so "
                   "experts stay whole",
                   config_.split, shape.moe_intermediate, shape.name));
    plan_.in_place = on_host() && plan_.slots == all && !plan_.split();
    const expert_parts parts = parts_of(shape.moe_intermediate);
    if (config_.per_layer && !plan_.in_place && parts.count() > 1) plan_.part_rows = parts.part;
    warn_of_size();
    return plan_;
}

void planner::warn_of_size() {
    const model_shape &shape = costs_.shape();
    const device_profile &device = costs_.hardware().device;
    const uint64_t buffer = uint64_t{plan_.beside()};
    const uint64_t rest = shape.non_expert_bytes + buffer * shape.expert_bytes;
    const uint64_t needed = rest + uint64_t{plan_.experts} * shape.expert_bytes;
    const uint64_t usable =
        device.memory_bytes - std::min(device.memory_bytes, device.reserved_bytes);
    if (needed > usable && !config_.runs_on().real) {
        const uint64_t fit = usable > rest ? (usable - rest) / shape.expert_bytes : 0;
        warn(format(
            "{} cached and {} buffered experts and the rest of {} take {}, and {} has {} usable: "
            "at most {} experts fit",
            plan_.experts, buffer, shape.name, human_bytes(static_cast<double>(needed)),
            device.name, human_bytes(static_cast<double>(usable)), fit));
    }
    const uint32_t working_set = of_.layers * of_.top_k;
    if (config_.per_layer || plan_.slots >= working_set) return;
    const bool never = plan_.slots <= slots_without_lru_hits(of_.layers, of_.top_k, order::token);
    warn(format(
        "{} slots are below one token's working set of {} experts ({} layers x top-{}): a shared "
        "lru hits {}; use per-layer sharing or more memory",
        plan_.slots, working_set, of_.layers, of_.top_k,
        never ? "exactly 0 %" : "next to nothing"));
}

}  // namespace

uint32_t memory_plan::beside() const { return buffer_slots + pipeline::staging_slots; }

result<memory_plan> plan_memory(const memory_request &request, std::vector<std::string> &warnings) {
    return planner(request, warnings)();
}

}  // namespace moorage::core
