// etcd_tls_test.cpp - goal: a registry in etcd over TLS works like one without. A peer without a
// valid certificate, on either side, is refused with words that contain no secret. Method: real
// members that require certificates of clients, if etcd is installed; certificates of the test,
// right and wrong ones; a listener that says nothing.
#include <doctest/doctest.h>

#include <fstream>

#include "core/base/log.h"
#include "core/base/steady_time.h"
#include "core/config/run_config.h"
#include "tools/registry/etcd_registry.h"
#include "tools/registry/open_registry.h"
#include "tests/plugin/wire_certificates.h"
#include "tests/skip.h"
#include "tests/unit/etcd_fake.h"
#include "tests/unit/etcd_members.h"

using namespace moorage::core;
using namespace moorage::test;

namespace {

struct bench {
    bench() {
        // etcd's gateway calls etcd itself with the server's certificate.
        files.write("etcd", certify("IP:127.0.0.1", &files.authority));
        files.write("node", certify("DNS:node-a", &files.authority));
        const certified stranger = certify("", nullptr);
        files.write("other-ca", stranger);
        files.write("stranger", certify("DNS:node-a", &stranger));
    }
    etcd_tls credentials(const std::string &name, const std::string &ca = "ca") const {
        if (name.empty()) return {{}, {}, files.file(ca + ".pem")};
        return {files.file(name + ".pem"), files.file(name + ".key"), files.file(ca + ".pem")};
    }
    // Lines of keys and certificates; none may be said.
    bool is_secret_free(const std::string &text) const {
        for (const char *name : {"node", "stranger", "etcd"})
            for (const char *kind : {".key", ".pem"}) {
                std::ifstream input(files.file(name + std::string(kind)));
                for (std::string line; std::getline(input, line);)
                    if (line.find("-----") == std::string::npos &&
                        text.find(line) != std::string::npos)
                        return false;
            }
        return text.find("-----BEGIN") == std::string::npos;
    }

    certificate_folder files;
};

const json anything = {{"key", "YQ=="}};

std::string refusal(const std::string &endpoint, const etcd_tls &tls) {
    const auto client = open_etcd_client({endpoint}, tls);
    REQUIRE_MESSAGE(client.ok(), client.failure().text);
    const auto said = (*client)->post("/v3/kv/range", anything);
    REQUIRE_FALSE(said.ok());
    const status watched = (*client)->watch(anything, false);
    CHECK_FALSE(watched.ok());
    return said.failure().text;
}

bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

bool wait_until(cluster_registry &registry,
                const std::function<bool(const registry_state &)> &condition) {
    for (const uint64_t end_ns = steady_ns() + 30'000'000'000; steady_ns() < end_ns;) {
        if (condition(registry.state())) return true;
        if (!registry.turn(100'000'000)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
}

}  // namespace

TEST_CASE("members of etcd that want certificates: registered, planned, watched") {
    if (etcd_program().empty()) return skip("etcd is not installed (package etcd-server)");
    set_log_level(log_level::error);
    const bench fixture;
    etcd_members etcd(3, fixture.credentials("etcd"));
    registry_config config;
    config.endpoints = etcd.endpoints;
    config.certificate = fixture.files.file("node.pem");
    config.key = fixture.files.file("node.key");
    config.authority = fixture.files.file("ca.pem");
    auto first = open_registry(config), second = open_registry(config);
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    REQUIRE((*first)->announce("one", std::string(300'000, 'x')).ok());
    REQUIRE((*second)->announce("two", "second").ok());
    CHECK(wait_until(**second, [](const auto &state) {
        return state.members.contains("one") && state.members.at("one").size() == 300'000;
    }));
    CHECK(wait_until(**first, [&](const auto &) {
        const auto leads = (*first)->lead();
        return leads && *leads;
    }));
    CHECK((*first)->put_plan(0, 1, "the first").value());
    CHECK(wait_until(**second, [](const auto &state) { return state.plan == "the first"; }));
    // The next plan comes by the watch, and over another member once the first is dead.
    etcd.kill(0);
    CHECK(wait_until(**first, [&](const auto &state) {
        if (state.epoch == 2) return true;
        const auto leads = (*first)->lead();
        if (!leads || !*leads) return false;
        const auto put = (*first)->put_plan(1, 2, "the second");
        return put && *put;
    }));
    CHECK(wait_until(**second, [](const auto &state) { return state.plan == "the second"; }));
}

TEST_CASE("who is not vouched for is refused, on either side, and no secret is said") {
    if (etcd_program().empty()) return skip("etcd is not installed (package etcd-server)");
    const bench fixture;
    etcd_members etcd(1, fixture.credentials("etcd"));
    const std::string endpoint = etcd.endpoints.front();
    const auto client = open_etcd_client({endpoint}, fixture.credentials("node"));
    REQUIRE_MESSAGE(client.ok(), client.failure().text);
    CHECK((*client)->post("/v3/kv/range", anything).ok());

    const std::string none = refusal(endpoint, fixture.credentials(""));
    CHECK_MESSAGE(has(none, "certificate"), none);
    const std::string stranger = refusal(endpoint, fixture.credentials("stranger"));
    CHECK_MESSAGE(has(stranger, "certificate"), stranger);
    const std::string liar = refusal(endpoint, fixture.credentials("node", "other-ca"));
    CHECK_MESSAGE(has(liar, "its certificate is refused: "), liar);
    // The certificate is for the address, not for the name.
    const std::string named = "https://localhost" + endpoint.substr(endpoint.rfind(':'));
    const std::string name = refusal(named, fixture.credentials("node"));
    CHECK_MESSAGE(has(name, "hostname mismatch"), name);
    const std::string plain = refusal(endpoint.substr(8), fixture.credentials("node"));
    for (const std::string &text : {none, stranger, liar, name, plain}) {
        CHECK_MESSAGE(fixture.is_secret_free(text), text);
        CHECK_MESSAGE(has(text, "etcd at "), text);
    }
}

TEST_CASE("TLS that nobody speaks ends in time") {
    const bench fixture;
    etcd_fake clear;  // HTTP
    const std::string text = refusal("https://" + clear.address, fixture.credentials("node"));
    CHECK_MESSAGE(has(text, "no TLS: "), text);
    const int mute = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    REQUIRE(::bind(mute, reinterpret_cast<sockaddr *>(&address), bytes) == 0);
    REQUIRE(::listen(mute, 4) == 0);
    REQUIRE(::getsockname(mute, reinterpret_cast<sockaddr *>(&address), &bytes) == 0);
    const uint64_t begun_ns = steady_ns();
    const std::string silent = refusal(format("https://127.0.0.1:{}", ntohs(address.sin_port)),
                                       fixture.credentials("node"));
    CHECK_MESSAGE(has(silent, "no answer within 1000 ms"), silent);
    CHECK(steady_ns() - begun_ns < 3 * cluster_registry::call_ns_max);
    ::close(mute);
}

TEST_CASE("files that cannot be used are refused before anything is asked, by name") {
    const bench fixture;
    registry_config config;
    config.endpoints = {"https://127.0.0.1:1"};
    const auto said = [&] {
        const auto opened = open_registry(config);
        REQUIRE_FALSE(opened.ok());
        CHECK(fixture.is_secret_free(opened.failure().text));
        return opened.failure().text;
    };
    CHECK(has(said(), "[registry] ca cannot be used: it is not given"));
    config.authority = fixture.files.file("nothing.pem");
    CHECK(has(said(), "nothing.pem cannot be used"));
    config.authority = fixture.files.file("ca.pem");
    config.certificate = fixture.files.file("node.pem");
    config.key = fixture.files.file("etcd.key");
    CHECK(has(said(), "etcd.key cannot be used: "));
    config.key = fixture.files.file("node.pem");
    CHECK(has(said(), "[registry] key "));
    config.key = fixture.files.file("node.locked.key");
    CHECK(has(said(), "node.locked.key cannot be used: it has a passphrase"));
    config.key = fixture.files.file("node.key");
    CHECK(open_registry(config).ok());
}

TEST_CASE("a configuration says all that TLS needs, or what is missing") {
    const std::string file = std::string(MOORAGE_SOURCE_DIR) + "/configs/clusters/local.toml";
    const auto read = [&](const std::vector<std::pair<const char *, const char *>> &settings) {
        std::vector<override_value> overrides;
        for (const auto &[key, value] : settings) overrides.push_back({"registry", key, value});
        return load_run_config(file, overrides, read_for::nodes);
    };
    const char *const secure = "['https://a:2379', 'https://b:2379']";
    const auto whole = read(
        {{"endpoints", secure}, {"ca", "ca.pem"}, {"certificate", "one.pem"}, {"key", "one.key"}});
    REQUIRE_MESSAGE(whole.ok(), (whole ? "" : whole.failure().text));
    CHECK(whole->registry.authority.filename() == "ca.pem");
    CHECK(whole->registry.certificate.filename() == "one.pem");
    CHECK(whole->registry.key.filename() == "one.key");
    CHECK(read({{"endpoints", secure}, {"ca", "ca.pem"}}).ok());
    const auto refused = [&](const auto &settings, const char *reason) {
        const auto config = read(settings);
        return !config.ok() && has(config.failure().text, reason);
    };
    using keys = std::vector<std::pair<const char *, const char *>>;
    CHECK(refused(keys{{"endpoints", secure}}, "need ca"));
    CHECK(refused(keys{{"endpoints", "a:2379"}, {"ca", "ca.pem"}}, "https://"));
    CHECK(refused(keys{{"endpoints", secure}, {"ca", "ca.pem"}, {"key", "one.key"}},
                  "certificate and key go together"));
}
