// wire_ucx_test.cpp - goal: the ucx wire keeps the rules of wires, over shared memory and over tcp,
// and stays within the trusted networks. Method: the conformance kit; addresses on both sides of
// each border. Skipped if it was not built, or UCX is not installed.
#include <doctest/doctest.h>

#include <sys/wait.h>

#include <cstdlib>

#include "core/host/instance.h"
#include "core/host/registry.h"
#include "tests/skip.h"
#include "tests/plugin/wire_host.h"

namespace wire_ucx_test {

namespace {

using namespace moorage;
using moorage::test::wire_limits;

const std::filesystem::path build = MOORAGE_BINARY_DIR;
const std::filesystem::path library = build / "plugins/wire/ucx.so";

bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

struct ucx_host {
    core::registry known;
    std::unique_ptr<core::instance> wire;

    explicit ucx_host(core::settings params = {}) {
        const std::vector<std::filesystem::path> files = {library};
        REQUIRE(known.scan(files).ok());
        auto created = core::instance::create(**known.find("ucx", "wire"), params, {});
        REQUIRE(created.ok());
        wire = std::move(*created);
        moorage_limits nothing{};
        nothing.size = sizeof(nothing);
        REQUIRE(wire->activate(nothing).ok());
    }
    core::status open() {
        const moorage_wire_limits limits = wire_limits();
        return wire->control(core::entry_point::wire_open, [&](moorage_plugin *plugin) {
            return wire->wire->open(plugin, &limits);
        });
    }
    core::status listen(const char *bind_address) {
        char bound[MOORAGE_WIRE_ADDRESS_MAX] = "";
        uint64_t listener = 0;
        return wire->control(core::entry_point::wire_listen, [&](moorage_plugin *plugin) {
            return wire->wire->listen(plugin, bind_address, bound, &listener);
        });
    }
    core::status connect(const char *peer_address, const char *identity = nullptr) {
        uint64_t number = 0;
        const moorage_wire_target target{sizeof(target), MOORAGE_WIRE_CALLS, &peer_address, 1, 0,
                                         identity};
        return wire->control(core::entry_point::wire_connect, [&](moorage_plugin *plugin) {
            return wire->wire->connect(plugin, &target, &number);
        });
    }
};

// Whether it is there to be tested.
bool is_available() {
    if (!std::filesystem::exists(library)) {
        test::skip("the ucx wire is not built (libucx-dev)");
        return false;
    }
    ucx_host host;
    if (const auto done = host.open(); !done) {
        test::skip("UCX does not begin here: " + done.failure().text);
        return false;
    }
    return true;
}

core::settings trusting_params(const std::string &networks) {
    return {{"trusted", networks, "here"}};
}

std::string refusal(const core::status &result) {
    REQUIRE_FALSE(result.ok());
    return result.failure().text;
}

}  // namespace

TEST_CASE("the conformance kit passes ucx, as it chooses and over tcp") {
    if (!is_available()) return;
    for (const char *extra_options : {"", " --param wire.transports=tcp"}) {
        CAPTURE(extra_options);
        const int state =
            std::system(("'" + (build / "bin/moorage").string() + "' plugins check '" +
                         library.string() + "' --timeout 60" + extra_options + " > /dev/null")
                            .c_str());
        CHECK(WIFEXITED(state));
        CHECK(WEXITSTATUS(state) == 0);
    }
}

TEST_CASE("it stays within the networks that are trusted") {
    if (!is_available()) return;
    ucx_host loopback;
    REQUIRE(loopback.open().ok());
    CHECK(loopback.listen("127.0.0.1:0").ok());
    CHECK(has(refusal(loopback.listen("0.0.0.0:0")), "in no network that trusted names"));
    CHECK(has(refusal(loopback.connect("10.1.2.3:9")), "in no network that trusted names"));
    ucx_host wider(trusting_params("10.1.2.0/23, 127.0.0.1/32"));
    REQUIRE(wider.open().ok());
    CHECK(wider.connect("10.1.2.0:9").ok());
    CHECK(wider.connect("10.1.3.255:9").ok());
    CHECK(has(refusal(wider.connect("10.1.4.0:9")), "10.1.4.0:9"));
    CHECK(has(refusal(wider.connect("10.1.1.255:9")), "10.1.1.255:9"));
    CHECK(has(refusal(wider.listen("127.0.0.2:0")), "127.0.0.2:0"));
    CHECK(has(refusal(wider.connect("[::1]:9")), "[::1]:9"));
}

TEST_CASE("what it cannot use is told in words") {
    if (!is_available()) return;
    struct {
        const char *networks, *part;
    } const cases[] = {{"", "trusted names no network"},
                       {"10.0.0.0", "10.0.0.0 is no network"},
                       {"10.0.0.0/33", "10.0.0.0/33 is no network"},
                       {"ten/8", "ten/8 is no network"},
                       {"::1/129", "::1/129 is no network"}};
    for (const auto &entry : cases) {
        CAPTURE(entry.networks);
        ucx_host host(trusting_params(entry.networks));
        CHECK(has(refusal(host.open()), entry.part));
    }
    ucx_host host;
    REQUIRE(host.open().ok());
    CHECK(has(refusal(host.connect("127.0.0.1:9", "somebody")), "ucx knows no identities"));
    CHECK(has(refusal(host.connect("127.0.0.1")), "no port"));
    CHECK(has(refusal(host.connect("127.0.0.1:0")), "port 0"));
    CHECK(has(refusal(host.connect("127.0.0.1:65536")), "a port is 0 to 65535"));
    CHECK(has(refusal(host.connect("node-a:9")), "numbers only"));
}

}  // namespace wire_ucx_test
