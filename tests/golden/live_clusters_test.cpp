// live_clusters_test.cpp - goal: a new plan comes into force in the same way on every kind of
// cluster: by the demand of the homes, copy by copy, with every expert held at every moment.
// Method: run the same cases over an emulated cluster and over nodes. Nodes learn of plans from a
// directory, from a gateway of etcd within this process, and from three members of etcd if it is
// installed. The final places follow from the demand by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <set>

#include "core/base/json.h"
#include "tools/cluster/cluster_emulator.h"
#include "tools/cluster/rebalancer.h"
#include "tools/node/plan_leader.h"
#include "tools/registry/etcd_registry.h"
#include "tools/registry/file_registry.h"
#include "tests/golden/node_fixture.h"
#include "tests/skip.h"
#include "tests/unit/etcd_fake.h"
#include "tests/unit/etcd_members.h"
#include "tests/unit/prism_stage.h"
#include "tests/unit/toy_machine.h"

namespace live_clusters_test {

namespace {

using namespace moorage::core;
using namespace moorage::test;

constexpr uint32_t servers = 3;

// [expert] -> the servers that hold it.
using holders = std::vector<std::set<uint32_t>>;

struct outcome {
    bool adopted = false;
    uint64_t added_copies = 0;
    bool operator==(const outcome &) const = default;
};

// A server has one device with room for `slots` experts, and a home; links of 1 ms.
scene scene_of(const model &model, uint32_t slots) {
    scene scene;
    constexpr double infinite = std::numeric_limits<double>::infinity();
    constexpr uint64_t expert_bytes = 1000;
    cluster_arrays &cluster = scene.cluster;
    cluster.flags = MOORAGE_RETURNS_EACH;  // as nodes do
    cluster.servers = cluster.homes = servers, cluster.models = 1;
    cluster.link_bytes_per_s.assign(servers * servers, 1e6);
    cluster.link_s.assign(servers * servers, 0.001);
    for (uint32_t server = 0; server < servers; ++server) {
        cluster.device_server.push_back(server);
        cluster.home_server.push_back(server);
        cluster.link_bytes_per_s[server * (servers + 1)] = infinite;
        cluster.link_s[server * (servers + 1)] = 0;
        scene.server_names.push_back(format("server{}", server));
        scene.device_names.push_back(format("server{}.gpu0", server));
    }
    cluster.device_bytes.assign(servers, slots * expert_bytes);
    cluster.device_load_bytes_per_s.assign(servers, 1e6);
    cluster.device_call_s = cluster.device_token_s = std::vector<double>(servers, 0.001);
    cluster.home_up_bytes_per_s = cluster.home_down_bytes_per_s =
        std::vector<double>(servers, infinite);
    cluster.home_call_s.assign(servers, 0);
    demand_arrays &demand = scene.demand;
    const model_config &sizes = model.config();
    const auto layers = static_cast<uint32_t>(sizes.moe_layers().size());
    demand.models = 1, demand.homes = servers;
    demand.model_first = {0, layers * sizes.experts};
    demand.model_layers = {layers}, demand.model_experts = {sizes.experts};
    demand.model_top_k = {sizes.top_k}, demand.model_groups = {1};
    demand.expert_bytes = {expert_bytes}, demand.hidden_bytes = {4 * uint64_t{sizes.hidden}};
    demand.home_tokens_per_s = demand.home_batch = demand.home_model =
        std::vector<double>(servers, 1);
    demand.frequency.assign(servers * demand.experts(), 1.0 / sizes.experts);
    scene.home_names = scene.server_names;
    scene.model_names = {"golden"};
    scene.shapes.resize(1), scene.hardware.resize(servers), scene.home_workload = {0, 0, 0};
    return scene;
}

// The calls of a cluster that the cases need.
class served_cluster {
public:
    virtual ~served_cluster() = default;
    // A home asks for an expert.
    virtual void ask(uint32_t home, uint32_t expert, uint32_t tokens) = 0;
    // Makes a plan by the demand so far. `adopt`: brings it into force, even if it does not pay.
    virtual outcome decide(bool adopt) = 0;
    // Continues until the decision is in force, and checks each moment.
    virtual void go_on() = 0;
    virtual holders now() const = 0;
    uint32_t looked = 0, bare = 0;  // checked moments; experts without a holder at one of them

protected:
    void look() {
        ++looked;
        for (const auto &expert_holders : now()) bare += expert_holders.empty();
    }
};

class emulated_cluster final : public served_cluster {
public:
    emulated_cluster(const scene &scene, const holders &first)
        : scene_(scene),
          emulator_(scene_, {}, {}),
          policy_(prism_stage(policies_, scene)),
          balance_(scene_, emulator_, policy_.get(), plan_of_copies(first), config_) {
        for (const moorage_copy &copy : balance_.copies()) emulator_.put(copy);
        emulator_.watch(&balance_);
        emulator_.begin();
        emulator_.idle_until(1'000'000'000);
    }
    void ask(uint32_t home, uint32_t expert, uint32_t tokens) override {
        balance_.activated(home, expert, tokens);
    }
    outcome decide(bool adopt) override {
        using decision_mode = rebalancer::decision_mode;
        REQUIRE(balance_.decide(adopt ? decision_mode::adopt : decision_mode::say).ok());
        const cluster_report::migration &said = balance_.decisions().back();
        return {said.adopted, said.added_copies};
    }
    void go_on() override {
        while (emulator_.due_ns() != MOORAGE_NEVER) {
            emulator_.step();
            balance_.look_again();
            look();
        }
        CHECK_FALSE(balance_.moving());
    }
    holders now() const override {
        holders current(scene_.demand.experts());
        for (const moorage_copy &copy : balance_.copies())
            current[copy.expert].insert(scene_.cluster.device_server[copy.device]);
        return current;
    }

private:
    static plan plan_of_copies(const holders &first) {
        plan first_plan;
        for (uint32_t expert = 0; expert < first.size(); ++expert)
            for (const uint32_t server : first[expert])
                first_plan.copies.push_back({expert, server});
        return first_plan;
    }
    static cluster_config asked_alone() {
        cluster_config config;
        config.interval_s = 0;
        return config;
    }

    const cluster_config config_ = asked_alone();
    scene scene_;
    cluster_emulator emulator_;
    registry policies_;  // before what is made of it
    std::unique_ptr<placement_stage> policy_;
    rebalancer balance_;
};

using opener = std::function<std::unique_ptr<cluster_registry>()>;

// Each server's node runs in a thread and gets its plan from a registry. The first one's leads.
class node_cluster final : public served_cluster {
public:
    node_cluster(node_bench &bench, const scene &scene, const holders &first, const opener &open)
        : plan_(plan_of(*bench.loaded_model, servers, lists(first))),
          asks_(open()),
          ends_(servers) {
        for (uint32_t server = 0; server < servers; ++server) {
            end &member = ends_[server];
            member.node = std::make_unique<running_node>(hub_, plan_, *bench.loaded_model, server,
                                                         tampering(), 1000, "", &member.board);
            member.follows = std::make_unique<registrar>(
                registrar::parts{.registry = open(),
                                 .plan = plan_,
                                 .name = plan_.servers[server].name,
                                 .board = &member.board,
                                 .desk = server == 0 ? &member.desk : nullptr,
                                 .wake = {}});
        }
        cluster_config config;
        config.interval_s = 0;
        leader_ = std::make_unique<plan_leader>(scene, prism_stage(policies_, scene), config, plan_,
                                                ends_[0].desk, ends_[0].board, nullptr);
        for (end &member : ends_) member.follows->begin();
        leader_->begin();
        // Waits until a plan is in force, and everybody uses it.
        REQUIRE(wait_until([&] {
            return std::ranges::all_of(ends_, [](const end &member) {
                return member.board.plan().epoch != 0 && member.board.reported().epoch != 0;
            });
        }));
    }
    ~node_cluster() override {
        leader_.reset();
        for (end &member : ends_) member.follows.reset();
        for (end &member : ends_) member.node->stop();
    }
    void ask(uint32_t home, uint32_t expert, uint32_t tokens) override {
        std::vector<uint64_t> page_tokens(plan_.holders.size());
        page_tokens[expert] = tokens;
        ends_[0].board.add_demand(home, page_tokens);
    }
    outcome decide(bool adopt) override {
        const std::string id = format("wish {}", ++wishes_);
        const json wish = {{"id", id}, {"what", adopt ? "rebalance" : "look"}};
        REQUIRE(wait_until([&] { return asks_->put_note(wish_note, wish.dump()).ok(); }));
        json answer;
        REQUIRE(wait_until([&] {
            const registry_state seen = ends_[0].desk.look().state;
            const auto note = seen.notes.find(answer_note);
            if (note == seen.notes.end()) return false;
            answer = json_or_discarded(note->second);
            return answer.is_object() && answer.value("id", "") == id;
        }));
        CAPTURE(answer.dump());
        REQUIRE(answer.contains("adopted"));
        return {answer["adopted"].get<bool>(), answer["added_copies"].get<uint64_t>()};
    }
    // No event tells that the last copy is gone. So it waits until nothing is coming, and there was
    // no epoch for a while.
    void go_on() override {
        uint64_t epoch = 0, since_ns = steady_ns();
        wait_until([&] {
            look();
            const plan_record seen = ends_[0].board.plan();
            if (seen.epoch != epoch || !seen.coming.empty()) since_ns = steady_ns();
            epoch = seen.epoch;
            return steady_ns() - since_ns > 400'000'000;
        });
    }
    holders now() const override {
        holders current;
        for (const auto &servers_of_page : ends_[0].board.plan().holders)
            current.emplace_back(servers_of_page.begin(), servers_of_page.end());
        return current;
    }

private:
    struct end {
        plan_board board;
        leader_desk desk;
        std::unique_ptr<running_node> node;
        std::unique_ptr<registrar> follows;
    };
    static std::vector<std::vector<uint32_t>> lists(const holders &sets) {
        std::vector<std::vector<uint32_t>> page_lists;
        for (const auto &servers_of_page : sets)
            page_lists.emplace_back(servers_of_page.begin(), servers_of_page.end());
        return page_lists;
    }
    template <class Condition>
    static bool wait_until(const Condition &condition) {
        for (const uint64_t end_ns = steady_ns() + 60'000'000'000; steady_ns() < end_ns;) {
            if (condition()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return false;
    }

    const node_plan plan_;
    loop_hub hub_;
    std::unique_ptr<cluster_registry> asks_;
    std::deque<end> ends_;
    registry policies_;  // before what is made of it
    std::unique_ptr<plan_leader> leader_;
    uint32_t wishes_ = 0;
};

struct world {
    world()
        : bench("olmoe"),
          slots(bench.pages() / 2),
          cluster_scene(scene_of(*bench.loaded_model, slots)) {
        first.resize(bench.pages());
        for (uint32_t expert = 0; expert < bench.pages(); ++expert)
            first[expert].insert(expert % servers);
    }
    // [home] -> the experts it asks for, fewer than its server has room for. Their amounts differ.
    std::vector<std::set<uint32_t>> drawn(random_stream &draw) const {
        std::vector<std::set<uint32_t>> wanted(servers);
        for (auto &experts : wanted)
            while (experts.size() < slots / 2)
                experts.insert(static_cast<uint32_t>(draw.below(bench.pages())));
        return wanted;
    }

    node_bench bench;
    uint32_t slots;
    scene cluster_scene;
    holders first;
};

void ask_for(served_cluster &cluster, const std::vector<std::set<uint32_t>> &wanted,
             uint32_t times) {
    for (uint32_t home = 0; home < servers; ++home)
        for (const uint32_t expert : wanted[home])
            cluster.ask(home, expert, times * (100 + expert));
}

// Every kind of cluster must do this. Returns the decisions.
std::vector<outcome> behaves(const world &scenario, served_cluster &cluster) {
    std::vector<outcome> decisions;
    random_stream draw(23, 0);
    CHECK(cluster.now() == scenario.first);
    uint32_t times = 1;
    for (int round = 0; round < 3; ++round) {
        CAPTURE(round);
        const auto wanted = scenario.drawn(draw);
        ask_for(cluster, wanted, times);
        times *= 1000;  // earlier demand is small compared with it
        const holders old_holders = cluster.now();
        decisions.push_back(cluster.decide(false));
        CHECK_FALSE(decisions.back().adopted);
        CHECK(decisions.back().added_copies > 0);
        CHECK(cluster.now() == old_holders);
        decisions.push_back(cluster.decide(true));
        CHECK(decisions.back().adopted);
        CHECK(decisions.back().added_copies == decisions[decisions.size() - 2].added_copies);
        cluster.go_on();
        const holders now = cluster.now();
        std::vector<uint32_t> held(servers);
        uint64_t added = 0;
        for (uint32_t expert = 0; expert < now.size(); ++expert)
            for (const uint32_t server : now[expert]) {
                ++held[server];
                added += !old_holders[expert].contains(server);
            }
        CHECK(added == decisions.back().added_copies);
        for (uint32_t home = 0; home < servers; ++home) {
            CHECK(held[home] <= scenario.slots);
            for (const uint32_t expert : wanted[home]) {
                CAPTURE(home);
                CAPTURE(expert);
                CHECK(now[expert].contains(home));
            }
        }
        CHECK(cluster.looked > 0);
        CHECK(cluster.bare == 0);
    }
    return decisions;
}

std::vector<outcome> emulated_outcomes(const world &scenario) {
    emulated_cluster cluster(scenario.cluster_scene, scenario.first);
    return behaves(scenario, cluster);
}

void behaves_over(const opener &open) {
    set_log_level(log_level::error);
    world scenario;
    node_cluster cluster(scenario.bench, scenario.cluster_scene, scenario.first, open);
    CHECK(behaves(scenario, cluster) == emulated_outcomes(scenario));
}

}  // namespace

TEST_CASE("an emulated cluster") {
    const world scenario;
    CHECK(emulated_outcomes(scenario).size() == 6);
}

TEST_CASE("nodes, with a directory as their registry") {
    const toy::folder folder;
    behaves_over([&folder] {
        auto opened = file_registry::open(folder.path() / "registry");
        REQUIRE(opened.ok());
        return std::move(*opened);
    });
}

static std::unique_ptr<cluster_registry> registry_at(const std::vector<std::string> &endpoints) {
    auto client = open_etcd_client(endpoints);
    REQUIRE(client.ok());
    return std::make_unique<etcd_registry>(std::move(*client), "live");
}

TEST_CASE("nodes, with a gateway of etcd") {
    etcd_fake etcd;
    behaves_over([&] { return registry_at({etcd.address}); });
}

TEST_CASE("nodes, with three members of etcd") {
    if (etcd_program().empty()) return skip("etcd is not installed (package etcd-server)");
    const etcd_members etcd;
    behaves_over([&] { return registry_at(etcd.endpoints); });
}

}  // namespace live_clusters_test
