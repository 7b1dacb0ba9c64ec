// hardware.h - hardware profiles and model shapes read from TOML: the figures costs are made of.
//
// A profile is three files: hw_profiles/device (the GPU), link (host to GPU) and node (CPU and host
// memory); `[hardware] disk` adds a fourth, the drive that experts beyond host memory are read
// from. `[hardware] profile` names the device; it names its usual link and node, which
// `[hardware] link` and `node` replace. Names are file names without .toml, found in the folder of
// their kind or in hw_profiles/measured; a path works too. Every figure has an entry of the same
// key under [sources] in its file, saying where it comes from. `[hardware] engine` names a file
// that says how a piece of software spends time on such a machine; without one it is this one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

struct device_profile {
    std::string name;  // "NVIDIA RTX 4090"
    uint64_t memory_bytes = 0;
    uint64_t reserved_bytes = 0;     // not usable: context, display, fragmentation
    double memory_bytes_per_s = 0;   // theory
    double memory_efficiency = 1;    // share of it that matrix-vector kernels reach, (0, 1]
    double flops_per_s = 0;          // 16-bit tensor, float32 accumulation, dense
    double flops_efficiency = 1;     // share of it that prefill kernels reach
    uint64_t launch_ns = 0;          // per kernel
    uint64_t sync_ns = 0;            // per hand-over of the gate's result to the host, once a layer
    uint64_t layer_ns = 0;           // further fixed cost of a layer
    uint32_t attention_kernels = 0;  // launched per layer: attention, norms, gate, shared expert
    uint32_t expert_kernels = 0;     // launched per expert
    bool unified_memory = false;     // GPU and CPU read the same memory: loads copy nothing
    std::string link, node;          // defaults; empty: the link and node of the same file

    // Terms that a profile may leave out.
    bool is_host = false;      // the device is the host's processor: one set of cores computes
                               // everything, and slots are copies in main memory
    double compute_share = 1;  // is_host: of its own speed that computing keeps beside a copy, and
    double copy_share = 1;     // the copy beside computing, (0, 1]
    uint64_t load_ns = 0;      // is_host: of each piece copied, taken from computing
    uint64_t step_ns = 0;      // is_host: of the software in a layer step beside what it computes
    uint64_t wake_ns = 0;      // is_host: until the thread that copies begins, unless all wait for
                               // the piece: they copy it at once
    // While a copy is on the link towards it, what it computes takes 1 + so many times as long; of
    // whole thousandths. Not with is_host, which has shares.
    double busy_link_slowdown = 0;
    double logits_per_s = 0;         // from which the host draws tokens; 0: they cost nothing
    double greedy_logits_per_s = 0;  // and takes the most probable; 0: at the same rate
    uint64_t expert_ns = 0;          // further fixed cost of an expert
    uint64_t token_ns = 0;           // in a layer, of each token beside the first
    uint64_t pass_ns = 0;            // fixed cost of a pass through all layers
    double tile_tokens = 0;          // several tokens of an expert take as long as so many more
    // A pass, or an expert, of 2 to so many tokens streams its weights past all of them: further
    // ones take their operations at this rate on top of the reading, and token_ns is few_token_ns.
    uint32_t few_tokens = 0;
    double few_flops_per_s = 0;  // above 0 where few_tokens is
    uint64_t few_token_ns = 0;
    double context_bytes_per_s = 0;  // at which attention works through cached keys and values,
                                     // after the weights; 0: at the memory's rate, together
    uint64_t cache_bytes = 0;        // weights of a pass that are no more come from the cache
    double cache_bytes_per_s = 0;    // and at this rate; 0: there is none
    // What engines' figures are shares or multiples of; 0: an engine cannot be named.
    double vector_flops_per_s = 0;  // 32-bit, outside the tensor units
    uint64_t kernel_ns = 0;         // of a kernel that has nothing to do, behind another one
};

struct link_profile {
    std::string name;
    double h2d_bytes_per_s = 0;  // usable, large pinned copies
    double d2h_bytes_per_s = 0;
    uint64_t issue_ns = 0;  // per transfer
};

struct disk_profile {
    std::string name;
    double read_bytes_per_s = 0;  // of whole experts, read directly, many blocks at a time
    uint64_t issue_ns = 0;        // per transfer: until its first byte
};

struct node_profile {
    std::string name;
    uint64_t memory_bytes = 0;
    double memory_bytes_per_s = 0;  // ceiling for everything that reads host memory together
    double cpu_bytes_per_s = 0;     // what the CPU expert kernel reads alone
    double cpu_flops_per_s = 0;
    uint64_t cpu_issue_ns = 0;  // per expert: hand-over to the pool and back
    // Terms that a profile may leave out; engines' figures are shares of the first.
    double memory_theory_bytes_per_s = 0;  // of one socket's channels; 0: an engine's experts on
                                           // the CPU are read at cpu_bytes_per_s
    uint32_t sockets = 1;
    uint32_t threads = 0;          // that compute experts; 0: enough of them
    uint64_t launch_ns = 0;        // of the host's time, per kernel it launches
    uint64_t cpu_handover_ns = 0;  // of an engine: to a pool that was idle, and back
};

// What computes while a layer's absent experts are loaded: nothing; the layer before, beside what
// was predicted, while the layer's own experts wait for all that it lacks; the layer's other
// experts; those and the layer before, whatever was predicted.
enum class load_overlap : uint8_t { none, prefetch, layer, ahead };

// How software spends time on a machine, whichever software it is: hw_profiles/engine. A layer
// takes kernels_per_product kernels for each of its weight products (model_shape::products), its
// weights are read at memory_share of the memory's rate and, where they are quantised, unpacked by
// the vector units; several tokens add arithmetic. An expert's load is `copies` copies.
struct engine_profile {
    std::string name;  // empty: none is named, or the device's own figures hold
    std::vector<std::string> aliases;

    bool graph = false;              // a pass of one token is launched as a whole
    double kernels_per_product = 0;  // with what goes along: norms, quantising, additions
    uint64_t launch_gap_ns = 0;      // between kernels that are launched one by one
    uint64_t layer_ns = 0;           // software's own time in a layer
    uint64_t expert_loop_ns = 0;     // software's own time for each expert of a layer, used or not
    uint64_t expert_ns = 0;          // software's own time for each expert that the device computes
    uint64_t batch_layer_ns = 0;     // more in a layer where a pass has several tokens
    uint64_t sync_ns = 0;    // in a layer some of whose experts are absent: the host decides
    uint64_t prompt_ns = 0;  // once for a prompt

    double memory_share = 1;           // of the memory's rate, large kernels
    double unpack_operations = 0;      // of the vector units, for a weight below 16 bits
    double product_share = 1;          // of the tensor rate, many tokens
    double tile_tokens = 0;            // an expert's products are as long as for so many more
    double context_share = 1;          // of the memory's rate, cached keys and values
    double context_product_share = 1;  // of the tensor rate, attention's own products

    uint32_t copies = 1;          // of an expert
    uint64_t copy_ns = 0;         // of each, beside its bytes
    double copy_bytes_per_s = 0;  // at most so fast: from pageable memory; 0: as fast as the link
    load_overlap overlap = load_overlap::layer;
    uint32_t prompt_load_tokens = 0;  // passes of so many tokens load what is absent; fewer: the
                                      // CPU computes it; 0: as in decode
    bool prompt_loads_all = false;    // whole layers, whatever their tokens use
    bool prompt_overlaps = false;     // beside computing
    uint32_t microbatch = 0;          // tokens of a pass of a prompt; 0: all
    double prompt_experts_share = 1;  // of a layer's, that its prompts ever use

    double cpu_memory_share = 1;    // of the channels' rate, experts on the CPU
    double thread_bytes_per_s = 0;  // that one thread reads of experts; 0: any number
    double cpu_flops_share = 1;     // of the CPU's
    double socket_flops_share = 1;  // of a socket beyond the first
    uint64_t cpu_layer_ns = 0;      // a layer's hand-over to the CPU and back

    // The figures of devices, links and nodes are used as they are; those that the file gives (of
    // layer_ns, expert_ns, copy_bytes_per_s, overlap, cpu_layer_ns) come on top.
    bool is_own() const { return name.empty(); }
};

struct hardware_profile {
    std::string id;  // as configured: "rtx_4090"
    device_profile device;
    link_profile link;
    node_profile node;
    disk_profile disk;  // without a name: none is given
    engine_profile engine;
    // Of a device beyond the first: between it and that one, h2d towards it.
    link_profile peer;
    bool peer_through_host = false;
};

// Sizes of a model; bytes at `weight_bytes` per weight unless said.
struct model_shape {
    std::string name;
    uint32_t layers = 0;  // all
    uint32_t moe_layers = 0;
    uint32_t experts = 0;  // routed, per MoE layer
    uint32_t top_k = 0;
    uint32_t hidden = 0;
    uint32_t moe_intermediate = 0;
    uint32_t part_unit = 32;  // of the parts that an expert may be split into (model/weights.h)
    uint32_t matrices = 3;    // per expert: 3 gated, 2 not
    double weight_bytes = 2;
    uint64_t expert_bytes = 0;
    uint64_t non_expert_bytes = 0;      // everything but routed experts
    uint64_t dense_bytes = 0;           // of them, read for every token (input embedding excluded)
    uint64_t kv_token_layer_bytes = 0;  // KV cache of one token in one layer
    uint32_t vocabulary = 0;

    // Terms that a shape may leave out. Bits of a weight, scales included; 0: 8 x weight_bytes.
    double expert_bits = 0, dense_bits = 0, head_bits = 0, embedding_bits = 0;
    uint32_t products = 8;           // by weights, in a layer: query, key, value, output, gate, and
                                     // three of experts; more with other attention, shared experts
    double context_operations = 0;   // of a token with one cached token, in a layer
    uint64_t state_layer_bytes = 0;  // of a sequence, whatever its length, in a layer: read and
                                     // written by each of its passes (linear attention)
    double bits(double given) const { return given != 0 ? given : 8 * weight_bytes; }

    // The second version of the experts (decision 0039): bytes of one, bits of its weights. Taken
    // from another shape; 0: there is none.
    uint64_t small_expert_bytes = 0;
    double small_expert_bits = 0;
    uint32_t versions() const { return small_expert_bytes == 0 ? 1 : 2; }
};

// Directories in whose hw_profiles/ and configs/models/ names are looked up, first match wins:
// those of $MOORAGE_DATA_PATH (colon-separated), then ../share/moorage beside the program's
// directory, then the tree the program was built from. The config's own directory goes before all
// of them.
std::vector<std::filesystem::path> data_roots();

struct hardware_choice {
    std::string profile, link, node;  // link and node may be empty
    std::filesystem::path base;       // directory of the config
    std::string disk = {};            // empty: none
    std::string peer = {};            // empty: devices reach each other through host memory
    std::string engine = {};          // empty: this one
};
result<device_profile> load_device_profile(const std::string &name,
                                           const std::filesystem::path &base);
result<link_profile> load_link_profile(const std::string &name, const std::filesystem::path &base);
result<node_profile> load_node_profile(const std::string &name, const std::filesystem::path &base);
result<engine_profile> load_engine_profile(const std::string &name,
                                           const std::filesystem::path &base);
// The machine as the engine uses it: what its figures are shares of is taken from the profile.
// Fails where that lacks something.
status use_engine(hardware_profile &of, const engine_profile &engine);
result<hardware_profile> load_hardware(const hardware_choice &choice);
// The devices of a machine: the first is `of`, the others are named. What they have besides is
// chosen as for it.
result<std::vector<hardware_profile>> load_devices(const hardware_choice &of,
                                                   const std::vector<std::string> &profiles);
// The loads of a processor whose memory does not hold everything are reads: its link is the disk.
// Requires: it has one.
void load_from_disk(hardware_profile &of);
// `name` is a file name without .toml ("mixtral_8x7b"), a path, or a published name or alias that a
// shape file gives ("Mixtral-8x7B"), in any case.
result<model_shape> load_shape(const std::string &name, const std::filesystem::path &base);
// The file that load_shape reads.
result<std::filesystem::path> find_shape(const std::string &name,
                                         const std::filesystem::path &base);
// The shape of a trace whose metadata names its model, checked against the trace's own counts:
// `layers` are the trace's, that is, MoE layers.
result<model_shape> shape_for_trace(const std::string &model_name, uint32_t layers,
                                    uint32_t experts, uint32_t top_k,
                                    const std::filesystem::path &base);
// Whether a shape fits a trace's counts, for a shape that [source] shape named.
status check_shape(const model_shape &shape, const std::string &model_name, uint32_t layers,
                   uint32_t experts, uint32_t top_k);
std::vector<std::string> known_profiles();
std::vector<std::string> known_shapes();

}  // namespace moorage::core
