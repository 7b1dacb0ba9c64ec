// measurement.h - one published figure: what was measured, on which hardware and software.
//
// Columns of a measurements file (docs/validate.md) are read by name. Missing columns count as
// empty. An empty cell means that nothing is published.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/validate/csv_table.h"

namespace moorage::core {

constexpr double unknown = -1;  // value of a number whose cell is empty

struct measurement {
    std::string place;       // "measurements.csv:12"
    std::string unreadable;  // the first invalid cell, and why; empty: none
    std::string id, group, quality, emulable;
    bool prompt = false;  // otherwise a step of decode
    double step_ms = unknown, prompt_tokens_per_s = unknown;

    std::string model_shape;
    double expert_bits = unknown, dense_bits = unknown, head_bits = unknown;
    double expert_bytes = unknown, dense_bytes = unknown, head_bytes = unknown;
    double top_k = unknown;

    std::string gpu, cpu_model, memory_type;
    double gpu_count = unknown, sockets = unknown, cores = unknown, threads = unknown;
    double memory_channels = unknown, memory_gb_s = unknown;
    std::string link_gen, link_width, link_basis, link_memory, copy_piece;
    double link_gb_s = unknown;

    std::string engine, engine_version, graphs;
    std::string residency, miss_action;
    double residency_value = unknown, host_layers = unknown, hit_rate = unknown;
    double context_tokens = unknown, measured_tokens = unknown, prompt_tokens = unknown;
    double batch = unknown, microbatch = unknown;

    // The time that validation compares: milliseconds of a step, or of a token of a prompt.
    // Meaningless if the row is unreadable.
    double time_ms() const { return prompt ? 1000 / prompt_tokens_per_s : step_ms; }
};

// Refuses a file without rows, without a column that every row needs, or whose ids do not name
// single rows.
result<std::vector<measurement>> read_measurements(const csv_table &table);

// Two rows of one group, and how much slower the second one was.
struct measured_pair {
    std::string pair, row_a, row_b, effect, strength;
    std::string unreadable;  // as for a row
    double slowdown = 0;     // b over a
    bool per_token = false;
};
result<std::vector<measured_pair>> read_pairs(const csv_table &table);

}  // namespace moorage::core
