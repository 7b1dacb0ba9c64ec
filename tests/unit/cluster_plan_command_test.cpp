// cluster_plan_command_test.cpp - goal: while processes serve, their plan is shown, drained,
// rebalanced and repaired, over every kind of registry, and texts stay those of one process. If a
// registry goes away, nobody stops. Method: the built program, three nodes of the demo model on
// loopback, a registry in a directory and one in three members of etcd.
#include <doctest/doctest.h>

#include <functional>

#include "tests/skip.h"
#include "tests/unit/etcd_members.h"
#include "tests/unit/local_cluster.h"

namespace cluster_plan_command_test {

using namespace moorage::test;

namespace {

class moving_cluster : public local_cluster {
public:
    explicit moving_cluster(const std::string &registry)
        : settings({"--set", registry, "--set", "cluster.servers.expert_memory_bytes=7.5e6"}) {
        node_arguments = settings;
        for (const std::string &setting : settings) line += " \"" + setting + "\"";  // for a shell
    }
    program_result run_command(const std::string &command) const {
        const size_t word = command.find(' ');
        return run_line("cluster " + command.substr(0, word) + " " + file +
                            (word == std::string::npos ? "" : command.substr(word)) + line,
                        runner.file("errors"));
    }
    json plan() const {
        const program_result said = run_command("plan --json -");
        CAPTURE(said.errors);
        REQUIRE(said.code == 0);
        return json::parse(said.output);
    }
    static uint64_t held(const json &plan, size_t server) {
        return plan["servers"][server]["holds"].get<uint64_t>();
    }
    bool wait_until(const std::function<bool(const json &)> &condition) const {
        for (int tries = 0; tries < 150; ++tries) {
            if (condition(plan())) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
        return false;
    }
    // With errors of its own, as another command may run at the same time.
    program_result write(const char *server) const {
        return run_line("generate " + demo +
                            " --temperature 0 --prompt 'The President said' --max-tokens 40 " +
                            at_server(server) + line,
                        runner.file("errors_of_text"));
    }

    std::vector<std::string> settings;
    std::string line;
};

// Every expert has a holder, and no server has more than its room.
void check_whole(const json &plan) {
    for (const json &holders : plan["holders"]) CHECK(!holders.empty());
    for (const json &server : plan["servers"]) CHECK(server["holds"].get<uint64_t>() <= 101);
}

// Own disk computed only calls on which others were late, because the machine is busy.
bool others_had_all(const program_result &text) {
    return !text.says("own disk") || text.says("calls that went elsewhere");
}

void changes(moving_cluster &cluster, const program_result &alone) {
    for (const size_t server : {0, 1, 2}) cluster.start(server);
    CHECK(cluster.wait_until([](const json &plan) {
        return plan["leader"] != "" && plan["servers"][0]["there"] == true &&
               plan["servers"][1]["there"] == true && plan["servers"][2]["there"] == true;
    }));
    const program_result first = cluster.write("one");
    CHECK(first.output == alone.output);
    const program_result looked = cluster.run_command("rebalance --dry-run");
    CAPTURE(looked.errors);
    CHECK(looked.code == 0);
    CHECK(looked.output.find("nothing was changed") != std::string::npos);

    // A text is written while a server is drained.
    program_result meanwhile;
    std::thread writing([&] { meanwhile = cluster.write("one"); });
    const program_result drained = cluster.run_command("drain three");
    CAPTURE(drained.errors);
    CHECK(drained.code == 0);
    CHECK(drained.output.find("three holds nothing any more") != std::string::npos);
    writing.join();
    CHECK(meanwhile.output == alone.output);
    json plan = cluster.plan();
    check_whole(plan);
    CHECK(cluster.held(plan, 2) == 0);
    CHECK(plan["epoch"].get<uint64_t>() > 1);
    CHECK(plan["copies_only_in_file"].get<uint64_t>() > 0);
    const program_result drained_text = cluster.write("one");
    CHECK(drained_text.output == alone.output);
    CHECK(others_had_all(drained_text));
    const program_result impossible = cluster.run_command("drain two --within 30");
    CHECK(impossible.code == 1);
    CHECK(impossible.says("two cannot be drained now"));
    CHECK(impossible.says("it stays marked"));
    CHECK(cluster.run_command("drain two --undo").code == 0);
    CHECK(cluster.run_command("drain three --undo").code == 0);

    // One is killed. The others get the experts that only it held.
    CHECK(cluster.end(1, SIGKILL) == 128 + SIGKILL);
    CHECK(cluster.wait_until([&](const json &now) { return cluster.held(now, 1) == 0; }));
    plan = cluster.plan();
    check_whole(plan);
    const program_result repaired = cluster.write("one");
    CHECK(repaired.output == alone.output);
    CHECK(others_had_all(repaired));

    // It comes back, and holds something after the next rebalance.
    cluster.start(1);
    CHECK(cluster.wait_until([](const json &now) { return now["servers"][1]["there"] == true; }));
    const program_result balanced = cluster.run_command("rebalance");
    CAPTURE(balanced.errors);
    CHECK(balanced.code == 0);
    plan = cluster.plan();
    check_whole(plan);
    CHECK(cluster.held(plan, 1) != 0);
    CHECK(cluster.write("one").output == alone.output);
}

}  // namespace

TEST_CASE("a registry in a directory") {
    const toy::folder registry;
    moving_cluster cluster("registry.directory=" + registry.path().string());
    const program_result alone = cluster.generate("-q");
    REQUIRE(alone.code == 0);
    changes(cluster, alone);
    // A node that starts again uses the present plan as soon as it serves, and says so at once.
    cluster.end(2, SIGKILL);
    const auto epoch = cluster.plan()["epoch"].get<uint64_t>();
    cluster.start(2);
    CHECK(cluster.status(2)["epoch"].get<uint64_t>() >= epoch);
}

TEST_CASE("a registry in three members of etcd, of which one, then all are killed") {
    if (etcd_program().empty()) return skip("etcd is not installed (package etcd-server)");
    etcd_members etcd;
    moving_cluster cluster(format("registry.endpoints=['{}', '{}', '{}']", etcd.endpoints[0],
                                  etcd.endpoints[1], etcd.endpoints[2]));
    const program_result alone = cluster.generate("-q");
    REQUIRE(alone.code == 0);
    changes(cluster, alone);
    etcd.kill(0);
    CHECK(cluster.wait_until([](const json &plan) { return plan["leader"] != ""; }));
    CHECK(cluster.write("one").output == alone.output);
    etcd.kill(1);
    etcd.kill(2);
    const program_result without = cluster.write("one");
    CHECK(without.output == alone.output);
    bool reported = false;
    for (int tries = 0; tries < 100 && !reported; ++tries) {
        reported = cluster.status(0)["registry"]["reachable"] == false;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    CHECK(reported);
    CHECK(cluster.runner.read("out0").find("goes on with epoch") != std::string::npos);
}

TEST_CASE("a plan's file that is damaged is told, and a drain that was none is not undone") {
    local_cluster cluster;
    const std::string registry = cluster.runner.file("registry");
    const auto run_cluster = [&](const std::string &command) {
        return run_line("cluster " + command + " --set registry.directory=" + registry,
                        cluster.runner.file("errors"));
    };
    std::filesystem::create_directories(registry);
    CHECK(run_cluster("drain " + cluster.file + " one --undo").output ==
          "one was not drained, so nothing changes\n");
    std::filesystem::create_directories(registry + "/notes");
    std::ofstream(registry + "/notes/drained") << "[\"one\"]";
    const program_result undone = run_cluster("drain " + cluster.file + " one --undo");
    CHECK(undone.output.find("one may hold experts again") == 0);
    CHECK(run_cluster("plan " + cluster.file).code == 0);
    std::ofstream(registry + "/plan") << "spoiled";
    const program_result damaged = run_cluster("plan " + cluster.file);
    CHECK(damaged.code == 1);
    CHECK(damaged.output.empty());
    CHECK(damaged.says("registry/plan is damaged: "));
    CHECK(damaged.says("there is no plan to show: nodes go on"));
    CHECK(damaged.says("spoiled"));
}

TEST_CASE("without a registry the plan is shown, and what would change it says what to do") {
    local_cluster cluster;
    const program_result shown =
        run_line("cluster plan " + cluster.file, cluster.runner.file("errors"));
    CHECK(shown.code == 0);
    CHECK(shown.output.find("epoch 1 by the file") != std::string::npos);
    CHECK(shown.output.find("0 copies more, 0 fewer") != std::string::npos);
    for (const char *command : {"drain", "rebalance"}) {
        const program_result refused = run_line(
            format("cluster {} {} {}", command, cluster.file, *command == 'd' ? "two" : ""),
            cluster.runner.file("errors"));
        CHECK(refused.code == 2);
        CHECK(refused.says("give [registry] directory"));
    }
    const program_result nowhere =
        run_line("cluster plan " + cluster.file +
                     " --set registry.directory=" + cluster.runner.file("registry"),
                 cluster.runner.file("errors"));
    CHECK(nowhere.code == 2);
    CHECK(nowhere.says("registry is not there; the nodes make it"));
    CHECK_FALSE(std::filesystem::exists(cluster.runner.file("registry")));
    std::filesystem::create_directories(cluster.runner.file("registry"));
    const program_result unknown =
        run_line("cluster drain " + cluster.file +
                     " too --set registry.directory=" + cluster.runner.file("registry"),
                 cluster.runner.file("errors"));
    CHECK(unknown.code == 2);
    CHECK(unknown.says("did you mean two"));
    const program_result both_places = run_line(
        "cluster plan " + cluster.file + " --set registry.directory=x --set registry.endpoints=y",
        cluster.runner.file("errors"));
    CHECK(both_places.code == 2);
    CHECK(both_places.says("keep one of them"));
}

}  // namespace cluster_plan_command_test
