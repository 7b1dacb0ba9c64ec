// what_if_rows.cpp - which resources a configuration has, and its runs with more of each.
#include "tools/moorage/what_if_rows.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/resources.h"
#include "tools/moorage/run_many.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

// In the order of resources; of a machine whose processor is the device the first two are its own.
constexpr std::array<std::string_view, resource_count> resource_words{
    "GPU compute", "GPU bandwidth",  "launch speed", "the link",
    "the CPU",     "host bandwidth", "the disk"};
constexpr std::string_view memory_name = "expert_memory", memory_words = "memory for experts";

bool has(const run_config &config, resource which) {
    return which != resource::disk || config.reads_disk();
}

// With a tenth more experts; none: it holds all of them, or each device has a number of its own.
std::optional<run_config> with_memory(const run_config &config, const run_report &base,
                                      double factor) {
    const json &resolved = *base.config;
    if (!config.devices.experts.empty() || config.reads_disk() || !resolved.contains("memory"))
        return {};
    const json &experts = resolved["memory"].value("experts", json());
    if (!experts.is_number_unsigned()) return {};
    run_config more = config;
    const auto held = experts.get<uint64_t>();
    more.experts =
        static_cast<uint32_t>(std::min(std::round(factor * static_cast<double>(held)), 4e9));
    more.bytes.reset();
    return more;
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
    what_if asked = what_if_of(base);
    if (asked.base_ms <= 0)
        return error{"--what-if: this run has neither a first token nor one after it to be timed",
                     true};
    std::vector<run_config> configs;
    for (size_t i = 0; i < resource_count; ++i) {
        const auto which = static_cast<resource>(i);
        if (!has(config, which)) continue;
        asked.rows.push_back(
            {std::string(resource_names[i]), std::string(resource_words[i]), {}, {}});
        configs.push_back(config);
        configs.back().faster[which] = asked.factor;
    }
    if (auto more = with_memory(config, base, asked.factor)) {
        asked.rows.push_back({std::string(memory_name), std::string(memory_words), {}, {}});
        configs.push_back(std::move(*more));
    }
    run_many_options options;
    options.what = "what if";
    options.optimum = false;
    options.own_routing = false;
    auto rows = run_many(configs, shared, options);
    if (!rows) return rows.failure();
    for (size_t i = 0; i < rows->size(); ++i) {
        const run_outcome &row = (*rows)[i];
        if (row.report) asked.rows[i].ms = figure_of(asked, *row.report);
        if (!row.report) asked.rows[i].why = row.failure.why;
        // A run that does not fit says so once, by itself.
        if (row.report && base.misfit.empty()) asked.rows[i].why = row.report->misfit;
    }
    return asked;
}

}  // namespace moorage::tool
