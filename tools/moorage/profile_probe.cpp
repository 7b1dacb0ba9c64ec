// profile_probe.cpp - makes the models and runs them as any configuration is run.
#include "tools/moorage/profile_probe.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "core/base/text.h"
#include "core/execute/cpu/measure_models.h"
#include "core/execute/cpu/measure_timing.h"
#include "core/pipeline/run.h"
#include "core/report/time_parts.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

constexpr uint32_t layers = 6, top_k = 4, experts = 16, window = 96, runs_min = 20;

// A file that is gone when this is.
class passing_file {
public:
    explicit passing_file(const std::string &ending)
        : path_(std::filesystem::temp_directory_path() /
                format("moorage-probe-{}{}", ::getpid(), ending)) {}
    passing_file(const passing_file &) = delete;
    ~passing_file() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    const std::filesystem::path &path() const { return path_; }

private:
    std::filesystem::path path_;
};

std::string window_of_ids(uint32_t vocabulary) {
    std::string ids;
    for (uint32_t i = 0; i < window; ++i)
        ids += format("{}{}", i ? "," : "", (i * 2654435761u) % vocabulary);
    return "[[" + ids + "]]";
}

// A small model and the work it is given: a window of ids, decoded token by token.
class probe {
    // Of a token, or of a pass with all of them.
    static double time_of(const run_report &one) {
        return one.tpot_ms.p50 > 0 ? one.tpot_ms.p50 : one.ttft_ms.p50;
    }

public:
    explicit probe(uint32_t threads) : ids_(".json") {
        config_.profile = "host";
        config_.text = ids_.path();
        config_.window = window;
        config_.threads = threads;
    }
    status make(uint32_t hidden) {
        if (const status done = shared_.scan({}); !done) return done.failure();
        auto made = probe_model({layers, hidden, hidden / 2, experts, top_k, 4 * hidden});
        if (!made) return made.failure();
        shape_ = shape_of(**made, "");
        config_.model = "probe";
        shared_.keep(config_.model, std::move(made).value());
        return write_text(ids_.path(), window_of_ids(shape_.vocabulary));
    }
    const model_shape &shape() const { return shape_; }
    run_config &config() { return config_; }

    // Quickest of the runs that `seconds` have time for, by the median of its tokens: what else the
    // machine does only ever slows them.
    result<run_report> quickest(double seconds) {
        auto best = run(config_, shared_, {});
        const auto begun = std::chrono::steady_clock::now();
        for (uint32_t runs = 1; best && (runs < runs_min || seconds_since(begun) < seconds);
             ++runs) {
            auto next = run(config_, shared_, {});
            if (!next || time_of(*next) < time_of(*best)) best = std::move(next);
        }
        return best;
    }

private:
    run_resources shared_;
    passing_file ids_;
    run_config config_;
    model_shape shape_;
};

}  // namespace

// Of a token decoded: neither computing nor waiting. By the median token, since what else the
// machine does may make some far longer.
static double software_seconds(const run_report &report) {
    const time_causes decode = causes_of(report)[1];
    const double share = static_cast<double>(decode[cause::host]) /
                         static_cast<double>(std::max<uint64_t>(decode.sum(), 1));
    return share * report.tpot_ms.p50 / 1000;
}

status measure_tokens(double seconds, uint32_t threads, measured_machine &into) {
    // A GPU reads small models in no time: its constants show in larger ones too.
    const uint32_t scale = into.is_host ? 64 : 192;
    std::vector<double> steps;
    for (const uint32_t hidden : {scale, 2 * scale, 3 * scale, 4 * scale}) {
        probe small(threads);
        if (const status done = small.make(hidden); !done) return done.failure();
        small.config().executor = into.executor;
        const auto report = small.quickest(seconds / 5);
        if (!report) return report.failure();
        const model_shape &shape = small.shape();
        const double bytes = static_cast<double>(shape.dense_bytes) / layers +
                             static_cast<double>(shape.expert_bytes) * top_k;
        const double software = into.is_host ? software_seconds(report.value()) : 0;
        const double token = report.value().tpot_ms.p50 / 1000;
        into.token_layers.push_back({bytes, (token - software) / layers});
        steps.push_back(software / layers);
        // Too little work for a GPU's matrix units to show in it; single experts have told that.
        if (!into.is_host) continue;
        small.config().prefill = window;
        const auto at_once = small.quickest(seconds / 20);
        if (!at_once) return at_once.failure();
        // Two operations for each weight of two bytes.
        into.prefill_layers.push_back(
            {bytes, at_once.value().ttft_ms.p50 / 1000 / layers / window});
    }
    into.step_seconds = median(steps);
    into.token_experts = top_k;
    into.token_layer_count = layers;
    return success();
}

status measure_loads(double seconds, uint32_t threads, measured_machine &into) {
    probe small(threads);
    if (const status done = small.make(/*hidden=*/192); !done) return done.failure();
    small.config().experts = layers * experts / 3;
    small.config().per_layer = true;
    small.config().executor = into.executor;
    const auto real = small.quickest(seconds);
    if (!real) return real.failure();
    const run_report &report = real.value();
    const double loads = static_cast<double>(report.bytes.h2d) /
                         static_cast<double>(small.shape().expert_bytes) /
                         static_cast<double>(report.tokens);
    const double steps_seconds = into.step_seconds * layers;
    if (loads > 0)
        into.load_seconds = std::max(software_seconds(report) - steps_seconds, 0.0) / loads;
    return success();
}

}  // namespace moorage::tool
