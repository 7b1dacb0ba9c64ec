// config_fuzz.cpp - feeds any text to the readers of configurations, profiles and model shapes.
//
// The first byte chooses the reader. For a run's configuration, each zero byte begins a --set text.
// No files are read. Checks beside the sanitizers: an accepted configuration keeps its promises,
// and a refusal is one line of text.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/text.h"
#include "core/config/profile_file.h"
#include "core/config/run_config.h"
#include "core/host/registry.h"

using namespace moorage::core;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void check_refusal(const error &failure) {
    require(!failure.text.empty());
    require(failure.text.find('\n') == std::string::npos);
}

void check_cluster(const cluster_config &cluster) {
    require(!cluster.models.empty() && !cluster.servers.empty());
    for (const cluster_server &server : cluster.servers) {
        require(!server.name.empty() && server.gpus.empty() == (server.flops > 0));
        require(!server.gpus.empty() || server.expert_memory_bytes > 0);
        require(!cluster.radio || server.location.has_value());
    }
    for (const cluster_user &user : cluster.users) require(user.location && !user.workload.empty());
    for (const cluster_link &link : cluster.links) require(link.bits_per_s > 0);
    for (const cluster_workload &workload : cluster.workloads) {
        double sum = 0;
        for (const auto &[name, share] : workload.models) {
            require(std::isfinite(share) && share >= 0);
            sum += share;
        }
        require(std::fabs(sum - 1) < 1e-6);
        require(workload.models_per_user_max <= workload.models.size());
    }
}

void check_config(const run_config &config) {
    require(config.batch >= 1 && config.batch <= 4096);
    if (config.cluster) {
        check_cluster(*config.cluster);
    } else if (config.model.empty()) {
        require(config.experts.has_value() != config.bytes.has_value());
        require(!config.profile.empty() && !config.trace.empty());
    }
    for (const std::string_view kind : kinds)
        for (const setting &setting : config.stage(kind).params) {
            require(!setting.key.empty() && !setting.place.empty());
            if (const double *number = std::get_if<double>(&setting.value))
                require(std::isfinite(*number));
        }
}

void read_config(std::string_view input) {
    const std::vector<std::string> parts = split(input, '\0');
    std::vector<override_value> overrides;
    for (size_t i = 1; i < parts.size(); ++i) {
        if (const auto parsed = parse_override(parts[i])) overrides.push_back(*parsed);
        if (const auto parsed = parse_sweep(parts[i]))
            for (const std::string &value : parsed->values)
                overrides.push_back({parsed->section, parsed->key, value});
    }
    const auto config = parse_run_config(parts[0], "fuzz/run.toml", overrides);
    if (config)
        check_config(*config);
    else
        check_refusal(config.failure());
}

template <class Value>
void read_with(result<Value> (*parse)(std::string_view, std::string_view), std::string_view text) {
    const result<Value> parsed = parse(text, "fuzz.toml");
    if (!parsed) check_refusal(parsed.failure());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char *>(data) + 1, size - 1);
    switch (data[0] % 8) {
        case 0:
            read_with(parse_device, text);
            break;
        case 1:
            read_with(parse_link, text);
            break;
        case 2:
            read_with(parse_node, text);
            break;
        case 3:
            read_with(parse_shape, text);
            break;
        default:
            read_config(text);
            break;
    }
    return 0;
}
