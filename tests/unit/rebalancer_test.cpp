// rebalancer_test.cpp - goal: the rebalancer needs only live_cluster, and brings a better plan into
// force while every expert can be called. Method: a cluster that is a list of copies. Arrivals come
// in an order of the test, and copies in use are refused. Its final content is compared with the
// rebalancer's report.
#include "tools/cluster/rebalancer.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tools/placement/plan.h"
#include "tests/unit/prism_stage.h"
#include "tests/unit/small_scene.h"

namespace rebalancer_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

bool same(const moorage_copy &left, const moorage_copy &right) {
    return left.expert == right.expert && left.device == right.device;
}

class listed_cluster final : public live_cluster {
public:
    uint64_t now_ns() const override { return now; }
    call_figures calls() const override { return {1, 2'000'000'000, 2}; }
    void bring(const migration_step &step) override {
        CHECK(has({step.expert, step.source}));
        CHECK(!has({step.expert, step.target}));
        coming.push_back(step);
        ++brought;
    }
    bool take(const moorage_copy &copy) override {
        if (refusals > 0) return --refusals, false;
        std::erase_if(copies, [&](const moorage_copy &existing) { return same(existing, copy); });
        lost += std::ranges::none_of(
            copies, [&](const moorage_copy &existing) { return existing.expert == copy.expert; });
        return true;
    }
    void watch(cluster_watcher *observer) override { watcher = observer; }
    bool has(const moorage_copy &copy) const {
        return std::ranges::any_of(
            copies, [&](const moorage_copy &existing) { return same(existing, copy); });
    }
    // The copy that was asked for last is there.
    void arrive() {
        const migration_step step = coming.back();
        coming.pop_back();
        copies.push_back({step.expert, step.target});
        now += 1000;
        watcher->brought(step.id);
    }

    uint64_t now = 1'000'000'000;
    std::vector<moorage_copy> copies;
    std::vector<migration_step> coming;
    cluster_watcher *watcher = nullptr;
    uint32_t refusals = 0, brought = 0, lost = 0;
};

struct bench {
    bench() {
        policy = prism_stage(policies, cluster_scene);
        config.interval_s = 300;
        config.window_s = 600;
        // East has room for three of four experts; it is given those that it asks for least.
        first.copies = {{0, 0}, {0, 2}, {1, 0}, {2, 1}, {2, 2}, {3, 1}};
        cluster.copies = first.copies;
    }
    // East asks for experts 1 and 3 alone, west for 0 and 2.
    void ask(rebalancer &balance) {
        for (int i = 0; i < 1000; ++i) {
            balance.activated(1, 1, 10);
            balance.activated(1, 3, 10);
            balance.activated(0, 0, 1);
            balance.activated(0, 2, 1);
        }
    }

    scene cluster_scene = small_scene();
    registry policies;
    std::unique_ptr<placement_stage> policy;
    cluster_config config;
    plan first;
    listed_cluster cluster;
};

}  // namespace

TEST_CASE("a better plan comes into force copy by copy") {
    for (const uint32_t refusals : {0u, 3u}) {
        CAPTURE(refusals);
        bench fixture;
        rebalancer balance(fixture.cluster_scene, fixture.cluster, fixture.policy.get(),
                           fixture.first, fixture.config);
        CHECK(fixture.cluster.watcher == &balance);
        CHECK(balance.next_ns() == 300'000'000'000);
        fixture.ask(balance);
        fixture.cluster.refusals = refusals;
        REQUIRE(balance.act().ok());
        CHECK(balance.next_ns() == 600'000'000'000);
        for (int i = 0; i < 100 && balance.decisions().front().done_s < 0; ++i) {
            if (!fixture.cluster.coming.empty()) fixture.cluster.arrive();
            balance.look_again();
        }
        REQUIRE(balance.decisions().size() == 1);
        const cluster_report::migration &said = balance.decisions().front();
        CHECK(said.adopted);
        CHECK(said.done_s > 0);
        CHECK(said.given_up == 0);
        CHECK(said.remote_per_s_candidate < said.remote_per_s_current);
        CHECK(fixture.cluster.brought >= 2);
        CHECK(fixture.cluster.brought == said.added_copies);
        CHECK(fixture.cluster.lost == 0);
        CHECK(fixture.cluster.has({1, 2}));
        CHECK(fixture.cluster.has({3, 2}));
        const std::vector<moorage_copy> in_force = balance.copies();
        CHECK(in_force.size() == fixture.cluster.copies.size());
        for (const moorage_copy &copy : in_force) CHECK(fixture.cluster.has(copy));
    }
}

TEST_CASE("while one migration is under way nothing new is decided") {
    bench fixture;
    rebalancer balance(fixture.cluster_scene, fixture.cluster, fixture.policy.get(), fixture.first,
                       fixture.config);
    fixture.ask(balance);
    REQUIRE(balance.act().ok());
    REQUIRE(!fixture.cluster.coming.empty());
    REQUIRE(balance.act().ok());
    CHECK(balance.decisions().size() == 1);
    CHECK(balance.decisions().front().done_s < 0);
}

TEST_CASE("without a policy or an interval it does not watch") {
    bench fixture;
    const rebalancer never(fixture.cluster_scene, fixture.cluster, nullptr, fixture.first,
                           fixture.config);
    CHECK(never.next_ns() == MOORAGE_NEVER);
    fixture.config.interval_s = 0;
    const rebalancer once(fixture.cluster_scene, fixture.cluster, fixture.policy.get(),
                          fixture.first, fixture.config);
    CHECK(once.next_ns() == MOORAGE_NEVER);
    CHECK(fixture.cluster.watcher == nullptr);
    CHECK(once.copies().size() == fixture.first.copies.size());
}

TEST_CASE("what is only to be said is not done where it pays either") {
    bench fixture;
    rebalancer balance(fixture.cluster_scene, fixture.cluster, fixture.policy.get(), fixture.first,
                       fixture.config);
    fixture.ask(balance);
    REQUIRE(balance.decide(rebalancer::decision_mode::say).ok());
    CHECK_FALSE(balance.moving());
    CHECK_FALSE(balance.decisions().back().adopted);
    CHECK(balance.decisions().back().added_copies >= 2);
    fixture.ask(balance);
    REQUIRE(balance.decide(rebalancer::decision_mode::weigh).ok());
    CHECK(balance.moving());
    CHECK(balance.decisions().back().adopted);
}

TEST_CASE("asked to say, it changes nothing; asked to adopt, it asks no policy whether that pays") {
    bench fixture;
    fixture.config.interval_s = 0;  // it decides when it is asked alone
    rebalancer balance(fixture.cluster_scene, fixture.cluster, fixture.policy.get(), fixture.first,
                       fixture.config, migration_options{.at_once = 2});
    CHECK(balance.next_ns() == MOORAGE_NEVER);
    fixture.cluster.watch(&balance);
    fixture.ask(balance);
    REQUIRE(balance.decide(rebalancer::decision_mode::say).ok());
    CHECK_FALSE(balance.moving());
    REQUIRE(balance.decisions().size() == 1);
    CHECK_FALSE(balance.decisions().front().adopted);
    CHECK(balance.decisions().front().added_copies >= 2);
    CHECK(fixture.cluster.brought == 0);

    REQUIRE(balance.decide(rebalancer::decision_mode::adopt).ok());
    CHECK(balance.moving());
    CHECK(balance.decisions().back().adopted);
    // Given up under way: present copies count, and the next decision begins with them.
    REQUIRE(!fixture.cluster.coming.empty());
    fixture.cluster.coming.clear();
    balance.restart(fixture.cluster.copies);
    CHECK_FALSE(balance.moving());
    CHECK(balance.copies().size() == fixture.cluster.copies.size());
    REQUIRE(balance.decide(rebalancer::decision_mode::adopt).ok());
    for (int i = 0; i < 100 && balance.moving(); ++i) {
        if (!fixture.cluster.coming.empty()) fixture.cluster.arrive();
        balance.look_again();
    }
    CHECK_FALSE(balance.moving());
    CHECK(fixture.cluster.lost == 0);
    CHECK(fixture.cluster.has({1, 2}));
    CHECK(fixture.cluster.has({3, 2}));
}

}  // namespace rebalancer_test
