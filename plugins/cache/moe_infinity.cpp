// moe_infinity.cpp - cache and prefetch from the activation matrices of requests.
//
// Source: MoE-Infinity (Xue et al., arXiv 2401.14361). An activation matrix counts, for one
// request, the tokens that chose each expert of each layer. Matrices of finished requests are
// collected. The running request's matrix is compared with each of them by cosine distance: 1 -
// mean over the layers of the cosine of two rows (0 if a row is empty). The nearest matrix
// predicts, for expert e in layer l, the share p of the row's activations.
// - Prefetch: the coming layers' experts by p (1 - d / (L + 1)), d layers ahead of L, the largest
//   first (ties: nearer layer, smaller expert). Experts with p = 0 are never fetched. After the
//   last layer come the first layers of the next token, which the authors' program leaves out.
// - Cache: `visits` evicts the expert that the running requests visited least, as the authors'
//   program does (MoEpic calls it LFU). `activation` evicts the expert with the least (c / n + e)
//   (1 - l / L) of the paper: c of the n activations of layer l, e = 1e-8. Ties: least recently
//   used.
// - Collection: at most `matrices`. A full collection gives up the matrix nearest to the new one.
// A request ends when its stream serves another. Every stream has its own matrix. A page's visits
// are their sum. A step predicts the largest p of its tokens' streams.
//
// Dot products and squared lengths of rows are integers that follow every activation. Square roots
// and quotients round alike everywhere.
// Cost per call: observe O(experts of the step x matrices); predict once a step O(matrices x
// layers); a victim O(pages). The end of a request costs O(streams x pages).

#include <moorage/moorage.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

class moe_infinity {
public:
    static constexpr moorage::about about{
        .name = "moe_infinity",
        .summary = "caches and fetches by the activation matrices of requests",
        .source = "MoE-Infinity (arXiv 2401.14361)",
    };
    static constexpr moorage::param params[] = {
        moorage::integer("matrices", 100, 1, 10'000, "activation matrices that are kept"),
        moorage::integer("layers", 4, 1, 1024, "coming layers for which experts are fetched"),
        moorage::integer("experts", 0, 0, 4096,
                         "most experts fetched of a coming layer; 0: the model's top-k"),
        moorage::text("priority", "visits", "visits|activation",
                      "what the cache keeps: the most visited, or the most likely by layer"),
    };

    explicit moe_infinity(const moorage::setup &setup)
        : host_(setup.host),
          matrices_max_(static_cast<uint32_t>(setup.integer("matrices"))),
          layers_ahead_(static_cast<uint32_t>(setup.integer("layers"))),
          experts_most_(static_cast<uint32_t>(setup.integer("experts"))),
          by_visits_(setup.text("priority") == "visits") {}

    void activate(const moorage::limits &limits) {
        layers_ = limits.layers;
        experts_ = limits.experts;
        pools_ = limits.pools;
        layers_ahead_ = std::min(layers_ahead_, layers_);
        fetched_max_ = std::min(experts_most_ ? experts_most_ : limits.top_k, experts_);
        state_ = host_.residency()->host_state;
        const size_t pages = size_t{layers_} * experts_;
        streams_.resize(limits.requests_max);
        for (stream &stream : streams_) {
            stream.counts.resize(pages);
            stream.lengths.resize(layers_);
            stream.dots.resize(size_t{matrices_max_} * layers_);
            stream.cosines.resize(stream.dots.size());
        }
        kept_.resize(matrices_max_ * pages);
        kept_lengths_.resize(size_t{matrices_max_} * layers_);
        kept_sums_.resize(kept_lengths_.size());
        visits_.resize(pages);
        activations_.resize(layers_);
        used_.resize(pages);
        chances_.resize(experts_);
        order_.resize(experts_);
        candidates_.reserve(pages);
        wishes_.reserve(size_t{layers_ahead_} * fetched_max_);
        reset();
    }

    void reset() {
        for (stream &stream : streams_) stream.clear();
        std::fill(visits_.begin(), visits_.end(), 0);
        std::fill(activations_.begin(), activations_.end(), 0);
        std::fill(used_.begin(), used_.end(), 0);
        kept_count_ = 0;
        clock_ = 0;
        matched_step_ = MOORAGE_NEVER;
    }

    void observe(const moorage::step &step) {
        for (uint32_t token = 0; token < step.token_count; ++token) {
            stream &stream = streams_[step.host_streams[token]];
            if (stream.request != step.host_requests[token]) {
                finish(stream);
                stream.request = step.host_requests[token];
            }
            for (const uint32_t expert : step.chosen(token)) count(stream, step.layer, expert);
            const bool continues = token + 1 < step.token_count &&
                                   step.host_streams[token + 1] == step.host_streams[token] &&
                                   step.host_requests[token + 1] == stream.request;
            if (!continues) compare(stream, step.layer);
        }
        for (const uint32_t expert : step.distinct()) used_[step.page(expert)] = ++clock_;
    }

    void on_load(uint32_t page, uint32_t, int32_t cause) {
        if (cause != MOORAGE_DEMAND) used_[page] = ++clock_;
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        const uint32_t first = pools_ == 1 ? 0 : room.pool * experts_;
        const uint32_t last = pools_ == 1 ? layers_ * experts_ : first + experts_;
        candidates_.clear();
        for (uint32_t page = first; page < last; ++page)
            if (moorage::evictable(state_[page]))
                candidates_.push_back({priority(page), used_[page], page});
        const size_t count = std::min<size_t>(room.count, candidates_.size());
        std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count),
                          candidates_.end(), [](const candidate &a, const candidate &b) {
                              if (a.priority != b.priority) return a.priority < b.priority;
                              return a.used != b.used ? a.used < b.used : a.page < b.page;
                          });
        for (size_t i = 0; i < count; ++i) victims.push(candidates_[i].page);
    }

    uint32_t horizon() { return layers_ahead_; }

    // Called for each coming layer of a step, nearest first; collects the wishes for plan.
    uint32_t predict(const moorage::step &step, uint32_t layer, uint32_t distance,
                     std::span<uint32_t> experts, std::span<float> scores) {
        if (matched_step_ != step.index) match(step);
        const auto room = static_cast<uint32_t>(experts.size());
        const uint32_t count = std::min(rank_likely(step, layer), room);
        const double nearness = 1 - static_cast<double>(distance) / (layers_ + 1);
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t expert = order_[i];
            experts[i] = expert;
            scores[i] = static_cast<float>(chances_[expert]);
            if (wishes_.size() < wishes_.capacity())
                wishes_.push_back(
                    {chances_[expert] * nearness, distance, expert, layer * experts_ + expert});
        }
        return count;
    }

    // Uses its own wishes: where it predicts nothing, a forecast holds the source's prediction.
    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        if (matched_step_ != step.index) return;
        std::sort(wishes_.begin(), wishes_.end(), [](const wish &a, const wish &b) {
            if (a.priority != b.priority) return a.priority > b.priority;
            return a.distance != b.distance ? a.distance < b.distance : a.expert < b.expert;
        });
        for (const wish &wish : wishes_) {
            if (orders.size() >= forecast.buffer_free) return;
            if (state_[wish.page] & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) continue;
            orders.push(wish.page);
        }
    }

private:
    // The running request of a stream, and its relation to the kept matrices.
    struct stream {
        uint64_t request = MOORAGE_NEVER;
        uint64_t matched_step = MOORAGE_NEVER;
        uint32_t nearest = MOORAGE_NONE;
        std::vector<uint32_t> counts;   // [pages]
        std::vector<uint64_t> lengths;  // [layers] squared
        std::vector<uint64_t> dots;     // [matrices, layers]
        std::vector<double> cosines;    // [matrices, layers]
        void clear() {
            std::fill(counts.begin(), counts.end(), 0);
            std::fill(lengths.begin(), lengths.end(), 0);
            std::fill(dots.begin(), dots.end(), 0);
            std::fill(cosines.begin(), cosines.end(), 0.0);
            request = matched_step = MOORAGE_NEVER;
        }
    };
    struct candidate {
        double priority;
        uint64_t used;
        uint32_t page;
    };
    struct wish {
        double priority;
        uint32_t distance, expert, page;
    };

    uint32_t *matrix(uint32_t index) { return kept_.data() + size_t{index} * visits_.size(); }

    void count(stream &stream, uint32_t layer, uint32_t expert) {
        const size_t page = size_t{layer} * experts_ + expert;
        stream.lengths[layer] += 2 * uint64_t{stream.counts[page]} + 1;
        ++stream.counts[page];
        ++visits_[page];
        ++activations_[layer];
        for (uint32_t i = 0; i < kept_count_; ++i)
            stream.dots[size_t{i} * layers_ + layer] += matrix(i)[page];
    }

    // Updates the cosines of one row with those of all matrices.
    void compare(stream &stream, uint32_t layer) {
        for (uint32_t i = 0; i < kept_count_; ++i) compare_with(stream, layer, i);
    }
    void compare_with(stream &stream, uint32_t layer, uint32_t index) {
        const size_t entry = size_t{index} * layers_ + layer;
        const uint64_t length = stream.lengths[layer], kept_length = kept_lengths_[entry];
        stream.cosines[entry] = length == 0 || kept_length == 0
                                    ? 0
                                    : static_cast<double>(stream.dots[entry]) /
                                          (std::sqrt(static_cast<double>(length)) *
                                           std::sqrt(static_cast<double>(kept_length)));
    }

    // The matrix of least distance, the first of equals; none without matrices.
    uint32_t nearest_of(const stream &stream) const {
        uint32_t nearest = MOORAGE_NONE;
        double most = -1;
        for (uint32_t i = 0; i < kept_count_; ++i) {
            double sum = 0;
            for (uint32_t layer = 0; layer < layers_; ++layer)
                sum += stream.cosines[size_t{i} * layers_ + layer];
            if (sum <= most) continue;
            most = sum;
            nearest = i;
        }
        return nearest;
    }

    // Ends the stream's request: keeps its matrix and forgets its visits.
    void finish(stream &ended) {
        if (ended.request == MOORAGE_NEVER) return;
        const uint32_t index = kept_count_ < matrices_max_ ? kept_count_++ : nearest_of(ended);
        std::copy(ended.counts.begin(), ended.counts.end(), matrix(index));
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            uint64_t sum = 0;
            for (uint32_t expert = 0; expert < experts_; ++expert) {
                const size_t page = size_t{layer} * experts_ + expert;
                visits_[page] -= ended.counts[page];
                sum += ended.counts[page];
            }
            activations_[layer] -= sum;
            kept_lengths_[size_t{index} * layers_ + layer] = ended.lengths[layer];
            kept_sums_[size_t{index} * layers_ + layer] = sum;
        }
        ended.clear();
        for (stream &stream : streams_)
            if (stream.request != MOORAGE_NEVER) compare_all_rows(stream, index);
    }

    // Compares from scratch with a new matrix.
    void compare_all_rows(stream &stream, uint32_t index) {
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            uint64_t dot = 0;
            const size_t first = size_t{layer} * experts_;
            for (size_t page = first; page < first + experts_; ++page)
                dot += uint64_t{stream.counts[page]} * matrix(index)[page];
            stream.dots[size_t{index} * layers_ + layer] = dot;
            compare_with(stream, layer, index);
        }
    }

    void match(const moorage::step &step) {
        matched_step_ = step.index;
        wishes_.clear();
        for (const uint32_t index : step.streams()) {
            stream &stream = streams_[index];
            if (stream.matched_step == step.index) continue;
            stream.matched_step = step.index;
            stream.nearest = nearest_of(stream);
        }
    }

    // Puts the likeliest experts of a layer first in order_. Returns the number with a chance above
    // 0.
    uint32_t rank_likely(const moorage::step &step, uint32_t layer) {
        std::fill(chances_.begin(), chances_.end(), 0.0);
        for (uint32_t token = 0; token < step.token_count; ++token) {
            if (token > 0 && step.host_streams[token] == step.host_streams[token - 1]) continue;
            const uint32_t nearest = streams_[step.host_streams[token]].nearest;
            if (nearest == MOORAGE_NONE) continue;
            const uint32_t *row = matrix(nearest) + size_t{layer} * experts_;
            const auto sum = static_cast<double>(kept_sums_[size_t{nearest} * layers_ + layer]);
            for (uint32_t expert = 0; expert < experts_; ++expert)
                if (row[expert] > 0)
                    chances_[expert] = std::max(chances_[expert], row[expert] / sum);
        }
        uint32_t count = 0;
        for (uint32_t expert = 0; expert < experts_; ++expert)
            if (chances_[expert] > 0) order_[count++] = expert;
        const uint32_t first = std::min(count, fetched_max_);
        std::partial_sort(order_.begin(), order_.begin() + first, order_.begin() + count,
                          [this](uint32_t a, uint32_t b) {
                              return chances_[a] != chances_[b] ? chances_[a] > chances_[b] : a < b;
                          });
        return first;
    }

    double priority(uint32_t page) const {
        if (by_visits_) return static_cast<double>(visits_[page]);
        const uint32_t layer = page / experts_;
        const auto layer_activations = static_cast<double>(activations_[layer]);
        const double share =
            layer_activations > 0 ? static_cast<double>(visits_[page]) / layer_activations : 0;
        return (share + 1e-8) * (1 - static_cast<double>(layer) / layers_);
    }

    moorage::host host_;
    const uint32_t matrices_max_;
    uint32_t layers_ahead_;
    const uint32_t experts_most_;
    const bool by_visits_;
    uint32_t layers_ = 0, experts_ = 0, pools_ = 1, fetched_max_ = 0, kept_count_ = 0;
    const uint32_t *state_ = nullptr;
    std::vector<stream> streams_;                        // [requests_max]
    std::vector<uint32_t> kept_;                         // [matrices, pages]
    std::vector<uint64_t> kept_lengths_, kept_sums_;     // [matrices, layers] squared length; sum
                                                         // of a row
    std::vector<uint64_t> visits_, activations_, used_;  // [pages], [layers], [pages]
    std::vector<double> chances_;                        // [experts] of the current layer
    std::vector<uint32_t> order_;
    std::vector<candidate> candidates_;
    std::vector<wish> wishes_;  // of the running step
    uint64_t clock_ = 0, matched_step_ = MOORAGE_NEVER;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.moe_infinity", "1.0.0", moe_infinity)
