// Goal: moorage/latency.hpp is the latency of SlimCaching's Section III (and of Prism's Eq. 1).
// Method: compare with the slow reference of tests/plugin/slim_reference.h, which tries every
// assignment, on random scenes of every kind. The marginals of Appendices B and E by hand. Gains
// and losses compared with differences of whole placements. Figures of a case worked by hand.
#include <doctest/doctest.h>

#include <moorage/latency.hpp>

#include "tests/plugin/slim_reference.h"

namespace latency_test {

namespace {

using namespace moorage;
using namespace moorage::test;

constexpr double tolerance = 1e-12;

std::vector<moorage_copy> random_copies(const placement_scene &scene, std::mt19937_64 &generator,
                                        uint64_t one_in) {
    std::vector<moorage_copy> copies;
    for (uint32_t x = 0; x < scene.expert_count(); ++x)
        for (uint32_t d = 0; d < scene.devices(); ++d)
            if (generator() % one_in == 0) copies.push_back({x, d});
    return copies;
}

// Totals, homes, every gain and every loss on random placements of the scene.
void compare(const scene_shape &shape, uint64_t seed) {
    CAPTURE(seed);
    placement_scene scene = random_scene(shape, seed);
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    const slim_reference reference(scene);
    latency_model model(cluster, demand);
    const auto seconds = [&](const std::vector<moorage_copy> &copies) {
        return reference.token_s(reference.placement_of(copies));
    };
    REQUIRE(model.empty_s() == doctest::Approx(seconds({})).epsilon(tolerance));
    std::mt19937_64 generator(seed);
    for (uint64_t one_in = 1; one_in < 5; ++one_in) {
        const std::vector<moorage_copy> copies = random_copies(scene, generator, one_in);
        model.assign(copies);
        const double now = seconds(copies);
        REQUIRE(model.token_s() == doctest::Approx(now).epsilon(tolerance));
        const latency_figures figures = model.figures();
        CHECK(figures.saved_s == doctest::Approx(seconds({}) - now).epsilon(1e-9));
        for (uint32_t h = 0; h < scene.homes; ++h)
            CHECK(figures.home_token_s[h] ==
                  doctest::Approx(reference.home_s(h, reference.placement_of(copies)))
                      .epsilon(tolerance));
        for (int trial = 0; trial < 12; ++trial) {
            const moorage_copy candidate{static_cast<uint32_t>(generator() % scene.expert_count()),
                                         static_cast<uint32_t>(generator() % scene.devices())};
            std::vector<moorage_copy> with_copy = copies, without_copy;
            for (const moorage_copy &copy : copies)
                if (copy.expert != candidate.expert || copy.device != candidate.device)
                    without_copy.push_back(copy);
            if (without_copy.size() == copies.size()) with_copy.push_back(candidate);
            const bool exists = model.has_copy(candidate.expert, candidate.device);
            REQUIRE(exists == (without_copy.size() != copies.size()));
            const double gain = exists ? 0 : now - seconds(with_copy);
            const double loss = exists ? seconds(without_copy) - now : 0;
            CHECK(std::abs(model.gain(candidate.expert, candidate.device) - gain) <
                  tolerance * now);
            CHECK(std::abs(model.loss(candidate.expert, candidate.device) - loss) <
                  tolerance * now);
            // There and back again, to the bit.
            const double old_token_s = model.token_s();
            if (exists)
                model.remove(candidate.expert, candidate.device),
                    model.add(candidate.expert, candidate.device);
            else
                model.add(candidate.expert, candidate.device),
                    model.remove(candidate.expert, candidate.device);
            CHECK(model.token_s() == old_token_s);
        }
    }
}

}  // namespace

TEST_CASE("every kind of scene has the latency of the equations") {
    const uint32_t both_flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    for (const uint32_t flags :
         {both_flags, uint32_t{MOORAGE_CALLS_SERIAL}, uint32_t{MOORAGE_RETURNS_EACH}, 0u}) {
        for (uint64_t seed = 1; seed <= 48; ++seed) {
            for (const uint32_t devices : {1u, 2u}) {
                scene_shape shape;
                shape.flags = flags, shape.devices = devices;
                shape.experts = 6, shape.layers = 2;
                shape.top_k = {1 + static_cast<uint32_t>(seed % 4), 2};
                shape.servers = 2 + static_cast<uint32_t>(seed % 3);
                shape.messages_dominate = seed % 2 == 0;
                shape.linked = seed % 3 == 0 ? 0.6 : 1;
                compare(shape, seed);
            }
        }
    }
}

TEST_CASE("sets of eight experts have their best assignment") {
    for (const uint32_t flags : {3u, 2u}) {
        scene_shape shape;
        shape.flags = flags, shape.experts = 9, shape.top_k = {8};
        shape.servers = 3, shape.homes = 1;
        for (uint64_t seed = 1; seed <= 2; ++seed) compare(shape, seed);
    }
}

TEST_CASE("of many servers that could serve a set the best are found") {
    for (const uint32_t flags : {3u, 2u, 1u}) {
        scene_shape shape;
        shape.flags = flags, shape.experts = 5, shape.top_k = {3};
        shape.servers = 9, shape.homes = 2;
        for (uint64_t seed = 1; seed <= 8; ++seed) {
            shape.messages_dominate = seed % 2 == 0, shape.linked = seed % 3 == 0 ? 0.6 : 1;
            compare(shape, seed);
        }
    }
}

namespace {

scene_shape any_shape(uint64_t seed) {
    scene_shape shape;
    shape.flags = static_cast<uint32_t>(seed % 4), shape.devices = 1 + seed / 4 % 2;
    shape.experts = 6, shape.layers = 2, shape.servers = 1 + static_cast<uint32_t>(seed % 5);
    shape.top_k = {1 + static_cast<uint32_t>(seed % 6), 2};
    shape.messages_dominate = seed % 3 == 0, shape.linked = seed % 7 == 0 ? 0.6 : 1;
    return shape;
}

}  // namespace

TEST_CASE("what is remembered is what a fresh model works out, to the bit") {
    for (uint64_t seed = 1; seed <= 80; ++seed) {
        CAPTURE(seed);
        placement_scene scene = random_scene(any_shape(seed), seed);
        const moorage_cluster cluster = scene.cluster();
        moorage_demand demand = scene.demand();
        if (seed % 8 == 0) demand.calls = 0;  // frequencies alone
        latency_model walked(cluster, demand);
        std::mt19937_64 generator(seed);
        for (int step = 0; step < 60; ++step) {
            const auto x = static_cast<uint32_t>(generator() % scene.expert_count());
            const auto d = static_cast<uint32_t>(generator() % scene.devices());
            generator() % 3 == 0 ? walked.remove(x, d) : walked.add(x, d);
            walked.gain(x, static_cast<uint32_t>(generator() % scene.devices()));
            if (step % 12 != 0) continue;
            latency_model fresh(cluster, demand);
            fresh.assign(walked.copies());
            CHECK(fresh.token_s() == walked.token_s());
            for (uint32_t index = 0; index < scene.expert_count() * scene.devices(); ++index) {
                const uint32_t expert = index / scene.devices(), device = index % scene.devices();
                CHECK(fresh.gain(expert, device) == walked.gain(expert, device));
                CHECK(fresh.loss(expert, device) == walked.loss(expert, device));
            }
        }
    }
}

TEST_CASE("what an expert does to the gains of its partners is told in full") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        placement_scene scene = random_scene(any_shape(seed), seed);
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        std::mt19937_64 generator(seed);
        model.assign(random_copies(scene, generator, 4));
        std::vector<double> old_gains, reported(size_t{scene.expert_count()} * scene.servers, 0);
        // Each server's last device; no copy where it has one.
        const auto target = [&](uint32_t x, uint32_t n) {
            return model.holds(x, n) ? latency_model::none : model.device_begin(n + 1) - 1;
        };
        for (uint32_t x = 0; x < scene.expert_count(); ++x)
            for (uint32_t n = 0; n < scene.servers; ++n)
                old_gains.push_back(
                    target(x, n) == latency_model::none ? 0 : model.gain(x, target(x, n)));
        const auto placed = static_cast<uint32_t>(generator() % scene.expert_count());
        const auto device = static_cast<uint32_t>(generator() % scene.devices());
        model.add_telling(placed, device, target, [&](uint32_t x, uint32_t n, double change_s) {
            reported[size_t{x} * scene.servers + n] += change_s;
        });
        for (uint32_t x = 0; x < scene.expert_count(); ++x)
            for (uint32_t n = 0; n < scene.servers; ++n) {
                const size_t index = size_t{x} * scene.servers + n;
                if (x == placed || target(x, n) == latency_model::none) continue;
                CHECK(std::abs(model.gain(x, target(x, n)) - old_gains[index] - reported[index]) <
                      1e-11);
            }
    }
}

namespace {

// Servers A to D in a row, one device each, one home at A that always chooses experts 0 and 1.
struct appendix_b {
    appendix_b() {
        scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
        scene.add_model(1, 2, 2, 10, 1000);
        for (uint32_t n = 0; n < 4; ++n) scene.add_server(), scene.add_device(n, 100, call);
        for (uint32_t n = 1; n < 4; ++n) {
            scene.add_link(0, n, 1000 / outbound_s[n], 0, false);
            scene.add_link(n, 0, 1000 / return_s[n], 0, false);
        }
        scene.add_cloud(infinite, 50, 0.5);
        scene.add_home(0, 1, 1000, 1000, 0.1);
        scene.add_call(0, {0, 1}, share);
        cluster = scene.cluster(), demand = scene.demand();
    }
    const double call = 0.25, share = 0.5;
    const double outbound_s[4] = {0, 1, 2, 4}, return_s[4] = {0, 1.5, 2.5, 5};
    placement_scene scene;
    moorage_cluster cluster;
    moorage_demand demand;
    enum { A, B, C, D };
};

}  // namespace

TEST_CASE("marginals of Appendix B hold literally") {
    const appendix_b example;
    latency_model model(example.cluster, example.demand);
    const double near_c = example.outbound_s[appendix_b::C] + example.return_s[appendix_b::C];
    // i at B; j at C in the larger set, at D in the smaller (Fig. 11 a): j comes to B, or C.
    model.assign(std::vector<moorage_copy>{{0, appendix_b::B}, {1, appendix_b::C}});
    CHECK(
        model.gain(1, appendix_b::B) ==
        doctest::Approx(example.share * (near_c - example.return_s[appendix_b::B] + example.call)));
    // i at C and j at D: j at B leaves two servers, one of them nearer than D.
    model.assign(std::vector<moorage_copy>{{0, appendix_b::D}, {1, appendix_b::C}});
    CHECK(model.gain(1, appendix_b::B) ==
          doctest::Approx(example.share * (near_c - example.outbound_s[appendix_b::B] -
                                           example.return_s[appendix_b::B])));
    // Fig. 11 b: both at B already; j at C brings nothing. Without B it joins i at C.
    model.assign(std::vector<moorage_copy>{{0, appendix_b::B}, {1, appendix_b::B}, {0, 2}});
    CHECK(model.gain(1, appendix_b::C) == 0);
    model.assign(std::vector<moorage_copy>{{0, appendix_b::C}, {1, appendix_b::D}});
    CHECK(model.gain(1, appendix_b::C) ==
          doctest::Approx(example.share *
                          (example.outbound_s[appendix_b::D] + example.return_s[appendix_b::D] -
                           example.return_s[appendix_b::C] + example.call)));
}

TEST_CASE("marginals of Appendix E hold literally, gain_last among them") {
    // N = 1, K = 2: a first expert saves p (T_C,n - T_E), a last one p (T_C,n + T_n,C + T_C^CP).
    placement_scene scene;
    scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    scene.add_model(1, 3, 2, 10, 1000);
    scene.add_server(), scene.add_device(0, 100, 0.25);
    scene.add_cloud(1000, 4, 0.125);
    scene.add_home(0, 1, 1000, 1000, 0.1);
    scene.add_call(0, {0, 1}, 0.5), scene.add_call(0, {0, 2}, 0.25);
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    latency_model model(cluster, demand);
    CHECK(model.gain(0, 0) == doctest::Approx(0.75 * (5 - 0.25)));
    CHECK(model.gain_last(0, 0) == doctest::Approx(0.75 * (5 + 5 + 0.125)));
    model.add(1, 0), model.add(2, 0);
    CHECK(model.gain(0, 0) == doctest::Approx(0.75 * (5 + 5 + 0.125)));
    CHECK(model.gain_last(0, 0) == model.gain(0, 0));
}

TEST_CASE("gain_last is the gain with all else on the server") {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        scene_shape shape;
        shape.experts = 5, shape.top_k = {3, 1}, shape.flags = seed % 2 == 0 ? 3 : 2;
        placement_scene scene = random_scene(shape, seed);
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        std::mt19937_64 generator(seed);
        std::vector<moorage_copy> copies;
        for (const moorage_copy &copy : random_copies(scene, generator, 3))
            if (copy.device != 0) copies.push_back(copy);
        for (uint32_t x = 0; x < scene.expert_count(); ++x) {
            model.assign(copies);
            const double last = model.gain_last(x, 0);
            for (uint32_t other_expert = 0; other_expert < scene.expert_count(); ++other_expert)
                if (other_expert != x) model.add(other_expert, 0);
            CHECK(last == doctest::Approx(model.gain(x, 0)).epsilon(1e-12));
        }
    }
}

TEST_CASE("gain_most and what sets bring are bounds of every gain") {
    for (uint64_t seed = 1; seed <= 240; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.experts = 5, shape.top_k = {1 + static_cast<uint32_t>(seed % 4)};
        shape.servers = 3 + static_cast<uint32_t>(seed / 48 % 6);
        shape.linked = seed % 5 == 0 ? 0.6 : 1;
        shape.flags = static_cast<uint32_t>(seed / 4 % 4), shape.messages_dominate = seed % 3 != 0;
        placement_scene scene = random_scene(shape, seed);
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        std::mt19937_64 generator(seed);
        for (uint64_t one_in = 1; one_in < 6; ++one_in) {
            const std::vector<moorage_copy> copies = random_copies(scene, generator, one_in);
            model.assign(copies);
            const auto placed = static_cast<uint32_t>(generator() % scene.expert_count());
            const auto device = static_cast<uint32_t>(generator() % scene.devices());
            const bool bounded = model.messages_dominate();
            std::vector<double> old_gains, raised(size_t{scene.expert_count()} * scene.servers, 0);
            for (uint32_t x = 0; x < scene.expert_count(); ++x)
                for (uint32_t d = 0; d < scene.devices(); ++d)
                    old_gains.push_back(model.gain(x, d));
            std::vector<uint8_t> partner(scene.expert_count(), bounded ? 0 : 1);
            if (model.holds(placed, model.server_of(device))) continue;
            if (bounded)
                model.for_raised(placed, device, [&](uint32_t x, uint64_t servers, double most_s) {
                    for (uint32_t n = 0; n < scene.servers; ++n)
                        if ((servers >> n & 1) != 0) raised[x * scene.servers + n] += most_s;
                    partner[x] = 1;
                });
            model.add(placed, device);
            std::vector<double> most;
            for (uint32_t x = 0; x < scene.expert_count(); ++x) {
                if (bounded) model.gains_most(x, most);
                for (uint32_t d = 0; d < scene.devices(); ++d) {
                    const double now = model.gain(x, d);
                    const uint32_t n = model.server_of(d);
                    CHECK(now <= model.gain_most(x) * (1 + tolerance) + tolerance);
                    CHECK(model.asked(x) == (model.gain_most(x) > 0));
                    if (partner[x] == 0 && x != placed)
                        CHECK(std::abs(now - old_gains[x * scene.devices() + d]) < tolerance);
                    if (!bounded) continue;
                    CHECK(now >= -tolerance);
                    if (model.holds(x, n)) continue;
                    CHECK(now <= most[n] + tolerance);
                    if (x == placed)
                        CHECK(now <= old_gains[x * scene.devices() + d] + tolerance);
                    else
                        CHECK(now <= old_gains[x * scene.devices() + d] +
                                         raised[x * scene.servers + n] + tolerance);
                }
            }
        }
        if (shape.flags == 3 && shape.messages_dominate) {
            REQUIRE(model.messages_dominate());
            model.clear();
            for (uint32_t x = 0; x < scene.expert_count(); ++x)
                for (uint32_t d = 0; d < scene.devices(); ++d)
                    CHECK(std::abs(model.gain(x, d) - model.gain_first(x, d)) < tolerance);
        }
        if (shape.flags != 3) CHECK(!model.messages_dominate());
    }
}

TEST_CASE("what the model says it sums up is its sum") {
    scene_shape shape;
    shape.top_k = {2, 1, 3}, shape.layers = 2;
    placement_scene scene = random_scene(shape, 4);
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    latency_model model(cluster, demand);
    // An empty placement: each sought expert costs a return of the cloud, each layer a way up.
    const double per_set_s = scene.cloud_s[0] + scene.cloud_call_s[0],
                 per_expert_s = scene.cloud_s[0];
    double sum = model.fixed_s();
    for (uint32_t x = 0; x < scene.expert_count(); ++x)
        for (uint32_t n = 0; n < scene.servers; ++n)
            sum += model.single_weight(x, n) * (per_set_s + per_expert_s);
    model.for_sets([&](uint32_t, double weight, std::span<const uint32_t> set) {
        sum += weight * (per_set_s + static_cast<double>(set.size()) * per_expert_s);
    });
    CHECK(sum == doctest::Approx(model.empty_s()).epsilon(tolerance));
}

TEST_CASE("a second copy can raise the latency where computing dominates") {
    // Both experts at the neighbour: one call there. If one of them is here as well, it is computed
    // here first, and the neighbour still computes the other: a hop less, a computation more.
    placement_scene scene;
    scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    scene.add_model(1, 2, 2, 10, 1000);
    for (uint32_t n = 0; n < 2; ++n) scene.add_server(), scene.add_device(n, 100, 3);
    scene.add_link(0, 1, 1000);
    scene.add_cloud(1000, 100, 1);
    scene.add_home(0, 1, 1000, 1000), scene.add_call(0, {0, 1}, 1);
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    latency_model model(cluster, demand);
    model.add(0, 1), model.add(1, 1);
    CHECK(model.gain(0, 0) == doctest::Approx(1 - 3));
}

TEST_CASE("on a shared interface each further call keeps the layer waiting") {
    // A second there, a second back, a quarter of latency each: a call of one expert takes 3 s.
    placement_scene scene;
    scene.flags = MOORAGE_LINKS_SHARED;
    scene.add_model(1, 3, 3, 10, 1000);
    for (uint32_t n = 0; n < 3; ++n) scene.add_server(), scene.add_device(n, 100, 0.5);
    for (uint32_t n = 1; n < 3; ++n) scene.add_link(0, n, 1000, 0.25);
    scene.add_link(1, 2, 1000);
    scene.add_home(0), scene.add_call(0, {0, 1}, 1);
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    latency_model model(cluster, demand);
    model.add(0, 1), model.add(1, 2);
    CHECK(model.token_s() == doctest::Approx(3 + 1));
    // Both at one server: one message each way, two computations one after another.
    CHECK(model.gain(1, 1) == doctest::Approx(4 - 3.5));
    model.add(1, 1);
    CHECK(model.token_s() == doctest::Approx(3.5));
    scene.flags = 0;
    latency_model apart(scene.cluster(), demand);
    apart.assign(model.copies());
    CHECK(apart.token_s() == doctest::Approx(3));
}

TEST_CASE("a batch takes what one token takes and what the others add") {
    placement_scene scene;
    scene.flags = 0;
    scene.add_model(1, 2, 1, 10, 1000);
    for (uint32_t n = 0; n < 2; ++n) scene.add_server(), scene.add_device(n, 100, 0.5, 0.1);
    scene.add_link(0, 1, 1000, 0.25);
    scene.add_home(0), scene.add_call(0, {0}, 0.5), scene.add_call(0, {1}, 0.5);
    const auto batch_token_s = [&](uint32_t flags, double batch) {
        scene.flags = flags, scene.home_batch = {batch};
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        model.add(0, 0), model.add(1, 1);
        CHECK(model.token_s() == doctest::Approx(0.5 * 0.5 + 0.5 * 3));
        return model.figures().batch_token_s;
    };
    CHECK(batch_token_s(0, 1) == doctest::Approx(1.75));
    // With four tokens, an expert is used with chance 15/16, by two tokens on average. The first
    // takes half a second, each further one a tenth. Two hidden states go to the other server and
    // two come back. If any goes, both ways together add half a second. The own server is waited
    // for only if none goes. With one token, each half has the same chance.
    const double use_chance = 15.0 / 16, work = use_chance * 0.5 + (2 - use_chance) * 0.1,
                 sent = 2 * 2;
    const double four_tokens_s = sent + work + use_chance * 0.5,
                 one_token_s = 0.5 * (2 + 0.5 + 0.5);
    CHECK(batch_token_s(0, 4) ==
          doctest::Approx(
              (1.75 + four_tokens_s + (1 - use_chance) * work - (one_token_s + 0.5 * 0.25)) / 4));
    // One after another both servers' work counts; of one token, too.
    CHECK(batch_token_s(MOORAGE_CALLS_SERIAL, 4) ==
          doctest::Approx((1.75 + (four_tokens_s + work) - (one_token_s + 0.25)) / 4));
    // Messages of a shared interface beside the longest work.
    CHECK(batch_token_s(MOORAGE_LINKS_SHARED, 4) ==
          doctest::Approx(
              (1.75 + four_tokens_s + (1 - use_chance) * work - (one_token_s + 0.5 * 0.25)) / 4));
}

TEST_CASE("of a prompt and the tokens of its output the prompt alone passes together") {
    placement_scene scene;
    scene.flags = 0;
    scene.add_model(1, 2, 1, 10, 1000);
    for (uint32_t n = 0; n < 2; ++n) scene.add_server(), scene.add_device(n, 100, 0.5, 0.1);
    scene.add_link(0, 1, 1000, 0.25);
    scene.add_home(0), scene.add_call(0, {0}, 0.75), scene.add_call(0, {1}, 0.25);
    const auto token_s = [&](double batch, std::vector<double> single_share) {
        scene.home_batch = {batch}, scene.home_single_share = single_share;
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        model.add(0, 0), model.add(1, 1);
        return model.figures().batch_token_s;
    };
    const double alone_s = token_s(1, {1}), ten_s = 10 * token_s(10, {});
    // Ten tokens at once and four on their own.
    CHECK(token_s(14.0 / 5, {4.0 / 5}) == doctest::Approx((ten_s + 4 * alone_s) / 14));
    CHECK(token_s(10, {0}) == doctest::Approx(ten_s / 10));
}

TEST_CASE("homes that ask alike have batches of their own") {
    placement_scene scene;
    scene.flags = 0;
    scene.add_model(1, 2, 1, 10, 1000);
    for (uint32_t n = 0; n < 2; ++n) scene.add_server(), scene.add_device(n, 100, 0.5, 0.1);
    scene.add_link(0, 1, 1000, 0.25), scene.add_link(1, 0, 1000, 0.25);
    for (uint32_t h = 0; h < 2; ++h)
        scene.add_home(h), scene.add_call(h, {0}, 0.5), scene.add_call(h, {1}, 0.5);
    const auto token_s = [&](double first, double second) {
        scene.home_batch = {first, second};
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        model.add(0, 0), model.add(1, 1);
        return model.figures().batch_token_s;
    };
    // Both servers are alike, so that it does not matter whose batch is the larger one.
    CHECK(token_s(4, 12) == doctest::Approx(token_s(12, 4)));
    CHECK(token_s(4, 12) == doctest::Approx((token_s(4, 4) + token_s(12, 12)) / 2));
}

// For each way in which the tokens of a batch can choose: its chance, and the layer's time.
TEST_CASE("an expert that a token seldom chooses costs a batch a call nearly every time") {
    // Experts 0 to 2 on servers 0 to 2; of 1, 8 ms there and back; of 2, 4 ms.
    const double latency_s[] = {0, 4e-3, 2e-3}, call_s = 1e-4, token_s = 1e-5;
    constexpr uint32_t tokens = 12;
    for (const std::array<double, 3> f :
         {std::array{0.98, 0.02, 0.0}, {0.9, 0.05, 0.05}, {0.8, 0.0, 0.2}, {0.5, 0.25, 0.25}}) {
        placement_scene scene;
        scene.flags = 0;
        scene.add_model(1, 3, 1, 10, 1000);
        for (uint32_t n = 0; n < 3; ++n)
            scene.add_server(), scene.add_device(n, 100, call_s, token_s);
        for (uint32_t n = 1; n < 3; ++n) scene.add_link(0, n, 1e8, latency_s[n]);
        scene.add_link(1, 2, 1e8);
        scene.add_home(0), scene.home_batch = {double{tokens}};
        for (uint32_t x = 0; x < 3; ++x)
            if (f[x] > 0) scene.add_call(0, {x}, f[x]);
        const moorage_cluster cluster = scene.cluster();
        const moorage_demand demand = scene.demand();
        latency_model model(cluster, demand);
        for (uint32_t x = 0; x < 3; ++x) model.add(x, x);
        double exact_s = 0;
        for (uint32_t b = 0; b <= tokens; ++b)
            for (uint32_t c = 0; b + c <= tokens; ++c) {
                const uint32_t count[] = {tokens - b - c, b, c};
                double chance = 1, longest_s = 0;
                for (uint32_t x = 0, left = tokens; x < 3; left -= count[x++]) {
                    for (uint32_t i = 0; i < count[x]; ++i)
                        chance *= f[x] * (left - i) / (count[x] - i);
                    if (count[x] == 0) continue;
                    const double sent = x == 0 ? 0 : 2 * (latency_s[x] + count[x] * 1000 / 1e8);
                    longest_s = std::max(longest_s, sent + call_s + (count[x] - 1) * token_s);
                }
                exact_s += chance * longest_s;
            }
        CHECK(model.figures().batch_token_s * tokens == doctest::Approx(exact_s).epsilon(0.05));
    }
}

TEST_CASE("where only frequencies are known each expert counts alone") {
    placement_scene scene;
    scene.flags = 0;
    scene.add_model(1, 3, 2, 10, 1000);
    for (uint32_t n = 0; n < 3; ++n) scene.add_server(), scene.add_device(n, 100, 0.5);
    scene.add_link(0, 1, 1000, 0.25), scene.add_link(0, 2, 500), scene.add_link(1, 2, 250);
    scene.add_home(0, 2), scene.add_home(1, 6);
    scene.frequency = {1, 0.5, 0.5, 0.25, 0.75, 1};
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    latency_model model(cluster, demand);
    CHECK(model.figures().absent == 3);
    CHECK(model.absent_s(0) == doctest::Approx(2 * 8.5));  // over the slowest link, and computed
    model.add(0, 0), model.add(1, 1), model.add(2, 1), model.add(2, 2);
    const latency_figures figures = model.figures();
    const double hop = 0.5 + 2 * 1.25;
    CHECK(figures.absent == 0);
    CHECK(figures.home_token_s[0] == doctest::Approx(0.5 + hop));
    CHECK(figures.home_token_s[1] == doctest::Approx(0.25 * hop + 0.75 * 0.5 + 0.5));
    CHECK(figures.token_s ==
          doctest::Approx((2 * figures.home_token_s[0] + 6 * figures.home_token_s[1]) / 8));
    CHECK(figures.calls_per_s == doctest::Approx(16));
    CHECK(figures.remote_calls_per_s == doctest::Approx(2 * 1 + 6 * 0.25));
    CHECK(figures.local_ratio == doctest::Approx(1 - 3.5 / 16));
    CHECK(figures.home_local_ratio[0] == doctest::Approx(0.5));
    CHECK(model.loss(0, 0) == doctest::Approx((2 * 1 * (17 - 0.5) + 6 * 0.25 * (17 - hop)) / 8));
}

TEST_CASE("more than 64 servers: frequencies alone, nearest holder by nearest holder") {
    placement_scene scene;
    scene.add_model(2, 8, 2, 10, 1000);
    for (uint32_t n = 0; n < 130; ++n) scene.add_server(), scene.add_device(n, 100, 0.5);
    for (uint32_t a = 0; a < 130; ++a)
        for (uint32_t b = 0; b < a; ++b) scene.add_link(a, b, 1000.0 / (1 + (a + b) % 7));
    for (uint32_t n = 0; n < 130; ++n) scene.add_home(n, 1 + n % 3);
    std::mt19937_64 generator(5);
    for (double &f : scene.frequency) f = static_cast<double>(generator() % 8) / 8;
    const moorage_cluster cluster = scene.cluster();
    const moorage_demand demand = scene.demand();
    latency_model model(cluster, demand);
    const std::vector<moorage_copy> copies = random_copies(scene, generator, 40);
    model.assign(copies);
    for (uint32_t h = 0; h < 130; h += 13) {
        double sum = 0;
        for (uint32_t x = 0; x < scene.expert_count(); ++x) {
            double best = model.absent_s(0);
            for (const moorage_copy &copy : copies)
                if (copy.expert == x)
                    best = std::min(
                        best, copy.device == h ? 0.5 : 0.5 + 2.0 * (1 + (h + copy.device) % 7));
            sum += scene.frequency[h * scene.expert_count() + x] * best;
        }
        CHECK(model.figures().home_token_s[h] == doctest::Approx(sum));
    }
    const double old_token_s = model.token_s();
    const double gain = model.gain(3, 70), loss = model.loss(copies[0].expert, copies[0].device);
    model.add(3, 70);
    CHECK(old_token_s - model.token_s() == doctest::Approx(gain));
    model.remove(3, 70), model.remove(copies[0].expert, copies[0].device);
    CHECK(model.token_s() - old_token_s == doctest::Approx(loss));
}

}  // namespace latency_test
