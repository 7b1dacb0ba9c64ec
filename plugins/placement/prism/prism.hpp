// prism.hpp - Prism: slots to layers by the entropy of activations, then to the most used experts.
//
// A server's slots go to layers by the entropy of their activations. Within a layer they go to the
// experts that the server activates most. Every expert gets a slot on some server. Source: Prism,
// Section III-C, Algorithms 1 and 2 (prism_algorithm.hpp), Eq. (3) and (4). Servers are those of
// the paper: homes that enter through one server count together. With several models, each gets
// memory on every device in proportion to the tokens that its server sends through it, times the
// sum of its layers' entropies. Each model is then placed by itself. With one model this is the
// paper's method. Inside a server the heaviest expert goes first, to the least loaded GPU with
// room. With a cloud no expert needs a copy (cover); each server then keeps what it uses most.
//
// A candidate is adopted if C(P') + T_mig < C(P). C is the number of remote calls in an interval,
// times the measured seconds of one. T_mig is the seconds of all added and removed copies. Cost of
// a plan: O(servers * experts of all layers * log) and one pass per replaced copy.
//
// `leftover` = fill gives slots that the floors leave over to the server's most frequent missing
// experts. On 400 tiny instances this lowers the mean distance to the optimum of Eq. (2) from 9.2 %
// of all activations to 1.7 %; the worst is 54 % (`prism_test` prints it).
#pragma once

#include "prism_algorithm.hpp"
#include "../server_demand.hpp"

namespace moorage::policies {

class prism {
public:
    static constexpr moorage::about about{
        .name = "prism",
        .summary = "experts where they are activated, layers by entropy, every expert somewhere",
        .source = "Prism, Section III-C, Algorithms 1 and 2, Eq. 2-4",
    };
    static constexpr moorage::param params[] = {
        moorage::text("leftover", "fill", "fill|empty",
                      "places that rounding leaves over: to the server's most frequent missing "
                      "experts, or empty (Algorithm 1 as printed)"),
        placement::cover_parameter,
        moorage::real("cost_per_remote", 0, 0, 1e9,
                      "seconds that a remote call adds (Eq. 4); 0: as measured, and no move before "
                      "anything is measured"),
        moorage::flag("count_removals", true,
                      "removed copies cost as much as added ones (Eq. 3 as printed)"),
    };

    explicit prism(const moorage::setup &setup)
        : fill_(setup.text("leftover") == "fill"),
          always_cover_(setup.text("cover") == "always"),
          count_removals_(setup.flag("count_removals")),
          cost_per_remote_(setup.real("cost_per_remote")) {}

    void reset() { remote_ = asked_ = replaced_ = empty_ = 0; }

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy> current, moorage::copies &copies) {
        reset();
        const placement::scene scene = placement::read_scene(cluster, demand, always_cover_);
        if (scene.models.empty()) return;
        placement::device_slots slots = placement::memory_division(scene, weights(scene)).divide();
        std::vector<moorage::prism::problem> problems;
        std::vector<moorage::prism::assignment> placed;
        problems.reserve(scene.models.size());  // assignments keep references to the elements
        for (size_t m = 0; m < scene.models.size(); ++m) {
            problems.push_back(problem_of(scene, m));
            problems.back().slots = slots.sum_by_server(scene, m);
            const std::vector<uint32_t> counts =
                moorage::prism::layer_counts(problems.back()).allocate();
            placed.emplace_back(problems.back(), counts);
            replaced_ += static_cast<double>(placed.back().replaced());
            empty_ += static_cast<double>(fill_ ? placed.back().fill()
                                                : unused_slots(problems[m], counts));
            remote_ += moorage::prism::remote_calls(problems.back(), placed.back());
        }
        asked_ = std::accumulate(scene.rate.begin(), scene.rate.end(), 0.0);
        for (uint32_t server = 0; server < scene.servers; ++server)
            spread(cluster, scene, server, placed, current, slots, copies);
    }

    // Eq. (4), strictly: no move without a gain.
    bool adopt(const moorage_move &move) {
        const double call_s = cost_per_remote_ > 0 ? cost_per_remote_ : move.remote_call_s;
        const double current = move.remote_per_s_current * move.interval_s * call_s;
        const double candidate = move.remote_per_s_candidate * move.interval_s * call_s;
        return candidate + move.added_s + (count_removals_ ? move.removed_s : 0) < current;
    }

    uint32_t facts(std::span<moorage_fact> target) {
        const moorage_fact facts[] = {{"remote_calls_per_s", remote_},
                                      {"remote_share", asked_ > 0 ? remote_ / asked_ : 0},
                                      {"replaced_copies", replaced_},
                                      {"empty_slots", empty_}};
        const size_t count = std::min(target.size(), std::size(facts));
        std::copy(facts, facts + count, target.begin());
        return static_cast<uint32_t>(count);
    }

private:
    static moorage::prism::problem problem_of(const placement::scene &scene, size_t m) {
        const placement::model &model = scene.models[m];
        return {scene.servers, model.layers, model.experts,      scene.rate.data() + model.first,
                scene.experts, {},           scene.server_bytes, scene.cover};
    }
    // Weights that divide a server's memory between models.
    static std::vector<double> weights(const placement::scene &scene) {
        const size_t models = scene.models.size();
        std::vector<double> weight(scene.servers * models, 1);
        if (models == 1) return weight;
        for (size_t m = 0; m < models; ++m) {
            const moorage::prism::problem problem = problem_of(scene, m);
            for (uint32_t server = 0; server < scene.servers; ++server) {
                double diversity = 0;
                for (uint32_t layer = 0; layer < problem.layers; ++layer)
                    diversity += moorage::prism::entropy(problem.row(server, layer));
                weight[server * models + m] = diversity * scene.tokens[server * models + m];
            }
        }
        return weight;
    }
    static uint64_t unused_slots(const moorage::prism::problem &problem,
                                 std::span<const uint32_t> counts) {
        return std::accumulate(problem.slots.begin(), problem.slots.end(), uint64_t{0}) -
               std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    }

    struct item {
        uint32_t expert;
        size_t model;
        double rate;
    };
    // For each expert of the plan in force, the device of the server that holds it; none: not
    // there.
    static std::vector<uint32_t> device_now(const placement::scene &scene, uint32_t server,
                                            std::span<const moorage_copy> current) {
        std::vector<uint32_t> current_device(scene.experts, moorage::none);
        for (const moorage_copy &copy : current)
            if (scene.device_server[copy.device] == server)
                current_device[copy.expert] = copy.device;
        return current_device;
    }
    // Experts that the server already has stay on their GPU. No paper assigns experts to GPUs, and
    // a move within a server gains nothing that would pay for its writing. The other experts go
    // heaviest first to the least loaded GPU with room. Load is in calls, weighted by the time of a
    // call relative to the server's fastest GPU.
    static void spread(const moorage_cluster &cluster, const placement::scene &scene,
                       uint32_t server, std::span<const moorage::prism::assignment> placed,
                       std::span<const moorage_copy> current, placement::device_slots &slots,
                       moorage::copies &copies) {
        const std::vector<uint32_t> current_device = device_now(scene, server, current);
        std::vector<item> items = held_by(scene, server, placed);
        std::stable_sort(items.begin(), items.end(), [&](const item &a, const item &b) {
            const bool a_stays = current_device[a.expert] != moorage::none;
            const bool b_stays = current_device[b.expert] != moorage::none;
            return a_stays != b_stays ? a_stays : a.rate > b.rate;
        });
        const uint32_t first = scene.first_device[server], last = scene.first_device[server + 1];
        std::vector<double> load(last - first, 0);
        for (const item &holding : items) {
            uint32_t best = last;
            const uint32_t stays = current_device[holding.expert];
            if (stays != moorage::none && slots.at(stays, holding.model) > 0) {
                best = stays;
            } else {
                for (uint32_t device = first; device < last; ++device)
                    if (slots.at(device, holding.model) > 0 &&
                        (best == last || load[device - first] < load[best - first]))
                        best = device;
            }
            if (best == last) throw std::logic_error("prism: a server without room for its share");
            --slots.count[size_t{best} * slots.models + holding.model];
            load[best - first] += holding.rate * slowness(cluster, scene, server, best,
                                                          scene.models[holding.model].id);
            copies.push(holding.expert, best);
        }
    }
    static std::vector<item> held_by(const placement::scene &scene, uint32_t server,
                                     std::span<const moorage::prism::assignment> placed) {
        std::vector<item> items;
        for (size_t m = 0; m < scene.models.size(); ++m) {
            const placement::model &model = scene.models[m];
            for (uint32_t i = 0; i < model.count(); ++i)
                if (placed[m].holds(server, i / model.experts, i % model.experts))
                    items.push_back({model.first + i, m,
                                     scene.rate[size_t{server} * scene.experts + model.first + i]});
        }
        return items;
    }
    static double slowness(const moorage_cluster &cluster, const placement::scene &scene,
                           uint32_t server, uint32_t device, uint32_t model) {
        const auto call_s = [&](uint32_t of_device) {
            return cluster.host_device_call_s[size_t{of_device} * cluster.models + model];
        };
        double least = call_s(device);
        for (uint32_t d = scene.first_device[server]; d < scene.first_device[server + 1]; ++d)
            least = std::min(least, call_s(d));
        return least > 0 ? call_s(device) / least : 1;
    }

    const bool fill_, always_cover_, count_removals_;
    const double cost_per_remote_;
    double remote_ = 0, asked_ = 0, replaced_ = 0, empty_ = 0;  // for the last plan
};

}  // namespace moorage::policies
