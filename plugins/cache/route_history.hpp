// route_history.hpp - finds earlier tokens whose routing resembles that of the running one.
//
// Every token is a row. For each layer it has the set of experts that the token used, as bits. For
// each layer and expert there is a column: the set of rows that used the expert. The rows of the
// last `window` tokens of all streams stand in one ring. Each is linked to the row before and after
// it in its own stream. So streams may interleave, sit in one batch, come and go. A match is a row
// of any stream; its own links lead to what followed it. Requests that follow one another on a
// stream are linked like the tokens of one. With a single stream this is the ring of the study.
//
// Streams differ in how well each row matches. So a stream has a score per row. At every layer the
// score grows by the experts that the row shares with the stream's token. When the stream's next
// token begins, each row hands its score, times `carry`, on to its successor. For one stream that
// is a score per lag.
//
// A step with several tokens of a stream (a prefill) enters them all as rows and scores the last.
// Memory: window * layers * experts / 4 bytes, and window * 4 bytes a stream. Cost per step and
// stream: window / 16 vector steps, and the columns of the chosen experts, window / 8 bytes each.
#pragma once

#include <algorithm>

#include "use_values.hpp"

namespace learning {

class route_history {
public:
    static constexpr uint32_t reach = 16;  // successors looked at

    struct options {
        uint32_t window, matches;
        float carry, sharpness;  // sharpness: of the score as a share of all experts of a token
    };

    void activate(const moorage::limits &limits, const lane_kernels &lanes,
                  const options &options) {
        lanes_ = &lanes;
        options_ = options;
        layers_ = limits.layers;
        experts_ = limits.experts;
        words_ = (limits.experts + 63) / 64;
        padded_ = padded_to_lanes(limits.experts);
        pass_rows_ = std::clamp(limits.tokens_max, 1u, options.window);
        rows_ = padded_to_lanes(options.window + pass_rows_ + 1);
        single_stream_ = limits.requests_max == 1;
        inverse_sharpness_ = 1 / (options.sharpness * static_cast<float>(layers_) *
                                  static_cast<float>(std::min(limits.top_k, limits.experts)));
        column_words_ = padded_to_lanes((rows_ + 31) / 32);
        bits_.assign(size_t{layers_} * rows_ * words_);
        columns_.assign(size_t{layers_} * experts_ * column_words_);
        previous_.resize(rows_);
        next_.resize(rows_);
        serials_.resize(rows_);
        spare_.assign(rows_ + 16);
        streams_.resize(limits.requests_max);
        for (stream &stream : streams_) stream.scores.assign(rows_ + 16);
        pass_streams_.reserve(limits.tokens_max);
        chosen_.reserve(limits.experts);
        decay_[0] = 0;
        decay_[1] = 1;
        for (uint32_t h = 2; h <= reach; ++h) decay_[h] = decay_[h - 1] * 0.9f;
    }

    void reset() {
        bits_.fill(0);
        columns_.fill(0);
        std::fill(previous_.begin(), previous_.end(), none_found);
        std::fill(next_.begin(), next_.end(), none_found);
        std::fill(serials_.begin(), serials_.end(), 0);
        for (stream &stream : streams_) {
            stream.scores.fill(0);
            stream.serial = 0;
            stream.seen = 0;
            stream.fresh = false;
            stream.best.clear(options_.matches, 0);
        }
        pass_streams_.clear();
        round_ = MOORAGE_NEVER;
        newest_ = pass_first_ = 0;
        recorded_ = cleared_ = 0;
    }

    // Enters the step's sets for all its streams, before any stream is matched.
    void record(const moorage::step &step) {
        if (step.visit / layers_ != round_ || !same_tokens(step)) begin_pass(step);
        layer_ = step.layer;
        clear_before(layer_ + 1);
        const uint32_t skipped = step.token_count - recorded_;
        for (uint32_t i = 0; i < recorded_; ++i) {
            const uint32_t row = row_of(pass_first_ + i);
            uint64_t *bits = bits_of(layer_) + size_t{row} * words_;
            for (const uint32_t expert : step.chosen(skipped + i)) {
                bits[expert / 64] |= uint64_t{1} << expert % 64;
                column_of(layer_, expert)[row / 32] |= 1u << row % 32;
            }
        }
    }

    // Raises the scores of the stream by this step's set and finds the best rows.
    void match(const moorage::step &step, const stream_groups::group &group) {
        stream &stream = streams_[group.stream];
        chosen_.clear();
        for (const uint32_t expert : step.chosen(group.last))
            if (std::find(chosen_.begin(), chosen_.end(), expert) == chosen_.end())
                chosen_.push_back(expert);
        if (!stream.fresh) begin_token(stream, group.tokens);
        float *scores = stream.scores.data() + 16;
        lanes_->count_common(scores, rows_, column_of(layer_, 0), column_words_, chosen_.data(),
                             static_cast<uint32_t>(chosen_.size()));
        find_matches(stream, scores);
    }

    struct weighted_matches {
        float total;
        const float *weights;
        std::span<const uint32_t> rows;
    };
    // The best rows of a stream; weights relative to the first.
    weighted_matches matches(uint32_t index) const {
        const stream &stream = streams_[index];
        return {stream.total, stream.weights, {stream.best.rows, stream.best.count}};
    }

    // For the layer's next visit: next[e] += weight of the matches whose successor used e. soon[e]
    // += weight * 0.9^(h - 1), for the first h in 2 .. 16 of their successors that used e.
    void follow(uint32_t index, float *next, float *soon) const {
        const stream &stream = streams_[index];
        const uint64_t *rows = bits_of(layer_);
        for (uint32_t match = 0; match < stream.best.count; ++match) {
            uint32_t chain[reach + 1];
            uint32_t length = 0;
            for (uint32_t row = stream.best.rows[match]; length < reach;) {
                row = next_[row];
                if (row == none_found) break;
                chain[++length] = row;
            }
            if (length == 0) continue;
            float worth[reach + 1];
            for (uint32_t h = 1; h <= reach; ++h) worth[h] = stream.weights[match] * decay_[h];
            lanes_->add_followers(next, soon, {rows, chain, worth, length, words_, padded_});
        }
    }

    // Adds what the matches used `visits` layer steps after the running one: sums[e] += weight.
    // Returns the weight of the matches that know it.
    float add_uses_ahead(uint32_t index, uint32_t visits, float *sums) const {
        const stream &stream = streams_[index];
        const uint32_t layer = (layer_ + visits) % layers_;
        float known = 0;
        for (uint32_t match = 0; match < stream.best.count; ++match) {
            uint32_t row = stream.best.rows[match];
            for (uint32_t tokens = (layer_ + visits) / layers_; tokens > 0 && row != none_found;
                 --tokens)
                row = next_[row];
            if (row == none_found || (serials_[row] >= pass_first_ && layer > layer_)) continue;
            known += stream.weights[match];
            for (uint32_t word = 0; word < words_; ++word)
                spread(bits_of(layer)[size_t{row} * words_ + word], stream.weights[match],
                       sums + 64 * word);
        }
        return known;
    }

    uint32_t row_count() const { return rows_; }

private:
    struct stream {
        lane_array<float> scores;  // [16 + rows] by row, after 16 in front
        uint64_t serial;           // of the stream's last token, 0 before the first
        uint64_t seen;             // newest serial when its scores were last raised
        bool fresh;                // the scores are those of the running token
        best_rows best;
        alignas(64) float weights[matches_max];
        float total;
    };

    uint64_t *bits_of(uint32_t layer) { return bits_.data() + size_t{layer} * rows_ * words_; }
    const uint64_t *bits_of(uint32_t layer) const {
        return bits_.data() + size_t{layer} * rows_ * words_;
    }
    uint32_t *column_of(uint32_t layer, uint32_t expert) {
        return columns_.data() + (size_t{layer} * experts_ + expert) * column_words_;
    }
    // Serials count from 1.
    uint32_t row_of(uint64_t serial) const { return static_cast<uint32_t>((serial - 1) % rows_); }

    // Clears what earlier tokens left in the rows of the running pass, in the layers before `end`.
    void clear_before(uint32_t end) {
        for (; cleared_ < end; ++cleared_)
            for (uint32_t i = 0; i < recorded_; ++i) {
                const uint32_t row = row_of(pass_first_ + i);
                uint64_t *bits = bits_of(cleared_) + size_t{row} * words_;
                for (uint32_t word = 0; word < words_; bits[word++] = 0)
                    for (uint64_t left = bits[word]; left; left &= left - 1)
                        column_of(cleared_, 64 * word + std::countr_zero(left))[row / 32] &=
                            ~(1u << row % 32);
            }
    }

    static void spread(uint64_t bits, float value, float *sums) {
        for (; bits; bits &= bits - 1) sums[std::countr_zero(bits)] += value;
    }

    bool same_tokens(const moorage::step &step) const {
        return std::equal(pass_streams_.begin(), pass_streams_.end(), step.host_streams,
                          step.host_streams + step.token_count);
    }

    void begin_pass(const moorage::step &step) {
        clear_before(layers_);  // layers that the pass before did not reach
        round_ = step.visit / layers_;
        for (const uint32_t stream : pass_streams_) streams_[stream].fresh = false;
        pass_streams_.assign(step.host_streams, step.host_streams + step.token_count);
        for (const uint32_t stream : pass_streams_) streams_[stream].fresh = false;
        recorded_ = std::min(step.token_count, pass_rows_);
        pass_first_ = newest_ + 1;
        cleared_ = 0;
        for (uint32_t i = step.token_count - recorded_; i < step.token_count; ++i)
            append(streams_[step.host_streams[i]]);
    }

    void append(stream &stream) {
        const uint32_t row = row_of(++newest_);
        const uint32_t old = previous_[row];
        if (old != none_found && next_[old] == row) next_[old] = none_found;
        const uint32_t next = next_[row];
        if (next != none_found && previous_[next] == row) previous_[next] = none_found;
        const bool linked = stream.serial != 0 && row_of(stream.serial) != row &&
                            serials_[row_of(stream.serial)] == stream.serial;
        previous_[row] = linked ? row_of(stream.serial) : none_found;
        next_[row] = none_found;
        if (linked) next_[previous_[row]] = row;
        serials_[row] = stream.serial = newest_;
    }

    // Hands scores on from rows to their successors. Rows that the stream has not seen since get 0.
    void begin_token(stream &stream, uint32_t tokens) {
        float *old_scores = stream.scores.data() + 16, *new_scores = spare_.data() + 16;
        if (tokens > 1) {
            stream.scores.fill(0);
            stream.best.count = 0;
        } else if (single_stream_) {
            old_scores[-1] = old_scores[rows_ - 1];
            lanes_->shift(new_scores, old_scores, options_.carry, rows_);
            std::swap(stream.scores, spare_);
        } else {
            for (uint32_t row = 0; row < rows_; ++row) {
                const uint32_t old = previous_[row];
                new_scores[row] = old != none_found && serials_[old] <= stream.seen
                                      ? options_.carry * old_scores[old]
                                      : 0;
            }
            std::swap(stream.scores, spare_);
        }
        for (uint32_t i = 0; i < stream.best.count; ++i) {
            const uint32_t row = stream.best.rows[i];
            stream.best.rows[i] = serials_[row] <= stream.seen ? next_[row] : none_found;
        }
        stream.seen = newest_;
        stream.fresh = true;
    }

    // The matches of the step before give a first lower bound. The newest rows go first.
    void find_matches(stream &stream, const float *scores) {
        const uint64_t last = pass_first_ - 1;  // complete
        const uint64_t count = std::min<uint64_t>(last, options_.window);
        float bar = -1;
        if (stream.best.count == options_.matches) {
            bar = 3e38f;
            for (uint32_t i = 0; i < options_.matches; ++i) {
                const uint32_t row = stream.best.rows[i];
                const bool is_candidate =
                    row != none_found && serials_[row] <= last && serials_[row] + count > last;
                bar = std::min(bar, is_candidate ? scores[row] : -1);
            }
            // Rows of equal score pass, so take the next smaller float. Scores are 0 or more.
            bar = bar > 0 ? std::bit_cast<float>(std::bit_cast<uint32_t>(bar) - 1) : -1;
        }
        stream.best.clear(options_.matches, bar);
        if (count == 0) {
            stream.total = 0;
            return;
        }
        const uint32_t end = row_of(last) + 1;
        const auto size = static_cast<uint32_t>(count);
        lanes_->find_best(scores, end - std::min(end, size), end, stream.best);
        if (size > end) lanes_->find_best(scores, rows_ - (size - end), rows_, stream.best);
        for (uint32_t i = stream.best.count; i < matches_max; ++i) stream.best.scores[i] = 0;
        lanes_->match_weights(stream.weights, stream.best.scores, inverse_sharpness_);
        stream.total = 0;
        for (uint32_t i = 0; i < stream.best.count; ++i) stream.total += stream.weights[i];
    }

    const lane_kernels *lanes_ = nullptr;
    options options_{};
    uint32_t layers_ = 0, experts_ = 0, words_ = 1, padded_ = 0, rows_ = 0, column_words_ = 0;
    uint32_t layer_ = 0;
    uint32_t pass_rows_ = 1, recorded_ = 0;
    uint32_t cleared_ = 0;       // layers in which the rows of the running pass hold no older data
    bool single_stream_ = true;  // one stream: the successor of a row is the next row
    float inverse_sharpness_ = 0;
    float decay_[reach + 1] = {};
    lane_array<uint64_t> bits_;              // [layers][rows][words] experts that a row used
    lane_array<uint32_t> columns_;           // [layers][experts][column words] rows that used it
    std::vector<uint32_t> previous_, next_;  // [rows] neighbours in the same stream, or none
    std::vector<uint64_t> serials_;          // [rows] running number of the row's token
    lane_array<float> spare_;                // scores under construction
    std::vector<stream> streams_;
    std::vector<uint32_t> pass_streams_, chosen_;
    uint64_t round_ = 0, newest_ = 0, pass_first_ = 0;  // serials; pass_first_: first of the
                                                        // running pass
};

}  // namespace learning
