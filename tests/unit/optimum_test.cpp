// optimum_test.cpp - the counted optimum compared with schedules worked out by hand, with every
// possible choice of victims on small caches, and with the policy belady on larger ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "core/cache/optimum.h"

namespace optimum_test {

using namespace moorage::core;

namespace {

using steps = std::vector<std::pair<uint32_t, std::vector<uint32_t>>>;  // layer, experts

uint64_t count_optimum(uint32_t layers, uint32_t experts, const std::vector<uint32_t> &pools,
                       const steps &choices) {
    optimum_counter best(layers, experts, pools,
                         static_cast<uint32_t>(choices.front().second.size()));
    for (const auto &[layer, chosen] : choices) best.step(layer, chosen.data());
    return best.misses();
}

// Every content that a shared cache can have after each step, with the least misses to get there.
uint64_t least_misses(uint32_t experts, uint32_t slots, const steps &choices) {
    std::map<std::set<uint32_t>, uint64_t> contents{{{}, 0}};
    for (const auto &[layer, chosen] : choices) {
        std::set<uint32_t> used;
        for (const uint32_t expert : chosen) used.insert(layer * experts + expert);
        std::map<std::set<uint32_t>, uint64_t> next;
        for (const auto &[content, misses] : contents) {
            std::vector<uint32_t> others;
            uint64_t missed = used.size();
            for (const uint32_t page : content) {
                if (used.contains(page))
                    --missed;
                else
                    others.push_back(page);
            }
            // Any of the others may stay, as far as there is room beside the step's own.
            for (uint32_t keep = 0; keep < 1u << others.size(); ++keep) {
                std::set<uint32_t> next_content = used;
                for (uint32_t i = 0; i < others.size(); ++i)
                    if (keep >> i & 1) next_content.insert(others[i]);
                if (next_content.size() > slots) continue;
                const auto [entry, fresh] = next.try_emplace(next_content, misses + missed);
                if (!fresh) entry->second = std::min(entry->second, misses + missed);
            }
        }
        contents = std::move(next);
    }
    uint64_t least = UINT64_MAX;
    for (const auto &[content, misses] : contents) least = std::min(least, misses);
    return least;
}

steps draw_choices(std::mt19937 &random, uint32_t layers, uint32_t experts, uint32_t width,
                   uint32_t tokens) {
    steps choices;
    for (uint32_t token = 0; token < tokens; ++token)
        for (uint32_t layer = 0; layer < layers; ++layer) {
            std::vector<uint32_t> chosen;
            while (chosen.size() < width) {
                // The least of two draws: some experts come often.
                const uint32_t expert = std::min(random() % experts, random() % experts);
                if (std::ranges::find(chosen, expert) == chosen.end()) chosen.push_back(expert);
            }
            choices.push_back({layer, chosen});
        }
    return choices;
}

}  // namespace

TEST_CASE("by hand: single requests") {
    // Two slots. 0 1 2 0 1: at 2 one of {0, 1} goes (bypassing is not allowed), so 3 + 1 misses.
    CHECK(count_optimum(1, 3, {2}, {{0, {0}}, {0, {1}}, {0, {2}}, {0, {0}}, {0, {1}}}) == 4);
    // Three slots hold all of it.
    CHECK(count_optimum(1, 3, {3}, {{0, {0}}, {0, {1}}, {0, {2}}, {0, {0}}, {0, {1}}}) == 3);
    // One slot: only an expert that comes twice in a row hits. No slot: nothing hits.
    CHECK(count_optimum(1, 3, {1}, {{0, {0}}, {0, {0}}, {0, {1}}, {0, {0}}}) == 3);
    CHECK(count_optimum(1, 3, {0}, {{0, {0}}, {0, {0}}}) == 2);
}

TEST_CASE("by hand: the experts of a step are held together") {
    // Three slots, two experts a step. {0,1} {2,3} {0,1}: beside {2,3} one of {0,1} stays.
    CHECK(count_optimum(1, 4, {3}, {{0, {0, 1}}, {0, {2, 3}}, {0, {0, 1}}}) == 5);
    CHECK(count_optimum(1, 4, {2}, {{0, {0, 1}}, {0, {1, 0}}, {0, {2, 1}}}) == 3);
    // A pool of one slot, steps of two: the first that misses stays, if it comes again it hits.
    CHECK(count_optimum(1, 4, {1}, {{0, {0, 1}}, {0, {1, 0}}, {0, {2, 3}}, {0, {2, 0}}}) == 6);
}

TEST_CASE("never more and never less than the best of all possible choices") {
    std::mt19937 random(7);
    uint32_t compared = 0;
    for (uint32_t round = 0; round < 300; ++round) {
        const uint32_t layers = 1 + random() % 2, experts = 3 + random() % 3;
        const uint32_t width = 1 + random() % 2, slots = width + random() % 4;
        const steps choices = draw_choices(random, layers, experts, width, 24 / layers);
        CHECK(count_optimum(layers, experts, {slots}, choices) ==
              least_misses(experts, slots, choices));
        ++compared;
    }
    CHECK(compared == 300);
}

TEST_CASE("one pool a layer is each layer by itself") {
    std::mt19937 random(8);
    for (uint32_t round = 0; round < 50; ++round) {
        const steps choices = draw_choices(random, 3, 5, 2, 30);
        const std::vector<uint32_t> pools{2, 3, 4};
        uint64_t apart = 0;
        for (uint32_t layer = 0; layer < 3; ++layer) {
            steps layer_choices;
            for (const auto &[choice_layer, chosen] : choices)
                if (choice_layer == layer) layer_choices.push_back({0, chosen});
            apart += least_misses(5, pools[layer], layer_choices);
        }
        CHECK(count_optimum(3, 5, pools, choices) == apart);
    }
}

TEST_CASE("time that is told anew changes nothing") {
    // 200,000 requests are told anew several times. Belady's rule, written out, is the reference.
    std::mt19937 random(9);
    const uint32_t experts = 40, slots = 12, width = 2;
    const steps choices = draw_choices(random, 1, experts, width, 100'000);
    std::vector<std::vector<uint32_t>> uses(experts);
    for (uint32_t step = 0; step < choices.size(); ++step)
        for (const uint32_t expert : choices[step].second) uses[expert].push_back(step);
    std::vector<size_t> next(experts, 0);
    std::set<uint32_t> content;
    uint64_t misses = 0;
    for (const auto &[layer, chosen] : choices) {
        for (const uint32_t expert : chosen) ++next[expert];
        for (const uint32_t expert : chosen) {
            if (content.contains(expert)) continue;
            ++misses;
            if (content.size() == slots) {
                uint32_t furthest = experts;
                uint64_t most = 0;
                for (const uint32_t page : content) {
                    if (std::ranges::find(chosen, page) != chosen.end()) continue;
                    const uint64_t next_use =
                        next[page] < uses[page].size() ? uses[page][next[page]] : UINT64_MAX;
                    if (furthest == experts || next_use > most) furthest = page, most = next_use;
                }
                content.erase(furthest);
            }
            content.insert(expert);
        }
    }
    CHECK(count_optimum(1, experts, {slots}, choices) == misses);
}

}  // namespace optimum_test
