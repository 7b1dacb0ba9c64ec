// prism.hpp - Prism's plan as one of the joint policy's starts, by server.
#pragma once

#include <numeric>
#include <stdexcept>
#include <vector>

#include "search.hpp"
#include "../prism_algorithm.hpp"
#include "../server_demand.hpp"

namespace moorage::joint {

// Puts what Prism would (prism.cpp), heaviest first; inside a server where its devices would be
// done first. False where Prism finds no plan.
inline bool put_prism(state &of, const search &moves) {
    try {
        const placement::scene seen =
            placement::read_scene(of.model().cluster(), of.model().demand(), false);
        const size_t models = seen.models.size();
        std::vector<prism::problem> problems;
        std::vector<double> weight(seen.servers * models, 1);
        for (size_t m = 0; m < models; ++m) {
            const placement::model &each = seen.models[m];
            problems.push_back({seen.servers,
                                each.layers,
                                each.experts,
                                seen.rate.data() + each.first,
                                seen.experts,
                                {},
                                seen.server_bytes,
                                seen.cover});
            for (uint32_t n = 0; n < seen.servers && models > 1; ++n) {
                double diversity = 0;
                for (uint32_t layer = 0; layer < each.layers; ++layer)
                    diversity += prism::entropy(problems[m].row(n, layer));
                weight[n * models + m] = diversity * seen.tokens[n * models + m];
            }
        }
        const placement::device_slots slots = placement::memory_division(seen, weight).divide();
        std::vector<std::pair<uint32_t, uint32_t>> copies;  // expert, server
        for (size_t m = 0; m < models; ++m) {
            problems[m].slots = slots.of_servers(seen, m);
            prism::assignment placed(problems[m], prism::layer_counts(problems[m]).allocate());
            placed.fill();
            const placement::model &each = seen.models[m];
            for (uint32_t n = 0; n < seen.servers; ++n)
                for (uint32_t i = 0; i < each.count(); ++i)
                    if (placed.holds(n, i / each.experts, i % each.experts))
                        copies.emplace_back(each.first + i, n);
        }
        std::stable_sort(copies.begin(), copies.end(), [&](const auto &a, const auto &b) {
            if (of.bytes(a.first) != of.bytes(b.first))
                return of.bytes(a.first) > of.bytes(b.first);
            return of.calls(a.first, a.second) > of.calls(b.first, b.second);
        });
        of.begin_many();
        for (const auto &[x, n] : copies)
            if (const uint32_t device = moves.device_for(x, n, true); device != none)
                of.put(x, n, device);
        of.end_many();
        return true;
    } catch (const std::invalid_argument &) {
        return false;
    }
}

}  // namespace moorage::joint
