// run_many.cpp - rows of runs, and their shared figures.
#include "tools/moorage/run_many.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/base/json.h"
#include "core/base/machine_limits.h"
#include "core/config/stage_policy.h"
#include "core/pipeline/own_routing.h"
#include "core/pipeline/prepare.h"
#include "tools/comparison/progress.h"
#include "core/report/report_packing.h"
#include "tools/moorage/rows.h"

namespace moorage::core {

void each_field(auto &record, auto &&visit) requires packed_as<decltype(record), optimum_key> {
    auto &[trace, tokens, slots, per_layer] = record;
    visit(trace, tokens, slots, per_layer);
}

void each_field(auto &record, auto &&visit) requires packed_as<decltype(record), shared_figures> {
    auto &[optimum, own_routing] = record;
    visit(optimum, own_routing);
}

}  // namespace moorage::core

namespace moorage::tool {

using namespace moorage::core;

namespace {

constexpr const char *incomplete_figures = "its figures did not arrive whole";

uint32_t jobs_for(const std::vector<run_config> &configs, uint32_t wanted) {
    if (wanted != 0) return wanted;
    // A measured run must have the machine to itself.
    const bool measured = std::ranges::any_of(
        configs, [](const run_config &config) { return config.runs_on().real; });
    return measured ? 1 : usable_processors();
}

class many_runs {
public:
    many_runs(const std::vector<run_config> &configs, run_resources &shared,
              const run_many_options &options)
        : configs_(configs),
          shared_(shared),
          jobs_(jobs_for(configs, options.jobs)),
          rows_(configs.size()),
          later_(configs.size()) {
        options_.optimum = options.optimum;
        options_.own_routing = options.own_routing;
        if (jobs_ > 1) options_.threads = 1;  // the others compute as well
        kept_ = options.kept;
        is_measured_ = std::ranges::any_of(
            configs, [](const run_config &config) { return config.runs_on().real; });
    }
    run_outcomes operator()(const char *progress_label);

private:
    result<std::string> run_row(size_t i);
    void take_row(size_t i, row_end finished_row);
    static json figures_of(const std::string &bytes);
    rows_options options_of_rows() const;
    void count_shared();
    result<std::string> count_optimum(const optimum_key &key);
    void take_optimum(const optimum_key &key, const row_end &finished_row);
    void take_own_routing(const std::string &key, const row_end &finished_row);

    const std::vector<run_config> &configs_;
    run_resources &shared_;
    const uint32_t jobs_;
    run_options options_;
    kept_runs kept_;
    bool is_measured_ = false;
    int signal_ = 0;
    std::vector<run_outcome> rows_;
    std::vector<shared_figures> later_;  // by row
};

result<std::string> many_runs::run_row(size_t i) {
    shared_figures later;
    run_options options = options_;
    options.deferred = &later;
    auto report = run_either(configs_[i], shared_, options);
    if (!report) return report.failure();
    const auto cache = find_policy(shared_.policies(), configs_[i].cache, "cache");
    const bool is_offline = cache && ((*cache)->descriptor->needs & MOORAGE_NEEDS_FUTURE) != 0;
    return packed(*report, later, is_offline);
}

void many_runs::take_row(size_t i, row_end finished_row) {
    rows_[i].has_ended = true;
    if (finished_row.failure) {
        rows_[i].failure = std::move(*finished_row.failure);
        return;
    }
    run_report report;
    if (unpack(finished_row.bytes, report, later_[i], rows_[i].is_offline))
        rows_[i].report = std::move(report);
    else
        rows_[i].failure.reason = incomplete_figures;
}

result<std::string> many_runs::count_optimum(const optimum_key &key) {
    const auto source = shared_.open(key.trace);
    if (!source) return source.failure();
    return packed(shared_.optimum(**source, key.tokens, key.slots, key.per_layer));
}

void many_runs::take_optimum(const optimum_key &key, const row_end &finished_row) {
    uint64_t misses = 0;
    const bool whole = !finished_row.failure && unpack(finished_row.bytes, misses);
    const std::string reason =
        finished_row.failure ? finished_row.failure->reason : incomplete_figures;
    for (size_t i = 0; i < rows_.size(); ++i) {
        if (!rows_[i].report || later_[i].optimum != key) continue;
        if (whole)
            rows_[i].report->opt_misses = misses;
        else
            rows_[i].report->warnings.push_back("the offline optimum was not counted: " + reason);
    }
}

void many_runs::take_own_routing(const std::string &key, const row_end &finished_row) {
    result<text_report> scored_text = text_report();
    if (finished_row.failure)
        scored_text = error{finished_row.failure->reason};
    else if (!unpack(finished_row.bytes, *scored_text))
        scored_text = error{incomplete_figures};
    for (size_t i = 0; i < rows_.size(); ++i)
        if (rows_[i].report && later_[i].own_routing && own_routing_key(configs_[i]) == key)
            core::take_own_routing(scored_text, *rows_[i].report);
}

void many_runs::count_shared() {
    std::vector<optimum_key> optima;
    std::map<std::string, size_t> texts;  // key to the first row that has it
    for (size_t i = 0; i < rows_.size(); ++i) {
        if (!rows_[i].report) continue;
        const auto &optimum = later_[i].optimum;
        if (optimum && std::ranges::find(optima, *optimum) == optima.end())
            optima.push_back(*optimum);
        if (later_[i].own_routing) texts.try_emplace(own_routing_key(configs_[i]), i);
    }
    const std::vector<std::pair<std::string, size_t>> distinct_texts(texts.begin(), texts.end());
    for (const auto &key : optima)
        if (const auto source = shared_.open(key.trace)) shared_.future_of(**source, key.tokens);
    const auto work = [&](size_t job) -> result<std::string> {
        if (job < optima.size()) return count_optimum(optima[job]);
        const auto text =
            own_routing_of(configs_[distinct_texts[job - optima.size()].second], shared_, options_);
        if (!text) return text.failure();
        return packed(*text);
    };
    const rows_options options{.at_once = jobs_, .is_measured = is_measured_};
    signal_ =
        run_rows(optima.size() + distinct_texts.size(), options, work,
                 [&](size_t job, const row_end &finished_row) {
                     if (job < optima.size()) return take_optimum(optima[job], finished_row);
                     take_own_routing(distinct_texts[job - optima.size()].first, finished_row);
                 });
}

json many_runs::figures_of(const std::string &bytes) {
    run_report report;
    shared_figures later;
    bool is_offline = false;
    return unpack(bytes, report, later, is_offline) ? to_json(report) : json();
}

rows_options many_runs::options_of_rows() const {
    rows_options options{.at_once = jobs_, .is_measured = is_measured_};
    if (!kept_.file || !kept_.file->is_open()) return options;
    options.kept = kept_.file;
    options.identity = [this](size_t i) {
        return row_identity{
            kept_.label(i),
            hash_of_run(configs_[i], kept_.written(i) + (options_.optimum ? "" : "; --no-optimum"),
                        shared_)};
    };
    options.figures = figures_of;
    return options;
}

run_outcomes many_runs::operator()(const char *progress_label) {
    progress shown(progress_label, configs_.size());
    // Random weights are kept for one shape at a time, so later rows wait for theirs.
    for (size_t i = 0; i < (jobs_ == 1 ? 1 : configs_.size()); ++i) prepare(configs_[i], shared_);
    signal_ = run_rows(
        configs_.size(), options_of_rows(), [&](size_t i) { return run_row(i); },
        [&](size_t i, row_end finished_row) {
            take_row(i, std::move(finished_row));
            shown.advance();
            if (is_measured_ && i + 1 < configs_.size()) prepare(configs_[i + 1], shared_);
        });
    if (signal_ == 0) count_shared();
    return {std::move(rows_), signal_};
}

}  // namespace

result<run_outcomes> run_many(const std::vector<run_config> &configs, run_resources &shared,
                              const run_many_options &options) {
    for (const run_config &config : configs)
        if (const status done = shared.scan(config.plugin_paths); !done) return done.failure();
    return many_runs(configs, shared, options)(options.progress_label);
}

}  // namespace moorage::tool
