// node_command_test.cpp - goal: real processes over real sockets write the text of one process,
// while nodes are killed, stopped and told to end. Method: the built program, three nodes of the
// demo model on loopback, `generate` and `eval` as homes, compared with the same without a cluster.
#include <doctest/doctest.h>

#include <poll.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <thread>

#include "core/base/steady_time.h"
#include "tests/unit/local_cluster.h"

namespace node_command_test {

using namespace moorage::core;
using namespace moorage::test;

TEST_CASE("three processes write what one does; one is killed, one is stopped, one drains") {
    local_cluster cluster;
    const program_result alone = cluster.generate("-q");
    REQUIRE(alone.code == 0);
    for (const size_t server : {0, 1, 2}) cluster.start(server);
    const program_result distributed = cluster.generate(cluster.at_server("one"));
    CHECK(distributed.code == 0);
    CHECK(distributed.output == alone.output);
    CHECK(distributed.says("layer steps called other nodes"));
    CHECK_FALSE(distributed.says("own disk"));
    // A node notes its figures now and then.
    for (const size_t server : {1, 2})
        while (cluster.status(server)["served"]["calls"] == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(cluster.status(0)["served"]["calls"] == 0);  // the home itself has the holder's experts
    CHECK(cluster.status(0)["threads"] >= 1);
    const auto metrics = http_get(cluster.status_address(1), "/metrics", 5'000'000'000);
    REQUIRE(metrics.ok());
    CHECK(metrics->find("moorage_node_held_experts 70") != std::string::npos);

    CHECK(cluster.end(1, SIGKILL) == 128 + SIGKILL);
    const program_result without = cluster.generate(cluster.at_server("one"));
    CHECK(without.output == alone.output);
    CHECK(without.says("two is not there"));
    CHECK(without.says("own disk"));
    const program_result listed =
        run_line("cluster status " + cluster.file, cluster.runner.file("errors"));
    CHECK(listed.code == 1);
    CHECK(listed.output.find("away") != std::string::npos);

    // One that was never heard is not missed.
    while (!cluster.status(0)["peers"][2].contains("heartbeat_us"))
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cluster.pause(2);
    // Its heart is missed, by a node that does not call it.
    while (cluster.status(0)["peers"][2]["stands"] != "dead")
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const program_result hung =
        cluster.generate(cluster.at_server("one") + " --set cluster.own_disk=true");
    CHECK(hung.output == alone.output);
    CHECK(cluster.end(2, SIGTERM) == 0);
    CHECK(cluster.runner.read("out2").find("three ends: ") != std::string::npos);
    const program_result disk = cluster.generate(cluster.at_server("one"));
    CHECK(disk.output == alone.output);
    CHECK(disk.says("\n0 of "));  // layer steps called
    const program_result strict =
        cluster.generate(cluster.at_server("one") + " --set cluster.own_disk=false -q");
    CHECK(strict.code == 1);
    CHECK(strict.says("is computed by nobody"));
}

TEST_CASE("a device, an edge server and a cloud write what one process does") {
    local_cluster cluster("local_slim.toml", {"device", "edge", "cloud"});
    const program_result alone = cluster.generate("-q");
    for (const size_t server : {1, 2}) cluster.start(server);
    // A device has no node of its own. Its home holds its experts.
    const std::string strict = cluster.at_server("device") + " --set cluster.own_disk=false";
    const program_result distributed = cluster.generate(strict);
    CHECK(distributed.code == 0);
    CHECK(distributed.output == alone.output);
    CHECK(distributed.says("local experts"));
    for (const size_t server : {1, 2})
        while (cluster.status(server)["served"]["calls"] == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cluster.end(2, SIGKILL);
    const program_result without = cluster.generate(strict);
    CHECK(without.code == 1);
    CHECK(without.says("is computed by nobody"));
}

TEST_CASE("homes are loaded, a request is followed over nodes, the page is served") {
    local_cluster cluster;
    for (const size_t server : {0, 1, 2}) cluster.start(server, /*verbose=*/true);
    const std::string line = "load " + cluster.file + " --requests 3 --faster 50";
    const std::string answers = " --answers " + cluster.runner.file("answers");
    const program_result done =
        run_line(line + answers + " --json -", cluster.runner.file("errors"));
    REQUIRE(done.code == 0);
    const json report = json::parse(done.output);
    CHECK(report["config"]["load"]["answered"] == 9);
    CHECK(report["requests"] == 9);
    CHECK(report["cluster"]["homes"].size() == 3);
    CHECK(report["cluster"]["calls"] > 100);
    CHECK(report["cluster"]["local_ratio"] > 0.1);
    CHECK(report["cluster"]["local_ratio"] < 0.9);
    const program_result emulated = run_line(line + " --emulate", cluster.runner.file("errors"));
    CHECK(emulated.code == 0);
    CHECK(emulated.output.find("and the same cluster emulated") != std::string::npos);
    // Its home's log says when it came and ended, others' which calls were for it.
    const json first = json::parse(
        cluster.runner.read("answers").substr(0, cluster.runner.read("answers").find('\n')));
    const std::string number = std::to_string(first["number"].get<uint64_t>());
    const std::vector<std::string> names = {"one", "two", "three"};
    const std::string home_of = first["home"];
    for (size_t server = 0; server < 3; ++server) {
        const std::string log = cluster.runner.read(format("out{}", server));
        CAPTURE(server);
        if (names[server] == home_of)
            CHECK(log.find("node: request " + number + " ends") != std::string::npos);
        else
            CHECK(log.find(" of " + home_of + " for its request " + number + ": layer") !=
                  std::string::npos);
    }
    const auto page = http_get(cluster.status_address(0), "/", 5'000'000'000);
    REQUIRE(page.ok());
    CHECK(page->find("<title>moorage node</title>") != std::string::npos);
    CHECK(page->find("src=") == std::string::npos);  // it loads nothing else
    // A person asks a home, which is one process more than the three and has no model at work.
    const program_result alone = cluster.generate("-q"),
                         asked = cluster.generate("--cluster " + cluster.file + " --node one");
    CHECK(asked.code == 0);
    CHECK(asked.output == alone.output);
    CHECK(asked.says("40 tokens written by one, first after "));
    // The asker decides where a text ends: within it, and at a token.
    const std::string text = alone.output.substr(0, alone.output.size() - 1),
                      stop = text.substr(60, 5);
    const program_result cut =
        cluster.generate("-q --cluster " + cluster.file + " --node one --stop '" + stop + "'");
    CHECK(cut.code == 0);
    CHECK(cut.output == text.substr(0, text.find(stop, 18)) + "\n");
    CHECK(cut.output == cluster.generate("-q --stop '" + stop + "'").output);
    const program_result remote =
        cluster.generate("-q --prompt 'It was' --cluster " + cluster.file + " --node two");
    CHECK(remote.output == cluster.generate("-q --prompt 'It was'").output);
    cluster.end(1, SIGKILL);
    const program_result nobody = cluster.generate("--cluster " + cluster.file + " --node two");
    CHECK(nobody.code == 1);
    CHECK(nobody.says("two does not answer: away: "));
    const program_result without = run_line(line, cluster.runner.file("errors"));
    CHECK(without.code == 1);
    CHECK(without.output.find("9 requests: 6 answered, 3 away") != std::string::npos);
    CHECK(without.output.find("two: away: ") != std::string::npos);
    const program_result strange = run_line(line + " --home too", cluster.runner.file("errors"));
    CHECK(strange.code == 2);
    CHECK(strange.says("did you mean two"));
}

TEST_CASE("who asks a home that is killed knows within a second, and how much had come") {
    local_cluster cluster;
    for (const size_t server : {0, 1, 2}) cluster.start(server);
    auto asked = std::async(std::launch::async, [&] {
        return run_line("load " + cluster.file +
                            " --home two --requests 3 --faster 1000"
                            " --set cluster.workloads.output_tokens=1000 --answers " +
                            cluster.runner.file("answers"),
                        cluster.runner.file("errors"));
    });
    const auto writes = [&] {
        const json now = cluster.status(1);
        return now.contains("requests") && now["requests"]["written_tokens"] > 0;
    };
    while (!writes() && asked.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready)
        continue;
    const auto killed = std::chrono::steady_clock::now();
    cluster.end(1, SIGKILL);
    const program_result result = asked.get();
    CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(1));
    CHECK(result.code == 1);
    CAPTURE(result.output);
    CAPTURE(result.errors);
    CHECK(result.output.find("3 requests: 0 answered, 3 lost") != std::string::npos);
    const std::string answers = cluster.runner.read("answers");
    const json first = json::parse(answers.substr(0, answers.find('\n')));
    CHECK(first["ids"].size() > 0);
    CHECK(result.output.find(format("two: lost: the connection ended after {} of 1000 tokens",
                                    first["ids"].size())) != std::string::npos);
}

TEST_CASE("eval as a home has the likelihood of one process") {
    local_cluster cluster;
    std::ofstream(cluster.runner.file("text"))
        << "The old man went to the sea and saw that it was cold.";
    const auto line = [&](const std::string &options) {
        const program_result done =
            run_line("eval " + demo + " --text " + cluster.runner.file("text") + " " + options,
                     cluster.runner.file("errors"));
        REQUIRE(done.code == 0);
        return done.output;
    };
    const std::string alone = line("");
    for (const size_t server : {1, 2}) cluster.start(server);
    CHECK(line(cluster.at_server("one")) == alone);
    CHECK(line(cluster.at_server("one") + " --set run.prefill=3") == line("--set run.prefill=3"));
}

TEST_CASE("a policy that dies, or does not come back, is named with its call and the request") {
    const std::string library =
        std::string(MOORAGE_BINARY_DIR) + "/tests/policies/mortal_router.so";
    const auto policy = [&](const std::string &way) {
        return std::vector<std::string>{
            "--set", "plugins.path=" + library, "--set", "router.plugin=mortal_router",
            "--set", "router.way=" + way,       "--set", "router.at=20"};
    };
    const auto ask = [](const local_cluster &cluster) {
        return cluster.generate("--node one --cluster " + cluster.file);
    };
    const auto dies = [&](const std::string &way, const char *limit, const char *says) {
        CAPTURE(way);
        local_cluster cluster;
        cluster.node_arguments = policy(way);
        cluster.node_arguments.insert(cluster.node_arguments.end(),
                                      {"--set", std::string("plugins.call_limit_ms=") + limit});
        cluster.start(0);
        const program_result lost = ask(cluster);
        CHECK(lost.code == 1);
        CHECK(lost.says("one does not answer: lost: the connection ended after "));
        CHECK(cluster.end(0, SIGCONT) == 3);
        const std::string log = cluster.log(0);
        CAPTURE(log);
        CHECK(log.find("moorage: node one: router policy mortal_router (" + library +
                       "): " + says) != std::string::npos);
        CHECK(log.find("; request 1 was under way\n") != std::string::npos);
    };
    dies("segv", "10000", "died of SIGSEGV in select, layer ");
    dies("wait", "300", "select did not return within 300 ms (plugins.call_limit_ms)");
    // Without a limit it waits. A caller that asks it to end need not wait.
    local_cluster cluster;
    cluster.node_arguments = policy("wait");
    cluster.node_arguments.insert(cluster.node_arguments.end(),
                                  {"--set", "plugins.call_limit_ms=0"});
    cluster.start(0);
    auto asked = std::async(std::launch::async, [&] { return ask(cluster); });
    // Its loop looks four times a second, unless it stands still.
    while (cluster.status(0)["loop_age_s"] < 3.0)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(cluster.end(0, SIGTERM) == 3);
    CHECK(cluster.log(0).find("died of SIGALRM in select") != std::string::npos);
    CHECK(cluster.log(0).find("it was asked to end, and was still at work 5 s later") !=
          std::string::npos);
    CHECK(asked.get().code == 1);
}

TEST_CASE("a node that cannot take a signal ends within its time, and its policy is named") {
    const std::string library =
        std::string(MOORAGE_BINARY_DIR) + "/tests/policies/mortal_router.so";
    local_cluster cluster;
    cluster.node_arguments = {
        "--set", "plugins.path=" + library, "--set", "router.plugin=mortal_router",
        "--set", "router.way=vfork",        "--set", "router.at=20",
        "--set", "plugins.call_limit_ms=0"};
    cluster.start(0, /*verbose=*/true);
    auto asked = std::async(std::launch::async, [&] {
        return cluster.generate("--node one --cluster " + cluster.file);
    });
    while (cluster.log(0).find("request 1 of ") == std::string::npos)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const uint64_t begun_ns = moorage::core::steady_ns();
    CHECK(cluster.end(0, SIGTERM) == 3);
    CHECK(moorage::core::steady_ns() - begun_ns < 8'000'000'000);  // 5 s, and a busy machine
    const std::string log = cluster.log(0);
    CAPTURE(log);
    CHECK(log.find("router policy mortal_router (" + library + "): did not end within ") !=
          std::string::npos);
    CHECK(asked.get().code == 1);
}

TEST_CASE("who is refused by all others does not pass for one of them") {
    local_cluster cluster;
    for (const size_t server : {1, 2}) cluster.start(server);
    // The same file with one server more, so that the clusters differ.
    std::string text = cluster.runner.read("cluster.toml");
    text.insert(text.find("[[cluster.links]]"),
                "[[cluster.servers]]\nname = \"four\"\nflops = 50e9\n"
                "expert_memory_bytes = 5.2e6\n\n");
    cluster.runner.folder.write("other.toml", text);
    const std::string other_cluster = "--cluster " + cluster.runner.file("other.toml");
    const program_result alone = cluster.generate(other_cluster + " --server one");
    CHECK(alone.code == 1);
    CHECK(alone.says("every node of the cluster refuses this one; two says: cluster "));
    CHECK(alone.says("start both with the same files"));
    // Nodes that are away are another matter.
    cluster.file = cluster.runner.file("other.toml");
    cluster.start(0);
    for (int tries = 0; tries < 600; ++tries) {
        if (!http_get(cluster.status_address(0), "/health", 1'000'000'000)) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const auto health = http_get(cluster.status_address(0), "/health", 1'000'000'000);
    REQUIRE_FALSE(health.ok());
    CHECK(health.failure().text.find("503") != std::string::npos);
    CHECK(cluster.status(0)["peers"][1]["stands"] == "refused");
    CHECK(cluster.end(0, SIGTERM) == 0);
    for (const size_t server : {1, 2}) cluster.end(server, SIGKILL);
    const program_result away = cluster.generate(other_cluster + " --server one");
    CHECK(away.code == 0);
    CHECK(away.output == cluster.generate("-q").output);
}

// As a server does whose wire wants TLS: it accepts, and closes without a word.
TEST_CASE("who is turned away by all before a greeting does not pass for one of them") {
    local_cluster cluster;
    std::vector<int> listeners;
    for (const size_t server : {1, 2}) listeners.push_back(listen_at(cluster.port(server)));
    std::atomic<bool> is_done = false;
    std::thread closing([&] {
        while (!is_done)
            for (const int listener : listeners) {
                pollfd event{listener, POLLIN, 0};
                if (::poll(&event, 1, 10) == 1) ::close(::accept(listener, nullptr, nullptr));
            }
    });
    cluster.start(0);
    bool is_healthy = true;
    for (int tries = 0; tries < 600 && is_healthy; ++tries) {
        is_healthy = http_get(cluster.status_address(0), "/health", 1'000'000'000).ok();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    is_done = true;
    closing.join();
    for (const int listener : listeners) ::close(listener);
    CHECK_FALSE(is_healthy);
    CHECK(cluster.status(0)["peers"][1]["stands"] == "refused");
    CHECK(cluster.log(0).find("ended before a greeting: perhaps only one side has wire.security") !=
          std::string::npos);
    // Away is not refused.
    for (int tries = 0; tries < 600 && !is_healthy; ++tries) {
        is_healthy = http_get(cluster.status_address(0), "/health", 1'000'000'000).ok();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    CHECK(is_healthy);
    CHECK(cluster.end(0, SIGTERM) == 0);
}

TEST_CASE("what is wrong is said, with what to do") {
    local_cluster cluster;
    const auto refused = [&](const std::string &arguments, const std::string &says, int code = 2) {
        const program_result result = run_line(arguments, cluster.runner.file("errors"));
        CAPTURE(arguments);
        CAPTURE(result.errors);
        CHECK(result.code == code);
        CHECK(result.says(says));
    };
    const std::string node = "node " + cluster.file + " --server ";
    refused(node + "too", "there is no server too; did you mean two");
    refused("node " + home + "/configs/clusters/tiny.toml --server edge.0", "nodes serve one");
    refused(node + "one --weights " + home + "/tests/golden/mixtral", "name its own shape");
    refused(node + "one --set wire.plugin=tpc", "did you mean tcp");
    refused("generate " + demo + " --prompt x --server one --cluster " + cluster.file +
                " --set cluster.cloud.flops=1e12",
            "a cloud is one of [[cluster.servers]]");
    refused(node + "one --set wire.pol_us=3", "did you mean poll_us");
    refused(node +
                "one --set cluster.servers.two.address=127.0.0.1:1 --set "
                "cluster.servers.three.address=127.0.0.1:1",
            "is server two's already");
    refused("node " + home + "/configs/quickstart.toml --server one", "no [cluster]");
    refused("generate " + demo + " --prompt x --cluster " + cluster.file, "go together");
    refused(
        "generate " + demo + " --prompt x --executor cpu --server one --cluster " + cluster.file,
        "leave --config and --executor out");
    const std::string ask = "generate " + demo + " --prompt x --node ";
    refused(ask + "one", "a node of --cluster");
    refused(ask + "one --server one --cluster " + cluster.file, "in place of --server");
    refused(ask + "too --cluster " + cluster.file, "there is no server too; did you mean two");
    refused(ask + "one --temperature 1 --cluster " + cluster.file, "leave --temperature out");
    refused(ask + "one --seed 4 --cluster " + cluster.file, "as [source] of its own file");
    refused(ask + "one --set source.min_p=0.1 --cluster " + cluster.file,
            "leave --set source.min_p out");
    refused(ask + "one --report --cluster " + cluster.file, "leave it out");
    refused("run " + home + "/configs/quickstart.toml --set wire.plugin=tcp", "leave [wire] out");
    cluster.start(0);
    refused(node + "one", "7", 1);  // its address is taken
}

}  // namespace node_command_test
