// run_resources.cpp - resources that runs share: policies, traces, models, and counts over traces.
#include <algorithm>
#include <filesystem>

#include "core/cache/replay.h"
#include "core/base/memory_block.h"
#include "core/config/document.h"
#include "core/pipeline/run.h"

namespace moorage::core {

status run_resources::scan(std::span<const std::filesystem::path> paths) {
    std::vector<std::filesystem::path> fresh;
    if (!std::exchange(bundled_, true)) fresh = registry::default_paths();
    for (const auto &path : paths)
        if (std::find(scanned_.begin(), scanned_.end(), path) == scanned_.end())
            fresh.push_back(path);
    scanned_.insert(scanned_.end(), fresh.begin(), fresh.end());
    return fresh.empty() ? success() : policies_.scan(fresh);
}

result<const trace *> run_resources::open(const std::filesystem::path &path) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<trace> &known = traces_[path];
    if (!known) {
        std::error_code code;
        if (std::filesystem::status(path, code).type() == std::filesystem::file_type::not_found)
            return no_such_file(path, "trace");  // the key, of a source or of a workload
        auto opened = trace::open(path);
        if (!opened) return opened.failure();
        known = std::make_unique<trace>(std::move(opened).value());
    }
    return known.get();
}

result<const opened_model *> run_resources::open_model(const std::filesystem::path &directory) {
    const std::lock_guard lock(mutex_);
    opened_model &known = models_[directory];
    if (known.loaded_model) return &known;
    auto opened = moorage::core::open_model(directory);
    if (!opened) return opened.failure();
    auto opened_tokenizer = tokenizer::open_for_model(directory);
    if (!opened_tokenizer) return opened_tokenizer.failure();
    known.loaded_tokenizer = std::move(opened_tokenizer).value();
    known.loaded_model = std::move(opened).value();
    return &known;
}

void run_resources::keep(const std::filesystem::path &name, std::unique_ptr<model> model) {
    const std::lock_guard lock(mutex_);
    models_[name].loaded_model = std::move(model);
}

result<const model *> run_resources::random(const std::string &shape,
                                            const std::filesystem::path &base,
                                            uint32_t distinct_experts) {
    const std::lock_guard lock(mutex_);
    const std::pair<std::string, uint32_t> key{shape, distinct_experts};
    // Runs side by side get the same weights, though each leaves less memory for the next one's
    // plan. A GPU always asks for one distinct expert.
    const bool alike =
        random_key_.first == shape && (random_key_.second == 1) == (distinct_experts == 1);
    if (random_ && alike) return random_.get();
    random_.reset();
    const auto config = config_of_shape(shape, base);
    if (!config) return config.failure();
    auto weights = random_model(*config, {.distinct_experts = distinct_experts,
                                          .bytes_max = memory_available_bytes() / 8 * 7});
    if (!weights) return weights.failure();
    random_ = std::move(weights).value();
    random_key_ = key;
    return random_.get();
}

template <class Key, class Value>
template <class Make>
const Value &run_resources::memo<Key, Value>::get_or_make(const Key &key, std::mutex &mutex,
                                                          Make &&make) {
    entry *found;
    {
        const std::lock_guard lock(mutex);
        found = &entries[key];
    }
    std::call_once(found->once, [&] { found->value.emplace(make()); });
    return *found->value;
}

const future &run_resources::future_of(const trace &trace, uint64_t tokens) {
    return futures_.get_or_make({&trace, tokens}, mutex_, [&] { return future(trace, tokens); });
}

uint64_t run_resources::optimum(const trace &trace, uint64_t tokens, uint32_t slots,
                                bool per_layer) {
    return optima_.get_or_make({&trace, tokens, slots, per_layer}, mutex_, [&] {
        replay_job job{.slots = slots, .tokens = tokens};
        job.pools = per_layer ? sharing::per_layer : sharing::shared;
        return core::count_optimum(trace, job).misses;
    });
}

const result<text_report> &run_resources::own_routing(
    const std::string &key, const std::function<result<text_report>()> &make) {
    return own_texts_.get_or_make(key, mutex_, make);
}

}  // namespace moorage::core
