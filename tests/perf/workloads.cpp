// workloads.cpp - small fixed pieces of work whose instructions are counted (tests/perf/README.md).
//
//   bin/perf_workloads                  their names
//   bin/perf_workloads emulator_step    one of them, once
//
// Each prepares its input and then calls measured_work(), the only function whose instructions
// tests/perf/instructions collects. One thread, fixed seeds, no clock.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/log.h"
#include "core/cache/replay.h"
#include "core/model/tokenizer.h"
#include "core/pipeline/run.h"
#include "tools/placement/placement_stage.h"
#include "tools/comparison/comparison.h"
#include "core/source/synth.h"

using work = std::function<void()>;

// By a name that callgrind can be told; neither inlined nor left by a jump.
#if defined(__clang__)
#define MEASURED gnu::noinline
#else
#define MEASURED gnu::noipa
#endif
extern "C" [[MEASURED]] void measured_work(const work &task) {
    task();
    asm volatile("" ::: "memory");
}

namespace {

using namespace moorage::core;

const std::filesystem::path root = MOORAGE_SOURCE_DIR;

[[noreturn]] void fail(const std::string &reason) {
    std::fprintf(stderr, "perf_workloads: %s\n", reason.c_str());
    std::exit(1);
}

template <class T>
T require_value(result<T> created) {
    if (!created) fail(created.failure().text);
    return std::move(created).value();
}

// A made-up trace in a file of this process, gone with it.
class trace_file {
public:
    explicit trace_file(const synth_options &options)
        : path_(std::filesystem::temp_directory_path() / "moorage-workload.XXXXXX") {
        std::string name = path_.string();
        const int opened = mkstemp(name.data());
        if (opened < 0) fail("no temporary file");
        close(opened);
        path_ = name;
        if (const status done = write_synthetic(options, path_); !done) fail(done.failure().text);
    }
    trace_file(const trace_file &) = delete;
    ~trace_file() { std::filesystem::remove(path_); }
    const std::filesystem::path &path() const { return path_; }

private:
    std::filesystem::path path_;
};

void replay_workload(const char *policy, const synth_options &options) {
    const trace_file file(options);
    const trace source = require_value(trace::open(file.path()));
    registry policies;
    if (const status done = policies.scan(registry::default_paths()); !done)
        fail(done.failure().text);
    replay_job job;
    job.cache_policy = require_value(policies.find(policy, "cache"));
    job.slots = source.layers() * source.experts() / 2;
    measured_work([&] { require_value(replay(source, nullptr, job)); });
}

run_config make_config(const std::filesystem::path &trace, const char *shape) {
    run_config config;
    config.file = "workload.toml";
    config.trace = trace;
    config.shape = shape;
    config.profile = "rtx_4090";
    config.cache.plugin = "lru";
    return config;
}

void run_workload(const synth_options &options, const char *shape,
                  const std::function<void(run_config &)> &change) {
    const trace_file file(options);
    run_config config = make_config(file.path(), shape);
    change(config);
    run_resources shared;
    if (const status done = shared.scan({}); !done) fail(done.failure().text);
    run_options emulation_options;
    emulation_options.optimum = false;
    measured_work([&] { require_value(run(config, shared, emulation_options)); });
}

const synth_options mixtral{.layers = 32, .experts = 8, .top_k = 2, .tokens = 1'000};

void replay_lru() {
    synth_options options = mixtral;
    options.tokens = 20'000;
    replay_workload("lru", options);
}

void replay_lfu() {
    synth_options options = mixtral;
    options.tokens = 8'000;
    replay_workload("lfu", options);
}

void replay_echo() {
    replay_workload("echo", {.layers = 24, .experts = 60, .top_k = 4, .tokens = 400, .reuse = 0.4});
}

void emulator_step() {
    run_workload(mixtral, "Mixtral-8x7B", [](run_config &config) { config.experts = 128; });
}

// As in emulator_perf.cpp: everything resident, every hook called.
void host_step() {
    synth_options options = mixtral;
    options.predictions = 4;
    run_workload(options, "Mixtral-8x7B", [](run_config &config) {
        config.experts = 256;
        config.dispatch.plugin = "cost";
        config.dispatch.params = {{"keep", 1e6, "workload"}};
        config.prefetch.plugin = "next_gate";
    });
}

// 256 experts, top-8, history and gate: orders are planned, sent, taken and given up again.
void prefetch_plan() {
    const synth_options options{.layers = 58,
                                .experts = 256,
                                .top_k = 8,
                                .tokens = 40,
                                .reuse = 0.5,
                                .predictions = 16,
                                .prediction_accuracy = 0.8};
    run_workload(options, "DeepSeek-V3", [](run_config &config) {
        config.experts = 58 * 64;
        config.buffer_experts = 16;
        config.cache.plugin = config.prefetch.plugin = "echo";
        config.dispatch.plugin = "overlap";
    });
}

void demo_decode() {
    run_config config;
    config.file = "workload.toml";
    config.model = root / "configs/demo";
    config.executor = "cpu";
    config.profile = "host";
    config.threads = 1;
    config.prompts = {"The President said"};
    config.max_tokens = 16;
    run_resources shared;
    if (const status done = shared.scan({}); !done) fail(done.failure().text);
    require_value(shared.open_model(config.model));
    measured_work([&] { require_value(run(config, shared, {})); });
}

void encode_text() {
    const auto demo_tokenizer =
        require_value(tokenizer::open(root / "configs/demo/tokenizer.json"));
    const std::string phrase =
        "Experts that do not fit in fast memory are moved: 128 of 256, 3.5 GB/s, na\u00efve or "
        "not.\n";
    std::string text;
    while (text.size() < 200'000) text += phrase;
    measured_work(
        [&] { demo_tokenizer->decode(require_value(demo_tokenizer->encode(text, {})), {}); });
}

// SlimCaching's setting, planned greedily and predicted.
void place() {
    const std::filesystem::path file = root / "configs/clusters/slimcaching.toml";
    run_config config = require_value(load_run_config(file, {}));
    registry policies;
    if (const status done = policies.scan(registry::default_paths()); !done)
        fail(done.failure().text);
    config.placement = {"slim_greedy", "workload", {}};
    const scene placed = require_value(make_scene(*config.cluster, file.parent_path()));
    measured_work([&] {
        const auto stage =
            require_value(placement_stage::open(config.placement, policies, placed, 1));
        predict(placed, require_value(stage->make(placed, {})));
    });
}

// Three systems with their files, their optimum and the table.
void compare() {
    run_resources shared;
    if (const status done = shared.scan({}); !done) fail(done.failure().text);
    const std::vector<override_value> few{{"run", "tokens", "100"}};
    measured_work([&] {
        comparison compared;
        for (const char *file :
             {"systems/hybrimoe.toml", "systems/freetoken.toml", "best_lossless.toml"}) {
            const run_config config = require_value(load_run_config(root / "configs" / file, few));
            compared.rows.push_back(
                {.report = require_value(run(config, shared, {})), .config = file});
        }
        if (to_text(compared).empty()) fail("no table");
    });
}

struct workload {
    std::string_view name;
    void (*run)();
};
constexpr workload workloads[] = {
    {"replay_lru", replay_lru},
    {"replay_lfu", replay_lfu},
    {"replay_echo", replay_echo},
    {"emulator_step", emulator_step},
    {"host_step", host_step},
    {"prefetch_plan", prefetch_plan},
    {"demo_decode", demo_decode},
    {"tokenizer", encode_text},
    {"place", place},
    {"compare", compare},
};

}  // namespace

int main(int argc, char **argv) {
    set_log_level(log_level::error);
    if (argc == 2)
        for (const workload &entry : workloads)
            if (entry.name == argv[1]) return entry.run(), 0;
    for (const workload &entry : workloads) std::printf("%s\n", entry.name.data());
    return argc == 1 ? 0 : 2;
}
