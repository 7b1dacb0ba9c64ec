// synth.cpp - draws the experts token by token. Scores and predictions use separate streams.
#include "core/source/synth.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/base/half.h"
#include "core/base/text.h"
#include "core/source/zipf.h"

namespace moorage::core {

namespace {

// Names of the random streams: one per purpose, so that they do not affect each other.
enum stream_name : uint64_t { rankings, choices, drifts, noises, guesses };

class synthesizer {
public:
    explicit synthesizer(const synth_options &options)
        : options_(options),
          ranks_(options.experts, options.a, options.b),
          choice_(options.seed, choices),
          drift_(options.seed, drifts),
          noise_(options.seed, noises),
          guess_(options.seed, guesses),
          taken_(options.experts),
          kept_(options.top_k) {
        random_stream random(options.seed, rankings);
        const uint32_t experts = options.experts;
        orders_.resize(uint64_t{options.domains} * options.layers * experts);
        for (uint64_t first = 0; first < orders_.size(); first += experts) {
            uint16_t *order = orders_.data() + first;
            std::iota(order, order + experts, uint16_t{0});
            for (uint32_t i = experts; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
        }
        rank_of_.resize(orders_.size());
        for (uint64_t index = 0; index < orders_.size(); ++index) note_rank(index);
    }

    trace_data run() {
        prepare();
        for (uint64_t request = 0; request < options_.requests; ++request) {
            const uint64_t domain = request % options_.domains;
            const auto [first, last] =
                std::pair(trace_.request_offsets[request], trace_.request_offsets[request + 1]);
            for (uint64_t token = first; token < last; ++token) {
                for (uint32_t layer = 0; layer < options_.layers; ++layer)
                    draw_experts(token, layer, domain * options_.layers + layer, token > first);
                drift();
            }
        }
        return std::move(trace_);
    }

private:
    void note_rank(uint64_t index) {
        const uint64_t first = index / options_.experts * options_.experts;
        rank_of_[first + orders_[index]] = static_cast<uint16_t>(index - first);
    }

    void prepare() {
        const uint64_t places = options_.tokens * options_.layers;
        trace_.tokens = options_.tokens;
        trace_.layers = options_.layers;
        trace_.experts = options_.experts;
        trace_.top_k = options_.top_k;
        trace_.predictions = options_.predictions;
        trace_.chosen.resize(places * options_.top_k);
        trace_.predicted.resize(places * options_.predictions);
        if (options_.gate_scores) trace_.gate_scores.values.resize(places * options_.experts);
        for (uint64_t request = 0; request <= options_.requests; ++request)
            trace_.request_offsets.push_back(options_.tokens * request / options_.requests);
        std::string names;
        for (uint32_t domain = 0; domain < options_.domains; ++domain)
            names += format("{}domain{}", domain == 0 ? "" : ",", domain);
        for (uint64_t request = 0; options_.domains > 1 && request < options_.requests; ++request)
            trace_.request_domain.push_back(static_cast<int32_t>(request % options_.domains));
        trace_.metadata = {{"model", "synthetic"},
                           {"source", "made by moorage trace synth"},
                           {"domains", names},
                           {"seed", format("{}", options_.seed)},
                           {"workload", format("zipf a={} b={} reuse={} drift={}", options_.a,
                                               options_.b, options_.reuse, options_.drift)}};
        if (options_.gate_scores)
            trace_.metadata["weights_are"] = "softmax over all experts, not renormalised";
    }

    // `table`: the ranking of the domain and layer.
    void draw_experts(uint64_t token, uint32_t layer, uint64_t table, bool has_previous) {
        const uint64_t place = token * options_.layers + layer;
        const uint32_t top_k = options_.top_k, experts = options_.experts;
        const uint16_t *order = orders_.data() + table * experts;
        const uint16_t *rank_of = rank_of_.data() + table * experts;
        const std::span chosen(trace_.chosen.data() + place * top_k, top_k);
        if (options_.reuse > 0 && has_previous) {
            const uint16_t *previous = chosen.data() - uint64_t{options_.layers} * top_k;
            for (uint32_t k = 0; k < top_k; ++k) {
                kept_[k] = choice_.unit() < options_.reuse;
                if (kept_[k]) chosen[k] = previous[k], taken_[rank_of[previous[k]]] = 1;
            }
        }
        for (uint32_t k = 0; k < top_k; ++k) {
            if (std::exchange(kept_[k], 0)) continue;
            const uint32_t rank = ranks_.draw_free(choice_, taken_);
            chosen[k] = order[rank];
            taken_[rank] = 1;
        }
        for (const uint16_t expert : chosen) taken_[rank_of[expert]] = 0;
        if (options_.gate_scores) score(place, chosen, order);
        if (options_.predictions > 0) predict(place, chosen, order, rank_of);
    }

    // Noisy shares in descending order. The largest go to the chosen experts in their order, the
    // others to the remaining experts by rank. The k + 1 largest still differ after rounding to
    // f16, so that no tie hides the choice.
    void score(uint64_t place, std::span<const uint16_t> chosen, const uint16_t *order) {
        const uint32_t experts = options_.experts, top_k = options_.top_k;
        values_.resize(experts);
        double total = 0;
        for (uint32_t rank = 0; rank < experts; ++rank)
            total += values_[rank] = ranks_.share(rank) * (0.5 + noise_.unit());
        std::ranges::sort(values_, std::ranges::greater());
        halves_.resize(experts);
        for (uint32_t i = 0; i < experts; ++i)
            halves_[i] = half_of_float(static_cast<float>(values_[i] / total));
        for (uint32_t i = std::min(top_k, experts - 1); i > 0; --i)
            halves_[i - 1] = std::max(halves_[i - 1], static_cast<uint16_t>(halves_[i] + 1));

        float *scores = trace_.gate_scores.values.data() + place * experts;
        std::fill_n(scores, experts, -1.0f);
        uint32_t next = 0;
        for (const uint16_t expert : chosen) scores[expert] = float_of_half(halves_[next++]);
        for (uint32_t rank = 0; rank < experts; ++rank)
            if (scores[order[rank]] < 0) scores[order[rank]] = float_of_half(halves_[next++]);
    }

    // The chosen experts, each kept in its place or replaced by a wrong one. Then others.
    void predict(uint64_t place, std::span<const uint16_t> chosen, const uint16_t *order,
                 const uint16_t *rank_of) {
        const uint32_t width = options_.predictions;
        const std::span list(trace_.predicted.data() + place * width, width);
        // Within the first k places, a wrong expert must not be a chosen one.
        for (const uint16_t expert : chosen) taken_[rank_of[expert]] = 1;
        uint32_t wrong_left = options_.experts - options_.top_k;
        for (uint32_t k = 0; k < width; ++k) {
            if (k == chosen.size())
                for (const uint16_t expert : chosen)
                    taken_[rank_of[expert]] = std::ranges::count(list.first(k), expert) > 0;
            const bool right = k < chosen.size() &&
                               (guess_.unit() < options_.prediction_accuracy || wrong_left == 0);
            if (right) {
                list[k] = chosen[k];
                continue;
            }
            const uint32_t rank = ranks_.draw_free(guess_, taken_);
            list[k] = order[rank];
            taken_[rank] = 1;
            if (wrong_left > 0) --wrong_left;
        }
        for (const uint16_t expert : list) taken_[rank_of[expert]] = 0;
        for (const uint16_t expert : chosen) taken_[rank_of[expert]] = 0;
    }

    // Swaps some neighbours, so that every ranking gets `drift` swaps per token on average.
    void drift() {
        if (options_.drift <= 0 || options_.experts < 2) return;
        const uint64_t tables = uint64_t{options_.domains} * options_.layers;
        swaps_due_ += options_.drift * static_cast<double>(tables);
        for (; swaps_due_ >= 1; swaps_due_ -= 1) {
            // Draw the table first, in its own statement: compilers differ in the order of
            // operands.
            const uint64_t table = drift_.below(tables);
            const uint64_t index = table * options_.experts + drift_.below(options_.experts - 1);
            std::swap(orders_[index], orders_[index + 1]);
            note_rank(index);
            note_rank(index + 1);
        }
    }

    const synth_options &options_;
    zipf ranks_;
    random_stream choice_, drift_, noise_, guess_;
    std::vector<uint16_t> orders_;   // [domains, layers, experts] expert of each rank
    std::vector<uint16_t> rank_of_;  // [domains, layers, experts] rank of each expert
    std::vector<uint8_t> taken_;     // [experts] by rank; all 0 between calls
    std::vector<uint8_t> kept_;      // [top_k]; all 0 between calls
    std::vector<double> values_;
    std::vector<uint16_t> halves_;
    double swaps_due_ = 0;
    trace_data trace_;
};

}  // namespace

status check_options(const synth_options &options) {
    const auto outside = [](const char *name, auto value, const char *limits) -> status {
        return error{format("trace synth: {} is {}, the limits are {}", name, value, limits), true};
    };
    const auto within = [](double value, double low, double high) {
        return value >= low && value <= high;  // false for NaN
    };
    const synth_options &o = options;
    if (o.layers < 1 || o.layers > 65536) return outside("layers", o.layers, "1 to 65536");
    if (o.experts < 1 || o.experts > 65536) return outside("experts", o.experts, "1 to 65536");
    if (uint64_t{o.layers} * o.experts > uint64_t{1} << 24)
        return outside("layers times experts", uint64_t{o.layers} * o.experts, "1 to 16777216");
    if (o.top_k < 1 || o.top_k > o.experts)
        return outside("top-k", o.top_k, "1 to the number of experts");
    if (o.tokens < 1 || o.tokens > UINT32_MAX)
        return outside("tokens", o.tokens, "1 to 4294967295");
    if (o.requests < 1 || o.requests > o.tokens)
        return outside("requests", o.requests, "1 to the number of tokens");
    if (!within(o.a, 0, 20)) return outside("a", o.a, "0 to 20");
    if (!within(o.b, -0.999, 1e6)) return outside("b", o.b, "-0.999 to 1000000");
    if (!within(o.reuse, 0, 1)) return outside("reuse", o.reuse, "0 to 1");
    if (o.domains < 1 || o.domains > 1024) return outside("domains", o.domains, "1 to 1024");
    if (!within(o.drift, 0, 1000)) return outside("drift", o.drift, "0 to 1000");
    if (o.predictions > o.experts)
        return outside("predictions", o.predictions, "0 to the number of experts");
    if (!within(o.prediction_accuracy, 0, 1))
        return outside("prediction-accuracy", o.prediction_accuracy, "0 to 1");
    return success();
}

result<trace_data> synthesize(const synth_options &options) {
    if (const status checked = check_options(options); !checked) return checked.failure();
    return synthesizer(options).run();
}

status write_synthetic(const synth_options &options, const std::filesystem::path &path) {
    const result<trace_data> trace = synthesize(options);
    if (!trace) return trace.failure();
    return write_trace(*trace, path);
}

}  // namespace moorage::core
