// scene_test.cpp - goal: policies see the arrays of the description. Method: rates and times worked
// out by hand in comments, counts of a trace done naively, properties of drawn values, and every
// refusal once.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/execute/cost_model.h"
#include "tools/placement/radio.h"
#include "tools/placement/scene.h"
#include "core/source/trace.h"
#include "tests/unit/trace_file.h"

namespace scene_test {

using namespace moorage::core;

namespace {

const std::filesystem::path source_dir = MOORAGE_SOURCE_DIR;
const std::filesystem::path clusters = source_dir / "configs/clusters";

result<run_config> load(const std::filesystem::path &file, const std::vector<std::string> &set) {
    std::vector<override_value> overrides;
    for (const std::string &text : set) overrides.push_back(*parse_override(text));
    return load_run_config(file, overrides);
}

result<scene> try_scene(const result<run_config> &config) {
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    return make_scene(*config->cluster, config->file.parent_path());
}

scene scene_of(const std::string &name, const std::vector<std::string> &set = {}) {
    auto parsed = try_scene(load(clusters / name, set));
    REQUIRE_MESSAGE(parsed.ok(), (parsed ? "" : parsed.failure().text));
    return std::move(*parsed);
}

result<scene> scene_from(const std::string &text) {
    return try_scene(parse_run_config(text, clusters / "text.toml", {}));
}

scene accepted(const std::string &text) {
    auto parsed = scene_from(text);
    REQUIRE_MESSAGE(parsed.ok(), (parsed ? "" : parsed.failure().text));
    return std::move(*parsed);
}

void refused(const std::string &text, const std::vector<std::string> &parts) {
    const auto parsed = scene_from(text);
    REQUIRE_FALSE_MESSAGE(parsed.ok(), parts.front());
    CHECK(parsed.failure().usage);
    for (const std::string &part : parts)
        CHECK_MESSAGE(parsed.failure().text.find(part) != std::string::npos,
                      ("\"" + parsed.failure().text + "\" lacks " + part));
}

const std::string switch8 = "[[cluster.models]]\nname = \"m\"\nshape = \"switch_base_8\"\n";
const std::string drawn = "[[cluster.workloads]]\nname = \"w\"\nzipf = 1\n";
const std::string bundled =
    (source_dir / "configs/traces/qwen15moe-shape.long.safetensors").string();

// One server of its own GPU that tokens enter.
std::string lone_server(const std::string &keys) {
    return "[[cluster.servers]]\nname = \"a\"\nworkload = \"w\"\n" + keys;
}

// Calls of a home with the frequencies that they add up to.
void check_calls(const scene &scene) {
    const demand_arrays &demand = scene.demand;
    REQUIRE(demand.home_first_call.size() == demand.homes + 1);
    CHECK(demand.home_first_call.front() == 0);
    CHECK(demand.home_first_call.back() == demand.call_group.size());
    CHECK(demand.call_share.size() == demand.call_group.size());
    CHECK(demand.group_first.back() == demand.group_experts.size());
    for (uint32_t home = 0; home < demand.homes; ++home) {
        std::vector<double> sums(demand.experts(), 0.0);
        for (uint64_t call = demand.home_first_call[home]; call < demand.home_first_call[home + 1];
             ++call) {
            const uint32_t group = demand.call_group[call];
            REQUIRE(group + 1 < demand.group_first.size());
            for (uint64_t n = demand.group_first[group]; n < demand.group_first[group + 1]; ++n)
                sums[demand.group_experts[n]] += demand.call_share[call];
        }
        const double *row = &demand.frequency[size_t{home} * demand.experts()];
        for (uint32_t expert = 0; expert < demand.experts(); ++expert)
            CHECK(row[expert] == sums[expert]);
        // Every layer of a model is passed by its share of the tokens, top_k experts each.
        for (uint32_t model = 0; model < demand.models; ++model)
            for (uint32_t layer = 0; layer < demand.model_layers[model]; ++layer) {
                const uint32_t first =
                    demand.model_first[model] + layer * demand.model_experts[model];
                const double sum =
                    std::accumulate(row + first, row + first + demand.model_experts[model], 0.0);
                CHECK(sum == doctest::Approx(demand.home_model[home * demand.models + model] *
                                             demand.model_top_k[model])
                                 .epsilon(1e-9));
            }
    }
}

}  // namespace

TEST_CASE("Eq. 3 by hand") {
    // 10 m at path loss 2: 1/100. 1 W times gain 3: 0.03 W. Noise 1e-8 W/Hz over 1 MHz: 0.01 W.
    // Ratio 3, log2(4) = 2: 2 Mbit/s. Five times the power: ratio 15, log2(16) = 4.
    cluster_radio radio;
    radio.gain = 3, radio.path_loss = 2, radio.noise_w_per_hz = 1e-8;
    CHECK(bits_per_s(radio, {1e6, 1, 10}) == doctest::Approx(2e6).epsilon(1e-12));
    CHECK(bits_per_s(radio, {1e6, 5, 10}) == doctest::Approx(4e6).epsilon(1e-12));
    // The paper's user at 500 m: 500^-4 = 1.6e-11, 1.6e-13 W received; noise 3.981e-21 * 5e6 =
    // 1.9905e-14 W; ratio 8.03818; log2(9.03818) = 3.176033; times 5 MHz.
    radio.gain = 1, radio.path_loss = 4, radio.noise_w_per_hz = 3.981e-21;
    CHECK(bits_per_s(radio, {5e6, 0.01, 500}) == doctest::Approx(15.880e6).epsilon(1e-4));
    // Distances below 1 m count as 1 m.
    CHECK(bits_per_s(radio, {5e6, 0.01, 0}) == bits_per_s(radio, {5e6, 0.01, 1}));
    CHECK(bits_per_s(radio, {5e6, 0.01, 0}) > bits_per_s(radio, {5e6, 0.01, 1.01}));
    // A power that is no whole number, against the library.
    radio.path_loss = 3.7;
    CHECK(bits_per_s(radio, {5e6, 0.01, 321}) ==
          doctest::Approx(5e6 * std::log2(1 + 0.01 * std::pow(321, -3.7) / 1.9905e-14)));
    // Very weak: log2(1 + r) is r / ln 2.
    CHECK(bits_per_s(radio, {5e6, 1e-17, 1e4}) ==
          doctest::Approx(5e6 * std::log1p(1e-17 * std::pow(1e4, -3.7) / 1.9905e-14) / std::log(2))
              .epsilon(1e-9));
    CHECK(distance_m({1, 2}, {4, 6}) == 5);
}

TEST_CASE("rates, times and association of an ideal cluster by hand") {
    // Rates as above with path loss 2: user at 10 m of a: up 2 Mbit/s (power 1), down 4 Mbit/s
    // (power 5). b at 30 m of the user, 40 m of a.
    const std::string text =
        "[cluster]\nserial_calls = true\nreturns_each = true\n" + switch8 +
        "value_bits = 32\n"
        "[[cluster.servers]]\nname = \"b\"\nflops = 4e12\nexpert_memory_bytes = 1e9\n"
        "position = [40, 0]\n"
        "[[cluster.servers]]\nname = \"a\"\nflops = 2e12\nexpert_memory_bytes = 1e9\n"
        "position = [0, 0]\n"
        "[cluster.cloud]\nflops = 8e12\nbits_per_s = 1e9\nlatency_s = 0.25\n"
        "[cluster.radio]\nuser_bandwidth_hz = 1e6\nserver_bandwidth_hz = 2e6\nuser_power_w = 1\n"
        "server_power_w = 5\ngain = 3\npath_loss = 2\nnoise_w_per_hz = 1e-8\n"
        "[[cluster.users]]\nname = \"u\"\nposition = [10, 0]\nflops = 1e12\nworkload = \"w\"\n"
        "[[cluster.users]]\nname = \"v\"\nposition = [20, 0]\nworkload = \"w\"\n" +
        drawn;
    const scene scene = accepted(text);
    const cluster_arrays &cluster = scene.cluster;
    CHECK(cluster.flags == (MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH));
    CHECK(scene.home_names == std::vector<std::string>{"b", "a", "u", "v"});
    // v is as far from both: the first of them.
    CHECK(cluster.home_server == std::vector<uint32_t>{0, 1, 1, 0});
    CHECK(cluster.home_up_bytes_per_s[2] == doctest::Approx(2e6 / 8).epsilon(1e-12));
    CHECK(cluster.home_down_bytes_per_s[2] == doctest::Approx(4e6 / 8).epsilon(1e-12));
    CHECK(std::isinf(cluster.home_up_bytes_per_s[0]));
    // Servers: 40 m, power 5: 15 / 1600 W, noise 0.02 W, ratio 0.46875, over 2 MHz.
    const double link = 2e6 * std::log2(1.46875) / 8;
    CHECK(cluster.link_bytes_per_s[1] == doctest::Approx(link).epsilon(1e-12));
    CHECK(cluster.link_bytes_per_s[2] == cluster.link_bytes_per_s[1]);
    CHECK(std::isinf(cluster.link_bytes_per_s[0]));
    CHECK(cluster.link_s == std::vector<double>(4, 0.0));
    CHECK(cluster.cloud_up_bytes_per_s == std::vector<double>(2, 1.25e8));
    CHECK(cluster.cloud_s == std::vector<double>(2, 0.25));
    // Eq. 6: an expert of 2 x 768 x 3072 weights takes 9437184 operations; 8 experts share the
    // rate.
    const double work = 9437184.0 * 8;
    CHECK(cluster.device_call_s[0] == doctest::Approx(work / 4e12).epsilon(1e-12));
    CHECK(cluster.device_call_s[1] == doctest::Approx(work / 2e12).epsilon(1e-12));
    CHECK(cluster.device_token_s[1] == cluster.device_call_s[1]);
    CHECK(cluster.cloud_call_s[0] == doctest::Approx(work / 8e12).epsilon(1e-12));
    CHECK(cluster.home_call_s[2] == doctest::Approx(work / 1e12).epsilon(1e-12));
    CHECK(scene.demand.hidden_bytes[0] == 768 * 4);
    CHECK(scene.demand.home_tokens_per_s == std::vector<double>{0, 0, 1, 1});
    CHECK(scene.home_workload == std::vector<uint32_t>{no_workload, no_workload, 0, 0});
    CHECK(scene.demand.home_holds.empty());
    CHECK(scene.demand.view().host_home_holds == nullptr);
    check_calls(scene);
}

TEST_CASE("a user's server is the one of the least time for a bit, both ways") {
    const auto scene = scene_of("slimcaching.toml", {"cluster.users.count=200"});
    const auto config = load(clusters / "slimcaching.toml", {"cluster.users.count=200"});
    const cluster_config &cluster = *config->cluster;
    std::set<uint32_t> used;
    for (size_t user = 0; user < 200; ++user) {
        // Powers are alike, so that is the nearest one, unless closer than a metre.
        uint32_t nearest = 0;
        for (uint32_t n = 1; n < 4; ++n)
            if (distance_m(*cluster.users[user].location, *cluster.servers[n].location) <
                distance_m(*cluster.users[user].location, *cluster.servers[nearest].location))
                nearest = n;
        CHECK(scene.cluster.home_server[4 + user] == nearest);
        used.insert(nearest);
    }
    CHECK(used.size() == 4);
}

TEST_CASE("links: later ones count, directions may differ, names may stand for several") {
    const scene scene = accepted(
        switch8 +
        "[[cluster.servers]]\nname = \"s\"\ncount = 2\nworkload = \"w\"\nflops = 1e12\n"
        "expert_memory_bytes = 1e9\n"
        "[[cluster.servers]]\nname = \"t\"\nflops = 1e12\nexpert_memory_bytes = 1e9\n"
        "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 8e6\nlatency_s = 0.5\n"
        "[[cluster.links]]\nfrom = \"s\"\nto = \"t\"\nbits_per_s = 16e6\nsymmetric = false\n"
        "[[cluster.links]]\nfrom = \"t\"\nto = \"s.1\"\nbits_per_s = 24e6\nsymmetric = false\n" +
        drawn);
    const double inf = std::numeric_limits<double>::infinity();
    CHECK(scene.cluster.link_bytes_per_s ==
          std::vector<double>{inf, 1e6, 2e6, 1e6, inf, 2e6, 1e6, 3e6, inf});
    CHECK(scene.cluster.link_s == std::vector<double>{0, .5, 0, .5, 0, 0, .5, 0, 0});
    CHECK_FALSE(scene.cluster.has_cloud());
    CHECK(scene.cluster.view().host_cloud_s == nullptr);
}

TEST_CASE("GPUs: memory and times from their profiles") {
    const std::string server = "gpus = [\"a100_40gb\", \"rtx_4090\"]\n";
    const std::string model = "[[cluster.models]]\nname = \"m\"\nshape = \"qwen1_5_moe_a2_7b\"\n";
    const auto memory = [&](const std::string &keys) {
        return accepted(model + lone_server(server + keys) + drawn).cluster.device_bytes;
    };
    const auto a100 = load_hardware({"a100_40gb", "", "", {}});
    const auto shape = load_shape("qwen1_5_moe_a2_7b", {});
    REQUIRE(a100.ok());
    REQUIRE(shape.ok());
    CHECK(memory("expert_memory_bytes = 15e9\n") ==
          std::vector<uint64_t>{15'000'000'000, 15'000'000'000});
    CHECK(memory("expert_memory_share = 0.75\n")[0] == 42'949'672'960 / 4 * 3);
    CHECK(memory("")[0] == 42'949'672'960 - 3'000'000'000 - shape->non_expert_bytes);

    const scene scene = accepted(model + lone_server(server) + drawn);
    CHECK(scene.device_names == std::vector<std::string>{"a.gpu0", "a.gpu1"});
    CHECK(scene.cluster.device_server == std::vector<uint32_t>{0, 0});
    const cost_model costs(*a100, *shape);
    CHECK(scene.cluster.device_call_s[0] ==
          doctest::Approx(static_cast<double>(costs.gpu_expert_ns(1, 1)) * 1e-9));
    CHECK(scene.cluster.device_load_bytes_per_s[0] ==
          std::min(a100->link.h2d_bytes_per_s, a100->node.memory_bytes_per_s));
    CHECK(scene.hardware[1].id == "rtx_4090");
    // Half the bytes are read in half the time (2 launches of 3 us apart); the arithmetic stays.
    const auto half =
        accepted(model + "expert_bytes = " + std::to_string(shape->expert_bytes / 2) + "\n" +
                 lone_server(server) + drawn);
    const double launches = 6e-6;
    CHECK(half.cluster.device_call_s[0] - launches ==
          doctest::Approx((scene.cluster.device_call_s[0] - launches) / 2).epsilon(1e-3));
    CHECK(half.demand.expert_bytes[0] == shape->expert_bytes / 2);
}

TEST_CASE("the full SlimCaching instance") {
    const auto scene = scene_of("slimcaching.toml");
    CHECK(scene.model_names.size() == 18);
    // Switch 3 x 12 layers x (8 + 16 + 32), LLaVA 2 x (12 + 12 + 16) x 4, LLaMA-MoE 3 x 32 x 16.
    CHECK(scene.demand.experts() == 3 * 12 * 56 + 2 * 40 * 4 + 3 * 512);
    CHECK(scene.demand.experts() == 3872);
    check_calls(scene);
    std::set<size_t> sizes;
    std::set<std::vector<double>> sets;
    for (size_t home = 4; home < 24; ++home) {
        const auto row = scene.demand.home_model.begin() + static_cast<ptrdiff_t>(home * 18);
        std::vector<double> shares;
        std::copy_if(row, row + 18, std::back_inserter(shares), [](double s) { return s > 0; });
        sizes.insert(shares.size());
        sets.insert(std::vector<double>(row, row + 18));
        std::sort(shares.rbegin(), shares.rend());
        double total = 0;
        for (size_t rank = 0; rank < shares.size(); ++rank)
            total += std::pow(static_cast<double>(rank + 1), -0.8);
        for (size_t rank = 0; rank < shares.size(); ++rank)
            CHECK(shares[rank] ==
                  doctest::Approx(std::pow(static_cast<double>(rank + 1), -0.8) / total));
        // 200 held, none of them used less than one that is not held, all of models asked for.
        const size_t experts = scene.demand.experts();
        double least_held = 1, most_missing = 0;
        size_t held = 0;
        for (size_t n = 0; n < experts; ++n) {
            const double used = scene.demand.frequency[home * experts + n];
            if (scene.demand.home_holds[home * experts + n]) {
                ++held;
                least_held = std::min(least_held, used);
                CHECK(used > 0);
            } else {
                most_missing = std::max(most_missing, used);
            }
        }
        CHECK(held == 200);
        CHECK(least_held >= most_missing);
    }
    CHECK(sizes == std::set<size_t>{3, 4, 5});
    CHECK(sets.size() == 20);
    CHECK(std::count(scene.demand.home_holds.begin(), scene.demand.home_holds.begin() + 4 * 3872,
                     1) == 0);
    // A larger set holds the smaller one of the same user.
    const auto three = scene_of("slimcaching.toml", {"cluster.workloads.models_per_user=3"});
    const auto five = scene_of("slimcaching.toml", {"cluster.workloads.models_per_user=5"});
    for (size_t n = 0; n < three.demand.home_model.size(); ++n)
        if (three.demand.home_model[n] > 0) CHECK(five.demand.home_model[n] > 0);
}

TEST_CASE("users of one workload share its statistics, unless each has its own") {
    const auto rows = [](const scene &scene) {
        std::set<std::vector<double>> different;
        const auto experts = static_cast<ptrdiff_t>(scene.demand.experts());
        for (ptrdiff_t home = 2; home < 6; ++home)
            different.emplace(scene.demand.frequency.begin() + home * experts,
                              scene.demand.frequency.begin() + (home + 1) * experts);
        return different.size();
    };
    const std::vector<std::string> alike = {"cluster.workloads.models_per_user=2",
                                            "cluster.workloads.model_zipf=0"};
    CHECK(rows(scene_of("tiny.toml", alike)) == 1);
    std::vector<std::string> per_user = alike;
    per_user.push_back("cluster.workloads.per_user=true");
    const auto scene = scene_of("tiny.toml", per_user);
    CHECK(rows(scene) == 4);
    check_calls(scene);
    // Frequencies do not depend on whether the sets are kept.
    std::vector<std::string> bare = alike;
    bare.push_back("cluster.workloads.groups_max=0");
    const auto ungrouped = scene_of("tiny.toml", bare);
    CHECK(ungrouped.demand.view().calls == 0);
    const auto grouped = scene_of("tiny.toml", alike);
    for (size_t n = 0; n < grouped.demand.frequency.size(); ++n)
        CHECK(ungrouped.demand.frequency[n] == doctest::Approx(grouped.demand.frequency[n]));
}

TEST_CASE("a bundled trace by kind of text: frequencies, rates and lengths") {
    const auto scene = scene_of("prism.toml");
    check_calls(scene);
    const auto opened = trace::open(bundled);
    REQUIRE(opened.ok());
    const auto offsets = opened->request_offsets();
    const uint64_t kinds[] = {0, 1, 3};
    for (size_t home = 0; home < 3; ++home) {
        std::vector<double> counts(scene.demand.experts(), 0.0);
        double tokens = 0, requests = 0;
        for (uint64_t request = kinds[home]; request < opened->requests(); request += 6) {
            requests += 1;
            for (uint64_t token = offsets[request]; token < offsets[request + 1]; ++token) {
                tokens += 1;
                for (uint32_t layer = 0; layer < opened->layers(); ++layer)
                    for (uint32_t rank = 0; rank < opened->top_k(); ++rank)
                        counts[layer * opened->experts() + opened->expert(token, layer, rank)] += 1;
            }
        }
        for (size_t n = 0; n < counts.size(); ++n)
            CHECK(scene.demand.frequency[home * counts.size() + n] ==
                  doctest::Approx(counts[n] / tokens).epsilon(1e-9));
        CHECK(scene.demand.home_tokens_per_s[home] == doctest::Approx(tokens / requests / 10));
        // All of a request of 200 but its last token is input: 199 and 1 pass in two.
        CHECK(scene.demand.home_batch[home] == doctest::Approx(100));
        CHECK(scene.demand.home_single_share[home] == doctest::Approx(0.5));
    }
    // 100 tokens of input at once, then 100 passes of one: outputs 2 to 101 of 200 tokens.
    const auto prompts = scene_of("prism.toml", {"cluster.workloads.input_tokens=100"});
    CHECK(prompts.demand.home_batch[0] == doctest::Approx(200.0 / 101));
    CHECK(prompts.demand.home_single_share[0] == doctest::Approx(100.0 / 101));
    // 30 together, outputs 2 to 10: 39 tokens in 10 passes, every 10 s.
    const auto lengths = scene_of(
        "prism.toml", {"cluster.workloads.input_tokens=30", "cluster.workloads.output_tokens=10"});
    CHECK(lengths.demand.home_tokens_per_s[0] == doctest::Approx(3.9));
    CHECK(lengths.demand.home_batch[0] == doctest::Approx(3.9));
}

TEST_CASE("arrivals from a file give rate and batch") {
    const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                       ("moorage_arrivals_" + std::to_string(getpid()) + ".csv");
    std::ofstream(file) << "arrival_s,input,output\n10,5,2\n12,0,4\n20,3,1\n";
    const scene scene = accepted(switch8 + lone_server("gpus = \"rtx_4090\"\n") + drawn +
                                 "arrivals = \"" + file.string() + "\"\n");
    std::filesystem::remove(file);
    // Tokens 6 + 4 + 3, an input being one token at least; 10 s are two gaps between three
    // requests; passes 2 + 4 + 1.
    CHECK(scene.demand.home_tokens_per_s[0] == doctest::Approx(13.0 / 3 / 5));
    CHECK(scene.demand.home_batch[0] == doctest::Approx(13.0 / 7));
    CHECK(scene.demand.home_single_share[0] == doctest::Approx(5.0 / 7));  // 1 + (1 + 3) + 0
    refused(switch8 + lone_server("gpus = \"rtx_4090\"\n") + drawn + "arrivals = \"/none.csv\"\n",
            {"[[cluster.workloads]] w", "/none.csv"});
}

TEST_CASE("a trace serves the models that it fits, others are drawn where that is said") {
    const std::string two =
        "[[cluster.models]]\nname = \"q\"\nshape = \"qwen1_5_moe_a2_7b\"\n" + switch8;
    const std::string server = lone_server("gpus = \"a100_80gb\"\n");
    const std::string workload =
        "[[cluster.workloads]]\nname = \"w\"\ntrace = \"" + bundled + "\"\n";
    const auto scene =
        accepted(two + server + workload + "zipf = 1\nmodels = {q = 0.25, m = 0.75}\n");
    check_calls(scene);
    const auto first = scene.demand.frequency.begin() + scene.demand.model_first[1];
    CHECK(*std::max_element(first, first + 8) > 0.75 * 0.36);  // rank 1 of 8 at exponent 1: 0.3679
    refused(two + server + workload,
            {"24 MoE layers, 60 experts and top-4", "model m has 12, 8 and top-1", "give zipf"});
    refused(switch8 + server + workload + "zipf = 1\n",
            {"model m has 12", "choose models that fit"});
}

// Two subjects of Mixtral's shape. In every layer expert e has e + 1 of 36 calls for astronomers
// and 8 - e of 36 for lawyers, who send three requests in four.
std::filesystem::path frequencies_of_subjects() {
    moorage::test::raw_file file;
    file.metadata = {{"format", "moorage.frequency"},
                     {"layers", "32"},
                     {"experts", "8"},
                     {"top_k", "2"},
                     {"subjects", "astronomy,law"}};
    std::vector<float> shares;
    for (const bool law : {false, true})
        for (int layer = 0; layer < 32; ++layer)
            for (int expert = 0; expert < 8; ++expert)
                shares.push_back(static_cast<float>(law ? 8 - expert : expert + 1) / 36);
    file.tensors = {{"frequency", "F32", "[2,32,8]", moorage::test::raw(shares)},
                    {"requests", "I32", "[2]", moorage::test::raw<int32_t>({100, 300})}};
    const std::vector<std::byte> bytes = file.build();
    const auto path = std::filesystem::temp_directory_path() /
                      ("moorage-scene-" + std::to_string(getpid()) + ".safetensors");
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path;
}

TEST_CASE("frequencies alone: a file of subjects") {
    const std::filesystem::path file = frequencies_of_subjects();
    const std::string model = "[[cluster.models]]\nname = \"m\"\nshape = \"mixtral_8x7b\"\n";
    const std::string server =
        "[[cluster.servers]]\nname = \"a\"\ngpus = \"a100_80gb\"\ngpu_count = 2\nworkload = "
        "\"w\"\n";
    const std::string workload =
        "[[cluster.workloads]]\nname = \"w\"\nfrequency = \"" + file.string() + "\"\n";
    const scene one_domain = accepted(model + server + workload + "domains = \"astronomy\"\n");
    const scene all_domains = accepted(model + server + workload);
    CHECK(one_domain.demand.view().calls == 0);
    for (size_t layer = 0; layer < 32; ++layer)
        for (size_t expert = 0; expert < 8; ++expert) {
            // Two experts a token: twice the share.
            const double astronomy = static_cast<double>(expert + 1) / 36;
            const double law = static_cast<double>(8 - expert) / 36;
            CHECK(one_domain.demand.frequency[layer * 8 + expert] ==
                  doctest::Approx(2 * astronomy));
            CHECK(all_domains.demand.frequency[layer * 8 + expert] ==
                  doctest::Approx(2 * (astronomy + 3 * law) / 4));
        }
    refused(model + server + workload + "domains = \"astronomi\"\n", {"did you mean astronomy"});
    std::filesystem::remove(file);
}

TEST_CASE("what the sizes of models decide") {
    // 96 experts of 9437184 bytes are 905969664.
    const std::string gpu = "gpus = \"rtx_4090\"\n";
    refused(switch8 + lone_server(gpu + "expert_memory_bytes = 905969663\n") + drawn,
            {"96 experts need 905969664 bytes", "905969663", "room for 95 whole ones", "cloud"});
    accepted(switch8 + lone_server(gpu + "expert_memory_bytes = 905969664\n") + drawn);
    // Two devices of 48.5 experts hold 48 each; five of 19.8 hold 19 each, though 99 fit in bytes.
    accepted(switch8 + lone_server(gpu + "gpu_count = 2\nexpert_memory_bytes = 457703424\n") +
             drawn);
    refused(switch8 + lone_server(gpu + "gpu_count = 5\nexpert_memory_bytes = 186856243\n") + drawn,
            {"96 experts need", "have 934281215", "room for 95 whole ones"});
    // With a cloud there is no lower limit. A model that nobody asks for needs no room.
    accepted(switch8 + lone_server(gpu + "expert_memory_bytes = 0\n") + drawn +
             "[cluster.cloud]\nflops = 1e15\n");
    accepted(switch8 + "[[cluster.models]]\nname = \"n\"\nshape = \"switch_base_128\"\n" +
             lone_server(gpu + "expert_memory_bytes = 905969664\n") + drawn + "models = \"m\"\n");

    refused(
        "[[cluster.models]]\nname = \"m\"\nshape = \"switch_base_9\"\n" + lone_server(gpu) + drawn,
        {"[[cluster.models]] m", "switch_base_9", "did you mean"});
    refused(switch8 + lone_server("gpus = \"rtx_4091\"\n") + drawn,
            {"[[cluster.servers]] a", "did you mean rtx_4090"});
    refused(switch8 + "groups = 3\n" + lone_server(gpu) + drawn,
            {"8 experts do not divide into 3"});
    refused(switch8 + lone_server(gpu + "expert_memory_bytes = 30e9\n") + drawn,
            {"expert_memory_bytes is 30000000000", "rtx_4090 has"});
    refused(
        "[[cluster.models]]\nname = \"m\"\nshape = \"deepseek_v3\"\n" + lone_server(gpu) + drawn,
        {"non-expert weights and reserve take", "rtx_4090 has"});
    refused(switch8 + lone_server(gpu) + drawn + "trace = \"/none.safetensors\"\n",
            {"[[cluster.workloads]] w", "/none.safetensors"});
    refused(switch8 + lone_server(gpu) +
                "[cluster.radio]\nserver_power_w = 1\nuser_power_w = \"1e-300 W\"\n"
                "user_bandwidth_hz = 1e3\nnoise_w_per_hz = 1e-9\narea_m = 1e6\n"
                "[[cluster.users]]\nname = \"u\"\nworkload = \"w\"\n" +
                drawn,
            {"u is out of radio range"});
}

TEST_CASE("users and servers out of radio range are named, others are not") {
    // 5 MHz, 10 mW, noise of 4e-21 W/Hz, distance^-4. At 5 km the ratio is
    // 0.01 x 1.6e-15 / 2e-14 = 8e-4, and 5e6 x 8e-4 / ln 2 = 5.8 kbit/s; at 8 km 1.22e-4, 880
    // bit/s.
    const auto text = [](const std::string &user, const std::string &server, const char *rest) {
        return switch8 +
               lone_server("flops = 1e12\nexpert_memory_bytes = 9e9\nposition = [0, 0]\n") +
               "[[cluster.servers]]\nname = \"far\"\nflops = 1e12\nexpert_memory_bytes = 9e9\n"
               "position = [" +
               server +
               ", 0]\n"
               "[cluster.cloud]\nflops = 1e12\n"
               "[cluster.radio]\nuser_bandwidth_hz = 5e6\nuser_power_w = 0.01\n"
               "server_power_w = 0.01\nserver_bandwidth_hz = 5e6\nnoise_w_per_hz = 4e-21\n"
               "[[cluster.users]]\nname = \"u\"\nposition = [" +
               user + ", 0]\nworkload = \"w\"\n" + rest + drawn;
    };
    accepted(text("-5000", "100", ""));
    refused(text("-8000", "100", ""), {"u is out of radio range: 88", "of which 1000 are needed"});
    refused(text("-1e7", "100", ""), {"u is out of radio range"});
    refused(text("-5000", "8000", ""), {"a and far are out of radio range: 88"});
    // If a link is given, the radio does not count.
    accepted(
        text("-5000", "8000", "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 1e9\n"));
}

TEST_CASE("256 devices and 1664 experts, every home with statistics of its own") {
    std::string text =
        "[[cluster.models]]\nname = \"m\"\nshape = \"deepseek_v2_lite\"\n"
        "[[cluster.servers]]\nname = \"s\"\ncount = 256\ngpus = \"a100_40gb\"\nworkload = \"w\"\n"
        "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 1e9\n" +
        drawn + "per_user = true\ngroups_max = 500\n";
    const scene scene = accepted(text);
    CHECK(scene.cluster.devices() == 256);
    CHECK(scene.demand.experts() == 1664);
    CHECK(scene.demand.call_group.size() <= 256u * 26 * 500);
    const double sum =
        std::accumulate(scene.demand.frequency.end() - 1664, scene.demand.frequency.end(), 0.0);
    CHECK(sum == doctest::Approx(26 * 6));
}

}  // namespace scene_test
