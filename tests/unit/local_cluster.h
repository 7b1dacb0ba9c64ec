// local_cluster.h - the nodes of a file of configs/clusters as processes, at their own ports.
#pragma once

#include <doctest/doctest.h>

#include <signal.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/node/http.h"
#include "tests/unit/free_ports.h"
#include "tests/unit/program.h"

namespace moorage::test {

using namespace moorage::core;

inline const std::string home = MOORAGE_SOURCE_DIR, demo = home + "/configs/demo";

// Three servers of the demo model.
class local_cluster {
public:
    program runner;
    std::string file;
    std::vector<std::string> node_arguments;                     // arguments of nodes
    std::map<size_t, std::vector<std::string>> launch_prefixes;  // starts a server's node

    explicit local_cluster(const std::string &config_name = "local.toml",
                           std::vector<std::string> names = {"one", "two", "three"})
        : names_(std::move(names)), ports_(free_ports(9)) {
        std::ifstream input(home + "/configs/clusters/" + config_name);
        std::string text{std::istreambuf_iterator<char>(input), {}};
        const auto replace = [&](const std::string &pattern, const std::string &replacement) {
            const size_t place = text.find(pattern);
            REQUIRE(place != std::string::npos);
            text.replace(place, pattern.size(), replacement);
        };
        replace("../demo", demo);
        for (size_t i = 0; i < 3; ++i) {
            replace(format(":730{}", i + 1), format(":{}", ports_[i]));
            replace(format(":930{}", i + 1), format(":{}", ports_[3 + i]));
            replace(format(":830{}", i + 1), format(":{}", ports_[6 + i]));
        }
        file = runner.file("cluster.toml");
        std::ofstream(file) << text;
    }
    ~local_cluster() {
        for (const auto &[name, process] : nodes_)
            ::kill(-process, SIGKILL), program::wait(process);
    }
    std::string status_address(size_t server) const {
        return format("127.0.0.1:{}", ports_[3 + server]);
    }
    uint16_t port(size_t server) const { return ports_[server]; }
    // Until it serves.
    void start(size_t server, bool verbose = false) {
        const int log_file = ::open(runner.file(format("out{}", server)).c_str(),
                                    O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        std::vector<std::string> words = {"node", file, "--server", names_.at(server)};
        if (verbose) words.insert(words.begin(), "-v");
        words.insert(words.end(), node_arguments.begin(), node_arguments.end());
        nodes_[server] = runner.start(words, log_file, log_file, launch_prefixes[server]);
        ::close(log_file);
        for (int tries = 0; tries < 600; ++tries) {
            if (http_get(status_address(server), "/status", 1'000'000'000)) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        FAIL(runner.read(format("out{}", server)));
    }
    int end(size_t server, int signal) {
        const pid_t process = nodes_.at(server);
        nodes_.erase(server);
        ::kill(-process, SIGCONT);  // the node and its supervisor
        ::kill(signal == SIGKILL ? -process : process, signal);
        return program::wait(process);
    }
    void pause(size_t server) { ::kill(-nodes_.at(server), SIGSTOP); }
    std::string log(size_t server) const { return runner.read(format("out{}", server)); }
    json status(size_t server) const {
        const auto text = http_get(status_address(server), "/status", 5'000'000'000);
        REQUIRE(text.ok());
        return json::parse(*text);
    }
    program_result generate(const std::string &arguments = "") const {
        // A node chooses by its own file: the most probable token.
        const bool asks = arguments.find("--node") != arguments.npos;
        return run_line("generate " + demo + " --prompt 'The President said' --max-tokens 40 " +
                            (asks ? "" : "--temperature 0 ") + arguments,
                        runner.file("errors"));
    }
    std::string at_server(const char *name) const {
        return "--cluster " + file + " --server " + name;
    }

private:
    std::vector<std::string> names_;
    std::vector<uint16_t> ports_;
    std::map<size_t, pid_t> nodes_;
};

}  // namespace moorage::test
