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
#include "core/cluster/cluster_emulator.h"
#include "core/cluster/rebalancer.h"
#include "core/node/plan_leader.h"
#include "core/registry/etcd_registry.h"
#include "core/registry/file_registry.h"
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
scene scene_of(const model &of, uint32_t slots) {
    scene made;
    constexpr double infinite = std::numeric_limits<double>::infinity();
    constexpr uint64_t expert_bytes = 1000;
    cluster_arrays &cluster = made.cluster;
    cluster.flags = MOORAGE_RETURNS_EACH;  // as nodes do
    cluster.servers = cluster.homes = servers, cluster.models = 1;
    cluster.link_bytes_per_s.assign(servers * servers, 1e6);
    cluster.link_s.assign(servers * servers, 0.001);
    for (uint32_t server = 0; server < servers; ++server) {
        cluster.device_server.push_back(server);
        cluster.home_server.push_back(server);
        cluster.link_bytes_per_s[server * (servers + 1)] = infinite;
        cluster.link_s[server * (servers + 1)] = 0;
        made.server_names.push_back(format("server{}", server));
        made.device_names.push_back(format("server{}.gpu0", server));
    }
    cluster.device_bytes.assign(servers, slots * expert_bytes);
    cluster.device_load_bytes_per_s.assign(servers, 1e6);
    cluster.device_call_s = cluster.device_token_s = std::vector<double>(servers, 0.001);
    cluster.home_up_bytes_per_s = cluster.home_down_bytes_per_s =
        std::vector<double>(servers, infinite);
    cluster.home_call_s.assign(servers, 0);
    demand_arrays &demand = made.demand;
    const model_config &sizes = of.config();
    const auto layers = static_cast<uint32_t>(sizes.moe_layers().size());
    demand.models = 1, demand.homes = servers;
    demand.model_first = {0, layers * sizes.experts};
    demand.model_layers = {layers}, demand.model_experts = {sizes.experts};
    demand.model_top_k = {sizes.top_k}, demand.model_groups = {1};
    demand.expert_bytes = {expert_bytes}, demand.hidden_bytes = {4 * uint64_t{sizes.hidden}};
    demand.home_tokens_per_s = demand.home_batch = demand.home_model =
        std::vector<double>(servers, 1);
    demand.frequency.assign(servers * demand.experts(), 1.0 / sizes.experts);
    made.home_names = made.server_names;
    made.model_names = {"golden"};
    made.shapes.resize(1), made.hardware.resize(servers), made.home_workload = {0, 0, 0};
    return made;
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
        for (const auto &one : now()) bare += one.empty();
    }
};

class emulated final : public served_cluster {
public:
    emulated(const scene &of, const holders &first)
        : scene_(of),
          all_(scene_, {}, {}),
          policy_(prism_stage(policies_, of)),
          balance_(scene_, all_, policy_.get(), plan_of_copies(first), config_) {
        for (const moorage_copy &one : balance_.copies()) all_.put(one);
        all_.watch(&balance_);
        all_.begin();
        all_.idle_until(1'000'000'000);
    }
    void ask(uint32_t home, uint32_t expert, uint32_t tokens) override {
        balance_.activated(home, expert, tokens);
    }
    outcome decide(bool adopt) override {
        using how = rebalancer::how;
        REQUIRE(balance_.decide(adopt ? how::adopt : how::say).ok());
        const cluster_report::migration &said = balance_.decisions().back();
        return {said.adopted, said.added_copies};
    }
    void go_on() override {
        while (all_.due_ns() != MOORAGE_NEVER) {
            all_.step();
            balance_.look_again();
            look();
        }
        CHECK_FALSE(balance_.moving());
    }
    holders now() const override {
        holders made(scene_.demand.experts());
        for (const moorage_copy &one : balance_.copies())
            made[one.expert].insert(scene_.cluster.device_server[one.device]);
        return made;
    }

private:
    static plan plan_of_copies(const holders &first) {
        plan made;
        for (uint32_t expert = 0; expert < first.size(); ++expert)
            for (const uint32_t server : first[expert]) made.copies.push_back({expert, server});
        return made;
    }
    static cluster_config asked_alone() {
        cluster_config made;
        made.interval_s = 0;
        return made;
    }

    const cluster_config config_ = asked_alone();
    scene scene_;
    cluster_emulator all_;
    registry policies_;  // before what is made of it
    std::unique_ptr<placement_stage> policy_;
    rebalancer balance_;
};

using opener = std::function<std::unique_ptr<cluster_registry>()>;

// Each server's node runs in a thread and gets its plan from a registry. The first one's leads.
class real final : public served_cluster {
public:
    real(node_bench &on, const scene &of, const holders &first, const opener &open)
        : plan_(plan_of(*on.of, servers, lists(first))), asks_(open()), ends_(servers) {
        for (uint32_t server = 0; server < servers; ++server) {
            end &one = ends_[server];
            one.node = std::make_unique<running_node>(hub_, plan_, *on.of, server, tampering(),
                                                      1000, "", &one.board);
            one.follows = std::make_unique<registrar>(
                registrar::parts{.at = open(),
                                 .plan = plan_,
                                 .name = plan_.servers[server].name,
                                 .board = &one.board,
                                 .desk = server == 0 ? &one.desk : nullptr,
                                 .wake = {}});
        }
        cluster_config config;
        config.interval_s = 0;
        leader_ = std::make_unique<plan_leader>(of, prism_stage(policies_, of), config, plan_,
                                                ends_[0].desk, ends_[0].board, nullptr);
        for (end &one : ends_) one.follows->begin();
        leader_->begin();
        // Waits until a plan is in force, and everybody uses it.
        REQUIRE(comes([&] {
            return std::ranges::all_of(ends_, [](const end &one) {
                return one.board.plan().epoch != 0 && one.board.said().epoch != 0;
            });
        }));
    }
    ~real() override {
        leader_.reset();
        for (end &one : ends_) one.follows.reset();
        for (end &one : ends_) one.node->stop();
    }
    void ask(uint32_t home, uint32_t expert, uint32_t tokens) override {
        std::vector<uint64_t> of_pages(plan_.holders.size());
        of_pages[expert] = tokens;
        ends_[0].board.add_demand(home, of_pages);
    }
    outcome decide(bool adopt) override {
        const std::string id = format("wish {}", ++wishes_);
        const json wish = {{"id", id}, {"what", adopt ? "rebalance" : "look"}};
        REQUIRE(comes([&] { return asks_->put_note(wish_note, wish.dump()).ok(); }));
        json answer;
        REQUIRE(comes([&] {
            const registry_state seen = ends_[0].desk.look().state;
            const auto at = seen.notes.find(answer_note);
            if (at == seen.notes.end()) return false;
            answer = json_or_discarded(at->second);
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
        comes([&] {
            look();
            const plan_record seen = ends_[0].board.plan();
            if (seen.epoch != epoch || !seen.coming.empty()) since_ns = steady_ns();
            epoch = seen.epoch;
            return steady_ns() - since_ns > 400'000'000;
        });
    }
    holders now() const override {
        holders made;
        for (const auto &of : ends_[0].board.plan().holders)
            made.emplace_back(of.begin(), of.end());
        return made;
    }

private:
    struct end {
        plan_board board;
        leader_desk desk;
        std::unique_ptr<running_node> node;
        std::unique_ptr<registrar> follows;
    };
    static std::vector<std::vector<uint32_t>> lists(const holders &of) {
        std::vector<std::vector<uint32_t>> made;
        for (const auto &one : of) made.emplace_back(one.begin(), one.end());
        return made;
    }
    template <class So>
    static bool comes(const So &so) {
        for (const uint64_t end_ns = steady_ns() + 60'000'000'000; steady_ns() < end_ns;) {
            if (so()) return true;
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
    world() : on("olmoe"), slots(on.pages() / 2), of(scene_of(*on.of, slots)) {
        first.resize(on.pages());
        for (uint32_t expert = 0; expert < on.pages(); ++expert)
            first[expert].insert(expert % servers);
    }
    // [home] -> the experts it asks for, fewer than its server has room for. Their amounts differ.
    std::vector<std::set<uint32_t>> drawn(random_stream &draw) const {
        std::vector<std::set<uint32_t>> made(servers);
        for (auto &one : made)
            while (one.size() < slots / 2)
                one.insert(static_cast<uint32_t>(draw.below(on.pages())));
        return made;
    }

    node_bench on;
    uint32_t slots;
    scene of;
    holders first;
};

void ask_for(served_cluster &all, const std::vector<std::set<uint32_t>> &wanted, uint32_t times) {
    for (uint32_t home = 0; home < servers; ++home)
        for (const uint32_t expert : wanted[home]) all.ask(home, expert, times * (100 + expert));
}

// Every kind of cluster must do this. Returns the decisions.
std::vector<outcome> behaves(const world &with, served_cluster &all) {
    std::vector<outcome> made;
    random_stream draw(23, 0);
    CHECK(all.now() == with.first);
    uint32_t times = 1;
    for (int round = 0; round < 3; ++round) {
        CAPTURE(round);
        const auto wanted = with.drawn(draw);
        ask_for(all, wanted, times);
        times *= 1000;  // earlier demand is small compared with it
        const holders before = all.now();
        made.push_back(all.decide(false));
        CHECK_FALSE(made.back().adopted);
        CHECK(made.back().added_copies > 0);
        CHECK(all.now() == before);
        made.push_back(all.decide(true));
        CHECK(made.back().adopted);
        CHECK(made.back().added_copies == made[made.size() - 2].added_copies);
        all.go_on();
        const holders now = all.now();
        std::vector<uint32_t> held(servers);
        uint64_t added = 0;
        for (uint32_t expert = 0; expert < now.size(); ++expert)
            for (const uint32_t server : now[expert]) {
                ++held[server];
                added += !before[expert].contains(server);
            }
        CHECK(added == made.back().added_copies);
        for (uint32_t home = 0; home < servers; ++home) {
            CHECK(held[home] <= with.slots);
            for (const uint32_t expert : wanted[home]) {
                CAPTURE(home);
                CAPTURE(expert);
                CHECK(now[expert].contains(home));
            }
        }
        CHECK(all.looked > 0);
        CHECK(all.bare == 0);
    }
    return made;
}

std::vector<outcome> emulated_outcomes(const world &with) {
    emulated all(with.of, with.first);
    return behaves(with, all);
}

void behaves_over(const opener &open) {
    set_log_level(log_level::error);
    world with;
    real all(with.on, with.of, with.first, open);
    CHECK(behaves(with, all) == emulated_outcomes(with));
}

}  // namespace

TEST_CASE("an emulated cluster") {
    const world with;
    CHECK(emulated_outcomes(with).size() == 6);
}

TEST_CASE("nodes, with a directory as their registry") {
    const toy::folder at;
    behaves_over([&at] {
        auto made = file_registry::open(at.path() / "registry");
        REQUIRE(made.ok());
        return std::move(*made);
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
