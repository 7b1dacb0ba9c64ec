// what_if_rows.cpp - the resources of a configuration, and its runs with more of each.
#include "tools/moorage/what_if_rows.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/resources.h"
#include "tools/moorage/output.h"
#include "tools/moorage/run_many.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

// In the order of resources. If the processor is the device, the first two belong to it.
constexpr std::array<std::string_view, resource_count> resource_words{
    "GPU compute", "GPU bandwidth",  "launch speed", "the link",
    "the CPU",     "host bandwidth", "the disk"};

bool has_resource(const run_config &config, resource which) {
    return which != resource::disk || config.reads_disk();
}

// Whole experts, at least one more or fewer.
uint32_t scaled(uint64_t count, double factor) {
    const double exact = factor * static_cast<double>(count) * (1 + (factor > 1 ? -1e-12 : 1e-12));
    return static_cast<uint32_t>(std::min(factor > 1 ? std::ceil(exact) : std::floor(exact), 4e9));
}

// The resolved value of a [memory] key of the run. None: the run holds all experts, or the key was
// not given.
std::optional<uint64_t> held_count(const run_report &base, const char *key) {
    const json &resolved = *base.config;
    if (!resolved.contains("memory")) return {};
    const json &count = resolved["memory"].value(key, json());
    return count.is_number_unsigned() ? count.get<uint64_t>() : std::optional<uint64_t>{};
}

// The configuration with `factor` as many experts; on each device, if each has a number of its own.
std::optional<run_config> with_memory(const run_config &config, const run_report &base,
                                      double factor) {
    const std::optional<uint64_t> experts = held_count(base, "experts");
    if (!experts) return {};
    run_config changed = config;
    for (uint32_t &count : changed.devices.experts) count = scaled(count, factor);
    if (config.devices.experts.empty()) {
        changed.experts = scaled(*experts, factor);
        changed.experts_share = 0;
        changed.bytes.reset();
    }
    return changed;
}

// The configuration with more experts in host memory; the others are on the disk.
std::optional<run_config> with_host_memory(const run_config &config, const run_report &base,
                                           double factor) {
    const std::optional<uint64_t> experts = held_count(base, "host_experts");
    if (!experts || !config.reads_disk()) return {};
    run_config changed = config;
    changed.host_experts = scaled(*experts, factor);
    changed.host_experts_share = 0;
    changed.host_bytes.reset();
    return changed;
}

}  // namespace

result<what_if> ask_what_if(const run_config &config, const run_report &base,
                            run_resources &shared) {
    if (config.cluster)
        return error{"--what-if: it is asked of one machine, and this configuration has a cluster",
                     true};
    if (!base.virtual_time)
        return error{format("--what-if: executor {} is real, and only emulated machines can have "
                            "more; add --set run.executor=emulator",
                            config.executor),
                     true};
    what_if what_if_result = what_if_of(base);
    if (what_if_result.base_ms <= 0)
        return error{"--what-if: this run has neither a first token nor one after it to be timed",
                     true};
    std::vector<run_config> configs;
    for (size_t i = 0; i < resource_count; ++i) {
        const auto which = static_cast<resource>(i);
        if (!has_resource(config, which)) continue;
        what_if_result.rows.push_back(
            {std::string(resource_names[i]), std::string(resource_words[i]), {}, {}});
        configs.push_back(config);
        configs.back().speed_factors[which] = what_if_result.factor;
    }
    const auto add_row = [&](std::string_view name, std::string_view words,
                             std::optional<run_config> changed) {
        if (!changed) return;
        what_if_result.rows.push_back({std::string(name), std::string(words), {}, {}});
        configs.push_back(std::move(*changed));
    };
    add_row("expert_memory", "memory for experts",
            with_memory(config, base, what_if_result.factor));
    add_row("host_memory", "host memory", with_host_memory(config, base, what_if_result.factor));
    run_many_options options;
    options.progress_label = "what if";
    options.optimum = false;
    options.own_routing = false;
    auto rows = run_many(configs, shared, options);
    if (!rows) return rows.failure();
    if (rows->signal != 0) end_interrupted(rows->signal);
    for (size_t i = 0; i < rows->rows.size(); ++i) {
        const run_outcome &row = rows->rows[i];
        if (row.report) what_if_result.rows[i].ms = figure_of(what_if_result, *row.report);
        if (!row.report) what_if_result.rows[i].reason = row.failure.reason;
        // A run that does not fit says so itself, once.
        if (row.report && base.misfit.empty()) what_if_result.rows[i].reason = row.report->misfit;
    }
    return what_if_result;
}

}  // namespace moorage::tool
