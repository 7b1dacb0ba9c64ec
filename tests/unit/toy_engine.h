// toy_engine.h - an engine's file with round figures, for the machine of toy_machine.h.
#pragma once

#include <string>

namespace toy {

// A layer of 8 products: 16 kernels.
inline std::string engine_text() {
    const std::string figures[][2] = {{"graph", "true"},
                                      {"kernels_per_product", "2.0"},
                                      {"launch_gap_ns", "5"},
                                      {"layer_ns", "\"7 ns\""},
                                      {"expert_loop_ns", "1"},
                                      {"batch_layer_ns", "40"},
                                      {"sync_ns", "100"},
                                      {"prompt_ns", "1000"},
                                      {"memory_share", "0.5"},
                                      {"unpack_operations", "4.0"},
                                      {"product_share", "0.5"},
                                      {"tile_tokens", "2.0"},
                                      {"context_share", "0.25"},
                                      {"context_product_share", "0.25"},
                                      {"copies", "3"},
                                      {"copy_ns", "100"},
                                      {"overlap", "\"none\""},
                                      {"prompt_load_tokens", "0"},
                                      {"prompt_loads_all", "false"},
                                      {"prompt_overlaps", "false"},
                                      {"microbatch", "0"},
                                      {"prompt_experts_share", "1.0"},
                                      {"cpu_memory_share", "0.5"},
                                      {"cpu_flops_share", "0.5"},
                                      {"socket_flops_share", "0.5"},
                                      {"cpu_layer_ns", "60"}};
    std::string text = "kind = \"engine\"\nname = \"toy\"\naliases = []\ncosts = \"engine\"\n";
    std::string sources = "\n[sources]\ncosts = \"[G]\"\n";
    for (const auto &[key, value] : figures) {
        text += key + " = " + value + "\n";
        sources += key + " = \"[G]\"\n";
    }
    return text + sources;
}

}  // namespace toy
