// toy_machine.h - a machine and a model with round figures, whose schedules can be worked by hand.
//
// attention of a layer 70 ns + hand-over 100 ns = gate after 170 ns; an expert of 100,000 bytes
// takes 100 ns on the GPU, 1,000 + 10,000 ns over the link, 500 + 2,000 ns on the CPU, 2,000 +
// 20,000 ns from disk; the head 10 ns.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/config/hardware.h"
#include "core/source/trace_write.h"

namespace toy {

using namespace moorage::core;

inline hardware_profile hardware() {
    hardware_profile profile;
    profile.id = "toy";
    device_profile &device = profile.device;
    device.name = "toy GPU";
    device.memory_bytes = 1'000'000'000;
    device.memory_bytes_per_s = 1000e9;
    device.flops_per_s = 1e18;
    device.sync_ns = 100;
    device.layer_ns = 50;
    profile.link = {"toy link", 10e9, 10e9, 1000};
    profile.node = {"toy node", 1'000'000'000, 1e12, 50e9, 1e18, 500};
    return profile;
}

inline model_shape shape(uint32_t layers, uint32_t experts, uint32_t top_k) {
    model_shape result;
    result.name = "toy";
    result.layers = result.moe_layers = layers;
    result.experts = experts;
    result.top_k = top_k;
    result.hidden = 5;
    result.vocabulary = 1000;
    result.weight_bytes = 2;
    result.expert_bytes = 100'000;
    result.dense_bytes = 10'000 + 20'000 * uint64_t{layers};  // head, layers
    result.non_expert_bytes = result.dense_bytes;
    return result;
}

// A folder that is removed at the end of the test.
class folder {
public:
    folder() {
        std::string name = (std::filesystem::temp_directory_path() / "moorage-toy-XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~folder() { std::filesystem::remove_all(path_); }
    std::filesystem::path operator/(const std::string &name) const { return path_ / name; }
    const std::filesystem::path &path() const { return path_; }
    void write(const std::string &name, const std::string &text) const {
        std::ofstream(path_ / name) << text;
    }

private:
    std::filesystem::path path_;
};

// The toy machine as profile files.
inline constexpr const char *device_toml = R"(kind = "device"
name = "toy GPU"
memory_bytes = 1_000_000_000
reserved_bytes = 0
memory_bytes_per_s = 1000e9
memory_efficiency = 1.0
flops_per_s = 1e18
flops_efficiency = 1.0
launch_ns = 0
sync_ns = 100
layer_ns = 50
attention_kernels = 0
expert_kernels = 0
unified_memory = false
link = "link.toml"
node = "node.toml"
[sources]
memory_bytes = "[G] toy"
reserved_bytes = "[G] toy"
memory_bytes_per_s = "[G] toy"
memory_efficiency = "[G] toy"
flops_per_s = "[G] toy"
flops_efficiency = "[G] toy"
launch_ns = "[G] toy"
sync_ns = "[G] toy"
layer_ns = "[G] toy"
attention_kernels = "[G] toy"
expert_kernels = "[G] toy"
unified_memory = "[G] toy"
)";
inline constexpr const char *link_toml = R"(kind = "link"
name = "toy link"
h2d_bytes_per_s = 10e9
d2h_bytes_per_s = 10e9
issue_ns = 1000
[sources]
h2d_bytes_per_s = "[G] toy"
d2h_bytes_per_s = "[G] toy"
issue_ns = "[G] toy"
)";
inline constexpr const char *node_toml = R"(kind = "node"
name = "toy node"
memory_bytes = 1_000_000_000
memory_bytes_per_s = 1e12
cpu_bytes_per_s = 50e9
cpu_flops_per_s = 1e18
cpu_issue_ns = 500
[sources]
memory_bytes = "[G] toy"
memory_bytes_per_s = "[G] toy"
cpu_bytes_per_s = "[G] toy"
cpu_flops_per_s = "[G] toy"
cpu_issue_ns = "[G] toy"
)";

inline constexpr const char *disk_toml = R"(kind = "disk"
name = "toy disk"
read_bytes_per_s = 5e9
issue_ns = 2000
[sources]
read_bytes_per_s = "[G] toy"
issue_ns = "[G] toy"
)";

// Writes all of them into `target`, and a model shape of the given size, named "toy".
inline void write_files(const folder &target, uint32_t layers, uint32_t experts, uint32_t top_k) {
    target.write("device.toml", device_toml);
    target.write("link.toml", link_toml);
    target.write("node.toml", node_toml);
    target.write("disk.toml", disk_toml);
    const auto number = [](uint64_t value) { return std::to_string(value); };
    // A KV cache of up to 10 tokens, 1 byte each, rounds up to the same 20 ns a layer.
    const uint64_t dense = 10'000 + 19'990 * uint64_t{layers};
    target.write("shape.toml",
                 "kind = \"model\"\nname = \"toy\"\naliases = []\nlayers = " + number(layers) +
                     "\nmoe_layers = " + number(layers) + "\nexperts = " + number(experts) +
                     "\ntop_k = " + number(top_k) +
                     "\nhidden = 5\nmoe_intermediate = 5000\nmatrices = 2\nweight_bytes = 2\n" +
                     "expert_bytes = 100_000\nnon_expert_bytes = " + number(dense) +
                     "\ndense_bytes = " + number(dense) +
                     "\nkv_token_layer_bytes = 1\nvocabulary = 1000\n" +
                     "[sources]\ngeometry = \"[G] toy\"\nsizes = \"[G] toy\"\n");
}

// A trace with the given choices, [token][layer][rank]. With `predict`, every layer's choice is
// known one layer before.
inline trace_data routing(const std::vector<std::vector<std::vector<uint16_t>>> &chosen,
                          uint32_t experts, std::vector<uint64_t> requests, bool predict) {
    trace_data data;
    data.tokens = chosen.size();
    data.layers = static_cast<uint32_t>(chosen[0].size());
    data.experts = experts;
    data.top_k = static_cast<uint32_t>(chosen[0][0].size());
    for (const auto &token : chosen)
        for (const auto &layer : token)
            data.chosen.insert(data.chosen.end(), layer.begin(), layer.end());
    if (predict) {
        data.predictions = data.top_k;
        data.predicted = data.chosen;
    }
    data.request_offsets = std::move(requests);
    data.metadata["model"] = "toy";
    return data;
}

}  // namespace toy
