// run.h - from a configuration to a report: opens what it names, makes the policies, runs the
// pipeline.
//
//   run_resources shared;                      // traces, models, futures, kept between runs
//   auto done = run(config, shared, {});
//   if (done) std::cout << to_text(*done);
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "core/config/run_config.h"
#include "core/execute/operations.h"
#include "core/host/registry.h"
#include "core/model/model.h"
#include "core/model/tokenizer.h"
#include "core/report/report.h"
#include "core/source/future.h"
#include "core/source/model_source.h"
#include "core/source/trace.h"

namespace moorage::core {

class span_sink;
class timeline;
class timeline_sink;

// A model directory with its tokenizer; null: it has none.
struct opened_model {
    std::unique_ptr<model> loaded_model;
    std::unique_ptr<tokenizer> loaded_tokenizer;
};

// Resources that several runs share. Thread-safe but for scan().
class run_resources {
public:
    // The bundled policies and those below the paths; each path is scanned once. [control]
    status scan(std::span<const std::filesystem::path> paths);
    const registry &policies() const { return policies_; }

    result<const trace *> open(const std::filesystem::path &path);
    result<const opened_model *> open_model(const std::filesystem::path &directory);
    // Keeps a model made elsewhere, under the name of a directory. open_model() then returns it.
    // Requires: nothing was opened by that name.
    void keep(const std::filesystem::path &name, std::unique_ptr<model> model);
    // Random weights of a published shape. One at a time, because they are large.
    result<const model *> random(const std::string &shape, const std::filesystem::path &base,
                                 uint32_t distinct_experts);
    // The future of the first `tokens` of an opened trace (0: all). Built at the first call.
    const future &future_of(const trace &trace, uint64_t tokens);
    // Misses of the offline optimum over an opened trace, one token at a time. Counted at the first
    // call.
    uint64_t optimum(const trace &trace, uint64_t tokens, uint32_t slots, bool per_layer);

    // The text of a run with the model's own routing, made at the first call of its key.
    const result<text_report> &own_routing(const std::string &key,
                                           const std::function<result<text_report>()> &make);

private:
    // Values by key. Each is made once, by the first thread that asks; other threads wait for it.
    template <class Key, class Value>
    struct memo {
        struct entry {
            std::once_flag once;
            std::optional<Value> value;
        };
        template <class Make>
        const Value &get_or_make(const Key &key, std::mutex &mutex, Make &&make);
        std::map<Key, entry> entries;  // entries stay where they are
    };
    registry policies_;
    bool bundled_ = false;
    std::vector<std::filesystem::path> scanned_;
    std::mutex mutex_;
    std::map<std::filesystem::path, std::unique_ptr<trace>> traces_;
    std::map<std::filesystem::path, opened_model> models_;
    std::pair<std::string, uint32_t> random_key_;
    std::unique_ptr<model> random_;
    memo<std::pair<const trace *, uint64_t>, future> futures_;
    memo<std::tuple<const trace *, uint64_t, uint32_t, bool>, uint64_t> optima_;
    memo<std::string, result<text_report>> own_texts_;
};

// The key of an offline optimum's misses.
struct optimum_key {
    std::filesystem::path trace;
    uint64_t tokens = 0;
    uint32_t slots = 0;
    bool per_layer = false;
    auto operator<=>(const optimum_key &) const = default;
};

// Figures that several runs share. A caller that compares runs counts them once for all.
struct shared_figures {
    std::optional<optimum_key> optimum;
    bool own_routing = false;  // own_routing_of(config), and then take_own_routing()
};

struct run_options {
    span_sink *sink = nullptr;      // sees the work of emulated devices; null: `rows` does
    timeline_sink *rows = nullptr;  // for a timeline; may be null
    timeline *events = nullptr;     // for a cluster; may be null
    std::function<void(uint64_t tokens)> progress = {};  // tokens done since the last call
    bool optimum = true;                                 // count the offline optimum's misses too
    std::function<void(uint64_t request, int32_t id)> on_token = {};  // from a model, as it writes
    shared_figures *deferred = nullptr;  // not null: these figures are not counted, but noted there
    std::function<bool()> stop = {};     // asked after every pass; true: the rest is not wanted
    step_watcher *watcher = nullptr;     // sees every layer step; predictions are computed for it
    uint32_t threads = 0;  // threads of the CPU's arithmetic, if the configuration gives
                           // none
    // For a lossy router: score the text once more with the model's own routing (own_routing.h).
    bool own_routing = true;
    const std::vector<model_request> *requests = nullptr;  // replaces the prompts and the text
};

// The report, if it can be trusted: no file changed during the run, every figure is finite.
result<run_report> check_report(const run_config &config, result<run_report> report);

// Runs a configuration. Requires: shared.scan(config.plugin_paths) succeeded.
result<run_report> run(const run_config &config, run_resources &shared, const run_options &options);

}  // namespace moorage::core
