// golden_check.cpp - whole models on the GPU compared with their reference results: everything
// resident, then with few slots, split experts and the CPU's help. Prints a line each. Exit code 1
// if one is off.
//
//   golden_check [--cpu | --fast] [--patience S] MODEL...
//
// MODEL: a directory with golden.safetensors, or a GGUF file with FILE.ref.safetensors beside it.
// --cpu: the same on the executor of the CPU, to check the check. --fast: caches in half precision
// and the library's products, as in runs. Logits may then be off by 1e-2. Do not use it for models
// whose choice of experts depends on less (Phi-3.5-MoE's, Qwen2-MoE's). --patience: gives up after
// so many seconds if the GPU completes nothing.
#include <cstdio>
#include <string>

#include "tests/gpu/golden_machine.h"

namespace {

using namespace moorage::core;

enum class precision { exact, fast, on_cpu };
struct request {
    precision mode = precision::exact;
    double patience_s = gpu_executor_options{}.patience_s;
};

bool check_directory(const std::string &directory, const request &asked) {
    auto opened = open_model(directory);
    if (!opened) {
        std::printf("%s\n", opened.failure().text.c_str());
        return false;
    }
    const model &golden_model = **opened;
    auto golden = read_golden(directory, golden_model.config());
    if (!golden) {
        std::printf("%s\n", golden.failure().text.c_str());
        return false;
    }
    const std::string name = golden_model.directory().stem().string();
    bool good = true;
    gpu_executor_options options;
    options.threads = 2;
    options.patience_s = asked.patience_s;
    options.exact = asked.mode != precision::fast;
    for (const golden_layout &run : golden_layouts(golden_model)) {
        const golden_outcome is = run_golden(golden_model, *golden, run.drive_setup, options,
                                             asked.mode == precision::on_cpu);
        const bool exact = asked.mode != precision::fast;
        const bool within = is.failure.empty() && is.error <= (exact ? golden_error_max : 1e-2) &&
                            (!exact || is.greedy_equal == golden->greedy.size());
        good = good && within;
        std::printf("%-4s %-24s %-28s logits error %.2e greedy %u of %zu %s\n",
                    within ? "ok" : "OFF", name.c_str(), run.name, is.error, is.greedy_equal,
                    golden->greedy.size(), is.failure.c_str());
    }
    return good;
}

}  // namespace

int main(int count, char **arguments) {
    request asked;
    std::vector<std::string> directories;
    for (int i = 1; i < count; ++i) {
        const std::string argument = arguments[i];
        if (argument == "--cpu")
            asked.mode = precision::on_cpu;
        else if (argument == "--fast")
            asked.mode = precision::fast;
        else if (argument == "--patience" && i + 1 < count)
            asked.patience_s = std::stod(arguments[++i]);
        else
            directories.push_back(argument);
    }
    bool good = !directories.empty();
    for (const std::string &directory : directories)
        good = check_directory(directory, asked) && good;
    return good ? 0 : 1;
}
