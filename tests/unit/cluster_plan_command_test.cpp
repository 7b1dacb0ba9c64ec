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
        more = settings;
        for (const std::string &one : settings) line += " \"" + one + "\"";  // for a shell
    }
    ended cluster(const std::string &what) const {
        const size_t word = what.find(' ');
        return run_line("cluster " + what.substr(0, word) + " " + file +
                            (word == std::string::npos ? "" : what.substr(word)) + line,
                        at.file("errors"));
    }
    json plan() const {
        const ended said = cluster("plan --json -");
        CAPTURE(said.errors);
        REQUIRE(said.code == 0);
        return json::parse(said.out);
    }
    static uint64_t held(const json &plan, size_t server) {
        return plan["servers"][server]["holds"].get<uint64_t>();
    }
    bool comes(const std::function<bool(const json &)> &so) const {
        for (int tries = 0; tries < 150; ++tries) {
            if (so(plan())) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
        return false;
    }
    // With errors of its own, as another command may run at the same time.
    ended write(const char *server) const {
        return run_line("generate " + demo +
                            " --temperature 0 --prompt 'The President said' --max-tokens 40 " +
                            at_server(server) + line,
                        at.file("errors_of_text"));
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
bool others_had_all(const ended &text) {
    return !text.says("own disk") || text.says("calls that went elsewhere");
}

void changes(moving_cluster &all, const ended &alone) {
    for (const size_t server : {0, 1, 2}) all.start(server);
    CHECK(all.comes([](const json &plan) {
        return plan["leader"] != "" && plan["servers"][0]["there"] == true &&
               plan["servers"][1]["there"] == true && plan["servers"][2]["there"] == true;
    }));
    const ended first = all.write("one");
    CHECK(first.out == alone.out);
    const ended looked = all.cluster("rebalance --dry-run");
    CAPTURE(looked.errors);
    CHECK(looked.code == 0);
    CHECK(looked.out.find("nothing was changed") != std::string::npos);

    // A text is written while a server is drained.
    ended meanwhile;
    std::thread writing([&] { meanwhile = all.write("one"); });
    const ended drained = all.cluster("drain three");
    CAPTURE(drained.errors);
    CHECK(drained.code == 0);
    CHECK(drained.out.find("three holds nothing any more") != std::string::npos);
    writing.join();
    CHECK(meanwhile.out == alone.out);
    json plan = all.plan();
    check_whole(plan);
    CHECK(all.held(plan, 2) == 0);
    CHECK(plan["epoch"].get<uint64_t>() > 1);
    CHECK(plan["copies_only_in_file"].get<uint64_t>() > 0);
    const ended after = all.write("one");
    CHECK(after.out == alone.out);
    CHECK(others_had_all(after));
    const ended impossible = all.cluster("drain two --within 30");
    CHECK(impossible.code == 1);
    CHECK(impossible.says("two cannot be drained now"));
    CHECK(impossible.says("it stays marked"));
    CHECK(all.cluster("drain two --undo").code == 0);
    CHECK(all.cluster("drain three --undo").code == 0);

    // One is killed. The others get the experts that only it held.
    CHECK(all.end(1, SIGKILL) == 128 + SIGKILL);
    CHECK(all.comes([&](const json &now) { return all.held(now, 1) == 0; }));
    plan = all.plan();
    check_whole(plan);
    const ended repaired = all.write("one");
    CHECK(repaired.out == alone.out);
    CHECK(others_had_all(repaired));

    // It comes back, and holds something after the next rebalance.
    all.start(1);
    CHECK(all.comes([](const json &now) { return now["servers"][1]["there"] == true; }));
    const ended balanced = all.cluster("rebalance");
    CAPTURE(balanced.errors);
    CHECK(balanced.code == 0);
    plan = all.plan();
    check_whole(plan);
    CHECK(all.held(plan, 1) != 0);
    CHECK(all.write("one").out == alone.out);
}

}  // namespace

TEST_CASE("a registry in a directory") {
    const toy::folder registry;
    moving_cluster all("registry.directory=" + registry.path().string());
    const ended alone = all.generate("-q");
    REQUIRE(alone.code == 0);
    changes(all, alone);
    // A node that starts again uses the present plan as soon as it serves, and says so at once.
    all.end(2, SIGKILL);
    const auto epoch = all.plan()["epoch"].get<uint64_t>();
    all.start(2);
    CHECK(all.status(2)["epoch"].get<uint64_t>() >= epoch);
}

TEST_CASE("a registry in three members of etcd, of which one, then all are killed") {
    if (etcd_program().empty()) return skip("etcd is not installed (package etcd-server)");
    etcd_members etcd;
    moving_cluster all(format("registry.endpoints=['{}', '{}', '{}']", etcd.endpoints[0],
                              etcd.endpoints[1], etcd.endpoints[2]));
    const ended alone = all.generate("-q");
    REQUIRE(alone.code == 0);
    changes(all, alone);
    etcd.kill(0);
    CHECK(all.comes([](const json &plan) { return plan["leader"] != ""; }));
    CHECK(all.write("one").out == alone.out);
    etcd.kill(1);
    etcd.kill(2);
    const ended without = all.write("one");
    CHECK(without.out == alone.out);
    bool told = false;
    for (int tries = 0; tries < 100 && !told; ++tries) {
        told = all.status(0)["registry"]["reachable"] == false;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    CHECK(told);
    CHECK(all.at.read("out0").find("goes on with epoch") != std::string::npos);
}

TEST_CASE("a plan's file that is damaged is told, and a drain that was none is not undone") {
    local_cluster all;
    const std::string registry = all.at.file("registry");
    const auto cluster = [&](const std::string &what) {
        return run_line("cluster " + what + " --set registry.directory=" + registry,
                        all.at.file("errors"));
    };
    std::filesystem::create_directories(registry);
    CHECK(cluster("drain " + all.file + " one --undo").out ==
          "one was not drained, so nothing changes\n");
    std::filesystem::create_directories(registry + "/notes");
    std::ofstream(registry + "/notes/drained") << "[\"one\"]";
    const ended undone = cluster("drain " + all.file + " one --undo");
    CHECK(undone.out.find("one may hold experts again") == 0);
    CHECK(cluster("plan " + all.file).code == 0);
    std::ofstream(registry + "/plan") << "spoiled";
    const ended damaged = cluster("plan " + all.file);
    CHECK(damaged.code == 1);
    CHECK(damaged.out.empty());
    CHECK(damaged.says("registry/plan is damaged: "));
    CHECK(damaged.says("there is no plan to show: nodes go on"));
    CHECK(damaged.says("spoiled"));
}

TEST_CASE("without a registry the plan is shown, and what would change it says what to do") {
    local_cluster all;
    const ended shown = run_line("cluster plan " + all.file, all.at.file("errors"));
    CHECK(shown.code == 0);
    CHECK(shown.out.find("epoch 1 by the file") != std::string::npos);
    CHECK(shown.out.find("0 copies more, 0 fewer") != std::string::npos);
    for (const char *what : {"drain", "rebalance"}) {
        const ended refused =
            run_line(format("cluster {} {} {}", what, all.file, *what == 'd' ? "two" : ""),
                     all.at.file("errors"));
        CHECK(refused.code == 2);
        CHECK(refused.says("give [registry] directory"));
    }
    const ended nowhere = run_line(
        "cluster plan " + all.file + " --set registry.directory=" + all.at.file("registry"),
        all.at.file("errors"));
    CHECK(nowhere.code == 2);
    CHECK(nowhere.says("registry is not there; the nodes make it"));
    CHECK_FALSE(std::filesystem::exists(all.at.file("registry")));
    std::filesystem::create_directories(all.at.file("registry"));
    const ended unknown = run_line(
        "cluster drain " + all.file + " too --set registry.directory=" + all.at.file("registry"),
        all.at.file("errors"));
    CHECK(unknown.code == 2);
    CHECK(unknown.says("did you mean two"));
    const ended both = run_line(
        "cluster plan " + all.file + " --set registry.directory=x --set registry.endpoints=y",
        all.at.file("errors"));
    CHECK(both.code == 2);
    CHECK(both.says("keep one of them"));
}

}  // namespace cluster_plan_command_test
