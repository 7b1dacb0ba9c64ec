// cluster_registry_test.cpp - goal: nodes can rely on a registry of any kind. Members are there
// while their processes are. One leads. One plan of an epoch wins. Changes are seen. A refused
// write changes nothing. Method: the same cases over a directory, over a gateway of etcd in this
// process that cuts, lies and forgets, and over three real members if etcd is installed.
#include "tools/registry/cluster_registry.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/steady_time.h"
#include "tools/registry/etcd_registry.h"
#include "tools/registry/file_registry.h"
#include "tests/skip.h"
#include "tests/unit/any_registry.h"
#include "tests/unit/etcd_fake.h"
#include "tests/unit/etcd_members.h"

namespace cluster_registry_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

// Every kind of registry must do this.
void behaves(const opener &open) {
    opened first = open(), second = open();
    announce(*first, "one", "first");
    announce(*second, "two", std::string(1000, 'x') + "\n\"\x01\xff");
    CHECK(wait_until(*first, [](const auto &state) { return state.members.size() == 2; }));
    CHECK(first->state().members.at("two") == std::string(1000, 'x') + "\n\"\x01\xff");
    CHECK(wait_until(*second, [](const auto &state) { return state.members.contains("one"); }));

    // One leads. Only its writes are accepted, and only in place of the plan that it has read.
    CHECK_FALSE(first->leads());
    CHECK_FALSE(first->put_plan(0, 1, "early").value());
    CHECK(wait_to_lead(*first));
    CHECK(wait_until(*second, [](const auto &state) { return state.leader == "one"; }));
    CHECK_FALSE(second->lead().value());
    CHECK(first->put_plan(0, 1, "the first").value());
    CHECK(first->put_plan(1, 2, "the second").value());
    CHECK_FALSE(first->put_plan(1, 3, "on the first").value());
    CHECK_FALSE(second->put_plan(2, 3, "not the leader's").value());
    CHECK(wait_until(*second, [](const auto &state) { return state.epoch == 2; }));
    CHECK(second->state().plan == "the second");
    CHECK(first->state().plan == "the second");

    // A member's new text replaces its old one. Anyone may put a note.
    announce(*first, "one", "again");
    REQUIRE(second->put_note("wish", "drain three").ok());
    CHECK(wait_until(*first,
                     [](const auto &state) { return has_note(state, "wish", "drain three"); }));
    CHECK(wait_until(*second, [](const auto &state) {
        return state.members.contains("one") && state.members.at("one") == "again";
    }));
    CHECK_FALSE(second->put_note("../wish", "x").ok());
    CHECK_FALSE(
        second->put_note("wish", std::string(cluster_registry::text_bytes_max + 1, 'x')).ok());
    CHECK(wait_until(*second, [](const auto &) { return true; }));

    // A member that ends is gone, with its leadership. The plan stays.
    first.reset();
    CHECK(wait_until(*second, [](const auto &state) {
        return state.members.size() == 1 && state.leader.empty();
    }));
    CHECK(wait_to_lead(*second));
    CHECK(second->put_plan(2, 7, "the third").value());
    opened third = open();
    CHECK(wait_until(*third,
                     [](const auto &state) { return state.epoch == 7 && state.leader == "two"; }));
    CHECK(third->state().plan == "the third");
    second->leave();
    CHECK(wait_until(*third, [](const auto &state) { return state.members.empty(); }));
    CHECK(third->state().epoch == 7);
}

// Several members lead, end and write in any interleaving. Epochs rise, each is one plan for all
// who see it, and every write that was confirmed took place.
void one_plan_wins(const opener &open, uint64_t seed, int rounds) {
    random_stream draw(seed, 0);
    std::map<uint64_t, std::string> written, seen;
    std::vector<opened> registries(3);
    const auto look = [&](size_t index) {
        const registry_state &state = registries[index]->state();
        if (state.epoch == 0) return;
        const auto known = seen.emplace(state.epoch, state.plan).first;
        CHECK(known->second == state.plan);
    };
    for (int round = 0; round < rounds; ++round) {
        const size_t index = draw.below(registries.size());
        if (!registries[index]) {
            registries[index] = open();
            announce(*registries[index], format("node{}", index), "there");
        }
        cluster_registry &registry = *registries[index];
        const auto turned = registry.turn(draw.below(3) * 10'000'000);
        const uint64_t old_epoch = registry.state().epoch;
        look(index);
        CHECK(registry.state().epoch >= old_epoch);
        const uint64_t choice = draw.below(10);
        if (choice == 0) {
            registries[index].reset();
        } else if (choice < 4) {
            const auto ignored = registry.lead();
            (void)ignored;
        } else {
            const std::string text = format("by {} in round {}", index, round);
            const auto done = registry.put_plan(old_epoch, old_epoch + 1, text);
            if (done && *done) {
                CHECK_FALSE(written.contains(old_epoch + 1));
                written[old_epoch + 1] = text;
            }
        }
        if (registries[index]) look(index);
    }
    for (const auto &[epoch, text] : written)
        if (seen.contains(epoch)) CHECK(seen[epoch] == text);
    CHECK(!written.empty());
}

}  // namespace

TEST_CASE("a directory") {
    const toy::folder folder;
    behaves(directory_opener(folder));
    const toy::folder second_folder;
    one_plan_wins(directory_opener(second_folder), 1, 300);
}

TEST_CASE("a gateway of etcd") {
    set_log_level(log_level::error);
    etcd_fake etcd;
    behaves(at_endpoints({etcd.address}));
    one_plan_wins(at_endpoints({etcd.address}, "other"), 2, 300);
}

TEST_CASE("a directory: a plan put there by hand, and one that is spoiled") {
    set_log_level(log_level::off);
    const toy::folder folder;
    const opened registry = directory_opener(folder)();
    folder.write("new", "5\nby hand");
    std::filesystem::rename(folder / "new", folder / "registry/plan");
    CHECK(wait_until(*registry, [](const auto &state) { return state.epoch == 5; }));
    CHECK(registry->state().plan == "by hand");
    for (const char *text :
         {"", "x", "6", "six\nplan", "-6\nplan", "0\nplan", "99999999999999999999\n"}) {
        CAPTURE(text);
        folder.write("new", text);
        std::filesystem::rename(folder / "new", folder / "registry/plan");
        // Told once: a second look finds nothing new.
        const auto changed = registry->turn(0), again = registry->turn(0);
        REQUIRE(changed.ok());
        CHECK(*changed);
        CHECK_FALSE(*again);
        CHECK(registry->state().damaged.find("registry/plan is damaged: ") != std::string::npos);
        CHECK(registry->state().epoch == 5);
        CHECK(registry->state().plan == "by hand");
    }
    folder.write("new", "6\nrepaired");
    std::filesystem::rename(folder / "new", folder / "registry/plan");
    CHECK(wait_until(*registry,
                     [](const auto &state) { return state.epoch == 6 && state.damaged.empty(); }));
    folder.write("new", "5\nby hand");
    std::filesystem::rename(folder / "new", folder / "registry/plan");
    CHECK(wait_until(*registry, [](const auto &state) { return state.epoch == 5; }));
    folder.write("registry/members/.hidden", "x");
    folder.write("registry/members/dead", "no process");
    REQUIRE(registry->turn(0).ok());
    CHECK(registry->state().members.empty());
    const opened first = directory_opener(folder)(), second = directory_opener(folder)();
    CHECK(first->announce("one", "").ok());
    const status taken = second->announce("one", "");
    REQUIRE_FALSE(taken.ok());
    CHECK(taken.failure().text.find("takes part already") != std::string::npos);
    std::filesystem::remove_all(folder / "registry");
    CHECK_FALSE(registry->turn(0).ok());
    CHECK(registry->state().plan == "by hand");
}

TEST_CASE("a directory: what is removed while members live comes back with them") {
    set_log_level(log_level::off);
    const toy::folder folder;
    const opened first = directory_opener(folder)(), second = directory_opener(folder)();
    REQUIRE(first->announce("one", "here").ok());
    REQUIRE(second->announce("two", "there").ok());
    REQUIRE(first->lead().ok());
    REQUIRE(first->leads());
    std::filesystem::remove_all(folder / "registry");
    CHECK_FALSE(first->turn(0).ok());
    // Another member makes it anew and sees both again. The old leader no longer leads, until it
    // tries.
    const opened newcomer = directory_opener(folder)();
    REQUIRE(first->turn(0).ok());
    REQUIRE(second->turn(0).ok());
    CHECK(wait_until(*newcomer, [](const auto &state) {
        return state.members ==
               std::map<std::string, std::string>{{"one", "here"}, {"two", "there"}};
    }));
    CHECK_FALSE(first->leads());
    REQUIRE(second->lead().ok());
    CHECK(second->leads());
    CHECK_FALSE(*first->lead());
    // A member's file alone.
    std::filesystem::remove(folder / "registry/members/one");
    REQUIRE(first->turn(0).ok());
    CHECK(wait_until(*newcomer, [](const auto &state) { return state.members.contains("one"); }));
    // Its place was taken while it was away.
    std::filesystem::remove_all(folder / "registry");
    const opened namesake = directory_opener(folder)();
    REQUIRE(namesake->announce("one", "another").ok());
    const auto lost = first->turn(0);
    REQUIRE_FALSE(lost.ok());
    CHECK(lost.failure().text.find("takes part already") != std::string::npos);
}

TEST_CASE("a directory: members write the plan in force again; who only asks makes nothing") {
    set_log_level(log_level::off);
    const toy::folder folder;
    const auto asked = file_registry::open(folder.path() / "registry", /*make=*/false);
    REQUIRE_FALSE(asked.ok());
    CHECK(asked.failure().usage);
    CHECK(asked.failure().text.find("registry is not there; ") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder / "registry"));

    const opened first = directory_opener(folder)(), second = directory_opener(folder)();
    REQUIRE(first->announce("one", "here").ok());
    REQUIRE(second->announce("two", "there").ok());
    REQUIRE(*first->lead());
    REQUIRE(*first->put_plan(0, 9, "nine"));
    REQUIRE(second->turn(0).ok());
    REQUIRE(*first->put_plan(9, 10, "ten"));
    // The directory is removed. The members make it again from their knowledge: the highest epoch.
    std::filesystem::remove_all(folder / "registry");
    CHECK_FALSE(second->turn(0).ok());
    REQUIRE(second->turn(0).ok());
    const auto read_plan = [&] {
        auto newcomer = file_registry::open(folder.path() / "registry", /*make=*/false);
        REQUIRE(newcomer.ok());
        REQUIRE((*newcomer)->turn(0).ok());
        return std::pair((*newcomer)->state().epoch, (*newcomer)->state().plan);
    };
    CHECK(read_plan() == std::pair(uint64_t{9}, std::string("nine")));
    REQUIRE(first->turn(0).ok());
    CHECK(first->state().epoch == 10);
    CHECK(read_plan() == std::pair(uint64_t{10}, std::string("ten")));
    REQUIRE(second->turn(0).ok());
    CHECK(second->state().plan == "ten");
    // The plan's file alone.
    std::filesystem::remove(folder / "registry/plan");
    REQUIRE(second->turn(0).ok());
    CHECK(read_plan() == std::pair(uint64_t{10}, std::string("ten")));
    CHECK(first->turn(0).ok());
}

TEST_CASE("no registry: nothing is ever there, and notes are refused with what to do") {
    auto none = file_registry::open("");
    REQUIRE(none.ok());
    CHECK((*none)->announce("one", "x").ok());
    CHECK_FALSE((*none)->turn(0).value());
    CHECK_FALSE((*none)->lead().value());
    CHECK((*none)->state() == registry_state());
    const status refused = (*none)->put_note("wish", "x");
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().text.find("[registry]") != std::string::npos);
}

TEST_CASE("a gateway that goes away, forgets, compacts: the state stays, then goes on") {
    set_log_level(log_level::error);
    etcd_fake etcd;
    const opener open = at_endpoints({etcd.address});
    const opened first = open(), second = open();
    announce(*first, "one", "x");
    REQUIRE(wait_to_lead(*first));
    REQUIRE(first->put_plan(0, 4, "the plan").value());
    REQUIRE(wait_until(*second, [](const auto &state) { return state.epoch == 4; }));
    const auto both_see = [&](const char *note) {
        REQUIRE(
            wait_until(*first, [&](const auto &) { return second->put_note("wish", note).ok(); }));
        CHECK(wait_until(*first, [&](const auto &state) { return has_note(state, "wish", note); }));
        CHECK(
            wait_until(*second, [&](const auto &state) { return has_note(state, "wish", note); }));
    };
    both_see("a");
    etcd.drop_watches();
    both_see("b");
    // Changes while nobody watches are compacted away before the next watch begins.
    etcd.drop_watches();
    REQUIRE(second->put_note("wish", "c").ok());
    etcd.compacted = 1000;
    CHECK(wait_until(*first, [](const auto &state) { return has_note(state, "wish", "c"); }));
    etcd.compacted = 0;
    both_see("d");
    // A restart with an empty store. Members still know the plan, and register again.
    etcd.forget();
    CHECK(wait_until(*first, [&](const auto &) {
        const auto ignored = second->turn(0);
        return second->state().members.contains("one") && first->state().members.contains("one") &&
               second->state().leader.empty();
    }));
    CHECK(first->state().plan == "the plan");
    CHECK(second->state().epoch == 4);
    REQUIRE(wait_to_lead(*first));
    CHECK(first->put_plan(0, 9, "again").value());
    // Silence ends in errors, within their time, and changes nothing.
    etcd.silent = true;
    bool failed = false;
    for (int tries = 0; tries < 20 && !failed; ++tries) failed = !first->turn(200'000'000);
    CHECK(failed);
    CHECK_FALSE(first->put_plan(9, 10, "into silence").ok());
    CHECK(first->state().plan == "again");
    etcd.silent = false;
    both_see("e");
}

TEST_CASE("a leader that was paused past its lease writes nothing") {
    set_log_level(log_level::error);
    etcd_fake etcd;
    const opener open = at_endpoints({etcd.address});
    const opened old = open(), young = open();
    announce(*old, "old", "x");
    REQUIRE(wait_to_lead(*old));
    REQUIRE(old->put_plan(0, 1, "its").value());
    announce(*young, "young", "y");
    // It does nothing for as long as its lease lasts.
    REQUIRE(wait_until(*young,
                       [](const auto &state) { return state.leader.empty() && state.epoch == 1; }));
    REQUIRE(wait_to_lead(*young));
    CHECK(old->leads());  // as far as it knows
    CHECK_FALSE(old->put_plan(1, 2, "of the past").value());
    CHECK_FALSE(old->leads());
    CHECK(young->put_plan(1, 2, "of today").value());
    CHECK(wait_until(
        *old, [](const auto &state) { return state.epoch == 2 && state.members.contains("old"); }));
    CHECK(old->state().plan == "of today");
}

TEST_CASE("hostile answers are errors, never more") {
    set_log_level(log_level::off);
    const auto http = [](const std::string &body) {
        return format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
    };
    const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    const std::vector<std::string> lies = {
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: " + std::string(20000, 'y') + "\r\n\r\n",
        http(""),
        http("null"),
        http("[]"),
        http("{\"header\":"),
        http(std::string(100000, '[')),
        http("{\"a\":" + std::string(1000, '{')),
        http("{\"header\":7,\"kvs\":{}}"),
        http("{\"header\":{\"revision\":\"18446744073709551616\"}}"),
        http("{\"header\":{\"revision\":-5},\"ID\":[],\"succeeded\":\"yes\"}"),
        http("{\"header\":{\"revision\":\"5\"},\"ID\":\"7\",\"result\":{\"TTL\":\"5\"},\"kvs\":[1,"
             "null,"
             "{\"key\":5},{\"key\":\"!!!!\"},{\"key\":\"YQ\"},{\"value\":{}},[[[]]]]}"),
        http("{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"no leader\"}}"),
        http("{\"error\":5}"),
        chunked + "ffffffffffffffffff\r\n",
        chunked + "5\r\nabc",
        chunked + "3\r\n[[\n\r\n3\r\n{}\n\r\n0\r\n\r\n",
        chunked + "9\r\n{\"a\":[]}\n\r\n"};
    for (const std::string &text : lies) {
        CAPTURE(text.substr(0, 120));
        for (const bool watch_alone : {false, true}) {
            etcd_fake etcd;
            etcd.fake_answer = [&](const std::string &path) {
                return watch_alone && path != "/v3/watch" ? "" : text;
            };
            auto client = open_etcd_client({etcd.address});
            REQUIRE(client.ok());
            etcd_registry registry(std::move(*client), "test");
            for (int i = 0; i < 4; ++i) {
                const auto turned = registry.turn(5'000'000);
                const status said = registry.announce("one", "x");
                const auto led = registry.lead();
                const auto put = registry.put_plan(0, 1, "plan");
                if (!watch_alone) CHECK((!put || !*put));
            }
            CHECK(registry.state().members.size() <= 1);
        }
    }
}

TEST_CASE("base64 and numbers by hand") {
    for (const auto &[text, code] : {std::pair{"", ""},
                                     {"f", "Zg=="},
                                     {"fo", "Zm8="},
                                     {"foo", "Zm9v"},
                                     {"foob", "Zm9vYg=="},
                                     {"fooba", "Zm9vYmE="},
                                     {"foobar", "Zm9vYmFy"}}) {  // RFC 4648, section 10
        CHECK(base64(text) == code);
        CHECK(from_base64(code).value() == text);
    }
    for (const char *bad : {"Z", "Zg=", "Zg", "Z===", "Zm9v!m8=", "Zm8=Zm8="})
        CHECK_FALSE(from_base64(bad));
    const auto nested = [](int depth) {
        return format("{{\"a\":{}\"]\"{}}}", std::string(depth, '['), std::string(depth, ']'));
    };
    CHECK(parse_etcd(nested(20)).is_object());
    CHECK(parse_etcd(nested(40)).is_discarded());
    CHECK(behind_prefix("a/") == "a0");
    CHECK(behind_prefix("a\xff") == "b");
}

TEST_CASE("three members of etcd, one of which is killed, one paused") {
    if (etcd_program().empty()) return skip("etcd is not installed (package etcd-server)");
    set_log_level(log_level::error);
    etcd_members etcd;
    behaves(at_endpoints(etcd.endpoints, "moorage/a"));
    one_plan_wins(at_endpoints(etcd.endpoints, "moorage/b"), 3, 60);

    // Both speak to the first; one of them watches it, too.
    const opener open = at_endpoints(etcd.endpoints, "moorage/c");
    const opened first = open(), second = open();
    announce(*first, "one", "x");
    announce(*second, "two", "x");
    REQUIRE(wait_to_lead(*first));
    REQUIRE(first->put_plan(0, 1, "before").value());
    etcd.kill(0);
    uint64_t epoch = 1;
    const auto next = [&](const std::string &text) {
        CHECK(wait_until(*first, [&](const auto &state) {
            if (state.plan == text) return true;
            if (!wait_to_lead(*first)) return false;
            epoch = first->state().epoch + 1;
            const auto done = first->put_plan(epoch - 1, epoch, text);
            return done && *done;
        }));
        CHECK(wait_until(*second, [&](const auto &state) {
            return state.plan == text && state.epoch == epoch;
        }));
    };
    next("with two members");
    etcd.start(0);
    next("with three again");
    etcd.pause(1, true);
    next("one is paused");
    etcd.pause(1, false);
    next("all are there");
    CHECK(wait_until(*second, [](const auto &state) {
        return state.members.size() == 2 && state.leader == "one";
    }));
}

}  // namespace cluster_registry_test
