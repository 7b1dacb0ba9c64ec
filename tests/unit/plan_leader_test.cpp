// plan_leader_test.cpp - goal: a leader judges a new plan by the members' measurements, not by the
// file, and reports the policy's facts. Method: a desk and a board of the test; two leaders that
// differ in one word of a member.
#include "tools/node/plan_leader.h"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "core/base/json.h"
#include "tests/unit/prism_stage.h"
#include "tests/unit/small_scene.h"

namespace plan_leader_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

node_plan plan_of_two() {
    node_plan plan;
    plan.servers = {{"west", {"loop:0"}}, {"east", {"loop:1"}}};
    plan.sizes = {2, 2, 8, 64};
    plan.top_k = 1;
    plan.model_name = "m";
    set_holders(plan, std::vector<std::vector<uint32_t>>{{0}, {0}, {0, 1}, {1}});
    return plan;
}

// West asks for experts 0 and 2, east for 1 and 3, of which it lacks one.
class leader_fixture {
public:
    explicit leader_fixture(uint64_t bytes_per_s, double interval_s) : plan_(plan_of_two()) {
        scene scene = small_scene();
        scene.cluster.device_load_bytes_per_s.assign(3, 1e9);
        cluster_config config;
        config.interval_s = interval_s;
        leader_ = std::make_unique<plan_leader>(scene, prism_stage(policies_, scene), config, plan_,
                                                desk_, board_, nullptr);
        plan_record first = record_of(plan_);
        first.epoch = 1;
        REQUIRE(board_.post(first));
        member_record said;
        said.epoch = 1;
        said.pair_ns = 1'000'000;
        said.round_trip_ns = {20'000'000, 20'000'000};
        said.bytes_per_s = bytes_per_s;
        state_.members = {{"west", to_text(said)}, {"east", to_text(said)}};
        state_.leader = "west";
        state_.epoch = 1;
        state_.plan = to_text(first, plan_);
    }
    void add_demand() {
        board_.add_demand(0, std::vector<uint64_t>{1, 0, 1, 0});
        board_.add_demand(1, std::vector<uint64_t>{0, 10, 0, 10});
    }
    void run_turn() {
        desk_.show(true, state_);
        leader_->step();
    }
    registry_state &state() { return state_; }
    leader_desk &desk() { return desk_; }

private:
    registry policies_;  // destroyed after its users
    const node_plan plan_;
    leader_desk desk_;
    plan_board board_;
    registry_state state_;
    std::unique_ptr<plan_leader> leader_;
};

// Whether another epoch is written once the interval is over.
bool is_plan_replaced(uint64_t bytes_per_s) {
    leader_fixture fixture(bytes_per_s, 0.2);
    fixture.run_turn();
    fixture.add_demand();
    for (int i = 0; i < 60; ++i) {
        fixture.run_turn();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return fixture.desk().take_proposal().has_value();
}

}  // namespace

TEST_CASE("copies that take longer than the calls that they save do not come") {
    CHECK(is_plan_replaced(0));              // as the file says, 10 bytes in 10 ns
    CHECK(is_plan_replaced(1'000'000'000));  // as measured, the same
    CHECK_FALSE(is_plan_replaced(1));        // 10 s, against calls of 0.2 s
}

TEST_CASE("the answer to a wish has what the policy states of its plan") {
    leader_fixture fixture(0, 0);
    fixture.run_turn();
    fixture.add_demand();
    fixture.state().notes[wish_note] = json({{"id", "7"}, {"what", "look"}}).dump();
    fixture.run_turn();
    const auto text = fixture.desk().take_answer();
    REQUIRE(text);
    const json said = json_or_discarded(*text);
    CHECK(said["id"] == "7");
    CHECK(said["adopted"] == false);
    CHECK(said["facts"].is_object());
    CHECK(!said["facts"].empty());
    CHECK_FALSE(fixture.desk().take_proposal());
}

}  // namespace plan_leader_test
