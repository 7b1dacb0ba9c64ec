// cluster_registry_test.cpp - goal: nodes can rely on a registry of any kind. Members are there
// while their processes are. One leads. One plan of an epoch wins. Changes are seen. A refused
// write changes nothing. Method: the same cases over a directory, over a gateway of etcd in this
// process that cuts, lies and forgets, and over three real members if etcd is installed.
#include "core/registry/cluster_registry.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/steady_time.h"
#include "core/registry/etcd_registry.h"
#include "core/registry/file_registry.h"
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
    opened one = open(), two = open();
    say(*one, "one", "first");
    say(*two, "two", std::string(1000, 'x') + "\n\"\x01\xff");
    CHECK(comes(*one, [](const auto &of) { return of.members.size() == 2; }));
    CHECK(one->state().members.at("two") == std::string(1000, 'x') + "\n\"\x01\xff");
    CHECK(comes(*two, [](const auto &of) { return of.members.contains("one"); }));

    // One leads. Only its writes are accepted, and only in place of the plan that it has read.
    CHECK_FALSE(one->leads());
    CHECK_FALSE(one->put_plan(0, 1, "early").value());
    CHECK(leads(*one));
    CHECK(comes(*two, [](const auto &of) { return of.leader == "one"; }));
    CHECK_FALSE(two->lead().value());
    CHECK(one->put_plan(0, 1, "the first").value());
    CHECK(one->put_plan(1, 2, "the second").value());
    CHECK_FALSE(one->put_plan(1, 3, "on the first").value());
    CHECK_FALSE(two->put_plan(2, 3, "not the leader's").value());
    CHECK(comes(*two, [](const auto &of) { return of.epoch == 2; }));
    CHECK(two->state().plan == "the second");
    CHECK(one->state().plan == "the second");

    // A member's new text replaces its old one. Anyone may put a note.
    say(*one, "one", "again");
    REQUIRE(two->put_note("wish", "drain three").ok());
    CHECK(comes(*one, [](const auto &of) { return notes(of, "wish", "drain three"); }));
    CHECK(comes(*two, [](const auto &of) {
        return of.members.contains("one") && of.members.at("one") == "again";
    }));
    CHECK_FALSE(two->put_note("../wish", "x").ok());
    CHECK_FALSE(two->put_note("wish", std::string(cluster_registry::text_bytes_max + 1, 'x')).ok());
    CHECK(comes(*two, [](const auto &) { return true; }));

    // A member that ends is gone, with its leadership. The plan stays.
    one.reset();
    CHECK(comes(*two, [](const auto &of) { return of.members.size() == 1 && of.leader.empty(); }));
    CHECK(leads(*two));
    CHECK(two->put_plan(2, 7, "the third").value());
    opened three = open();
    CHECK(comes(*three, [](const auto &of) { return of.epoch == 7 && of.leader == "two"; }));
    CHECK(three->state().plan == "the third");
    two->leave();
    CHECK(comes(*three, [](const auto &of) { return of.members.empty(); }));
    CHECK(three->state().epoch == 7);
}

// Several members lead, end and write in any interleaving. Epochs rise, each is one plan for all
// who see it, and every write that was confirmed took place.
void one_plan_wins(const opener &open, uint64_t seed, int rounds) {
    random_stream draw(seed, 0);
    std::map<uint64_t, std::string> written, seen;
    std::vector<opened> all(3);
    const auto look = [&](size_t at) {
        const registry_state &of = all[at]->state();
        if (of.epoch == 0) return;
        const auto known = seen.emplace(of.epoch, of.plan).first;
        CHECK(known->second == of.plan);
    };
    for (int round = 0; round < rounds; ++round) {
        const size_t at = draw.below(all.size());
        if (!all[at]) {
            all[at] = open();
            say(*all[at], format("node{}", at), "there");
        }
        cluster_registry &of = *all[at];
        const auto turned = of.turn(draw.below(3) * 10'000'000);
        const uint64_t before = of.state().epoch;
        look(at);
        CHECK(of.state().epoch >= before);
        const uint64_t choice = draw.below(10);
        if (choice == 0) {
            all[at].reset();
        } else if (choice < 4) {
            const auto ignored = of.lead();
            (void)ignored;
        } else {
            const std::string text = format("by {} in round {}", at, round);
            const auto done = of.put_plan(before, before + 1, text);
            if (done && *done) {
                CHECK_FALSE(written.contains(before + 1));
                written[before + 1] = text;
            }
        }
        if (all[at]) look(at);
    }
    for (const auto &[epoch, text] : written)
        if (seen.contains(epoch)) CHECK(seen[epoch] == text);
    CHECK(!written.empty());
}

}  // namespace

TEST_CASE("a directory") {
    const toy::folder at;
    behaves(in_directory(at));
    const toy::folder other;
    one_plan_wins(in_directory(other), 1, 300);
}

TEST_CASE("a gateway of etcd") {
    set_log_level(log_level::error);
    etcd_fake etcd;
    behaves(at_endpoints({etcd.address}));
    one_plan_wins(at_endpoints({etcd.address}, "other"), 2, 300);
}

TEST_CASE("a directory: a plan put there by hand, and one that is spoiled") {
    set_log_level(log_level::off);
    const toy::folder at;
    const opened one = in_directory(at)();
    at.write("new", "5\nby hand");
    std::filesystem::rename(at / "new", at / "registry/plan");
    CHECK(comes(*one, [](const auto &of) { return of.epoch == 5; }));
    CHECK(one->state().plan == "by hand");
    for (const char *text :
         {"", "x", "6", "six\nplan", "-6\nplan", "0\nplan", "99999999999999999999\n"}) {
        CAPTURE(text);
        at.write("new", text);
        std::filesystem::rename(at / "new", at / "registry/plan");
        // Told once: a second look finds nothing new.
        const auto changed = one->turn(0), again = one->turn(0);
        REQUIRE(changed.ok());
        CHECK(*changed);
        CHECK_FALSE(*again);
        CHECK(one->state().damaged.find("registry/plan is damaged: ") != std::string::npos);
        CHECK(one->state().epoch == 5);
        CHECK(one->state().plan == "by hand");
    }
    at.write("new", "6\nrepaired");
    std::filesystem::rename(at / "new", at / "registry/plan");
    CHECK(comes(*one, [](const auto &of) { return of.epoch == 6 && of.damaged.empty(); }));
    at.write("new", "5\nby hand");
    std::filesystem::rename(at / "new", at / "registry/plan");
    CHECK(comes(*one, [](const auto &of) { return of.epoch == 5; }));
    at.write("registry/members/.hidden", "x");
    at.write("registry/members/dead", "no process");
    REQUIRE(one->turn(0).ok());
    CHECK(one->state().members.empty());
    const opened first = in_directory(at)(), second = in_directory(at)();
    CHECK(first->announce("one", "").ok());
    const status taken = second->announce("one", "");
    REQUIRE_FALSE(taken.ok());
    CHECK(taken.failure().text.find("takes part already") != std::string::npos);
    std::filesystem::remove_all(at / "registry");
    CHECK_FALSE(one->turn(0).ok());
    CHECK(one->state().plan == "by hand");
}

TEST_CASE("a directory: what is removed while members live comes back with them") {
    set_log_level(log_level::off);
    const toy::folder at;
    const opened first = in_directory(at)(), second = in_directory(at)();
    REQUIRE(first->announce("one", "here").ok());
    REQUIRE(second->announce("two", "there").ok());
    REQUIRE(first->lead().ok());
    REQUIRE(first->leads());
    std::filesystem::remove_all(at / "registry");
    CHECK_FALSE(first->turn(0).ok());
    // Another member makes it anew and sees both again. The old leader no longer leads, until it
    // tries.
    const opened newcomer = in_directory(at)();
    REQUIRE(first->turn(0).ok());
    REQUIRE(second->turn(0).ok());
    CHECK(comes(*newcomer, [](const auto &of) {
        return of.members == std::map<std::string, std::string>{{"one", "here"}, {"two", "there"}};
    }));
    CHECK_FALSE(first->leads());
    REQUIRE(second->lead().ok());
    CHECK(second->leads());
    CHECK_FALSE(*first->lead());
    // A member's file alone.
    std::filesystem::remove(at / "registry/members/one");
    REQUIRE(first->turn(0).ok());
    CHECK(comes(*newcomer, [](const auto &of) { return of.members.contains("one"); }));
    // Its place was taken while it was away.
    std::filesystem::remove_all(at / "registry");
    const opened other = in_directory(at)();
    REQUIRE(other->announce("one", "another").ok());
    const auto lost = first->turn(0);
    REQUIRE_FALSE(lost.ok());
    CHECK(lost.failure().text.find("takes part already") != std::string::npos);
}

TEST_CASE("a directory: members write the plan in force again; who only asks makes nothing") {
    set_log_level(log_level::off);
    const toy::folder at;
    const auto asked = file_registry::open(at.path() / "registry", /*make=*/false);
    REQUIRE_FALSE(asked.ok());
    CHECK(asked.failure().usage);
    CHECK(asked.failure().text.find("registry is not there; ") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(at / "registry"));

    const opened first = in_directory(at)(), second = in_directory(at)();
    REQUIRE(first->announce("one", "here").ok());
    REQUIRE(second->announce("two", "there").ok());
    REQUIRE(*first->lead());
    REQUIRE(*first->put_plan(0, 9, "nine"));
    REQUIRE(second->turn(0).ok());
    REQUIRE(*first->put_plan(9, 10, "ten"));
    // The directory is removed. The members make it again from their knowledge: the highest epoch.
    std::filesystem::remove_all(at / "registry");
    CHECK_FALSE(second->turn(0).ok());
    REQUIRE(second->turn(0).ok());
    const auto there = [&] {
        auto newcomer = file_registry::open(at.path() / "registry", /*make=*/false);
        REQUIRE(newcomer.ok());
        REQUIRE((*newcomer)->turn(0).ok());
        return std::pair((*newcomer)->state().epoch, (*newcomer)->state().plan);
    };
    CHECK(there() == std::pair(uint64_t{9}, std::string("nine")));
    REQUIRE(first->turn(0).ok());
    CHECK(first->state().epoch == 10);
    CHECK(there() == std::pair(uint64_t{10}, std::string("ten")));
    REQUIRE(second->turn(0).ok());
    CHECK(second->state().plan == "ten");
    // The plan's file alone.
    std::filesystem::remove(at / "registry/plan");
    REQUIRE(second->turn(0).ok());
    CHECK(there() == std::pair(uint64_t{10}, std::string("ten")));
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
    const opened one = open(), two = open();
    say(*one, "one", "x");
    REQUIRE(leads(*one));
    REQUIRE(one->put_plan(0, 4, "the plan").value());
    REQUIRE(comes(*two, [](const auto &of) { return of.epoch == 4; }));
    const auto both_see = [&](const char *note) {
        REQUIRE(comes(*one, [&](const auto &) { return two->put_note("wish", note).ok(); }));
        CHECK(comes(*one, [&](const auto &of) { return notes(of, "wish", note); }));
        CHECK(comes(*two, [&](const auto &of) { return notes(of, "wish", note); }));
    };
    both_see("a");
    etcd.drop_watches();
    both_see("b");
    // Changes while nobody watches are compacted away before the next watch begins.
    etcd.drop_watches();
    REQUIRE(two->put_note("wish", "c").ok());
    etcd.compacted = 1000;
    CHECK(comes(*one, [](const auto &of) { return notes(of, "wish", "c"); }));
    etcd.compacted = 0;
    both_see("d");
    // A restart with an empty store. Members still know the plan, and register again.
    etcd.forget();
    CHECK(comes(*one, [&](const auto &) {
        const auto ignored = two->turn(0);
        return two->state().members.contains("one") && one->state().members.contains("one") &&
               two->state().leader.empty();
    }));
    CHECK(one->state().plan == "the plan");
    CHECK(two->state().epoch == 4);
    REQUIRE(leads(*one));
    CHECK(one->put_plan(0, 9, "again").value());
    // Silence ends in errors, within their time, and changes nothing.
    etcd.silent = true;
    bool failed = false;
    for (int tries = 0; tries < 20 && !failed; ++tries) failed = !one->turn(200'000'000);
    CHECK(failed);
    CHECK_FALSE(one->put_plan(9, 10, "into silence").ok());
    CHECK(one->state().plan == "again");
    etcd.silent = false;
    both_see("e");
}

TEST_CASE("a leader that was paused past its lease writes nothing") {
    set_log_level(log_level::error);
    etcd_fake etcd;
    const opener open = at_endpoints({etcd.address});
    const opened old = open(), young = open();
    say(*old, "old", "x");
    REQUIRE(leads(*old));
    REQUIRE(old->put_plan(0, 1, "its").value());
    say(*young, "young", "y");
    // It does nothing for as long as its lease lasts.
    REQUIRE(comes(*young, [](const auto &of) { return of.leader.empty() && of.epoch == 1; }));
    REQUIRE(leads(*young));
    CHECK(old->leads());  // as far as it knows
    CHECK_FALSE(old->put_plan(1, 2, "of the past").value());
    CHECK_FALSE(old->leads());
    CHECK(young->put_plan(1, 2, "of today").value());
    CHECK(comes(*old, [](const auto &of) { return of.epoch == 2 && of.members.contains("old"); }));
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
            etcd.lie = [&](const std::string &path) {
                return watch_alone && path != "/v3/watch" ? "" : text;
            };
            auto client = open_etcd_client({etcd.address});
            REQUIRE(client.ok());
            etcd_registry one(std::move(*client), "test");
            for (int i = 0; i < 4; ++i) {
                const auto turned = one.turn(5'000'000);
                const status said = one.announce("one", "x");
                const auto led = one.lead();
                const auto put = one.put_plan(0, 1, "plan");
                if (!watch_alone) CHECK((!put || !*put));
            }
            CHECK(one.state().members.size() <= 1);
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
    etcd_members all;
    behaves(at_endpoints(all.endpoints, "moorage/a"));
    one_plan_wins(at_endpoints(all.endpoints, "moorage/b"), 3, 60);

    // Both speak to the first; one of them watches it, too.
    const opener open = at_endpoints(all.endpoints, "moorage/c");
    const opened one = open(), two = open();
    say(*one, "one", "x");
    say(*two, "two", "x");
    REQUIRE(leads(*one));
    REQUIRE(one->put_plan(0, 1, "before").value());
    all.kill(0);
    uint64_t epoch = 1;
    const auto next = [&](const std::string &text) {
        CHECK(comes(*one, [&](const auto &of) {
            if (of.plan == text) return true;
            if (!leads(*one)) return false;
            epoch = one->state().epoch + 1;
            const auto done = one->put_plan(epoch - 1, epoch, text);
            return done && *done;
        }));
        CHECK(comes(*two, [&](const auto &of) { return of.plan == text && of.epoch == epoch; }));
    };
    next("with two members");
    all.start(0);
    next("with three again");
    all.pause(1, true);
    next("one is paused");
    all.pause(1, false);
    next("all are there");
    CHECK(comes(*two, [](const auto &of) { return of.members.size() == 2 && of.leader == "one"; }));
}

}  // namespace cluster_registry_test
