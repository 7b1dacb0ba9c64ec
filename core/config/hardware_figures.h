// hardware_figures.h - figures of hardware, engines and models as plain structs. hardware.h reads
// them from files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moorage::core {

struct device_profile {
    std::string name;  // "NVIDIA RTX 4090"
    uint64_t memory_bytes = 0;
    uint64_t reserved_bytes = 0;     // not usable: context, display, fragmentation
    double memory_bytes_per_s = 0;   // theoretical peak
    double memory_efficiency = 1;    // share of it that matrix-vector kernels reach, (0, 1]
    double flops_per_s = 0;          // 16-bit tensor units, float32 accumulation, dense
    double flops_efficiency = 1;     // share of it that prefill kernels reach
    uint64_t launch_ns = 0;          // per kernel
    uint64_t sync_ns = 0;            // to hand the gate's result to the host, once a layer
    uint64_t layer_ns = 0;           // further fixed cost of a layer
    uint32_t attention_kernels = 0;  // launched per layer: attention, norms, gate, shared expert
    uint32_t expert_kernels = 0;     // launched per expert
    bool unified_memory = false;     // GPU and CPU read the same memory: loads copy nothing
    std::string link, node;          // defaults; empty: the link and node of the same file

    // Terms that a profile may omit.
    bool is_host = false;      // the device is the host's processor: the same cores compute
                               // everything, and slots are copies in main memory
    double compute_share = 1;  // is_host: computing keeps this share of its speed during a copy
    double copy_share = 1;     // is_host: a copy keeps this share of its speed during computing,
                               // (0, 1]
    uint64_t load_ns = 0;      // is_host: computing time lost to each copied piece
    uint64_t step_ns = 0;      // is_host: software's time in a layer step, without computing
    uint64_t wake_ns = 0;      // is_host: until the copying thread begins. If all threads wait for
                               // the piece, they copy it at once
    // While a copy to the device is on the link, computing on it takes (1 + this) times as long. A
    // multiple of 0.001. Not with is_host, which has shares.
    double busy_link_slowdown = 0;
    double logits_per_s = 0;         // logits that the host draws tokens from; 0: no cost
    double greedy_logits_per_s = 0;  // the same for the most probable token; 0: as logits_per_s
    uint64_t expert_ns = 0;          // further fixed cost of an expert
    uint64_t token_ns = 0;           // in a layer, for each token after the first
    uint64_t pass_ns = 0;            // fixed cost of a pass through all layers
    double tile_tokens = 0;          // n > 1 tokens of an expert take as long as n + this many
    // A pass or an expert with 2 to `few_tokens` tokens reads its weights once for all of them. The
    // tokens after the first add their operations at `few_flops_per_s` to the reading time, and
    // `few_token_ns` replaces token_ns.
    uint32_t few_tokens = 0;
    double few_flops_per_s = 0;  // above 0 if few_tokens is
    uint64_t few_token_ns = 0;
    double context_bytes_per_s = 0;  // rate of attention over cached keys and values, which then
                                     // comes after the weights; 0: at the memory's rate, together
                                     // with them
    uint64_t cache_bytes = 0;        // if the weights of a pass fit, they are read from the cache
    double cache_bytes_per_s = 0;    // at this rate; 0: there is no cache
    // Engines' figures are shares or multiples of these. 0: no engine can be used.
    double vector_flops_per_s = 0;  // 32-bit, outside the tensor units
    uint64_t kernel_ns = 0;         // of an empty kernel that follows another one
};

struct link_profile {
    std::string name;
    double h2d_bytes_per_s = 0;  // usable rate, large pinned copies
    double d2h_bytes_per_s = 0;
    uint64_t issue_ns = 0;  // per transfer
};

struct disk_profile {
    std::string name;
    double read_bytes_per_s = 0;  // of whole experts, with direct I/O, many blocks at a time
    uint64_t issue_ns = 0;        // per transfer, until its first byte
};

struct node_profile {
    std::string name;
    uint64_t memory_bytes = 0;
    double memory_bytes_per_s = 0;  // limit for all readers of host memory together
    double cpu_bytes_per_s = 0;     // rate of the CPU expert kernel alone
    double cpu_flops_per_s = 0;
    uint64_t cpu_issue_ns = 0;  // per expert: hand-over to the pool and back
    // Terms that a profile may omit. Engines' figures are shares of the first one.
    double memory_theory_bytes_per_s = 0;  // of one socket's channels; 0: an engine's experts on
                                           // the CPU are read at cpu_bytes_per_s
    uint32_t sockets = 1;
    uint32_t threads = 0;          // threads that compute experts; 0: enough of them
    uint64_t launch_ns = 0;        // host's time to launch a kernel
    uint64_t cpu_handover_ns = 0;  // engines only: to an idle pool and back
};

// Which computing overlaps with loading a layer's absent experts.
//   none: nothing
//   prefetch: the layer before, during loads of predicted experts; the layer's own experts wait for
//             all of its absent ones
//   layer: the layer's other experts
//   ahead: those and the layer before, whatever was predicted
enum class load_overlap : uint8_t { none, prefetch, layer, ahead };

// How a piece of software, moorage or another one, spends time on a machine: hw_profiles/engine. A
// layer launches kernels_per_product kernels for each of its weight products
// (model_shape::products). It reads its weights at memory_share of the memory's rate. The vector
// units unpack quantised weights. Several tokens add arithmetic. Loading an expert takes `copies`
// copies.
struct engine_profile {
    std::string name;  // empty: no engine is named, or the device's own figures apply
    std::vector<std::string> aliases;

    bool graph = false;              // a pass of one token is launched as one graph
    double kernels_per_product = 0;  // includes what belongs to it: norms, quantising, additions
    uint64_t launch_gap_ns = 0;      // between kernels that are launched one by one
    uint64_t layer_ns = 0;           // software's own time in a layer
    uint64_t expert_loop_ns = 0;     // software's own time for each expert of a layer, used or not
    uint64_t expert_ns = 0;          // software's own time for each expert that the device computes
    uint64_t batch_layer_ns = 0;     // extra time in a layer if a pass has several tokens
    uint64_t sync_ns = 0;            // in a layer with absent experts: the host decides
    uint64_t prompt_ns = 0;          // once for a prompt

    double memory_share = 1;           // of the memory's rate, for large kernels
    double unpack_operations = 0;      // of the vector units, per weight below 16 bits
    double product_share = 1;          // of the tensor rate, for many tokens
    double tile_tokens = 0;            // products for n > 1 tokens take as long as for n + this
    double context_share = 1;          // of the memory's rate, for cached keys and values
    double context_product_share = 1;  // of the tensor rate, for attention's own products

    uint32_t copies = 1;          // copies per expert
    uint64_t copy_ns = 0;         // per copy, in addition to its bytes
    double copy_bytes_per_s = 0;  // limit, for example from pageable memory; 0: the link's rate
    load_overlap overlap = load_overlap::layer;
    uint32_t prompt_load_tokens = 0;  // passes of at least this many tokens load absent experts; in
                                      // smaller ones the CPU computes them; 0: as in decode
    bool prompt_loads_all = false;    // prompts load whole layers, whatever their tokens use
    bool prompt_overlaps = false;     // loads of prompts overlap with computing
    uint32_t microbatch = 0;          // tokens per pass of a prompt; 0: all
    double prompt_experts_share = 1;  // share of a layer's experts that its prompts ever use

    double cpu_memory_share = 1;    // of the channels' rate, for experts on the CPU
    double thread_bytes_per_s = 0;  // rate at which one thread reads experts; 0: does not depend on
                                    // threads
    double cpu_flops_share = 1;     // of the CPU's rate
    double socket_flops_share = 1;  // of each socket after the first
    uint64_t cpu_layer_ns = 0;      // to hand a layer to the CPU and back

    // The figures of devices, links and nodes are used unchanged. Those that the engine's file
    // gives (layer_ns, expert_ns, copy_bytes_per_s, overlap, cpu_layer_ns) apply on top.
    bool is_own() const { return name.empty(); }
};

struct hardware_profile {
    std::string id;  // as configured: "rtx_4090"
    device_profile device;
    link_profile link;
    node_profile node;
    disk_profile disk;  // no name: not given
    engine_profile engine;
    // For a device after the first: its link with the first one; h2d is towards this device.
    link_profile peer;
    bool peer_through_host = false;
};

// Sizes of a model. Bytes count `weight_bytes` per weight unless stated otherwise.
struct model_shape {
    std::string name;
    uint32_t layers = 0;  // all of them
    uint32_t moe_layers = 0;
    uint32_t experts = 0;  // routed experts per MoE layer
    uint32_t top_k = 0;
    uint32_t hidden = 0;
    uint32_t moe_intermediate = 0;
    uint32_t part_unit = 32;  // unit of the parts that an expert may be split into
                              // (model/weights.h)
    uint32_t matrices = 3;    // per expert: 3 if gated, else 2
    double weight_bytes = 2;
    uint64_t expert_bytes = 0;
    uint64_t non_expert_bytes = 0;      // everything but routed experts
    uint64_t dense_bytes = 0;           // part of non_expert_bytes that every token reads (not the
                                        // input embedding)
    uint64_t kv_token_layer_bytes = 0;  // KV cache of one token in one layer
    uint32_t vocabulary = 0;

    // Terms that a shape may omit. Bits of a weight, scales included; 0: 8 x weight_bytes.
    double expert_bits = 0, dense_bits = 0, head_bits = 0, embedding_bits = 0;
    uint32_t products = 8;           // products with weights in a layer: query, key, value, output,
                                     // gate, and three of experts; more with other attention or
                                     // shared experts
    double context_operations = 0;   // of a token with one cached token, in a layer
    uint64_t state_layer_bytes = 0;  // of a sequence of any length, in a layer; each pass reads and
                                     // writes it (linear attention)
    double bits(double stated_bits) const {
        return stated_bits != 0 ? stated_bits : 8 * weight_bytes;
    }

    // The second version of the experts (decision 0039): bytes of one, bits of its weights. Taken
    // from another shape. 0: there is none.
    uint64_t small_expert_bytes = 0;
    double small_expert_bits = 0;
    uint32_t versions() const { return small_expert_bytes == 0 ? 1 : 2; }
};

}  // namespace moorage::core
