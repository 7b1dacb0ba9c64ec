// memory_plan.cpp - counts experts, slots and segments, and says what will not go well.
#include "core/pipeline/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/text.h"
#include "core/cache/replay.h"
#include "core/model/weights.h"
#include "core/pipeline/pipeline.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

std::string size_text(uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

class planner {
public:
    planner(const memory_request &request, std::vector<std::string> &warnings)
        : request_(request),
          config_(*request.config),
          costs_(*request.costs),
          warnings_(warnings) {}
    result<memory_plan> operator()();

private:
    result<uint64_t> wanted_experts(uint64_t total_experts) const;
    result<uint64_t> counted_slots(uint64_t total_experts) const;
    result<uint64_t> counted_on_host(uint64_t total_experts) const;
    // The number of experts; or a share of all; or as many as fit into so many bytes.
    result<uint64_t> counted(std::string_view key, uint64_t total_experts,
                             std::optional<uint32_t> experts, double share,
                             std::optional<uint64_t> bytes) const;
    status plan_host(uint64_t total_experts);
    result<uint64_t> experts_on_device(uint64_t total_experts) const;
    void warn_of_size(size_t device);
    void warn_of_hits();
    size_t device_count() const { return std::max<size_t>(request_.devices.size(), 1); }
    const device_profile &device(size_t number) const {
        return request_.devices.empty() ? costs_.hardware().device
                                        : request_.devices[number].device;
    }
    uint64_t beside_bytes(size_t device) const;
    uint64_t room_bytes(size_t device) const;
    status divide_experts();
    void warn(std::string text) { warnings_.push_back(std::move(text)); }
    // The processor as the device, for real or emulated.
    bool on_host() const {
        const fast_memory memory = config_.runs_on().memory;
        return memory == fast_memory::host ||
               (memory == fast_memory::of_profile && costs_.hardware().device.is_host);
    }

    const memory_request &request_;
    const run_config &config_;
    const cost_model &costs_;
    std::vector<std::string> &warnings_;
    memory_plan plan_;
};

result<uint64_t> planner::counted(std::string_view key, uint64_t total_experts,
                                  std::optional<uint32_t> experts, double share,
                                  std::optional<uint64_t> bytes) const {
    if (experts) return uint64_t{*experts};
    const model_shape &shape = costs_.shape();
    const uint64_t count =
        bytes ? *bytes / shape.expert_bytes : share_of_experts(share, total_experts);
    if (count != 0) return count;
    if (!bytes)
        return error{format("{}: [memory] {} = \"{:.6g}%\" is less than one of the {} experts "
                            "of {}",
                            config_.file.string(), key, share * 100, total_experts, shape.name),
                     true};
    return error{format("{}: [memory] {} = {} is less than one expert of {} ({} bytes)",
                        config_.file.string(), key, *bytes, shape.name, shape.expert_bytes),
                 true};
}

result<uint64_t> planner::counted_slots(uint64_t total_experts) const {
    return counted(config_.bytes ? "bytes" : "experts", total_experts, config_.experts,
                   config_.experts_share, config_.bytes);
}

result<uint64_t> planner::counted_on_host(uint64_t total_experts) const {
    return counted(config_.host_bytes ? "host_bytes" : "host_experts", total_experts,
                   config_.host_experts, config_.host_experts_share, config_.host_bytes);
}

// The content of host memory. A processor computes from there; then host memory is the fast memory
// itself.
status planner::plan_host(uint64_t total_experts) {
    if (!config_.reads_disk()) return success();
    const std::string_view key = config_.host_bytes ? "host_bytes" : "host_experts";
    const auto held = counted_on_host(total_experts);
    if (!held) return held.failure();
    plan_.from_disk = on_host() && *held < total_experts;
    if (!on_host()) plan_.host_experts = static_cast<uint32_t>(std::min(*held, total_experts));
    if (on_host() && config_.sizes_cache())
        warn(
            format("[memory] {} is not used: the processor computes from host memory, which "
                   "{} describes",
                   config_.bytes ? "bytes" : "experts", key));
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
result<uint64_t> planner::wanted_experts(uint64_t total_experts) const {
    const model_shape &shape = costs_.shape();
    if (config_.reads_disk() && on_host()) return counted_on_host(total_experts);
    if (!config_.devices.experts.empty())
        return std::accumulate(config_.devices.experts.begin(), config_.devices.experts.end(),
                               uint64_t{0});
    if (config_.sizes_cache()) return counted_slots(total_experts);
    if (on_host()) return total_experts;
    if (config_.runs_on().memory == fast_memory::gpu) {
        if (device_count() == 1) return experts_on_device(total_experts);
        return error{format("{}: how many experts do the {} GPUs keep? say [memory] experts (of "
                            "all), bytes, or "
                            "device_experts (of each)",
                            config_.file.string(), device_count()),
                     true};
    }
    uint64_t fit = 0;
    for (size_t i = 0; i < device_count(); ++i) fit += room_bytes(i) / shape.expert_bytes;
    if (fit != 0) return std::min(total_experts, fit);
    return error{
        format("{}: no expert of {} fits on {} beside the {} of everything else; choose a "
               "larger device, or say [memory] experts",
               config_.file.string(), shape.name, device(0).name,
               human_bytes(static_cast<double>(device(0).reserved_bytes + beside_bytes(0))))};
}

// The first device holds everything but routed experts.
uint64_t planner::beside_bytes(size_t device) const {
    const model_shape &shape = costs_.shape();
    return (device == 0 ? shape.non_expert_bytes : 0) +
           uint64_t{plan_.slots_beside_cache()} * shape.expert_bytes;
}

// For cached experts.
uint64_t planner::room_bytes(size_t number) const {
    const device_profile &profile = device(number);
    const uint64_t beside = profile.reserved_bytes + beside_bytes(number);
    return profile.memory_bytes - std::min(profile.memory_bytes, beside);
}

// The experts that each device caches: as listed, or in proportion to its room.
status planner::divide_experts() {
    const size_t count = device_count();
    std::vector<uint64_t> room(count, 1), device_experts(count);
    for (size_t i = 0; i < count && count > 1; ++i) room[i] = room_bytes(i);
    const auto total_room = std::accumulate(room.begin(), room.end(), uint64_t{0});
    if (total_room == 0) std::fill(room.begin(), room.end(), 1);
    const uint64_t whole = total_room == 0 ? count : total_room;
    uint64_t left = plan_.experts;
    std::vector<uint64_t> rest(count);
    for (size_t i = 0; i < count; ++i) {
        left -= device_experts[i] = plan_.experts * room[i] / whole;
        rest[i] = plan_.experts * room[i] % whole;
    }
    for (; left != 0; --left) {
        const auto most = std::max_element(rest.begin(), rest.end());
        ++device_experts[static_cast<size_t>(most - rest.begin())];
        *most = 0;
    }
    if (!config_.devices.experts.empty())
        std::copy(config_.devices.experts.begin(), config_.devices.experts.end(),
                  device_experts.begin());
    if (std::find(device_experts.begin(), device_experts.end(), 0u) != device_experts.end())
        return error{
            format("{}: [memory] room for {} experts leaves one of {} devices without any; "
                   "give more, or list fewer [hardware] devices",
                   config_.file.string(), plan_.experts, count),
            true};
    plan_.slots = 0;
    const uint32_t pages = request_.layers * request_.experts;
    for (const uint64_t assigned : device_experts) {
        const auto experts = static_cast<uint32_t>(std::min<uint64_t>(assigned, pages));
        const auto slots = static_cast<uint32_t>(
            std::min(static_cast<double>(pages), std::floor(experts / plan_.share + 1e-9)));
        plan_.devices.push_back({experts, slots});
        plan_.slots += slots;
    }
    return success();
}

// As many as the GPU has room for beside everything else.
result<uint64_t> planner::experts_on_device(uint64_t total_experts) const {
    const uint64_t room = request_.gpu_room_bytes.value_or(0);
    const uint64_t beside = plan_.slots_beside_cache();
    const uint64_t fit = room / costs_.shape().expert_bytes;
    if (fit > beside) return std::min(total_experts, fit - beside);
    return error{
        format("{}: the GPU has {} for experts, and {} of {} beside the cache take more; "
               "lower [memory] buffer_experts, the batch or the context",
               config_.file.string(), human_bytes(static_cast<double>(room)), beside,
               human_bytes(static_cast<double>(costs_.shape().expert_bytes)))};
}

result<memory_plan> planner::operator()() {
    const model_shape &shape = costs_.shape();
    const uint64_t total_experts = uint64_t{request_.layers} * request_.experts;
    plan_.buffer_slots = config_.buffer_experts.value_or(request_.top_k);
    plan_.transfers_max = pipeline::transfers_for(
        request_.experts, plan_.buffer_slots * static_cast<uint32_t>(device_count()),
        config_.reads_disk());
    const auto asked = wanted_experts(total_experts);
    if (!asked) return asked.failure();
    if (*asked > total_experts)
        warn(format("[memory] room for {} experts, and {} has {}: none ever gives way to another",
                    *asked, shape.name, total_experts));
    plan_.experts = static_cast<uint32_t>(std::min(*asked, total_experts));
    if (const status planned = plan_host(total_experts); !planned) return planned.failure();
    plan_.rows = shape.moe_intermediate;
    plan_.top_rows = top_rows(shape.moe_intermediate, config_.split, shape.part_unit);
    plan_.share = static_cast<double>(plan_.top_rows) / shape.moe_intermediate;
    if (const status divided = divide_experts(); !divided) return divided.failure();
    if (config_.split != 1 && plan_.top_rows == shape.moe_intermediate)
        warn(
            format("[memory] split = {}: the {} rows of an expert of {} are not divided there, so "
                   "experts stay whole",
                   config_.split, shape.moe_intermediate, shape.name));
    plan_.in_place = on_host() && plan_.slots == total_experts && !plan_.split();
    const expert_parts parts = parts_of(shape.moe_intermediate, shape.part_unit);
    // An expert that is read into rows of host memory stays divided as it was.
    const bool stays_divided = config_.reads_disk() && config_.runs_on().memory == fast_memory::gpu;
    if (config_.per_layer && !plan_.in_place && parts.count() > 1 && !stays_divided)
        plan_.part_rows = parts.part;
    if (config_.per_layer && stays_divided)
        warn(
            format("[memory] sharing = \"per-layer\": executor {} reads experts from disk, so a "
                   "budget sizes layers but splits no experts otherwise than [memory] split",
                   config_.executor));
    for (size_t i = 0; i < device_count(); ++i) warn_of_size(i);
    warn_of_hits();
    return plan_;
}

void planner::warn_of_size(size_t number) {
    const model_shape &shape = costs_.shape();
    const device_profile &profile = device(number);
    const uint32_t experts = plan_.devices[number].experts, buffer = plan_.slots_beside_cache();
    const uint64_t rest = beside_bytes(number);
    const uint64_t needed = rest + uint64_t{experts} * shape.expert_bytes;
    const uint64_t usable =
        profile.memory_bytes - std::min(profile.memory_bytes, profile.reserved_bytes);
    if (needed > usable && !config_.runs_on().real) {
        const uint64_t fit = usable > rest ? (usable - rest) / shape.expert_bytes : 0;
        // To the byte where both would read alike.
        const bool exact = size_text(needed) == size_text(usable);
        plan_.misfit = format(
            "{} cached and {} buffered experts and the rest of {} take {}, and {} has {} usable: "
            "at most {} experts fit",
            experts, buffer, shape.name, exact ? with_commas(needed) + " bytes" : size_text(needed),
            profile.name, exact ? with_commas(usable) + " bytes" : size_text(usable), fit);
        warn(plan_.misfit);
    }
}

void planner::warn_of_hits() {
    const uint32_t working_set = request_.layers * request_.top_k;
    if (config_.per_layer || plan_.slots >= working_set) return;
    const bool never =
        plan_.slots <= slots_without_lru_hits(request_.layers, request_.top_k, order::token);
    warn(format(
        "{} slots are below one token's working set of {} experts ({} layers x top-{}): a shared "
        "lru hits {}; use per-layer sharing or more memory",
        plan_.slots, working_set, request_.layers, request_.top_k,
        never ? "exactly 0 %" : "next to nothing"));
}

}  // namespace

std::vector<uint32_t> memory_plan::device_experts() const {
    std::vector<uint32_t> experts;
    for (const share_of_device &device : devices) experts.push_back(device.experts);
    return experts;
}

std::vector<uint32_t> memory_plan::device_slots() const {
    std::vector<uint32_t> slots;
    for (const share_of_device &device : devices) slots.push_back(device.slots);
    return slots;
}

uint64_t share_of_experts(double share, uint64_t total_experts) {
    // The small addition keeps 10 % of 250 from becoming 24.
    return static_cast<uint64_t>(std::floor(share * static_cast<double>(total_experts) + 1e-9));
}

uint32_t memory_plan::slots_beside_cache() const { return buffer_slots + pipeline::staging_slots; }

result<memory_plan> plan_memory(const memory_request &request, std::vector<std::string> &warnings) {
    return planner(request, warnings)();
}

}  // namespace moorage::core
