// tests_replay.cpp - a policy's replay function does what its other functions do one by one.
#include <algorithm>

#include "core/base/text.h"
#include "core/store/ledger.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;

namespace {

struct replay_order {
    uint32_t rounds, repeats, width;
    const char *name;
};

// A model, a trace in the order of one shape, and residency. Each of the two compared sides has
// one.
class replay_world {
public:
    replay_world(const replay_order &s, uint32_t slots, bool per_layer, uint64_t seed)
        : shape_(s),
          split_(layers, 1.0f),
          state_(layers * experts),
          slots_(core::divide_slots(slots, layers, per_layer)),
          used_(slots_.size()),
          seed_(seed) {
        const auto pools = static_cast<uint32_t>(slots_.size());
        view_ = {sizeof(view_), 0,
                 layers,        experts,
                 pools,         0,
                 state_.data(), slots_.data(),
                 used_.data(),  split_.data(),
                 nullptr,       nullptr};
        limits_.size = sizeof(limits_);
        limits_.layers = layers, limits_.experts = experts, limits_.top_k = top_k;
        limits_.tokens_max = limits_.requests_max = limits_.segments = 1;
        limits_.pools = pools, limits_.slots = slots, limits_.expert_bytes = 1;
        draw_trace();
    }

    core::environment environment() { return {&view_, nullptr, nullptr, &future_, seed_}; }
    const moorage_limits &limits() const { return limits_; }

    // Uses the policy's own replay function, in pieces of uneven length.
    std::vector<uint32_t> run_replay(actor &policy) {
        std::vector<uint32_t> outcomes(trace_.size());
        dice draw(seed_);
        for (uint32_t token = 0; token < tokens;) {
            const uint32_t count = std::min(1 + draw.below(7), tokens - token);
            const uint64_t visit = uint64_t{token} * shape_.rounds * layers;
            const size_t first_entry = size_t{token} * layers * top_k;
            const moorage_replay part{sizeof(part),
                                      0,
                                      visit * shape_.repeats,
                                      visit,
                                      token,
                                      count,
                                      shape_.rounds,
                                      shape_.repeats,
                                      shape_.width,
                                      trace_.data() + first_entry,
                                      requests_.data() + token,
                                      state_.data(),
                                      used_.data(),
                                      outcomes.data() + first_entry};
            const core::policy_call running_call(policy.owner, core::entry_point::replay_replay);
            const core::instance::stepping mark;
            policy.replayer->replay(policy.plugin, &part);
            token += count;
        }
        return outcomes;
    }
    // Uses observe, victims, admit, on_evict and on_load.
    std::vector<uint32_t> run_step_by_step(actor &policy) {
        std::vector<uint32_t> outcomes(trace_.size(), MOORAGE_REPLAY_KEPT);
        const uint32_t *experts = trace_.data();
        uint32_t *next_outcome = outcomes.data();
        moorage_step step{};
        static constexpr uint32_t stream = 0;
        step.size = sizeof(step);
        step.phase = MOORAGE_DECODE;
        step.token_count = 1, step.experts = replay_world::experts;
        step.top_k = step.distinct_count = shape_.width;
        step.host_streams = &stream;
        for (uint32_t token = 0; token < tokens; ++token)
            for (uint32_t round = 0; round < shape_.rounds; ++round)
                for (uint32_t layer = 0; layer < layers; ++layer, ++step.visit)
                    for (uint32_t repeat = 0; repeat < shape_.repeats; ++repeat, ++step.index) {
                        step.token = token, step.layer = layer;
                        step.host_requests = &requests_[token];
                        step.host_chosen = step.host_distinct = experts;
                        run_step(policy, step, next_outcome);
                        experts += shape_.width, next_outcome += shape_.width;
                    }
        return outcomes;
    }

    static constexpr uint32_t layers = 4, experts = 8, top_k = 3, tokens = 150;

private:
    void draw_trace() {
        dice draw(seed_ * 2 + 7);
        future_.assign(layers * experts);
        trace_.resize(size_t{tokens} * layers * top_k);
        requests_.resize(tokens);
        uint64_t step = 0;
        for (uint32_t token = 0; token < tokens; ++token) {
            requests_[token] = token / 40;
            uint32_t chosen[layers][top_k];
            for (auto &row : chosen) draw.distinct(experts, top_k, row);
            uint32_t *entry = trace_.data() + size_t{token} * layers * top_k;
            for (uint32_t round = 0, rank = 0; round < shape_.rounds; ++round, rank = round)
                for (uint32_t layer = 0; layer < layers; ++layer)
                    for (uint32_t repeat = 0; repeat < shape_.repeats; ++repeat, ++step)
                        for (uint32_t i = 0; i < shape_.width; ++i) {
                            *entry = chosen[layer][rank + repeat + i];
                            future_.add(layer * experts + *entry++, step, token);
                        }
        }
    }

    void run_step(actor &policy, const moorage_step &step, uint32_t *outcomes) {
        const uint32_t first = step.layer * experts, pool = slots_.size() == 1 ? 0 : step.layer;
        const moorage_cache &cache = *policy.cache;
        const core::instance::stepping mark;
        uint32_t misses = 0;
        bool missed[top_k] = {};
        for (uint32_t i = 0; i < shape_.width; ++i) {
            uint32_t &state = state_[first + step.host_chosen[i]];
            misses += missed[i] = state == 0;
            state |= MOORAGE_STATE_PINNED;
        }
        if (policy.observer) policy.observer->observe(policy.plugin, &step);
        uint32_t spare = slots_[pool] - used_[pool], victims[top_k] = {}, got = 0, next = 0;
        if (const uint32_t ask = std::min(misses > spare ? misses - spare : 0, slots_[pool]);
            ask > 0) {
            const moorage_room room{sizeof(room), 0, pool, step.layer, ask, MOORAGE_DEMAND};
            got = std::min(cache.victims(policy.plugin, &room, victims), ask);
        }
        for (uint32_t i = 0; i < shape_.width; ++i) {
            if (!missed[i]) continue;
            const uint32_t page = first + step.host_chosen[i];
            const bool full = spare == 0;
            const uint32_t victim = full && next < got ? victims[next++] : MOORAGE_NONE;
            outcomes[i] = MOORAGE_REPLAY_BYPASS;
            if (full && victim == MOORAGE_NONE) continue;
            const moorage_admission ask{sizeof(ask),   0, page, victim, MOORAGE_WHOLE,
                                        MOORAGE_DEMAND};
            if (cache.admit && !cache.admit(policy.plugin, &ask)) continue;
            if (full && victim < state_.size()) {
                state_[victim] &= ~MOORAGE_STATE_RESIDENT;
                if (cache.on_evict) cache.on_evict(policy.plugin, victim, MOORAGE_DEMAND);
            }
            if (!full) ++used_[pool], --spare;
            state_[page] |= MOORAGE_WHOLE;
            if (cache.on_load) cache.on_load(policy.plugin, page, MOORAGE_WHOLE, MOORAGE_DEMAND);
            outcomes[i] = full ? victim : MOORAGE_REPLAY_KEPT;
        }
        for (uint32_t i = 0; i < shape_.width; ++i)
            state_[first + step.host_chosen[i]] &= ~MOORAGE_STATE_PINNED;
    }

    replay_order shape_;
    std::vector<float> split_;
    std::vector<uint32_t> state_, slots_, used_, trace_;
    std::vector<uint64_t> requests_;
    uint64_t seed_;
    moorage_residency view_{};
    moorage_limits limits_{};
    known_future future_;
};

core::result<std::unique_ptr<actor>> active_instance(const test_input &input,
                                                     replay_world &replayed_world) {
    auto instance = hosted_actor(*input.policy, input.params, replayed_world.environment());
    if (!instance) return instance.failure();
    if (auto active = (*instance)->activate(replayed_world.limits()); !active)
        return active.failure();
    return instance;
}

}  // namespace

verdict replay_equals_steps(const test_input &input) {
    if (!input.policy->is("cache")) return skipped("it is no cache policy");
    if (input.policy->descriptor->needs &
        (MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS | MOORAGE_NEEDS_PREDICTIONS))
        return skipped("it needs more than a replay has");
    constexpr uint32_t k = replay_world::top_k;
    constexpr replay_order shapes[] = {
        {k, 1, 1, "rounds"}, {1, 1, k, "token"}, {1, k, 1, "serial"}};
    for (const replay_order &s : shapes) {
        for (const bool per_layer : {false, true}) {
            for (const uint32_t slots : {2u, 9u, 20u, 32u}) {
                replay_world fast(s, slots, per_layer, input.seed),
                    slow(s, slots, per_layer, input.seed);
                auto fast_instance = active_instance(input, fast),
                     slow_instance = active_instance(input, slow);
                if (!fast_instance || !slow_instance)
                    return failed((fast_instance ? slow_instance : fast_instance).failure().text);
                const moorage_cache &cache = *(*fast_instance)->cache;
                if (!(*fast_instance)->replayer || cache.hold || cache.give_up)
                    return skipped("no replay goes by a replay function of it");
                const auto fast_outcomes = fast.run_replay(**fast_instance),
                           slow_outcomes = slow.run_step_by_step(**slow_instance);
                if (fast_outcomes == slow_outcomes) continue;
                const auto position =
                    std::mismatch(fast_outcomes.begin(), fast_outcomes.end(), slow_outcomes.begin())
                        .first -
                    fast_outcomes.begin();
                return failed(
                    format("order {}, {} slots, {}: outcome of request {} is {:#x} in a replay, "
                           "{:#x} step by "
                           "step",
                           s.name, slots, per_layer ? "per layer" : "shared", position,
                           fast_outcomes[static_cast<size_t>(position)],
                           slow_outcomes[static_cast<size_t>(position)]));
            }
        }
    }
    return passed();
}

}  // namespace moorage::check
