// golden_check.cpp - whole models on the GPU against their reference results: everything resident,
// then with few slots, split experts and the CPU's help; a line each, exit code 1 when one is off.
//
//   golden_check [--cpu | --fast] [--patience S] DIR...
//
// DIR: with golden.safetensors. --cpu: the same on the executor of the CPU, to check the check.
// --fast: caches in half precision and the library's products, as runs have them; logits may then
// be off by 1e-2, and models whose choice of experts turns on less (Phi-3.5-MoE's, Qwen2-MoE's) are
// not for it. --patience: seconds after which a GPU that completes nothing is given up.
#include <cstdio>
#include <string>

#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/cpu/golden_check.h"
#include "core/execute/cuda/cuda_executor.h"
#include "core/model/golden.h"

namespace {

using namespace moorage::core;

struct outcome {
    double error = 0;
    uint32_t greedy_equal = 0;
    std::string failure;
};

// What runs the passes, with what it borrows.
struct machine {
    std::unique_ptr<thread_pool> pool;
    std::unique_ptr<cpu_model> compute;
    std::unique_ptr<executor> where;
    const pass_results *results = nullptr;
};

result<machine> make_machine(const cuda_executor_options &options, bool on_cpu) {
    machine out;
    if (!on_cpu) {
        auto made = make_cuda_executor(options);
        if (!made) return made.failure();
        out.where = std::move(made->where);
        out.results = made->results;
        return {std::move(out)};
    }
    out.pool = std::make_unique<thread_pool>(options.threads);
    auto compute = cpu_model::create(*options.of, *out.pool, options.limits);
    if (!compute) return compute.failure();
    out.compute = std::move(*compute);
    out.results = out.compute.get();
    auto where = cpu_executor::create(
        {options.of, out.compute.get(), options.places, options.transfers_max, false});
    if (!where) return where.failure();
    out.where = std::move(*where);
    return {std::move(out)};
}

enum class precision { exact, fast, on_cpu };
struct request {
    precision mode = precision::exact;
    double patience_s = cuda_executor_options{}.patience_s;
};

outcome check(const model &of, const golden_data &golden, const drive_options &how,
              const request &asked) {
    outcome out;
    executor_drive drive(of, how);
    cuda_executor_options options;
    options.of = &of;
    options.places = &drive.places;
    options.limits = golden_limits(golden);
    options.transfers_max = drive.transfers_max();
    options.threads = 2;
    options.patience_s = asked.patience_s;
    options.exact = asked.mode != precision::fast;
    auto made = make_machine(options, asked.mode == precision::on_cpu);
    if (!made) return {0, 0, made.failure().text};
    drive.use(*made->where, *made->results);
    const auto report = check_golden(golden, drive, *made->results);
    if (!report) return {0, 0, report.failure().text};
    out.error = report->logits_error;
    out.greedy_equal = report->greedy_equal;
    return out;
}

bool check_directory(const std::string &directory, const request &asked) {
    auto opened = open_model(directory);
    if (!opened) {
        std::printf("%s\n", opened.failure().text.c_str());
        return false;
    }
    const model &of = **opened;
    auto golden = read_golden(directory, of.config());
    if (!golden) {
        std::printf("%s\n", golden.failure().text.c_str());
        return false;
    }
    const uint32_t experts = of.config().experts;
    const auto pages = static_cast<uint32_t>(of.config().moe_layers().size()) * experts;
    const bool can_split =
        top_rows(of.config().moe_intermediate, 0.5) < of.config().moe_intermediate;
    const struct {
        const char *name;
        drive_options options;
    } runs[] = {{"resident", {pages, 1, 0, false, 1}},
                {"half the experts of a layer", {experts / 2 + 1, 1, 0, false, 2}},
                {"split", {experts, can_split ? 0.5 : 1, 0, false, 3}},
                {"with the CPU", {experts / 2 + 1, 1, 0.5, false, 4}}};
    bool good = true;
    for (const auto &run : runs) {
        const outcome is = check(of, *golden, run.options, asked);
        const bool exact = asked.mode != precision::fast;
        const bool within = is.failure.empty() && is.error <= (exact ? golden_error_max : 1e-2) &&
                            (!exact || is.greedy_equal == golden->greedy.size());
        good = good && within;
        std::printf("%-4s %-18s %-28s logits error %.2e greedy %u of %zu %s\n",
                    within ? "ok" : "OFF", of.config().architecture.c_str(), run.name, is.error,
                    is.greedy_equal, golden->greedy.size(), is.failure.c_str());
    }
    return good;
}

}  // namespace

int main(int count, char **arguments) {
    request asked;
    std::vector<std::string> directories;
    for (int i = 1; i < count; ++i) {
        const std::string one = arguments[i];
        if (one == "--cpu")
            asked.mode = precision::on_cpu;
        else if (one == "--fast")
            asked.mode = precision::fast;
        else if (one == "--patience" && i + 1 < count)
            asked.patience_s = std::stod(arguments[++i]);
        else
            directories.push_back(one);
    }
    bool good = !directories.empty();
    for (const std::string &one : directories) good = check_directory(one, asked) && good;
    return good ? 0 : 1;
}
