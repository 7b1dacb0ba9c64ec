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

    explicit ucx_host(core::settings given = {}) {
        const std::vector<std::filesystem::path> files = {library};
        REQUIRE(known.scan(files).ok());
        auto made = core::instance::create(**known.find("ucx", "wire"), given, {});
        REQUIRE(made.ok());
        wire = std::move(*made);
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
    core::status listen(const char *where) {
        char bound[MOORAGE_WIRE_ADDRESS_MAX] = "";
        uint64_t listener = 0;
        return wire->control(core::entry_point::wire_listen, [&](moorage_plugin *plugin) {
            return wire->wire->listen(plugin, where, bound, &listener);
        });
    }
    core::status connect(const char *where, const char *identity = nullptr) {
        uint64_t number = 0;
        const moorage_wire_target target{sizeof(target), MOORAGE_WIRE_CALLS, &where, 1, 0,
                                         identity};
        return wire->control(core::entry_point::wire_connect, [&](moorage_plugin *plugin) {
            return wire->wire->connect(plugin, &target, &number);
        });
    }
};

// Whether it is there to be tested.
bool built() {
    if (!std::filesystem::exists(library)) {
        test::skip("the ucx wire is not built (libucx-dev)");
        return false;
    }
    ucx_host at;
    if (const auto done = at.open(); !done) {
        test::skip("UCX does not begin here: " + done.failure().text);
        return false;
    }
    return true;
}

core::settings trusting(const std::string &networks) { return {{"trusted", networks, "here"}}; }

std::string refusal(const core::status &of) {
    REQUIRE_FALSE(of.ok());
    return of.failure().text;
}

}  // namespace

TEST_CASE("the conformance kit passes ucx, as it chooses and over tcp") {
    if (!built()) return;
    for (const char *more : {"", " --param wire.transports=tcp"}) {
        CAPTURE(more);
        const int state =
            std::system(("'" + (build / "bin/moorage").string() + "' plugins check '" +
                         library.string() + "' --timeout 60" + more + " > /dev/null")
                            .c_str());
        CHECK(WIFEXITED(state));
        CHECK(WEXITSTATUS(state) == 0);
    }
}

TEST_CASE("it stays within the networks that are trusted") {
    if (!built()) return;
    ucx_host loopback;
    REQUIRE(loopback.open().ok());
    CHECK(loopback.listen("127.0.0.1:0").ok());
    CHECK(has(refusal(loopback.listen("0.0.0.0:0")), "in no network that trusted names"));
    CHECK(has(refusal(loopback.connect("10.1.2.3:9")), "in no network that trusted names"));
    ucx_host wider(trusting("10.1.2.0/23, 127.0.0.1/32"));
    REQUIRE(wider.open().ok());
    CHECK(wider.connect("10.1.2.0:9").ok());
    CHECK(wider.connect("10.1.3.255:9").ok());
    CHECK(has(refusal(wider.connect("10.1.4.0:9")), "10.1.4.0:9"));
    CHECK(has(refusal(wider.connect("10.1.1.255:9")), "10.1.1.255:9"));
    CHECK(has(refusal(wider.listen("127.0.0.2:0")), "127.0.0.2:0"));
    CHECK(has(refusal(wider.connect("[::1]:9")), "[::1]:9"));
}

TEST_CASE("what it cannot use is told in words") {
    if (!built()) return;
    struct {
        const char *networks, *part;
    } const all[] = {{"", "trusted names no network"},
                     {"10.0.0.0", "10.0.0.0 is no network"},
                     {"10.0.0.0/33", "10.0.0.0/33 is no network"},
                     {"ten/8", "ten/8 is no network"},
                     {"::1/129", "::1/129 is no network"}};
    for (const auto &one : all) {
        CAPTURE(one.networks);
        ucx_host at(trusting(one.networks));
        CHECK(has(refusal(at.open()), one.part));
    }
    ucx_host at;
    REQUIRE(at.open().ok());
    CHECK(has(refusal(at.connect("127.0.0.1:9", "somebody")), "ucx knows no identities"));
    CHECK(has(refusal(at.connect("127.0.0.1")), "no port"));
    CHECK(has(refusal(at.connect("127.0.0.1:0")), "port 0"));
    CHECK(has(refusal(at.connect("127.0.0.1:65536")), "a port is 0 to 65535"));
    CHECK(has(refusal(at.connect("node-a:9")), "numbers only"));
}

}  // namespace wire_ucx_test
