// measure.h - what was measured of a machine, and how a hardware profile comes of it.
//
//   const auto machine = measure_cpu({.seconds = 20});      // core/execute/cpu/measure.h
//   const measured_profile made = profile_of(*machine);
//   write(to_toml(made.profile, made.sources, made.notes)); // core/config/profile_writer.h
//
// Whoever measures fills the same struct, so that profile and table are made in one place. All
// times are seconds; of repeats the lower quartile, since what else runs only ever slows them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/config/profile_writer.h"
#include "core/model/weights.h"

namespace moorage::core {

// How long something took, by its size: bytes, tokens, positions.
struct timed {
    double amount = 0, seconds = 0;
};

// seconds = constant + amount * slope, the sum of squared relative errors as small as it gets;
// neither is below zero (a line through the origin, or a level one, is fitted then).
struct line_fit {
    double constant = 0, slope = 0;
};
// Requires: two samples of different amounts, all seconds above zero.
line_fit fit_line(std::span<const timed> samples);
// The middle value, of an even number the lower one of the two. Reorders. Requires: not empty.
double median(std::vector<double> &values);
// The largest of the lowest quarter. Likewise.
double lower_quartile(std::vector<double> &values);

// A matrix times a vector (tokens = 1) or a few.
struct product_speed {
    weight_type type = usual_weights;
    uint32_t rows = 0, columns = 0, tokens = 1;
    double bytes = 0;  // of the weights
    double seconds = 0;
};

struct measure_options {
    double seconds = 20;   // about; every measurement is repeated a few times in any case
    uint32_t threads = 0;  // of the arithmetic; 0: one a core
    // Bytes of the expert that is copied and read from memory, about: far above the caches.
    uint64_t expert_bytes = 67'500'000;
    std::function<void(const std::string &what)> progress = {};
};

struct measured_machine {
    std::string executor;   // "cpu", "cuda"
    std::string processor;  // "AMD EPYC", "NVIDIA H200"
    std::string date;       // "2025-06-30"
    uint32_t threads = 0;   // of the CPU's arithmetic
    bool is_host = false;   // the device is the CPU
    uint64_t device_bytes = 0, device_reserved_bytes = 0;
    uint64_t host_bytes = 0;

    // Bounds.
    double read_bytes_per_s = 0;       // of the device's memory, the best of many
    double operations_per_s = 0;       // float32 multiply-adds in registers, two operations each;
                                       // of a GPU's matrix units with bf16
    double host_read_bytes_per_s = 0;  // of host memory, by the CPU; the same where is_host

    // Copies of one piece, by its bytes.
    std::vector<timed> to_device, to_host;
    // Computing an expert (on the CPU) and copying another at the same time: the share of its own
    // speed that each keeps, and the bytes of both.
    double compute_share = 1, copy_share = 1, together_bytes_per_s = 0;

    // Kernels of the device.
    std::vector<product_speed> products;
    std::vector<timed> working_sets;       // a product again and again, by bytes of its weights
    std::vector<timed> expert_tokens;      // an expert, by tokens ...
    double expert_bytes = 0;               // ... its weights
    double expert_operations = 0;          // ... and operations for a token
    double expert_memory_bytes_per_s = 0;  // experts of one token, read from memory
    std::vector<timed> contexts;           // attention of one token, by positions looked back on
    double context_bytes = 0;              // keys and values of one position, 16 bits a value

    // Whole tokens of small models through the pipeline, the time of a layer by the bytes it reads
    // (where is_host without its step_seconds), and of each how many experts a layer had and its
    // head's share of the bytes; empty: not run.
    std::vector<timed> token_layers;
    uint32_t token_experts = 0, token_layer_count = 0;

    // The same with all tokens in one pass: the time of a token in a layer by its operations.
    std::vector<timed> prefill_layers;
    // Passes of few tokens: the time of each beside the first in a layer, by its operations.
    uint32_t few_tokens = 0;
    std::vector<timed> few_layers;
    // Of the host's software, which computes and waits for nothing: in each layer step where every
    // expert is there, and more for each load.
    double step_seconds = 0, load_seconds = 0;
    // Where is_host: until the thread beside begins what it is given.
    double wake_seconds = 0;
    // Drawing one token, and taking the most probable, by the logits there are.
    std::vector<timed> draws, picks;

    // Constants: what is left at zero bytes.
    double loop_seconds = 0;     // a kernel launch; on the CPU the entry of a parallel loop
    double expert_seconds = 0;   // of each expert in a loop
    double experts_seconds = 0;  // of a loop over experts, the loop's entries or launches included
    double layer_seconds = 0;    // of attention, norms, router of a layer
    double pass_seconds = 0;     // of a pass: embedding, last norm, head
    double sync_seconds = 0;     // hand-over of the gate's result; 0 where is_host
    // The CPU pool, where the device is another one.
    double cpu_expert_bytes_per_s = 0, cpu_operations_per_s = 0, cpu_expert_seconds = 0;
    // What the first and the last are fitted to: an expert of several that it computes at once for
    // one token, by bytes.
    std::vector<timed> cpu_experts;
};

// The profile, a source for every figure, and the tables behind them as lines of text.
struct measured_profile {
    hardware_profile profile;
    profile_sources sources;
    std::vector<std::string> notes;
};
measured_profile profile_of(const measured_machine &machine);
// The tables alone, at most 80 columns.
std::vector<std::string> tables_of(const measured_machine &machine);

}  // namespace moorage::core
