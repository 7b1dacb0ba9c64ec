// replay.cpp - one counting replay: through the policy's replay function, or step by step.
#include "core/cache/replay.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>

#include "core/base/invariant.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/cache/cache_stage.h"
#include "core/cache/optimum.h"
#include "core/cache/replay_account.h"
#include "core/store/ledger.h"

namespace moorage::core {

namespace {

constexpr uint32_t batch_requests = 4096;  // both arrays of a batch stay in the first-level cache
constexpr uint32_t fast_width_max = 64;    // replay.hpp keeps the victims of a step in 64 places
constexpr uint64_t release_requests = 1u << 20;

std::string_view policy_name(const replay_job &job) { return job.cache_policy->name(); }

replay_shape shape_of(order requests, uint32_t top_k) {
    switch (requests) {
        case order::rounds:
            return {top_k, 1, 1};
        case order::serial:
            return {1, top_k, 1};
        case order::token:
            break;
    }
    return {1, 1, top_k};
}

// Hands out whole tokens of a trace, their experts in the order of requests.
class token_reader {
public:
    token_reader(const trace &source, const replay_job &job)
        : source_(source),
          transposed_(job.requests == order::rounds),
          tokens_(job.tokens == 0 ? source.tokens() : std::min(job.tokens, source.tokens())),
          token_requests_(source.layers() * source.top_k()),
          batch_(std::max(1u, batch_requests / token_requests_)),
          experts_(size_t{batch_} * token_requests_),
          ranked_(transposed_ ? experts_.size() : 0),
          requests_(batch_) {}

    // False at the end.
    bool next() {
        first_ += count_;
        count_ = static_cast<uint32_t>(std::min<uint64_t>(batch_, tokens_ - first_));
        if (count_ == 0) return false;
        if ((first_ - released_) * token_requests_ >= release_requests) {
            source_.release_before(first_);
            released_ = first_;
        }
        source_.read_experts(first_, count_, transposed_ ? ranked_.data() : experts_.data());
        if (transposed_) transpose();
        const auto offsets = source_.request_offsets();
        for (uint32_t i = 0; i < count_; ++i) {
            while (first_ + i >= offsets[request_ + 1]) ++request_;
            requests_[i] = request_;
        }
        return true;
    }

    uint64_t first() const { return first_; }
    uint32_t count() const { return count_; }
    uint64_t tokens() const { return tokens_; }
    uint32_t batch() const { return batch_; }
    uint32_t token_requests() const { return token_requests_; }
    const uint32_t *experts() const { return experts_.data(); }
    const uint64_t *requests() const { return requests_.data(); }

private:
    // [token, layer, rank] to [token, rank, layer].
    void transpose() {
        const uint32_t layers = source_.layers(), top_k = source_.top_k();
        for (uint32_t token = 0; token < count_; ++token) {
            const uint32_t *source = ranked_.data() + size_t{token} * token_requests_;
            uint32_t *target = experts_.data() + size_t{token} * token_requests_;
            for (uint32_t layer = 0; layer < layers; ++layer)
                for (uint32_t rank = 0; rank < top_k; ++rank)
                    target[rank * layers + layer] = source[layer * top_k + rank];
        }
    }

    const trace &source_;
    const bool transposed_;
    const uint64_t tokens_;
    const uint32_t token_requests_, batch_;
    lent_vector<uint32_t> experts_;
    std::vector<uint32_t> ranked_;
    lent_vector<uint64_t> requests_;
    uint64_t first_ = 0, released_ = 0, request_ = 0;
    uint32_t count_ = 0;
};

// The parts of a run. They are built anew for each attempt, so nothing of a failed attempt is left.
class replay_run {
public:
    replay_run(const trace &source, const replay_job &job, const replay_progress &progress)
        : source_(source),
          job_(job),
          progress_(progress),
          ledger_(source.layers(), source.experts(),
                  divide_slots(job.slots, source.layers(), job.pools == sharing::per_layer)),
          shape_(shape_of(job.requests, source.top_k())),
          faults_(job.action) {}

    status prepare(const future *future);
    // Outcomes cannot show that a policy which refuses pages gave too few victims, and only single
    // steps carry scores.
    bool has_fast_path() const {
        constexpr uint32_t scores = MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS;
        const moorage_cache &cache = *policy_->cache;
        return !job_.stepwise && policy_->replayer != nullptr && cache.admit == nullptr &&
               cache.hold == nullptr && cache.give_up == nullptr &&
               shape_.width <= fast_width_max &&
               (job_.cache_policy->descriptor->needs & scores) == 0;
    }
    // Nothing when an outcome was wrong.
    std::optional<replay_result> run_fast();
    result<replay_result> run_stepwise(bool fast_failed);

private:
    struct step_arrays {
        lent_vector<float> weights, gate_scores, distinct_scores;
        std::vector<uint32_t> missing;
        std::vector<placement_in_cache> placed;
    };
    bool take_step(cache_stage &stage, const moorage_step *lent_step, moorage_step &step,
                   step_arrays &arrays);
    void add_scores(moorage_step &step, step_arrays &arrays) const;
    replay_result finish(const token_reader &reader, std::vector<uint64_t> layer_misses,
                         std::chrono::steady_clock::time_point begin) const;
    void report_progress(uint64_t requests) const {
        if (progress_) progress_(requests);
    }

    const trace &source_;
    const replay_job &job_;
    const replay_progress &progress_;
    ledger ledger_;
    const replay_shape shape_;
    fault_log faults_;
    std::optional<future_cursor> future_;
    std::unique_ptr<instance> policy_;
    std::vector<uint64_t> layer_misses_;
    uint64_t bypasses_ = 0;
};

status replay_run::prepare(const future *future) {
    if (future != nullptr) future_.emplace(*future, job_.requests);
    environment policy_environment;
    policy_environment.residency = ledger_.view();
    policy_environment.future = future_ ? &*future_ : nullptr;
    policy_environment.seed = job_.seed;
    policy_environment.faults = &faults_;
    policy_environment.kind = "cache";
    auto policy = instance::create(*job_.cache_policy, job_.params, policy_environment);
    if (!policy) return policy.failure();
    policy_ = std::move(*policy);
    if (policy_->cache == nullptr)
        return error{format("policy {} is not of kind cache; `plugins list` shows those that are",
                            policy_name(job_)),
                     true};
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = source_.layers();
    limits.experts = source_.experts();
    limits.top_k = source_.top_k();
    limits.tokens_max = limits.requests_max = limits.segments = 1;
    limits.pools = ledger_.pools();
    limits.slots = job_.slots;
    limits.expert_bytes = 1;  // bytes are not modelled: an expert is one unit
    const moorage_store fast_store{sizeof(fast_store), MOORAGE_STORE_FAST, job_.slots, 1};
    limits.stores = 1;
    limits.host_stores = &fast_store;
    return policy_->activate(limits);
}

std::optional<replay_result> replay_run::run_fast() {
    token_reader reader(source_, job_);
    replay_account account(ledger_, shape_);
    fenced_vector<uint32_t> outcomes(size_t{reader.batch()} * reader.token_requests());
    const instance::stepping stepping;
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t visits = uint64_t{shape_.rounds} * source_.layers();
    while (reader.next()) {
        const uint64_t visit = reader.first() * visits;
        const moorage_replay batch{sizeof(batch),
                                   0,
                                   visit * shape_.repeats,
                                   visit,
                                   reader.first(),
                                   reader.count(),
                                   shape_.rounds,
                                   shape_.repeats,
                                   shape_.width,
                                   lent(reader.experts()),
                                   lent(reader.requests()),
                                   ledger_.hand_over().state,
                                   ledger_.hand_over().used,
                                   outcomes.data()};
        note_step(MOORAGE_NONE, reader.first());  // and those after it
        policy_->call(entry_point::replay_replay, policy_->replayer->replay, &batch);
        if (!faults_.fatal().empty()) return std::nullopt;
        if (!account.follow(reader.experts(), outcomes.data(), reader.count())) return std::nullopt;
        report_progress(uint64_t{reader.count()} * reader.token_requests());
    }
    bypasses_ = account.bypasses();
    replay_result counts = finish(reader, account.layer_misses(), begin);
    counts.fast = true;
    return counts;
}

result<replay_result> replay_run::run_stepwise(bool fast_failed) {
    token_reader reader(source_, job_);
    cache_stage stage(*policy_, ledger_, faults_);
    layer_misses_.assign(source_.layers(), 0);
    step_arrays arrays;
    arrays.missing.reserve(shape_.width);
    arrays.placed.resize(shape_.width);
    const lent_vector<uint32_t> stream(1, 0);
    lent_record<moorage_step> lent_step;
    moorage_step &step = *lent_step;
    step.size = sizeof(step);
    step.phase = MOORAGE_DECODE;
    step.token_count = 1;
    step.top_k = step.distinct_count = shape_.width;
    step.experts = source_.experts();
    step.host_streams = lent(stream);

    const instance::stepping stepping;
    const auto begin = std::chrono::steady_clock::now();
    while (reader.next()) {
        const uint32_t *experts = reader.experts();
        for (uint32_t i = 0; i < reader.count(); ++i) {
            step.token = reader.first() + i;
            step.host_requests = lent(reader.requests() + i);
            for (uint32_t visit = 0; visit < shape_.rounds * source_.layers();
                 ++visit, ++step.visit) {
                step.layer = visit % source_.layers();
                for (uint32_t repeat = 0; repeat < shape_.repeats; ++repeat, ++step.index) {
                    step.host_chosen = step.host_distinct = lent(experts);
                    experts += shape_.width;
                    if (!take_step(stage, lent_step.lent(), step, arrays))
                        return error{
                            format("{}; `--on-fault replace` goes on with the default in "
                                   "its place",
                                   faults_.fatal())};
                }
            }
        }
        report_progress(uint64_t{reader.count()} * reader.token_requests());
    }
    if (fast_failed && faults_.count(policy_name(job_)) == 0 &&
        !faults_.report(policy_name(job_),
                        "the replay function gives outcomes that cannot be, though the "
                        "same steps one by one are right"))
        return error{faults_.fatal()};
    return finish(reader, layer_misses_, begin);
}

// Scores of the trace for policies that say they need them, with the meaning of moorage_step.
void replay_run::add_scores(moorage_step &step, step_arrays &arrays) const {
    const uint32_t needs = job_.cache_policy->descriptor->needs;
    if (needs & MOORAGE_NEEDS_WEIGHTS) {
        arrays.weights.resize(shape_.width);
        for (uint32_t rank = 0; rank < shape_.width; ++rank)
            arrays.weights[rank] = source_.weight(step.token, step.layer, rank);
        step.host_weights = step.host_distinct_scores = lent(arrays.weights);
    }
    if (needs & MOORAGE_NEEDS_GATE_SCORES) {
        arrays.gate_scores.resize(source_.experts());
        arrays.distinct_scores.resize(shape_.width);
        source_.gate_scores(step.token, step.layer, arrays.gate_scores.data());
        for (uint32_t rank = 0; rank < shape_.width; ++rank)
            arrays.distinct_scores[rank] = arrays.gate_scores[step.host_chosen[rank]];
        step.host_gate_scores = lent(arrays.gate_scores);
        step.host_distinct_scores = lent(arrays.distinct_scores);
    }
}

// As in replay.hpp: single requests pin nothing; the experts of an event are pinned while it runs.
bool replay_run::take_step(cache_stage &stage, const moorage_step *lent_step, moorage_step &step,
                           step_arrays &arrays) {
    note_step(step.layer, step.token);
    const uint32_t base = step.layer * step.experts;
    arrays.missing.clear();
    for (uint32_t i = 0; i < shape_.width; ++i) {
        const uint32_t page = base + step.host_chosen[i];
        if (ledger_.state(page) == 0) arrays.missing.push_back(page);
        if (shape_.width > 1) ledger_.pin(page);
    }
    add_scores(step, arrays);
    if (policy_->observer != nullptr && policy_->observer->observe != nullptr)
        policy_->call(entry_point::observer_observe, policy_->observer->observe, lent_step);
    const std::span placed(arrays.placed.data(), arrays.missing.size());
    if (!stage.load(arrays.missing, MOORAGE_DEMAND, true, placed)) return false;
    if (shape_.width > 1)
        for (uint32_t i = 0; i < shape_.width; ++i) ledger_.unpin(base + step.host_chosen[i], true);
    layer_misses_[step.layer] += arrays.missing.size();
    for (const placement_in_cache &place : placed) bypasses_ += !place.cached;
    return faults_.fatal().empty();
}

replay_result replay_run::finish(const token_reader &reader, std::vector<uint64_t> layer_misses,
                                 std::chrono::steady_clock::time_point begin) const {
    note_no_step();
    replay_result counts;
    counts.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    counts.requests = reader.tokens() * reader.token_requests();
    counts.misses = std::accumulate(layer_misses.begin(), layer_misses.end(), uint64_t{0});
    counts.hits = counts.requests - counts.misses;
    counts.bypasses = bypasses_;
    counts.layer_misses = std::move(layer_misses);
    counts.faults = faults_.count(policy_name(job_));
    counts.parameters = policy_->parameters();
    return counts;
}

}  // namespace

replay_result count_optimum(const trace &source, const replay_job &job) {
    const auto begin = std::chrono::steady_clock::now();
    const replay_shape shape = shape_of(job.requests, source.top_k());
    const uint32_t layers = source.layers(), step = shape.width;
    const std::vector<uint32_t> slots =
        divide_slots(job.slots, layers, job.pools == sharing::per_layer);
    optimum_counter optimum(layers, source.experts(), slots, step);
    token_reader reader(source, job);
    while (reader.next()) {
        const uint32_t *experts = reader.experts();
        for (uint32_t visit = 0; visit < reader.count() * shape.rounds; ++visit)
            for (uint32_t layer = 0; layer < layers; ++layer)
                for (uint32_t repeat = 0; repeat < shape.repeats; ++repeat, experts += step)
                    optimum.step(layer, experts);
    }
    replay_result counts;
    counts.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    counts.requests = reader.tokens() * reader.token_requests();
    counts.misses = optimum.misses();
    counts.hits = counts.requests - counts.misses;
    return counts;
}

status check_replay(const trace &source, const replay_job &job) {
    if (job.optimum) return success();
    MOORAGE_INVARIANT(job.cache_policy != nullptr);
    const uint32_t needs = job.cache_policy->descriptor->needs;
    for (uint32_t need = 1; need <= MOORAGE_NEEDS_FUTURE; need <<= 1)
        if ((needs & need) != 0 && (source.offers() & need) == 0)
            return error{
                format("cache policy {} needs tensor {}, which trace {} lacks; choose another "
                       "policy or a trace recorded with it",
                       policy_name(job), trace::tensor_of(need), source.path().string()),
                true};
    if (needs & MOORAGE_NEEDS_PREDICTIONS)
        return error{
            format("cache policy {} needs predictions, which a replay does not hand out; use "
                   "`moorage run`, whose prefetch stage makes them",
                   policy_name(job)),
            true};
    if ((needs & (MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS)) != 0 &&
        job.requests != order::token)
        return error{format("cache policy {} needs router scores, which belong to whole steps; use "
                            "--order token instead of {}",
                            policy_name(job), name_of(job.requests)),
                     true};
    return success();
}

static result<replay_result> try_replay(const trace &source, const future *future,
                                        const replay_job &job, const replay_progress &progress) {
    if (job.optimum) {
        replay_result counts = count_optimum(source, job);
        if (progress) progress(counts.requests);
        return counts;
    }
    if (const status supported = check_replay(source, job); !supported) return supported.failure();
    MOORAGE_INVARIANT(future != nullptr ||
                      (job.cache_policy->descriptor->needs & MOORAGE_NEEDS_FUTURE) == 0);
    bool fast_failed = false;
    {
        replay_run attempt(source, job, progress);
        if (const status ready = attempt.prepare(future); !ready) return ready.failure();
        if (!attempt.has_fast_path()) return attempt.run_stepwise(false);
        if (auto counts = attempt.run_fast()) return std::move(*counts);
        fast_failed = true;
    }
    replay_run retry(source, job, progress);
    if (const status ready = retry.prepare(future); !ready) return ready.failure();
    return retry.run_stepwise(fast_failed);
}

result<replay_result> replay(const trace &source, const future *future, const replay_job &job,
                             const replay_progress &progress) {
    auto counts = try_replay(source, future, job, progress);
    // Check this before any other failure: errors that follow from a changed file are no fault of a
    // policy.
    if (const status unchanged = mapped_files_unchanged(); !unchanged) return unchanged.failure();
    return counts;
}

}  // namespace moorage::core
