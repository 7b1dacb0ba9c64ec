// arrivals.cpp - draws when requests come and which they are, and deals them out to passes.
#include "core/cluster/arrivals.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "core/base/portable_math.h"
#include "core/base/text.h"
#include "core/source/trace_rows.h"

namespace moorage::core {

namespace {

constexpr double ns_per_s = 1e9;
constexpr uint64_t phases_max = 65536;
constexpr double poisson_s_max = 1e7;  // a gap of 37 means still fits 64 bits of nanoseconds

// Independent streams of one home's seed.
uint64_t stream_name(uint32_t home, uint64_t what) { return uint64_t{home} * 4 + what; }

// Rounded to nearest. Anything beyond 30 years counts as never.
uint64_t arrival_ns(double seconds) {
    return seconds < 1e9
               ? static_cast<uint64_t>(std::floor(std::max(seconds, 0.0) * ns_per_s + 0.5))
               : MOORAGE_NEVER - 1;
}

}  // namespace

result<std::vector<uint64_t>> requests_of(const trace &from, std::span<const std::string> domains) {
    std::vector<uint64_t> found;
    if (domains.empty()) {
        found.resize(from.requests());
        std::iota(found.begin(), found.end(), uint64_t{0});
        return found;
    }
    if (from.request_domain().empty())
        return error{format("{}: it has no request_domain, so no domains can be chosen from it",
                            from.path().string()),
                     /*usage=*/true};
    std::vector<uint8_t> wanted(from.domains().size(), 0);
    for (const std::string &name : domains) {
        const auto known = std::ranges::find(from.domains(), name);
        if (known == from.domains().end())
            return error{format("{}: no domain is called {}{}", from.path().string(), name,
                                did_you_mean(name, from.domains())),
                         /*usage=*/true};
        wanted[static_cast<size_t>(known - from.domains().begin())] = 1;
    }
    for (uint64_t request = 0; request < from.requests(); ++request) {
        const auto domain = static_cast<size_t>(from.request_domain()[request]);
        if (domain < wanted.size() && wanted[domain]) found.push_back(request);
    }
    if (found.empty())
        return error{format("{}: no request is of the domain {}", from.path().string(),
                            fmt::join(domains, ", ")),
                     /*usage=*/true};
    return found;
}

result<arrival_source> arrival_source::make(std::vector<arrival_phase> phases,
                                            const arrival_options &options,
                                            const uint64_t *now_ns) {
    assert(now_ns != nullptr);
    if (options.batch == 0) return error{"arrivals: batch 0 is below 1", true};
    if (phases.empty() || phases.size() > phases_max)
        return error{format("arrivals: {} phases, 1 to {} are possible", phases.size(), phases_max),
                     true};
    for (size_t i = 0; i < phases.size(); ++i) {
        const arrival_phase &phase = phases[i];
        const auto wrong = [i](const std::string &what) {
            return error{format("arrivals: phase {}: {}", i, what), /*usage=*/true};
        };
        if (i > 0 && phase.from_ns <= phases[i - 1].from_ns)
            return wrong(
                format("begins at {} ns, not after {} ns", phase.from_ns, phases[i - 1].from_ns));
        if ((phase.rows != nullptr) == phase.drawn.has_value())
            return wrong("needs a trace or a table to draw from, and not both");
        if (!(phase.poisson_s >= 0 && phase.poisson_s <= poisson_s_max))
            return wrong(
                format("poisson_s {} is not within 0 .. {}", phase.poisson_s, poisson_s_max));
        if (phase.poisson_s == 0 && options.arrivals.empty())
            return wrong("has neither poisson_s nor a list of arrivals");
        const bool unknown = phase.input_tokens == 0 || phase.output_tokens == 0;
        if (phase.drawn && phase.poisson_s > 0 && unknown)
            return wrong("input_tokens and output_tokens are needed where no trace says them");
        for (const uint64_t request : phase.requests)
            if (phase.rows == nullptr || request >= phase.rows->requests())
                return wrong(format("request {} is not in its trace", request));
    }
    arrival_source made(std::move(phases), options, now_ns);
    if (const status right = made.take_shape(); !right) return right.failure();
    made.find_arrival();
    return made;
}

arrival_source::arrival_source(std::vector<arrival_phase> phases, const arrival_options &options,
                               const uint64_t *now_ns)
    : phases_(std::move(phases)),
      options_(options),
      now_ns_(now_ns),
      gaps_(options.seed, stream_name(options.home, 0)),
      choices_(options.seed, stream_name(options.home, 1)),
      draw_seed_(random_stream(options.seed, stream_name(options.home, 2)).next()),
      cursor_ns_(std::max(options.begin_ns, phases_.front().from_ns)),
      streams_(options.batch) {}

// Takes the properties that all phases share. Their shapes must be equal.
status arrival_source::take_shape() {
    offers_ = MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS | MOORAGE_NEEDS_PREDICTIONS;
    scored_ = true;
    for (size_t i = 0; i < phases_.size(); ++i) {
        const arrival_phase &phase = phases_[i];
        const trace *rows = phase.rows;
        const uint32_t layers = rows ? rows->layers() : phase.drawn->layers();
        const uint32_t experts = rows ? rows->experts() : phase.drawn->experts();
        const uint32_t top_k = rows ? rows->top_k() : phase.drawn->top_k();
        if (i == 0) layers_ = layers, experts_ = experts, top_k_ = top_k;
        if (layers != layers_ || experts != experts_ || top_k != top_k_)
            return error{format("arrivals: phase {} has {} layers, {} experts, top {}; phase 0 has "
                                "{}, {}, top {}",
                                i, layers, experts, top_k, layers_, experts_, top_k_),
                         /*usage=*/true};
        const uint32_t predictions = rows ? rows->predictions() : 0;
        predictions_ = i == 0 ? predictions : std::min(predictions_, predictions);
        offers_ &= rows ? rows->offers() : 0;
        scored_ = scored_ && rows && rows->has_prediction_scores();
    }
    return success();
}

uint32_t arrival_source::tokens_max() const {
    return std::max(options_.batch, options_.prefill_max);
}

// Finds out when the next request comes, and in which phase.
void arrival_source::find_arrival() {
    next_ = {};
    if (arrived_ >= options_.requests_max) return;
    for (;; ++next_phase_) {
        const bool last = next_phase_ + 1 == phases_.size();
        const uint64_t until_ns =
            last ? options_.end_ns : std::min(phases_[next_phase_ + 1].from_ns, options_.end_ns);
        if (phases_[next_phase_].poisson_s > 0 ? draw_arrival(until_ns) : list_arrival(until_ns))
            break;
        // The length of the last gap is not kept: a phase begins a new one.
        cursor_ns_ = std::max(cursor_ns_, until_ns);
        if (last || cursor_ns_ >= options_.end_ns) return;
    }
    ++arrived_;
}

bool arrival_source::draw_arrival(uint64_t until_ns) {
    // In (0, 1], so that its logarithm is finite.
    const double share = static_cast<double>((gaps_.next() >> 11) + 1) * 0x1p-53;
    const double gap_ns = -portable_log(share) * phases_[next_phase_].poisson_s * ns_per_s;
    const auto gap = static_cast<uint64_t>(std::ceil(gap_ns));
    if (cursor_ns_ >= until_ns || gap >= until_ns - cursor_ns_) return false;
    next_.at_ns = cursor_ns_ += gap;
    return true;
}

bool arrival_source::list_arrival(uint64_t until_ns) {
    const std::span<const arrival> all = options_.arrivals;
    while (next_listed_ < all.size() && arrival_ns(all[next_listed_].at_s) < cursor_ns_)
        ++next_listed_;
    if (next_listed_ == all.size()) return false;
    const arrival &one = all[next_listed_];
    if (arrival_ns(one.at_s) >= until_ns) return false;
    ++next_listed_;
    // A request of no input still begins with a token.
    next_ = {arrival_ns(one.at_s), std::max(one.input_tokens, 1u), std::max(one.output_tokens, 1u)};
    cursor_ns_ = next_.at_ns;
    return true;
}

void arrival_source::admit() {
    for (stream &one : streams_) {
        if (next_.at_ns == MOORAGE_NEVER || next_.at_ns > *now_ns_) return;
        if (!one.live) begin_request(one);
    }
}

void arrival_source::begin_request(stream &one) {
    const arrival_phase &phase = phases_[next_phase_];
    request_times times;
    times.arrived_ns = next_.at_ns;
    times.phase = next_phase_;
    times.input_tokens = next_.input_tokens != 0 ? next_.input_tokens : phase.input_tokens;
    times.output_tokens = next_.output_tokens != 0 ? next_.output_tokens : phase.output_tokens;
    one = {true, requests_.size(), 0, 0, 0};
    if (phase.rows != nullptr) {
        const trace &rows = *phase.rows;
        const std::vector<uint64_t> &choice = phase.requests;
        const uint64_t drawn = choices_.below(choice.empty() ? rows.requests() : choice.size());
        times.trace_request = choice.empty() ? drawn : choice[drawn];
        one.begin = rows.request_offsets()[times.trace_request];
        one.length = rows.request_offsets()[times.trace_request + 1] - one.begin;
        arrival lengths{0, times.input_tokens, times.output_tokens};
        complete_lengths(static_cast<uint32_t>(std::min<uint64_t>(one.length, UINT32_MAX / 2)),
                         lengths);
        times.input_tokens = lengths.input_tokens;
        times.output_tokens = lengths.output_tokens;
    } else {
        one.begin = drawn_tokens_;
        one.length = uint64_t{times.input_tokens} + times.output_tokens - 1;
        drawn_tokens_ += one.length;
    }
    requests_.push_back(times);
    ++live_;
    find_arrival();
}

uint64_t arrival_source::row_at(const stream &one, uint64_t position) const {
    return row_of(requests_[one.request].phase, one.begin + position % one.length);
}

// Hands out the next token of a stream; `decoded`: in a pass with others.
void arrival_source::add_token(pass &out, stream &one, bool decoded) {
    request_times &times = requests_[one.request];
    const uint32_t position = one.done++, prompt = times.input_tokens;
    const uint32_t all = prompt + times.output_tokens - 1;
    pass_token token;
    token.row = row_at(one, position);
    token.request = one.request;
    token.stream = static_cast<uint32_t>(&one - streams_.data());
    token.position = position;
    token.first = position + 1 == prompt;
    token.last = position + 1 == all;
    token.output = position + 1 >= prompt;
    token.silent = decoded && !token.output;
    token.arrived_ns = times.arrived_ns;
    if (!token.last && (decoded || token.first)) token.next_row = row_at(one, position + 1u);
    out.tokens.push_back(token);
    if (position == 0) times.started_ns = *now_ns_;
    if (!token.last) return;
    one.live = false;
    --live_;
}

// A prompt of one token is decoded with the others.
bool arrival_source::prefill_pass(pass &out) {
    if (options_.prefill_max == 0) return false;
    stream *oldest = nullptr;
    for (stream &one : streams_) {
        if (!one.live) continue;
        const uint32_t prompt = requests_[one.request].input_tokens;
        if (prompt > 1 && one.done < prompt && (!oldest || one.request < oldest->request))
            oldest = &one;
    }
    if (oldest == nullptr) return false;
    out.phase = MOORAGE_PREFILL;
    const uint32_t left = requests_[oldest->request].input_tokens - oldest->done;
    for (uint32_t i = std::min(left, options_.prefill_max); i > 0; --i)
        add_token(out, *oldest, /*decoded=*/false);
    return true;
}

bool arrival_source::next(pass &out) {
    out.tokens.clear();
    admit();
    if (prefill_pass(out)) return true;
    out.phase = MOORAGE_DECODE;
    for (stream &one : streams_)
        if (one.live) add_token(out, one, /*decoded=*/true);
    return !out.tokens.empty();
}

uint64_t arrival_source::wakes_ns() const { return next_.at_ns; }

void arrival_source::pass_done(const pass &of, uint64_t now_ns) {
    for (const pass_token &token : of.tokens) {
        if (token.first) requests_[token.request].first_ns = now_ns;
        if (token.last) requests_[token.request].ended_ns = now_ns;
    }
}

void arrival_source::route(const pass &of, uint32_t layer, uint32_t *chosen) {
    for (const pass_token &token : of.tokens) {
        const arrival_phase &phase = phases_[phase_of(token.row)];
        if (phase.rows != nullptr)
            route_row(*phase.rows, place_of(token.row), layer, chosen);
        else
            phase.drawn->draw(draw_seed_, place_of(token.row), layer, chosen);
        chosen += top_k_;
    }
}

void arrival_source::weights(const pass &of, uint32_t layer, float *out) {
    for (const pass_token &token : of.tokens) {
        weights_row(*phases_[phase_of(token.row)].rows, place_of(token.row), layer, out);
        out += top_k_;
    }
}

void arrival_source::gate_scores(const pass &of, uint32_t layer, float *out) {
    for (const pass_token &token : of.tokens) {
        phases_[phase_of(token.row)].rows->gate_scores(place_of(token.row), layer, out);
        out += experts_;
    }
}

void arrival_source::weigh(const pass &of, uint32_t layer, const uint32_t *chosen, float *out) {
    for (const pass_token &token : of.tokens) {
        const arrival_phase &phase = phases_[phase_of(token.row)];
        if (phase.rows != nullptr) {
            weigh_row(*phase.rows, place_of(token.row), layer, chosen, out);
        } else {
            for (uint32_t rank = 0; rank < top_k_; ++rank)
                if (std::isnan(out[rank])) out[rank] = 0;
        }
        chosen += top_k_;
        out += top_k_;
    }
}

uint32_t arrival_source::predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) {
    if (predictions_ == 0) return 0;
    predict_row(*phases_[phase_of(row)].rows, place_of(row), layer, predictions_, experts, scores);
    return predictions_;
}

}  // namespace moorage::core
