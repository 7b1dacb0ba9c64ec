// Goal: random and marking draw with the right chances. Method: follow every choice instead of
// single seeds. The random service returns the middles of equal parts of its range. The number of
// parts is the least common multiple of all numbers of candidates, so the mean over all sequences
// of draws is the exact expectation. It is compared with the expectation of the definition, kept as
// a probability for every state, and with the harmonic number of the theory.
#include <doctest/doctest.h>

#include <bit>

#include "harness.h"

namespace cache_chance_test {

using namespace moorage::test;

namespace {

class expectation {
public:
    expectation(const std::string &name, const cache_shape &shape,
                const std::vector<request_step> &steps, uint32_t parts, uint64_t runs_max = 400000)
        : model_(shape), policy_(name, model_), steps_(steps), parts_(parts), runs_left_(runs_max) {
        follow_draws(1);
    }
    double misses() const { return sum_; }
    bool is_complete() const { return runs_left_ > 0; }

private:
    void follow_draws(double weight) {
        if (runs_left_ == 0) return;
        --runs_left_;
        model_.clear();
        policy_.reset();
        policy_.draws = draws_;
        const uint64_t misses = replay_stepwise(policy_, model_, steps_).misses;
        if (policy_.draws_taken <= draws_.size()) {
            sum_ += weight * static_cast<double>(misses);
            return;
        }
        for (uint32_t part = 0; part < parts_; ++part) {
            const uint64_t width = UINT64_MAX / parts_;
            draws_.push_back(width * part + width / 2);
            follow_draws(weight / parts_);
            draws_.pop_back();
        }
    }
    cache_model model_;
    library_policy policy_;
    const std::vector<request_step> &steps_;
    const uint32_t parts_;
    uint64_t runs_left_;
    std::deque<uint64_t> draws_;
    double sum_ = 0;
};

// The definition over all states at once: resident and marked pages, as bits.
class chances {
public:
    chances(const cache_shape &shape, bool marks) : shape_(shape), marks_(marks) {
        states_[{0, 0}] = 1;
    }
    double misses = 0;

    void run(const request_step &step) {
        uint32_t wanted = 0;
        for (const uint32_t expert : step.experts)
            wanted |= 1u << (step.layer * shape_.experts + expert);
        const uint32_t pinned = step.experts.size() > 1 ? wanted : 0;
        for (auto &[state, chance] : states_)
            misses += chance * std::popcount(wanted & ~state.resident);
        step_states([&](const content &old_state, double chance, auto &&add_state) {
            add_state({old_state.resident, old_state.marked | (wanted & old_state.resident)},
                      chance);
        });
        for (const uint32_t expert : step.experts)
            request(1u << (step.layer * shape_.experts + expert), pinned);
    }

private:
    struct content {
        uint32_t resident, marked;
        auto operator<=>(const content &) const = default;
    };
    template <class Move>
    void step_states(Move &&move) {
        std::map<content, double> next;
        for (const auto &[state, chance] : states_)
            move(state, chance, [&](content new_state, double part) { next[new_state] += part; });
        states_ = std::move(next);
    }
    void request(uint32_t page, uint32_t pinned) {
        step_states([&](content old_state, double chance, auto &&add_state) {
            const auto held = static_cast<uint32_t>(std::popcount(old_state.resident));
            if (old_state.resident & page) return add_state(old_state, chance);
            if (held < shape_.slots)
                return add_state({old_state.resident | page, old_state.marked | page}, chance);
            uint32_t may_go = old_state.resident & ~pinned & ~(marks_ ? old_state.marked : 0);
            if (may_go == 0 && marks_) {
                old_state.marked &= pinned;
                may_go = old_state.resident & ~old_state.marked;
            }
            if (may_go == 0)
                return add_state(old_state, chance);  // every slot is pinned: not cached
            for (uint32_t left = may_go; left != 0; left &= left - 1) {
                const uint32_t victim = left & -left;
                add_state(
                    {(old_state.resident & ~victim) | page, (old_state.marked & ~victim) | page},
                    chance / std::popcount(may_go));
            }
        });
    }
    const cache_shape shape_;
    const bool marks_;
    std::map<content, double> states_;
};

routing cycle(uint32_t requests, uint32_t pages) {
    routing tokens;
    for (uint32_t token = 0; token < requests; ++token) tokens.push_back({{token % pages}});
    return tokens;
}

}  // namespace

TEST_CASE("marking on a cycle of k + 1 pages misses H_k times per phase") {
    struct row {
        uint32_t slots, phases, parts;
        double harmonic;
    };
    for (const row &expected :
         {row{1, 3, 1, 1.0}, {2, 5, 2, 3.0 / 2}, {3, 2, 6, 11.0 / 6}, {4, 1, 12, 25.0 / 12}}) {
        // The first phase is cold: k misses.
        const routing tokens = cycle(expected.slots * (1 + expected.phases), expected.slots + 1);
        const auto steps = steps_of(tokens, order::rounds);
        const expectation found("marking", {1, expected.slots + 1, 1, true, expected.slots}, steps,
                                expected.parts);
        REQUIRE(found.is_complete());
        CHECK(found.misses() ==
              doctest::Approx(expected.slots + expected.phases * expected.harmonic).epsilon(1e-9));
    }
}

TEST_CASE("random and marking have the expectation of their definitions") {
    uint32_t compared = 0, events = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        std::mt19937_64 generator(seed);
        const auto below = [&](uint32_t bound) {
            return static_cast<uint32_t>(generator() % bound);
        };
        const uint32_t layers = 1 + below(2), experts = 3 + below(2), top_k = 1 + below(2);
        const uint32_t slots = 1 + below(4);
        const auto requests = static_cast<order>(below(3));
        const routing tokens = random_routing(generator, 2 + below(4), layers, experts, top_k, 0.5);
        const auto steps = steps_of(tokens, requests);
        const cache_shape shape{layers, experts, top_k, true, slots};
        constexpr uint32_t parts[] = {1, 1, 2, 6, 12};
        for (const bool marks : {false, true}) {
            const expectation found(marks ? "marking" : "random", shape, steps, parts[slots],
                                    10000);
            if (!found.is_complete()) continue;
            chances defined(shape, marks);
            for (const request_step &step : steps) defined.run(step);
            CAPTURE(seed);
            CAPTURE(marks);
            CHECK(found.misses() == doctest::Approx(defined.misses).epsilon(1e-9));
            ++compared;
            events += requests == order::token && top_k == 2;
        }
    }
    CHECK(compared > 200);
    CHECK(events > 40);
}

}  // namespace cache_chance_test
