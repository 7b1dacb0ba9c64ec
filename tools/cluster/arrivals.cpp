// arrivals.cpp - draws when requests come and which they are, and deals them out to passes.
#include "tools/cluster/arrivals.h"

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
uint64_t stream_name(uint32_t home, uint64_t stream) { return uint64_t{home} * 4 + stream; }

// Rounded to nearest. Anything beyond 30 years counts as never.
uint64_t arrival_ns(double seconds) {
    return seconds < 1e9
               ? static_cast<uint64_t>(std::floor(std::max(seconds, 0.0) * ns_per_s + 0.5))
               : MOORAGE_NEVER - 1;
}

}  // namespace

result<std::vector<uint64_t>> requests_of(const trace &trace,
                                          std::span<const std::string> domains) {
    std::vector<uint64_t> found;
    if (domains.empty()) {
        found.resize(trace.requests());
        std::iota(found.begin(), found.end(), uint64_t{0});
        return found;
    }
    if (trace.request_domain().empty())
        return error{format("{}: it has no request_domain, so no domains can be chosen from it",
                            trace.path().string()),
                     /*usage=*/true};
    std::vector<uint8_t> wanted(trace.domains().size(), 0);
    for (const std::string &name : domains) {
        const auto known = std::ranges::find(trace.domains(), name);
        if (known == trace.domains().end())
            return error{format("{}: no domain is called {}{}", trace.path().string(), name,
                                did_you_mean(name, trace.domains())),
                         /*usage=*/true};
        wanted[static_cast<size_t>(known - trace.domains().begin())] = 1;
    }
    for (uint64_t request = 0; request < trace.requests(); ++request) {
        const auto domain = static_cast<size_t>(trace.request_domain()[request]);
        if (domain < wanted.size() && wanted[domain]) found.push_back(request);
    }
    if (found.empty())
        return error{format("{}: no request is of the domain {}", trace.path().string(),
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
        const auto wrong = [i](const std::string &problem) {
            return error{format("arrivals: phase {}: {}", i, problem), /*usage=*/true};
        };
        if (i > 0 && phase.begin_ns <= phases[i - 1].begin_ns)
            return wrong(
                format("begins at {} ns, not after {} ns", phase.begin_ns, phases[i - 1].begin_ns));
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
    arrival_source source(std::move(phases), options, now_ns);
    if (const status right = source.check_shape(); !right) return right.failure();
    source.find_arrival();
    return source;
}

arrival_source::arrival_source(std::vector<arrival_phase> phases, const arrival_options &options,
                               const uint64_t *now_ns)
    : phases_(std::move(phases)),
      options_(options),
      now_ns_(now_ns),
      gaps_(options.seed, stream_name(options.home, 0)),
      choices_(options.seed, stream_name(options.home, 1)),
      draw_seed_(random_stream(options.seed, stream_name(options.home, 2)).next()),
      cursor_ns_(std::max(options.begin_ns, phases_.front().begin_ns)),
      streams_(options.batch) {}

// Takes the properties that all phases share. Their shapes must be equal.
status arrival_source::check_shape() {
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
            last ? options_.end_ns : std::min(phases_[next_phase_ + 1].begin_ns, options_.end_ns);
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
    const std::span<const arrival> arrivals = options_.arrivals;
    while (next_listed_ < arrivals.size() && arrival_ns(arrivals[next_listed_].at_s) < cursor_ns_)
        ++next_listed_;
    if (next_listed_ == arrivals.size()) return false;
    const arrival &candidate = arrivals[next_listed_];
    if (arrival_ns(candidate.at_s) >= until_ns) return false;
    ++next_listed_;
    // A request of no input still begins with a token.
    next_ = {arrival_ns(candidate.at_s), std::max(candidate.input_tokens, 1u),
             std::max(candidate.output_tokens, 1u)};
    cursor_ns_ = next_.at_ns;
    return true;
}

void arrival_source::admit() {
    for (stream &stream : streams_) {
        if (next_.at_ns == MOORAGE_NEVER || next_.at_ns > *now_ns_) return;
        if (!stream.live) begin_request(stream);
    }
}

void arrival_source::begin_request(stream &stream) {
    const arrival_phase &phase = phases_[next_phase_];
    request_times times;
    times.arrived_ns = next_.at_ns;
    times.phase = next_phase_;
    times.input_tokens = next_.input_tokens != 0 ? next_.input_tokens : phase.input_tokens;
    times.output_tokens = next_.output_tokens != 0 ? next_.output_tokens : phase.output_tokens;
    stream = {true, requests_.size(), 0, 0, 0};
    if (phase.rows != nullptr) {
        const trace &rows = *phase.rows;
        const std::vector<uint64_t> &choice = phase.requests;
        const uint64_t drawn = choices_.below(choice.empty() ? rows.requests() : choice.size());
        times.trace_request = choice.empty() ? drawn : choice[drawn];
        stream.begin = rows.request_offsets()[times.trace_request];
        stream.length = rows.request_offsets()[times.trace_request + 1] - stream.begin;
        arrival lengths{0, times.input_tokens, times.output_tokens};
        complete_lengths(static_cast<uint32_t>(std::min<uint64_t>(stream.length, UINT32_MAX / 2)),
                         lengths);
        times.input_tokens = lengths.input_tokens;
        times.output_tokens = lengths.output_tokens;
    } else {
        stream.begin = drawn_tokens_;
        stream.length = uint64_t{times.input_tokens} + times.output_tokens - 1;
        drawn_tokens_ += stream.length;
    }
    requests_.push_back(times);
    ++live_;
    find_arrival();
}

uint64_t arrival_source::row_at(const stream &stream, uint64_t position) const {
    return row_of(requests_[stream.request].phase, stream.begin + position % stream.length);
}

// Hands out the next token of a stream; `decoded`: in a pass with others.
void arrival_source::add_token(pass &pass, stream &stream, bool decoded) {
    request_times &times = requests_[stream.request];
    const uint32_t position = stream.done++, prompt = times.input_tokens;
    const uint32_t token_count = prompt + times.output_tokens - 1;
    pass_token token;
    token.row = row_at(stream, position);
    token.request = stream.request;
    token.stream = static_cast<uint32_t>(&stream - streams_.data());
    token.position = position;
    token.first = position + 1 == prompt;
    token.last = position + 1 == token_count;
    token.output = position + 1 >= prompt;
    token.silent = decoded && !token.output;
    token.arrived_ns = times.arrived_ns;
    if (!token.last && (decoded || token.first)) token.next_row = row_at(stream, position + 1u);
    pass.tokens.push_back(token);
    if (position == 0) times.started_ns = *now_ns_;
    if (!token.last) return;
    stream.live = false;
    --live_;
}

// A prompt of one token is decoded with the others.
bool arrival_source::prefill_pass(pass &pass) {
    if (options_.prefill_max == 0) return false;
    stream *oldest = nullptr;
    for (stream &stream : streams_) {
        if (!stream.live) continue;
        const uint32_t prompt = requests_[stream.request].input_tokens;
        if (prompt > 1 && stream.done < prompt && (!oldest || stream.request < oldest->request))
            oldest = &stream;
    }
    if (oldest == nullptr) return false;
    pass.phase = MOORAGE_PREFILL;
    const uint32_t left = requests_[oldest->request].input_tokens - oldest->done;
    for (uint32_t i = std::min(left, options_.prefill_max); i > 0; --i)
        add_token(pass, *oldest, /*decoded=*/false);
    return true;
}

bool arrival_source::next(pass &pass) {
    pass.tokens.clear();
    admit();
    if (prefill_pass(pass)) return true;
    pass.phase = MOORAGE_DECODE;
    for (stream &stream : streams_)
        if (stream.live) add_token(pass, stream, /*decoded=*/true);
    return !pass.tokens.empty();
}

uint64_t arrival_source::wakes_ns() const { return next_.at_ns; }

void arrival_source::pass_done(const pass &pass, uint64_t now_ns) {
    for (const pass_token &token : pass.tokens) {
        if (token.first) requests_[token.request].first_ns = now_ns;
        if (token.last) requests_[token.request].ended_ns = now_ns;
    }
}

void arrival_source::route(const pass &pass, uint32_t layer, uint32_t *chosen) {
    for (const pass_token &token : pass.tokens) {
        const arrival_phase &phase = phases_[phase_of(token.row)];
        if (phase.rows != nullptr)
            route_row(*phase.rows, row_in_phase(token.row), layer, chosen);
        else
            phase.drawn->draw(draw_seed_, row_in_phase(token.row), layer, chosen);
        chosen += top_k_;
    }
}

void arrival_source::weights(const pass &pass, uint32_t layer, float *weights) {
    for (const pass_token &token : pass.tokens) {
        weights_row(*phases_[phase_of(token.row)].rows, row_in_phase(token.row), layer, weights);
        weights += top_k_;
    }
}

void arrival_source::gate_scores(const pass &pass, uint32_t layer, float *scores) {
    for (const pass_token &token : pass.tokens) {
        phases_[phase_of(token.row)].rows->gate_scores(row_in_phase(token.row), layer, scores);
        scores += experts_;
    }
}

void arrival_source::weigh(const pass &pass, uint32_t layer, const uint32_t *chosen,
                           float *weights) {
    for (const pass_token &token : pass.tokens) {
        const arrival_phase &phase = phases_[phase_of(token.row)];
        if (phase.rows != nullptr) {
            weigh_row(*phase.rows, row_in_phase(token.row), layer, chosen, weights);
        } else {
            for (uint32_t rank = 0; rank < top_k_; ++rank)
                if (std::isnan(weights[rank])) weights[rank] = 0;
        }
        chosen += top_k_;
        weights += top_k_;
    }
}

uint32_t arrival_source::predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) {
    if (predictions_ == 0) return 0;
    predict_row(*phases_[phase_of(row)].rows, row_in_phase(row), layer, predictions_, experts,
                scores);
    return predictions_;
}

}  // namespace moorage::core
