// registry_heals_test.cpp - goal: with any text of a stranger or an operator in a registry, nodes
// go on with the plan in force, and the registry gets it back. Method: nonsense in place of the
// plan, the leader and the locks, over a directory and over a gateway of etcd in this process.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "core/base/log.h"
#include "core/base/text.h"
#include "tools/registry/etcd_client.h"
#include "tests/unit/any_registry.h"
#include "tests/unit/etcd_fake.h"

namespace registry_heals_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

// Judges as nodes do: a text is a plan, one of another cluster, or neither.
plan_opinion judged_by_name(uint64_t, const std::string &text) {
    if (text.starts_with("plan")) return {};
    if (text.starts_with("other"))
        return {plan_opinion::worth::of_other_cluster, "it is of another"};
    return {plan_opinion::worth::nonsense, "it is no plan"};
}

opener with_judgement(const opener &open) {
    return [open] {
        opened registry = open();
        registry->set_plan_judge(judged_by_name);
        return registry;
    };
}

// In place of epoch 3 with "plan three": nothing of them may count.
std::vector<std::string> no_plans() {
    const uint64_t far = 3 + cluster_registry::epoch_step_max + 1;
    return {"",
            "x",
            "4",
            "0\nplan none",
            "18446744073709551615\nplan at the end",
            "18446744073709551616\nplan beyond",
            format("{}\nplan above the last", cluster_registry::epoch_max + 1),
            format("{}\nplan too far", far),
            "4\nnonsense",
            "5\n{\"format\":",
            std::string("4\n\0\xff", 4),
            "3\nplan of the same epoch",
            "2\nplan of the past"};
}

std::string text_of(const std::filesystem::path &file) {
    std::ifstream input(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(input), {}};
}

// Acts like an operator or a stranger with etcdctl.
json tell_etcd(const etcd_fake &etcd, const std::string &path, const std::string &key,
               const std::string &value = "") {
    const auto client = open_etcd_client({etcd.address});
    REQUIRE(client.ok());
    json body = {{"key", base64("test/" + key)}};
    if (path.ends_with("put")) body["value"] = base64(value);
    auto said = (*client)->post(path, body);
    REQUIRE(said.ok());
    return *said;
}

std::string value_of(const etcd_fake &etcd, const std::string &key) {
    const auto client = open_etcd_client({etcd.address});
    REQUIRE(client.ok());
    const std::string whole = "test/" + key;
    const auto said = (*client)->post(
        "/v3/kv/range", {{"key", base64(whole)}, {"range_end", base64(whole + std::string(1, 0))}});
    REQUIRE(said.ok());
    const json &pairs = etcd_part(*said, "kvs");
    if (!pairs.is_array() || pairs.empty()) return "nothing";
    return etcd_pair_of(pairs[0])->value;
}

}  // namespace

TEST_CASE("a directory: what is no plan counts for nobody, and the leader writes over it") {
    set_log_level(log_level::off);
    const toy::folder directory;
    const opener open = with_judgement(directory_opener(directory));
    const opened first = open(), second = open();
    REQUIRE(first->announce("one", "here").ok());
    REQUIRE(second->announce("two", "there").ok());
    // Before any plan is known, too.
    directory.write("registry/plan", "18446744073709551615\nplan at the end");
    REQUIRE(first->turn(0).ok());
    CHECK(first->state().epoch == 0);
    REQUIRE(*first->lead());
    REQUIRE(*first->put_plan(0, 3, "plan three"));
    const auto in_force = [](const opened &registry) {
        return registry->state().epoch == 3 && registry->state().plan == "plan three";
    };
    REQUIRE(second->turn(0).ok());
    REQUIRE(in_force(second));
    const std::string good = "3\nplan three";
    const auto stored_plan = [&] { return text_of(directory / "registry/plan"); };
    for (const std::string &text : no_plans()) {
        CAPTURE(text);
        for (const bool removed : {false, true}) {
            directory.write("registry/plan", text);
            REQUIRE(second->turn(0).ok());
            CHECK(in_force(second));
            // An operator may remove the file. The plan in force comes back.
            if (removed) {
                std::filesystem::remove(directory / "registry/plan");
                REQUIRE(second->turn(0).ok());
            }
            REQUIRE(first->turn(0).ok());
            CHECK(in_force(first));
            CHECK(stored_plan() == good);
            REQUIRE(second->turn(0).ok());
            CHECK(second->state().damaged.empty());
            const opened newcomer = open();
            REQUIRE(newcomer->turn(0).ok());
            CHECK(in_force(newcomer));
        }
    }
    // A plan of another cluster is left alone. It blocks only its writer.
    directory.write("registry/plan", "7\nother plan");
    REQUIRE(first->turn(0).ok());
    CHECK(in_force(first));
    CHECK(stored_plan() == "7\nother plan");
    const auto refused = first->put_plan(3, 4, "plan four");
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().text.find("it is of another") != std::string::npos);
    std::filesystem::remove(directory / "registry/plan");
    // A plan by hand that is one counts.
    const uint64_t near = 3 + cluster_registry::epoch_step_max;
    directory.write("registry/plan", format("{}\nplan by hand", near));
    REQUIRE(first->turn(0).ok());
    CHECK(first->state().epoch == near);
    CHECK_FALSE(first->put_plan(near, cluster_registry::epoch_max + 1, "plan").ok());
}

TEST_CASE("a directory: pipes, links, folders and the locks of strangers stop nobody") {
    set_log_level(log_level::off);
    const toy::folder directory;
    const opener open = with_judgement(directory_opener(directory));
    const opened first = open(), second = open();
    REQUIRE(first->announce("one", "here").ok());
    REQUIRE(second->announce("two", "there").ok());
    REQUIRE(*first->lead());
    REQUIRE(*first->put_plan(0, 3, "plan three"));
    REQUIRE(second->turn(0).ok());
    REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
    const std::vector<std::function<void(const std::string &)>> odd = {
        [&](const std::string &place) { REQUIRE(::mkfifo(place.c_str(), 0600) == 0); },
        [&](const std::string &place) {
            std::filesystem::create_symlink(directory / "pipe", place);
        },
        [&](const std::string &place) { std::filesystem::create_symlink("/dev/zero", place); },
        [&](const std::string &place) { std::filesystem::create_symlink(place, place); },
        [&](const std::string &place) { std::filesystem::create_directory(place); }};
    for (size_t kind = 0; kind < odd.size(); ++kind)
        for (const char *name : {"plan", "leader", "members/one", "members/ghost", "notes/wish"}) {
            CAPTURE(kind);
            CAPTURE(name);
            const std::string place = (directory / ("registry/" + std::string(name))).string();
            std::filesystem::remove(place);
            odd[kind](place);
            REQUIRE(second->turn(0).ok());
            CHECK(second->state().epoch == 3);
            REQUIRE(first->turn(0).ok());
            REQUIRE(first->put_note("wish", "x").ok());
            REQUIRE(second->turn(0).ok());
            CHECK(has_note(second->state(), "wish", "x"));
            CHECK(second->state().leader == "one");
            CHECK(second->state().members.contains("one"));
            CHECK(text_of(directory / "registry/plan") == "3\nplan three");
        }
    const auto lock = [&](const char *name) {
        const int file = ::open((directory / (std::string("registry/") + name)).c_str(),
                                O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        REQUIRE(::flock(file, LOCK_EX | LOCK_NB) == 0);
        return file;
    };
    int stranger = lock("writing");
    const auto blocked = first->put_plan(3, 4, "plan four");
    REQUIRE_FALSE(blocked.ok());
    CHECK(blocked.failure().text.find("locked by another process") != std::string::npos);
    CHECK(first->turn(0).ok());
    ::close(stranger);
    CHECK(*first->put_plan(3, 4, "plan four"));
    // The leader's lock, without the name of a member.
    first->leave();
    stranger = lock("leader.alive");
    std::string said;
    for (const uint64_t end_ns = steady_ns() + 30'000'000'000;
         said.empty() && steady_ns() < end_ns;) {
        REQUIRE(second->turn(20'000'000).ok());
        const auto led = second->lead();
        if (!led) said = led.failure().text;
    }
    CHECK(said.find("leader.alive is locked by a process that takes no part") != std::string::npos);
    ::close(stranger);
    CHECK(*second->lead());
}

TEST_CASE("a gateway: what is no plan counts for nobody, and the leader writes over it") {
    set_log_level(log_level::off);
    etcd_fake etcd;
    const opener open = with_judgement(at_endpoints({etcd.address}));
    const opened first = open(), second = open();
    announce(*first, "one", "here");
    announce(*second, "two", "there");
    tell_etcd(etcd, "/v3/kv/put", "plan", "18446744073709551615\nplan at the end");
    REQUIRE(wait_to_lead(*first));
    CHECK(first->state().epoch == 0);
    REQUIRE(*first->put_plan(0, 3, "plan three"));
    const auto in_force = [](const registry_state &state) {
        return state.epoch == 3 && state.plan == "plan three" && state.damaged.empty();
    };
    const std::string good = "3\nplan three";
    CHECK(wait_until(*second, in_force));
    for (const std::string &text : no_plans()) {
        CAPTURE(text);
        tell_etcd(etcd, "/v3/kv/put", "plan", text);
        CHECK(wait_until(*second, [](const auto &state) { return !state.damaged.empty(); }));
        CHECK(second->state().epoch == 3);
        CHECK(wait_until(*first, [&](const auto &) { return value_of(etcd, "plan") == good; }));
        CHECK(wait_until(*second, in_force));
    }
    // Removed, or forgotten with everything else: the leader brings it back.
    tell_etcd(etcd, "/v3/kv/deleterange", "plan");
    CHECK(wait_until(*first, [&](const auto &) { return value_of(etcd, "plan") == good; }));
    etcd.forget();
    CHECK(wait_until(*first, [&](const auto &) {
        const auto ignored = second->turn(0);
        const auto led = first->lead();
        return led && *led && value_of(etcd, "plan") == good;
    }));
    // The plan of another cluster stays.
    tell_etcd(etcd, "/v3/kv/put", "plan", "7\nother plan");
    CHECK(wait_until(*first, [](const auto &state) { return !state.damaged.empty(); }));
    CHECK(first->turn(0).ok());
    CHECK(value_of(etcd, "plan") == "7\nother plan");
    CHECK_FALSE(first->put_plan(3, 4, "plan four").ok());
    tell_etcd(etcd, "/v3/kv/put", "plan", "4\nplan four");
    CHECK(wait_until(*second, [](const auto &state) { return state.epoch == 4; }));
}

TEST_CASE("a gateway: a leader that somebody wrote leads nobody, and is taken over") {
    set_log_level(log_level::off);
    etcd_fake etcd;
    const opener open = with_judgement(at_endpoints({etcd.address}));
    const opened first = open(), second = open();
    announce(*first, "one", "here");
    announce(*second, "two", "there");
    REQUIRE(wait_to_lead(*first));
    REQUIRE(*first->put_plan(0, 3, "plan three"));
    for (const char *name : {"two", "!!"}) {
        CAPTURE(name);
        tell_etcd(etcd, "/v3/kv/put", "leader", name);
        // It has not heard of it, and yet nothing that it decides is written.
        CHECK(first->leads());
        const uint64_t epoch = first->state().epoch;
        CHECK_FALSE(*first->put_plan(epoch, epoch + 1, "plan of two leaders"));
        CHECK(value_of(etcd, "plan") == format("{}\n{}", epoch, first->state().plan));
        CHECK_FALSE(first->leads());
        CHECK(wait_until(*second, [&](const auto &) {
            const auto turned = first->turn(0);
            const auto led = first->lead();
            return led && *led;
        }));
        CHECK(wait_until(*second, [](const auto &state) { return state.leader == "one"; }));
        CHECK(*first->put_plan(epoch, epoch + 1, "plan of one leader"));
    }
}

}  // namespace registry_heals_test
