// Goal: the joint policy is never worse than any other one, finds the optimum if it is known, and
// never claims a bound that a plan falls below. Method: brute force on tiny scenes, and the other
// bundled policies on random ones of both kinds. The slow latency model of the SDK checks its
// incremental one. Properties: room, coverage, equal plans for equal input, and a plan in force
// that stays unless leaving it pays.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include <moorage/latency.hpp>

#include "any_cluster.h"
#include "joint_scene.h"
#include "plugins/placement/joint/placement_state.hpp"
#include "slim_instance.h"
#include "slim_reference.h"

namespace joint_test {

namespace {

using namespace moorage::test;
using moorage::latency_figures;
using moorage::latency_model;
using moorage::joint::call_times;
using moorage::joint::none;
using moorage::joint::placement_state;

struct optimum {
    double token_s = infinite, remote = infinite;
};

// Every placement with one copy of an expert on a server at most.
class brute_force {
public:
    explicit brute_force(placement_scene &scene)
        : scene_(scene), model_(scene.cluster(), scene.demand()), copies_(scene.expert_count(), 0) {
        for (const uint64_t bytes : scene.device_bytes) free_.push_back(bytes);
        next(0);
    }
    optimum best;

private:
    void next(uint32_t place) {
        if (place == scene_.expert_count() * scene_.servers) {
            if (scene_.cloud_s.empty())
                for (const uint32_t count : copies_)
                    if (count == 0) return;
            best.token_s = std::min(best.token_s, model_.token_s());
            best.remote = std::min(best.remote, model_.figures().remote_calls_per_s);
            return;
        }
        const uint32_t x = place / scene_.servers, n = place % scene_.servers;
        next(place + 1);
        for (uint32_t d = model_.device_begin(n); d < model_.device_begin(n + 1); ++d) {
            if (free_[d] < model_.bytes(x)) continue;
            free_[d] -= model_.bytes(x), model_.add(x, d), ++copies_[x];
            next(place + 1);
            free_[d] += model_.bytes(x), model_.remove(x, d), --copies_[x];
        }
    }
    placement_scene &scene_;
    latency_model model_;
    std::vector<uint32_t> copies_;
    std::vector<uint64_t> free_;
};

latency_figures figures_of(placement_scene &scene, const std::vector<moorage_copy> &plan) {
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    latency_model model(cluster, demand);
    model.assign(plan);
    return model.figures();
}

placement_scene tiny_scene(uint64_t seed) {
    scene_shape shape;
    shape.servers = 1 + seed % 3;
    shape.experts = shape.servers == 3 ? 4 : 5;
    shape.top_k = {1 + static_cast<uint32_t>(seed / 3 % 3)};
    shape.room = 1 + seed % 2;
    shape.equal_sizes = seed % 4 < 2;
    if (seed % 5 == 3) shape.flags = 0, shape.messages_dominate = seed % 2 != 0;
    if (seed % 7 == 5) shape.linked = 0.6;
    if (seed % 2 != 0) shape.top_k = {1, 2}, shape.experts = shape.servers == 3 ? 2 : 3;
    if (shape.servers < 3 && seed % 3 == 0) shape.devices = 2;
    return random_scene(shape, seed);
}

parallel_cluster tiny_cluster(uint64_t seed) {
    parallel_shape shape;
    const std::vector<std::vector<uint32_t>> gpus{{1, 1}, {1, 2}, {1, 1, 1}, {3}};
    shape.gpus = gpus[seed % 4];
    shape.layers = 1 + seed % 2, shape.experts = shape.layers == 2 ? 3 : 4;
    if (shape.gpus.size() == 3) shape.layers = 1;
    shape.top_k = 1 + static_cast<uint32_t>(seed / 4 % 3);
    shape.room = 1 + 0.2 * static_cast<double>(seed % 3);
    shape.call_s = seed % 5 == 0 ? 400e-6 : 20e-6;
    shape.equal_devices = seed % 3 == 0;
    shape.tokens = 12;
    return {shape, seed};
}

struct tally {
    uint32_t scenes = 0, optimal = 0;
    double worst = 0, gap_sum = 0, gap_worst = 0;
    void add(double found, double least, double bound) {
        ++scenes;
        const double excess = least > 0 ? found / least - 1 : 0;
        optimal += excess < 1e-9 ? 1 : 0;
        worst = std::max(worst, excess);
        const double gap = least > 0 ? 1 - bound / least : 0;
        gap_sum += gap, gap_worst = std::max(gap_worst, gap);
    }
    std::string text() const {
        return std::to_string(optimal) + " of " + std::to_string(scenes) +
               " optimal, worst above the optimum by " + std::to_string(100 * worst) +
               " %; bound below the optimum by " + std::to_string(100 * gap_sum / scenes) +
               " % on average, at worst " + std::to_string(100 * gap_worst) + " %";
    }
};

}  // namespace

TEST_CASE("joint: brute force finds nothing below the bound and hardly anything below the plan") {
    tally edge, cluster, calls;
    for (uint64_t seed = 1; seed <= 150; ++seed) {
        CAPTURE(seed);
        placement_scene scene = tiny_scene(seed);
        placement_policy policy("joint");
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        const std::map<std::string, double> facts = policy.facts();
        const double found = figures_of(scene, plan).token_s;
        CHECK(found == doctest::Approx(facts.at("objective_s")).epsilon(1e-9));
        const double least = brute_force(scene).best.token_s;
        CHECK(facts.at("bound_s") <= least * (1 + 1e-12));
        CHECK(facts.at("saved_gap") >= -1e-12);
        edge.add(found, least, facts.at("bound_s"));
    }
    for (uint64_t seed = 1; seed <= 80; ++seed) {
        CAPTURE(seed);
        placement_scene scene = tiny_cluster(seed).scene;
        const optimum best = brute_force(scene).best;
        placement_policy policy("joint", {{"objective", "latency"}});
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        CHECK(policy.facts().at("bound_s") <= best.token_s * (1 + 1e-12));
        cluster.add(figures_of(scene, plan).token_s, best.token_s, policy.facts().at("bound_s"));
        placement_policy fewest("joint", {{"objective", "remote"}});
        const double remote = figures_of(scene, fewest.plan(scene)).remote_calls_per_s;
        double tokens_per_s = 0;
        for (const double rate : scene.home_tokens_per_s) tokens_per_s += rate;
        const double bound = fewest.facts().at("remote_bound") * tokens_per_s;
        CHECK(bound <= best.remote * (1 + 1e-12) + 1e-12);
        calls.add(remote, best.remote, bound);
    }
    MESSAGE("edge: " << edge.text());
    MESSAGE("cluster, latency: " << cluster.text());
    MESSAGE("cluster, remote calls: " << calls.text());
    CHECK(edge.optimal >= 148);
    CHECK(cluster.optimal >= 78);
    CHECK(calls.optimal >= 78);
    CHECK(std::max({edge.worst, cluster.worst, calls.worst}) < 0.02);
}

TEST_CASE("joint's account of changes is the SDK's latency model") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        placement_scene scene;
        if (seed % 2 == 0) {
            scene_shape shape;
            shape.servers = 2 + seed % 4, shape.experts = 6, shape.layers = 2;
            shape.top_k = {1 + static_cast<uint32_t>(seed % 5)};
            shape.devices = 1 + seed % 3, shape.linked = seed % 3 == 0 ? 0.5 : 1;
            shape.flags = static_cast<uint32_t>(seed / 2 % 4);
            shape.messages_dominate = seed % 4 == 0;
            scene = random_scene(shape, seed);
        } else {
            parallel_shape shape;
            shape.top_k = 1 + static_cast<uint32_t>(seed % 6);
            scene = parallel_cluster(shape, seed).scene;
        }
        if (seed % 5 < 2) scene.flags |= MOORAGE_LINKS_SHARED;
        for (uint32_t h = 0; seed % 3 == 0 && h < scene.homes; ++h) scene.home_batch[h] = 2 + 3 * h;
        for (size_t i = 0; i < scene.device_token_s.size(); ++i)
            scene.device_token_s[i] = 0.3 * scene.device_call_s[i];
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        const call_times times(model);
        placement_state plain(model, times, {1, 0, 0}), mixed(model, times, {1, 0.01, 0.5});
        mixed.limit_remote(0.5, 0.3);
        std::mt19937_64 generator(seed);
        for (int step = 0; step < 120; ++step) {
            const auto x = static_cast<uint32_t>(generator() % scene.expert_count());
            const auto n = static_cast<uint32_t>(generator() % scene.servers);
            uint32_t device = none;
            if (generator() % 3 != 0)
                device = model.device_begin(n) +
                         static_cast<uint32_t>(generator() %
                                               (model.device_begin(n + 1) - model.device_begin(n)));
            if (plain.device_at(x, n) != none) model.remove(x, plain.device_at(x, n));
            if (device != none) model.add(x, device);
            const double old_total = mixed.total(), change_s = mixed.change_s(x, n, device);
            plain.put(x, n, device);
            CHECK(mixed.put(x, n, device) == doctest::Approx(change_s).epsilon(1e-9));
            CHECK(mixed.total() == doctest::Approx(old_total + change_s).epsilon(1e-9));
            CHECK(plain.latency_s() + model.fixed_s() ==
                  doctest::Approx(model.token_s()).epsilon(1e-9));
            CHECK(plain.total() + model.fixed_s() ==
                  doctest::Approx(model.figures().batch_token_s).epsilon(1e-9));
        }
        const double running = mixed.total();
        mixed.settle();
        CHECK(mixed.total() == doctest::Approx(running).epsilon(1e-9));
        double tokens_per_s = 0;
        for (const double rate : scene.home_tokens_per_s) tokens_per_s += rate;
        CHECK(plain.remote_calls() * tokens_per_s ==
              doctest::Approx(model.figures().remote_calls_per_s).epsilon(1e-9));
        mixed.rollback(0);
        CHECK(mixed.latency().experts() == scene.expert_count());
        for (const uint32_t device : mixed.placement()) CHECK(device == none);
    }
}

// If one expert is missed alone, entries that a change cannot touch are skipped by the block, and
// all servers are asked at once.
TEST_CASE("joint's account of changes of one expert over many servers") {
    for (uint64_t seed = 1; seed <= 16; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 20 + static_cast<uint32_t>(seed), shape.homes = 3 * shape.servers;
        shape.experts = 4, shape.layers = 2, shape.room = 8;
        shape.devices = 1 + seed % 2, shape.linked = seed % 3 == 0 ? 0.5 : 1;
        shape.messages_dominate = seed % 4 < 2;
        placement_scene scene = random_scene(shape, seed);
        for (size_t d = 1; d < scene.device_call_s.size() && seed % 4 == 1; ++d)
            scene.device_call_s[d] = scene.device_call_s[0];  // and so with many equal ways
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        const call_times times(model);
        placement_state search_state(model, times, {1, 0.01, 0});
        REQUIRE_FALSE(search_state.has_sets());
        std::mt19937_64 generator(seed);
        const auto device_of = [&](uint32_t n) {
            const uint32_t first = model.device_begin(n), count = model.device_begin(n + 1) - first;
            return first + static_cast<uint32_t>(generator() % count);
        };
        std::vector<uint32_t> device(scene.servers);
        std::vector<double> all_s(scene.servers);
        for (int step = 0; step < 200; ++step) {
            const auto x = static_cast<uint32_t>(generator() % scene.expert_count());
            for (uint32_t n = 0; n < scene.servers; ++n)
                device[n] = search_state.device_at(x, n) == none && generator() % 4 != 0
                                ? device_of(n)
                                : none;
            search_state.changes_s(x, device, all_s);
            for (uint32_t n = 0; n < scene.servers; ++n)
                if (device[n] != none) CHECK(all_s[n] == search_state.change_s(x, n, device[n]));
            const auto n = static_cast<uint32_t>(generator() % scene.servers);
            const uint32_t target = generator() % 3 == 0 ? none : device_of(n);
            if (search_state.device_at(x, n) != none) model.remove(x, search_state.device_at(x, n));
            if (target != none) model.add(x, target);
            const double change_s = search_state.change_s(x, n, target);
            CHECK(search_state.put(x, n, target) == doctest::Approx(change_s).epsilon(1e-9));
            CHECK(search_state.latency_s() + model.fixed_s() ==
                  doctest::Approx(model.token_s()).epsilon(1e-9));
        }
        const double running = search_state.total();
        search_state.settle();
        CHECK(search_state.total() == doctest::Approx(running).epsilon(1e-9));
    }
}

TEST_CASE("joint: never worse than any other policy with edge servers, users and a cloud") {
    const std::vector<std::string> others{"slim_greedy", "slim_dp", "slim_maxconv", "lfu",
                                          "random",      "ushape",  "prism"};
    std::map<std::string, std::pair<double, double>> share;  // of the saving: sum, least
    double gap_sum = 0;
    uint32_t scenes = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        CAPTURE(seed);
        placement_scene scene;
        if (seed % 6 == 0) {
            slim_setting setting;
            setting.models = {switch_base_8, switch_base_16, llava_qwen, llama_moe_4_16};
            setting.servers = 3, setting.users = 8, setting.tokens = 24;
            setting.server_bytes = 400'000'000 + 300'000'000 * (seed % 5);
            setting.local_experts = 20, setting.seed = seed;
            scene = slim_instance(setting).scene;
        } else {
            scene_shape shape;
            shape.servers = 2 + seed % 4, shape.homes = 6, shape.layers = 1 + seed % 3;
            shape.experts = 8, shape.room = 3 + seed % 9;
            shape.top_k = {1 + static_cast<uint32_t>(seed % 3),
                           1 + static_cast<uint32_t>(seed % 2)};
            shape.equal_sizes = seed % 2 == 0, shape.messages_dominate = seed % 5 != 0;
            scene = random_scene(shape, seed);
        }
        placement_policy policy("joint", {{"effort", "3000000"}, {"kicks", "40"}});
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        const latency_figures joint_figures = figures_of(scene, plan);
        gap_sum += policy.facts().at("saved_gap"), ++scenes;
        for (const std::string &name : others) {
            placement_policy rival(name);
            const latency_figures theirs = figures_of(scene, rival.plan(scene));
            INFO(name);
            CHECK(joint_figures.token_s <= theirs.token_s * (1 + 1e-12));
            auto &[sum, most] = share.try_emplace(name, 0, 0).first->second;
            sum += joint_figures.token_s / theirs.token_s;
            most = std::max(most, joint_figures.token_s / theirs.token_s);
        }
    }
    for (const auto &[name, ratio] : share)
        MESSAGE("latency over " << name << "'s: mean " << ratio.first / scenes << ", at most "
                                << ratio.second);
    MESSAGE("savings below the bound: " << 100 * gap_sum / scenes << " % on average");
}

TEST_CASE("joint: never worse than any other policy on unequal GPU servers") {
    const std::vector<std::string> others{"prism", "uniform", "redundance", "smartmoe", "eplb"};
    std::map<std::string, std::array<double, 4>> ratio;
    double gap_sum = 0;
    uint32_t scenes = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        CAPTURE(seed);
        parallel_shape shape;
        const std::vector<std::vector<uint32_t>> gpus{
            {1, 1, 2}, {1, 1, 1, 1}, {2, 2}, {1, 3, 1, 2}};
        shape.gpus = gpus[seed % 4];
        shape.layers = 2 + seed % 4, shape.experts = 8 + 4 * (seed % 3);
        shape.top_k = 1 + static_cast<uint32_t>(seed % 4);
        shape.room = 1 + 0.25 * static_cast<double>(seed % 5);
        shape.zipf = 0.5 + 0.5 * static_cast<double>(seed % 3);
        shape.call_s = seed % 7 == 0 ? 300e-6 : 20e-6;
        placement_scene scene = parallel_cluster(shape, seed).scene;
        placement_policy policy("joint",
                                {{"objective", "both"}, {"effort", "3000000"}, {"kicks", "40"}});
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        const latency_figures joint_figures = figures_of(scene, plan);
        gap_sum += policy.facts().at("gap"), ++scenes;
        for (const std::string &name : others) {
            INFO(name);
            placement_policy rival(name);
            const latency_figures theirs = figures_of(scene, rival.plan(scene));
            CHECK(joint_figures.token_s <= theirs.token_s * (1 + 1e-12));
            CHECK(joint_figures.remote_calls_per_s <=
                  theirs.remote_calls_per_s * (1 + 1e-9) + 1e-12);
            std::array<double, 4> &stats = ratio.try_emplace(name).first->second;
            const double remote = theirs.remote_calls_per_s > 0
                                      ? joint_figures.remote_calls_per_s / theirs.remote_calls_per_s
                                      : 1;
            stats[0] += joint_figures.token_s / theirs.token_s, stats[2] += remote;
            stats[1] = std::max(stats[1], joint_figures.token_s / theirs.token_s);
            stats[3] = std::max(stats[3], remote);
        }
    }
    for (const auto &[name, stats] : ratio)
        MESSAGE("over " << name << "'s: latency mean " << stats[0] / scenes << ", at most "
                        << stats[1] << "; remote calls mean " << stats[2] / scenes << ", at most "
                        << stats[3]);
    MESSAGE("latency above the bound: " << 100 * gap_sum / scenes << " % on average");
}

// Runs a part. MOORAGE_JOINT_INSTANCES=2000 runs the whole, MOORAGE_JOINT_FIRST=1001 the rest after
// it.
TEST_CASE("joint: never worse than any other policy on any kind of cluster") {
    const auto read_setting = [](const char *name, uint64_t otherwise) {
        const char *text = std::getenv(name);
        return text ? std::strtoull(text, nullptr, 10) : otherwise;
    };
    const uint64_t instances = read_setting("MOORAGE_JOINT_INSTANCES", 40);
    const uint64_t first = read_setting("MOORAGE_JOINT_FIRST", 1);
    const std::vector<std::string> others{"slim_greedy", "slim_dp",    "slim_maxconv", "lfu",
                                          "random",      "ushape",     "prism",        "uniform",
                                          "smartmoe",    "redundance", "eplb"};
    uint64_t compared = 0, worse = 0;
    double most = 0;
    std::map<std::string, std::vector<double>> gaps;  // by how calls go and how many experts
    for (uint64_t seed = first; seed < first + instances; ++seed) {
        CAPTURE(seed);
        placement_scene scene = any_cluster(seed).scene;
        placement_policy policy("joint", {{"effort", "1000000"}, {"kicks", "10"}});
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        const double own_s = figures_of(scene, plan).token_s;
        CHECK(own_s >= policy.facts().at("bound_s") * (1 - 1e-12));
        const uint32_t k = *std::max_element(scene.top_k.begin(), scene.top_k.end());
        gaps[std::string((scene.flags & MOORAGE_CALLS_SERIAL) != 0 ? "serial" : "parallel") +
             (k == 1   ? ", K 1"
              : k <= 5 ? ", K 2 to 5"
                       : ", K 6 to 8")]
            .push_back(policy.facts().at("gap"));
        for (const std::string &name : others) {
            INFO(name);
            std::vector<moorage_copy> theirs;
            try {
                theirs = placement_policy(name).plan(scene);
            } catch (const std::runtime_error &) {
                continue;  // refuses the cluster
            }
            const double other_s = figures_of(scene, theirs).token_s;
            ++compared;
            if (own_s > other_s * (1 + 1e-12)) ++worse, most = std::max(most, own_s / other_s - 1);
            CHECK(own_s <= other_s * (1 + 1e-12));
        }
    }
    MESSAGE(instances << " clusters, " << compared << " plans of others: joint worse than " << worse
                      << ", by at most " << 100 * most << " %");
    for (auto &[kind, kind_gaps] : gaps) {
        std::sort(kind_gaps.begin(), kind_gaps.end());
        MESSAGE(kind << ": latency above the bound by " << 100 * kind_gaps[kind_gaps.size() / 2]
                     << " % in the median of " << kind_gaps.size() << ", at most "
                     << 100 * kind_gaps.back() << " %");
    }
}

TEST_CASE("joint: every step counts against effort, and without any it returns its start") {
    double most_over = 0;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        placement_scene scene;
        if (seed % 3 == 0) {
            slim_setting setting;
            setting.models = {switch_base_8, switch_base_16, llava_qwen, llama_moe_4_16};
            setting.servers = 3, setting.users = 8, setting.tokens = 24;
            setting.server_bytes = 400'000'000 + 300'000'000 * (seed % 5);
            setting.local_experts = 20, setting.seed = seed;
            scene = slim_instance(setting).scene;
        } else if (seed % 3 == 1) {
            scene = parallel_cluster({}, seed).scene;
        } else {
            scene_shape shape;
            shape.servers = 2 + seed % 4, shape.homes = 6, shape.layers = 1 + seed % 3;
            shape.experts = 8, shape.room = 3 + seed % 9;
            shape.top_k = {1 + static_cast<uint32_t>(seed % 3),
                           1 + static_cast<uint32_t>(seed % 2)};
            scene = random_scene(shape, seed);
        }
        double least = 0, token_s = 0;  // without effort
        for (const uint64_t effort : {0, 20'000, 200'000, 2'000'000}) {
            CAPTURE(effort);
            placement_policy policy("joint", {{"effort", std::to_string(effort)}});
            const std::vector<moorage_copy> plan = policy.plan(scene);
            CHECK(plan_fault(scene, plan) == "");
            const double steps = policy.facts().at("steps");
            const latency_figures figures = figures_of(scene, plan);
            if (effort == 0) {
                least = steps, token_s = figures.token_s;
                CHECK((policy.facts().at("start") == 1 || policy.facts().at("start") == 2));
            } else {
                CHECK(figures.token_s <= token_s * (1 + 1e-12));
            }
            // The steps to make and evaluate one plan are always taken.
            const double allowed = std::max(static_cast<double>(effort), least);
            most_over = std::max(most_over, (steps - allowed) / allowed);
            CHECK(steps <= 1.05 * allowed + least);
        }
    }
    MESSAGE("steps beyond effort: at most " << 100 * most_over << " %");
}

TEST_CASE("joint: equal input, equal plan") {
    placement_scene scene = parallel_cluster({}, 5).scene, edge = tiny_scene(8);
    for (placement_scene *tested : {&scene, &edge}) {
        placement_policy first_seed("joint", {}, 1), second_seed("joint", {}, 99);
        const std::vector<moorage_copy> a = first_seed.plan(*tested), b = second_seed.plan(*tested),
                                        c = first_seed.plan(*tested);
        REQUIRE(a.size() == b.size());
        REQUIRE(a.size() == c.size());
        CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
        CHECK(std::memcmp(a.data(), c.data(), a.size() * sizeof a[0]) == 0);
        CHECK(first_seed.facts() == second_seed.facts());
    }
}

TEST_CASE("joint: a plan in force stays where nothing pays") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        placement_scene scene = parallel_cluster({}, seed).scene;
        placement_policy policy("joint", {{"objective", "latency"}});
        const std::vector<moorage_copy> plan = policy.plan(scene);
        const std::vector<moorage_copy> again = policy.plan(scene, plan);
        const auto same = [](const moorage_copy &a, const moorage_copy &b) {
            return a.expert == b.expert && a.device == b.device;
        };
        // A plan that a longer search finds must gain more than its copying costs.
        if (!std::equal(plan.begin(), plan.end(), again.begin(), again.end(), same))
            CHECK(figures_of(scene, again).token_s < figures_of(scene, plan).token_s);
        // Demand changes, and moving is too expensive: the present plan stays, whatever it costs.
        const parallel_cluster new_demand({}, seed + 100);
        scene.frequency = new_demand.scene.frequency;
        scene.group_experts = new_demand.scene.group_experts,
        scene.group_first = new_demand.scene.group_first;
        scene.call_group = new_demand.scene.call_group,
        scene.call_share = new_demand.scene.call_share;
        scene.home_first_call = new_demand.scene.home_first_call;
        placement_policy dear("joint", {{"objective", "latency"}, {"move_cost_s", "1000"}});
        const std::vector<moorage_copy> kept = dear.plan(scene, plan);
        for (const moorage_copy &copy : kept)
            CHECK(std::any_of(plan.begin(), plan.end(),
                              [&](const moorage_copy &was) { return same(copy, was); }));
        placement_policy cheap("joint", {{"objective", "latency"}, {"payback_s", "0"}});
        CHECK(figures_of(scene, cheap.plan(scene, plan)).token_s < figures_of(scene, kept).token_s);
    }
}

TEST_CASE("joint: a move is adopted if it saves more seconds than it takes") {
    placement_scene scene = parallel_cluster({}, 3).scene;
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    placement_policy policy("joint", {{"objective", "latency"}}), uniform("uniform");
    const std::vector<moorage_copy> current = uniform.plan(scene), candidate = policy.plan(scene);
    double tokens_per_s = 0;
    for (const double rate : scene.home_tokens_per_s) tokens_per_s += rate;
    const double saved_s =
        (figures_of(scene, current).token_s - figures_of(scene, candidate).token_s) * tokens_per_s *
        300;
    REQUIRE(saved_s > 0);
    moorage_move move{};
    move.size = sizeof(move);
    move.host_cluster = &cluster, move.host_demand = &demand;
    move.host_current = current.data(), move.current_count = current.size();
    move.host_candidate = candidate.data(), move.candidate_count = candidate.size();
    move.interval_s = 300;
    move.added_s = saved_s * 0.999;
    CHECK(policy.adopt(move));
    move.added_s = saved_s * 1.001;
    CHECK_FALSE(policy.adopt(move));
}

TEST_CASE("joint: with queues at devices, load is spread") {
    // One server, two devices of room for everything; all experts of one layer, called so often
    // that one device would be busy 0.8 of the time.
    placement_scene scene;
    scene.add_model(4, 2, 1, 10, 1000);
    const uint32_t near = scene.add_server(), far = scene.add_server();
    scene.add_device(near, 80, 0.001), scene.add_device(far, 80, 0.001);
    scene.add_link(near, far, 1e9, 1e-6);
    scene.add_home(near, 200);
    scene.home_model = {1};
    for (uint32_t l = 0; l < 4; ++l)
        for (uint32_t e = 0; e < 2; ++e) scene.add_call(0, {2 * l + e}, 0.5);
    const auto near_copies = [&](const std::vector<moorage_copy> &plan) {
        return std::count_if(plan.begin(), plan.end(),
                             [&](const moorage_copy &copy) { return copy.device == 0; });
    };
    placement_policy none_waits("joint", {{"objective", "latency"}}),
        waits("joint", {{"objective", "latency"}, {"load_weight", "1"}});
    CHECK(near_copies(none_waits.plan(scene)) == 8);
    // 8 experts of 0.1 each: r^2 / (1 - r) at both is least at 4 and 4, and the link is short.
    const std::vector<moorage_copy> spread = waits.plan(scene);
    CHECK(near_copies(spread) == 4);
    CHECK(plan_fault(scene, spread) == "");
}

TEST_CASE("joint refuses what cannot hold every expert, and says why") {
    placement_scene scene = parallel_cluster({}, 1).scene;
    scene.device_bytes.assign(scene.devices(), 3000);
    placement_policy policy("joint");
    CHECK_THROWS_WITH(policy.plan(scene),
                      "joint: one copy of every expert takes 32000 bytes, the devices have 12000 "
                      "and no way was found to fit them in; give them more memory or a cloud");
}

TEST_CASE("the bound of many servers is one, too") {
    // 12 servers are too many to try all sets of holders. The claimed bound cannot exceed the plan.
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        parallel_shape shape;
        shape.gpus.assign(12, 1), shape.experts = 12, shape.layers = 2, shape.top_k = 1;
        shape.room = 2, shape.tokens = 40;
        placement_scene scene = parallel_cluster(shape, seed).scene;
        placement_policy policy("joint", {{"effort", "4000000"}, {"kicks", "10"}});
        const std::vector<moorage_copy> plan = policy.plan(scene);
        CHECK(plan_fault(scene, plan) == "");
        const double found = figures_of(scene, plan).token_s;
        CHECK(policy.facts().at("bound_s") <= found * (1 + 1e-12));
        CHECK(policy.facts().at("bound_s") > 0);
        placement_policy fewest("joint", {{"objective", "remote"}, {"effort", "4000000"}});
        fewest.plan(scene);
        CHECK(fewest.facts().at("gap") >= -1e-12);
        CHECK(fewest.facts().at("gap") < 0.1);
    }
}

}  // namespace joint_test
