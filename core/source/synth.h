// synth.h - synthetic traces: layered Zipf with reuse from token to token, domains and drift.
//
//   synth_options options{.layers = 32, .experts = 8, .top_k = 2, .tokens = 200'000};
//   status done = write_synthetic(options, "synthetic.safetensors");
//
// Every layer of every domain ranks its experts at random. Rank r (from 1) has weight 1 / (r +
// b)^a. The k experts of a token and layer are drawn by weight without replacement. Equal options
// give equal bytes on every machine. Options for further tensors do not change `experts`.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/base/result.h"
#include "core/source/trace_write.h"

namespace moorage::core {

struct synth_options {
    uint32_t layers = 32, experts = 8, top_k = 2;
    uint64_t tokens = 10'000;
    uint64_t requests = 1;  // of equal length, up to one token
    double a = 1, b = 0;
    double reuse = 0;  // probability of keeping each expert of the previous token of the request
    uint32_t domains = 1;  // request r has domain r mod domains
    double drift = 0;      // swaps of neighbours per ranking and token
    bool gate_scores = false;
    uint32_t predictions = 0;  // M; 0: none
    double prediction_accuracy =
        1;  // probability that a chosen expert keeps its place in the prediction
    uint64_t seed = 0;
};

// The error names the option, its value and its limits.
status check_options(const synth_options &options);
result<trace_data> synthesize(const synth_options &options);
status write_synthetic(const synth_options &options, const std::filesystem::path &path);

}  // namespace moorage::core
