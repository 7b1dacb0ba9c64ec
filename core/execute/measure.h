// measure.h - the measurements of a machine, and how they become a hardware profile.
//
//   const auto machine = measure_cpu({.seconds = 20});      // core/execute/cpu/measure.h
//   const measured_profile measured = profile_of(*machine);
//   write(to_toml(measured.profile, measured.sources, measured.notes));  // profile_writer.h
//
// All measuring code fills the same struct, so profile and table are made in one place. All times
// are seconds. Repeats give the lower quartile, because other programs only slow them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/config/profile_writer.h"
#include "core/model/weights.h"

namespace moorage::core {

// A duration by size: bytes, tokens, positions.
struct timed_sample {
    double amount = 0, seconds = 0;
};

// seconds = constant + amount * slope, with the smallest sum of squared relative errors. Neither is
// below zero: otherwise a line through the origin, or a level one, is fitted.
struct line_fit {
    double constant = 0, slope = 0;
};
// Requires: two samples of different amounts, all seconds above zero.
line_fit fit_line(std::span<const timed_sample> samples);
// The middle value; for an even number, the lower of the two. Reorders. Requires: not empty.
double median(std::vector<double> &values);
// The largest of the lowest quarter. Reorders. Requires: not empty.
double lower_quartile(std::vector<double> &values);

// A matrix times a vector (tokens = 1) or a few.
struct product_speed {
    weight_type type = usual_weights;
    uint32_t rows = 0, columns = 0, tokens = 1;
    double bytes = 0;  // of the weights
    double seconds = 0;
};

struct measure_options {
    double seconds = 20;   // approximate total; every measurement is repeated a few times in any
                           // case
    uint32_t threads = 0;  // threads of the arithmetic; 0: one a core
    // Approximate size of the expert that is copied and read from memory. It is far above the
    // caches.
    uint64_t expert_bytes = 67'500'000;
    std::function<void(const std::string &message)> progress = {};
};

struct measured_machine {
    std::string executor;   // "cpu", "cuda"
    std::string processor;  // "AMD EPYC", "NVIDIA H200"
    std::string date;       // "2025-06-30"
    uint32_t threads = 0;   // threads of the CPU's arithmetic
    bool is_host = false;   // the device is the CPU
    uint64_t device_bytes = 0, device_reserved_bytes = 0;
    uint64_t host_bytes = 0;

    // Bounds.
    double read_bytes_per_s = 0;       // rate of the device's memory, the best of many
    double operations_per_s = 0;       // float32 multiply-adds in registers, two operations each;
                                       // for a GPU, its matrix units with bf16
    double host_read_bytes_per_s = 0;  // rate of host memory, read by the CPU; the same if is_host

    // Copies of one piece, by its bytes.
    std::vector<timed_sample> to_device, to_host;
    // Computing an expert (on the CPU) and copying another at the same time. Each keeps a share of
    // its own speed. together_bytes_per_s counts the bytes of both.
    double compute_share = 1, copy_share = 1, together_bytes_per_s = 0;

    // Kernels of the device.
    std::vector<product_speed> products;
    std::vector<timed_sample> working_sets;   // a product repeated, by bytes of its weights
    std::vector<timed_sample> expert_tokens;  // an expert, by tokens ...
    double expert_bytes = 0;                  // bytes of its weights
    double expert_operations = 0;             // operations for a token
    double expert_memory_bytes_per_s = 0;     // experts of one token, read from memory
    std::vector<timed_sample> contexts;       // attention of one token, by positions looked back on
    double context_bytes = 0;                 // keys and values of one position, 16 bits a value

    // Whole tokens of small models through the pipeline: the time of a layer by the bytes it reads
    // (without its step_seconds if is_host). And how many experts a layer had, and the head's share
    // of the bytes. Empty: not run.
    std::vector<timed_sample> token_layers;
    uint32_t token_experts = 0, token_layer_count = 0;

    // The same with all tokens in one pass: the time of a token in a layer by its operations.
    std::vector<timed_sample> prefill_layers;
    // Passes of few tokens: the time of each token beside the first in a layer, by its operations.
    uint32_t few_tokens = 0;
    std::vector<timed_sample> few_layers;
    // Time of the host's software that neither computes nor waits: in each layer step where every
    // expert is there, and in addition for each load.
    double step_seconds = 0, load_seconds = 0;
    // If is_host: the time until the other thread begins its work.
    double wake_seconds = 0;
    // Drawing one token, and taking the most probable one, by the number of logits.
    std::vector<timed_sample> draws, picks;

    // Constants: the rest at zero bytes.
    double loop_seconds = 0;     // a kernel launch; on the CPU the entry of a parallel loop
    double expert_seconds = 0;   // for each expert in a loop
    double experts_seconds = 0;  // for a loop over experts, with the loop's entries or launches
    double layer_seconds = 0;    // for attention, norms, router of a layer
    double pass_seconds = 0;     // for a pass: embedding, last norm, head
    double sync_seconds = 0;     // hand-over of the gate's result; 0 if is_host
    // The CPU pool, if the device is another one.
    double cpu_expert_bytes_per_s = 0, cpu_operations_per_s = 0, cpu_expert_seconds = 0;
    // The data for fitting the first and the last: an expert of several that it computes at once
    // for one token, by bytes.
    std::vector<timed_sample> cpu_experts;
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
