// etcd_members.h - three real members of etcd on loopback, if the program is installed.
#pragma once

#include <doctest/doctest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/registry/etcd_client.h"
#include "tests/unit/free_ports.h"
#include "tests/unit/toy_machine.h"

namespace moorage::test {

inline std::string etcd_program() {
    for (const std::string &folder :
         core::split(std::getenv("PATH") ? std::getenv("PATH") : "", ':'))
        if (::access((folder + "/etcd").c_str(), X_OK) == 0) return folder + "/etcd";
    return "";
}

class etcd_members {
public:
    // With the files of `tls`, clients must show certificates of the same authority.
    explicit etcd_members(size_t count = 3, const core::etcd_tls &tls = {})
        : tls_(tls), ports_(free_ports(2 * count)), members_(count, -1) {
        for (size_t i = 0; i < count; ++i) {
            endpoints.push_back(
                core::format("{}127.0.0.1:{}", tls.ca.empty() ? "" : "https://", ports_[i]));
            peers_ +=
                core::format("{}m{}=http://127.0.0.1:{}", i == 0 ? "" : ",", i, ports_[count + i]);
        }
        for (size_t i = 0; i < count; ++i) start(i);
        for (const std::string &endpoint : endpoints) {
            const auto client = core::open_etcd_client({endpoint}, tls);
            REQUIRE(client.ok());
            bool reachable = false;
            for (int tries = 0; tries < 300 && !reachable; ++tries) {
                reachable = (*client)->post("/v3/kv/range", {{"key", "YQ=="}}).ok();
                if (!reachable) std::this_thread::sleep_for(std::chrono::milliseconds(100));
            }
            REQUIRE(reachable);
        }
    }
    ~etcd_members() {
        for (size_t i = 0; i < members_.size(); ++i) kill(i);
    }
    void start(size_t i) {
        const std::string peer = core::format("http://127.0.0.1:{}", ports_[members_.size() + i]),
                          client = (tls_.ca.empty() ? "http://" : "") + endpoints[i];
        std::vector<std::string> words = {etcd_program(),
                                          "--name",
                                          core::format("m{}", i),
                                          "--data-dir",
                                          folder_ / core::format("m{}", i),
                                          "--listen-peer-urls",
                                          peer,
                                          "--initial-advertise-peer-urls",
                                          peer,
                                          "--listen-client-urls",
                                          client,
                                          "--advertise-client-urls",
                                          client,
                                          "--initial-cluster",
                                          peers_};
        if (!tls_.ca.empty())
            words.insert(words.end(), {"--cert-file", tls_.certificate, "--key-file", tls_.key,
                                       "--trusted-ca-file", tls_.ca, "--client-cert-auth"});
        std::vector<char *> arguments;
        for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
        arguments.push_back(nullptr);
        members_[i] = ::fork();
        if (members_[i] != 0) return;
        const int quiet = ::open("/dev/null", O_RDWR);
        for (const int descriptor : {0, 1, 2}) ::dup2(quiet, descriptor);
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
    void kill(size_t i) {
        if (members_[i] <= 0) return;
        ::kill(members_[i], SIGCONT);
        ::kill(members_[i], SIGKILL);
        ::waitpid(members_[i], nullptr, 0);
        members_[i] = -1;
    }
    void pause(size_t i, bool paused) { ::kill(members_[i], paused ? SIGSTOP : SIGCONT); }

    std::vector<std::string> endpoints;

private:
    toy::folder folder_;
    const core::etcd_tls tls_;
    std::vector<uint16_t> ports_;
    std::string peers_;
    std::vector<pid_t> members_;
};

}  // namespace moorage::test
