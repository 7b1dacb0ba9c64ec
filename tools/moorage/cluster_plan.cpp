// cluster_plan.cpp - reads the registry, and asks the leader.
#include "tools/moorage/cluster_plan.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "core/base/json.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "core/node/node_setup.h"
#include "core/node/plan_record.h"
#include "core/node/registrar.h"
#include "core/registry/open_registry.h"
#include "core/report/figures.h"
#include "tools/moorage/command.h"
#include "tools/moorage/node_run.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

constexpr uint64_t look_ns = 200'000'000, first_ns = 10'000'000'000;

// A cluster's file, and its registry as it is now.
class cluster_view {
public:
    status open(const plan_arguments &given) {
        auto config = node_config_of({given.cluster, "", given.settings}, "");
        if (!config) return config.failure();
        config_ = std::move(*config);
        if (!config_.cluster)
            return error{format("{}: no [cluster], so there are no nodes", given.cluster), true};
        if (const status done = shared_.scan(config_.plugin_paths); !done) return done;
        auto setup = set_up_node(config_, config_.cluster->servers.front().name, shared_);
        if (!setup) return setup.failure();
        setup_ = std::make_unique<node_setup>(std::move(*setup));
        auto at = open_registry(config_.registry, /*make=*/false);
        if (!at) return at.failure();
        registry_ = std::move(*at);
        return look();
    }
    // Once it has answered.
    status look() {
        error last;
        for (const uint64_t end_ns = steady_ns() + first_ns; steady_ns() < end_ns;) {
            const auto turned = registry_->turn(look_ns);
            if (turned) return read();
            last = turned.failure();
            std::this_thread::sleep_for(std::chrono::nanoseconds(look_ns));
        }
        return last;
    }
    bool has_registry() const { return !config_.registry.place.empty(); }
    status needs_registry(const std::string &command) const {
        if (has_registry()) return success();
        return error{format("{}: cluster {} changes the plan, and without a registry the file is "
                            "the plan; give [registry] directory (one machine) or endpoints (of "
                            "etcd)",
                            config_.file.string(), command),
                     true};
    }
    // The plan in force, or the file's plan if nobody has written one.
    const plan_record &plan() const { return plan_; }
    const plan_record &first() const { return first_; }
    const node_plan &of() const { return setup_->plan; }
    const registry_state &state() const { return registry_->state(); }
    cluster_registry &at() { return *registry_; }
    std::string name(uint32_t server) const { return of().servers[server].name; }
    uint64_t held(const plan_record &by, uint32_t server) const {
        return static_cast<uint64_t>(std::ranges::count_if(by.holders, [&](const auto &all) {
            return std::ranges::find(all, server) != all.end();
        }));
    }

private:
    status read() {
        first_ = record_of(of());
        plan_ = first_;
        if (state().epoch == 0) return success();
        auto read = read_plan_record(state().epoch, state().plan, of());
        if (!read) return read.failure();
        plan_ = std::move(*read);
        return success();
    }

    run_config config_;
    run_resources shared_;
    std::unique_ptr<node_setup> setup_;
    std::unique_ptr<cluster_registry> registry_;
    plan_record plan_, first_;
};

struct server_row {
    std::string name, says;
    uint64_t held = 0, file = 0, coming = 0, leaving = 0, epoch = 0;
    bool there = false;
};

std::vector<server_row> rows_of(const cluster_view &from) {
    std::vector<server_row> rows;
    for (uint32_t server = 0; server < from.of().servers.size(); ++server) {
        server_row &row = rows.emplace_back();
        row.name = from.name(server);
        row.held = from.held(from.plan(), server);
        row.file = from.held(from.first(), server);
        row.coming = static_cast<uint64_t>(std::ranges::count_if(
            from.plan().coming, [&](const moving_copy &one) { return one.to == server; }));
        const auto at = from.state().members.find(row.name);
        if (at == from.state().members.end()) continue;
        row.there = true;
        if (const auto said = read_member_record(at->second, from.of()))
            row.epoch = said->epoch, row.leaving = said->leaving;
    }
    return rows;
}

// Number of copies that only `one` has.
uint64_t copies_beyond(const plan_record &one, const plan_record &other) {
    uint64_t count = 0;
    for (size_t page = 0; page < one.holders.size(); ++page)
        for (const uint32_t server : one.holders[page])
            count += std::ranges::find(other.holders[page], server) == other.holders[page].end();
    return count;
}

json view_json(const cluster_view &from) {
    json servers = json::array();
    for (const server_row &row : rows_of(from))
        servers.push_back({{"server", row.name},
                           {"there", row.there},
                           {"epoch", row.epoch},
                           {"holds", row.held},
                           {"coming", row.coming},
                           {"leaving", row.leaving},
                           {"holds_by_file", row.file}});
    return {{"epoch", from.plan().epoch},
            {"leader", from.state().leader},
            {"servers", servers},
            {"copies_not_in_file", copies_beyond(from.plan(), from.first())},
            {"copies_only_in_file", copies_beyond(from.first(), from.plan())},
            {"holders", from.plan().holders}};
}

std::string new_id() {
    std::random_device chance;
    return format("{:08x}{:08x}", chance(), chance());
}

// Puts the wish `what` and returns the leader's answer to it.
result<json> ask(cluster_view &of, const std::string &what, uint64_t within_ns) {
    if (of.state().leader.empty())
        return error{"nobody leads the cluster now; start a node, or wait until one leads"};
    const std::string id = new_id();
    if (const status put = of.at().put_note(wish_note, json_line({{"id", id}, {"what", what}}));
        !put)
        return put.failure();
    for (const uint64_t end_ns = steady_ns() + within_ns; steady_ns() < end_ns;) {
        if (const status seen = of.look(); !seen) return seen.failure();
        const auto at = of.state().notes.find(answer_note);
        if (at == of.state().notes.end()) continue;
        const json said = json_or_discarded(at->second);
        if (!said.is_object() || said.value("id", json()) != id) continue;
        for (const char *key : {"error", "text"})
            if (said.contains(key) && said[key].is_string())
                return error{said[key].get<std::string>()};
        return said;
    }
    return error{format("{}, which leads, does not answer", of.state().leader)};
}

// Waits until nothing moves and `done` is true. Prints a line a second meanwhile.
status wait_until(cluster_view &of, uint32_t within_s, const std::function<bool()> &done) {
    uint64_t told_ns = steady_ns();
    for (const uint64_t end_ns = told_ns + within_s * uint64_t{1'000'000'000};;) {
        if (const status seen = of.look(); !seen) return seen;
        if (of.plan().coming.empty() && done()) return success();
        const uint64_t now_ns = steady_ns();
        if (now_ns > end_ns)
            return error{
                format("{} copies are still on their way after {} s; ask again with "
                       "cluster plan",
                       of.plan().coming.size(), within_s)};
        if (now_ns - told_ns < 1'000'000'000) continue;
        told_ns = now_ns;
        print(
            format("epoch {}: {} copies on their way\n", of.plan().epoch, of.plan().coming.size()));
    }
}

double number_at(const json &of, const char *key) {
    const auto at = of.find(key);
    return at != of.end() && at->is_number() ? at->get<double>() : 0;
}

// Why the leader could not drain the server. The leader looks at once, and answers a later question
// with the result. Empty: it has said nothing about this server yet.
std::string why_not_drained(const registry_state &state, const std::string &server) {
    const auto note = state.notes.find(answer_note);
    if (note == state.notes.end()) return "";
    const json said = json_or_discarded(note->second);
    if (!said.is_object() || said.value("id", json()) != "") return "";
    const json drained = said.value("drained", json());
    const bool meant =
        drained.is_array() && std::ranges::find(drained, json(server)) != drained.end();
    if (!meant || !said.contains("error") || !said["error"].is_string()) return "";
    return said["error"].get<std::string>();
}

}  // namespace

int show_plan(const plan_arguments &given) {
    cluster_view all;
    if (const status opened = all.open(given); !opened) return fail(opened.failure());
    if (!all.state().damaged.empty())  // and told as it was read
        return fail(
            {"there is no plan to show: nodes go on with the one that they have, and whoever "
             "leads writes it there again"});
    if (given.json_file != "-") {
        print(format("epoch {} by {}{}; {} experts of {}\n", all.plan().epoch,
                     all.has_registry() ? all.at().where() : "the file",
                     all.state().leader.empty() ? "" : ", " + all.state().leader + " leads",
                     all.of().pages(), all.of().model_name));
        print(format("  {:<12} {:<8} {:>6} {:>7} {:>8} {:>6} {:>8}\n", "server", "state", "holds",
                     "coming", "leaving", "epoch", "by file"));
        for (const server_row &row : rows_of(all))
            print(format("  {:<12} {:<8} {:>6} {:>7} {:>8} {:>6} {:>8}\n", row.name,
                         !all.has_registry() ? "-"
                         : row.there         ? "there"
                                             : "away",
                         row.held, row.coming, row.leaving, row.epoch, row.file));
        print(format("against the file's plan: {} copies more, {} fewer\n",
                     copies_beyond(all.plan(), all.first()),
                     copies_beyond(all.first(), all.plan())));
    }
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, view_json(all)); !done)
            return fail(done.failure());
    return exit_ok;
}

int drain_server(const plan_arguments &given) {
    cluster_view all;
    if (const status opened = all.open(given); !opened) return fail(opened.failure());
    if (const status can = all.needs_registry("drain"); !can) return fail(can.failure());
    const auto server = server_named(all.of(), given.server);
    if (!server) return fail({format("{}: {}", given.cluster, server.failure().text), true});
    json drained = json::array();
    bool was_drained = false;
    if (const auto note = all.state().notes.find(drained_note); note != all.state().notes.end())
        if (const json said = json_or_discarded(note->second); said.is_array())
            for (const json &one : said) {
                was_drained |= one == given.server;
                if (one.is_string() && one != given.server &&
                    drained.size() < all.of().servers.size())
                    drained.push_back(one);
            }
    if (!given.undo) drained.push_back(given.server);
    if (given.undo && !was_drained) {
        print(format("{} was not drained, so nothing changes\n", given.server));
        return exit_ok;
    }
    if (const status put = all.at().put_note(drained_note, json_line(drained)); !put)
        return fail(put.failure());
    if (given.undo) {
        print(format("{} may hold experts again, from the next rebalance on\n", given.server));
        return exit_ok;
    }
    std::string trouble;
    const auto empty = [&] {
        if (all.held(all.plan(), *server) == 0) return true;
        trouble = why_not_drained(all.state(), given.server);
        return !trouble.empty();
    };
    if (const status done = wait_until(all, given.within_s, empty); !done)
        return fail(done.failure());
    if (!trouble.empty())
        return fail(
            {format("{} cannot be drained now: {}; it stays marked, and what it holds goes "
                    "elsewhere once that is possible (cluster drain {} {} --undo: no longer)",
                    given.server, trouble, given.cluster, given.server)});
    print(format("{} holds nothing any more at epoch {}; it can be stopped\n", given.server,
                 all.plan().epoch));
    return exit_ok;
}

// The policy's facts about the plan; "" if it states none.
static std::string facts_line(const json &said) {
    const auto facts = said.find("facts");
    if (facts == said.end() || !facts->is_object()) return "";
    std::vector<std::string> all;
    for (const auto &[name, value] : facts->items())
        if (value.is_number()) all.push_back(format("{} {:.4g}", name, value.get<double>()));
    return all.empty() ? "" : "policy: " + shortened(listed(all, "and"), 72) + "\n";
}

int rebalance_cluster(const plan_arguments &given) {
    cluster_view all;
    if (const status opened = all.open(given); !opened) return fail(opened.failure());
    if (const status can = all.needs_registry("rebalance"); !can) return fail(can.failure());
    constexpr uint64_t answer_ns = 60'000'000'000;
    const auto said = ask(all, given.dry_run ? "look" : "rebalance", answer_ns);
    if (!said) return fail(said.failure());
    print(format("{} copies, {}; calls of other servers: {:.4g} a second now, {:.4g} then\n",
                 number_at(*said, "added_copies"), human_bytes(number_at(*said, "added_bytes")),
                 number_at(*said, "remote_per_s_current"),
                 number_at(*said, "remote_per_s_candidate")));
    print(facts_line(*said));
    const bool adopted = said->value("adopted", json()) == true;
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, *said); !done)
            return fail(done.failure());
    if (given.dry_run || !adopted) {
        print(given.dry_run ? "nothing was changed\n"
                            : "the plan in force is the best one known\n");
        return exit_ok;
    }
    const uint64_t before = all.plan().epoch;
    if (const status done =
            wait_until(all, given.within_s, [&] { return all.plan().epoch > before; });
        !done)
        return fail(done.failure());
    print(format("epoch {} is in force\n", all.plan().epoch));
    return exit_ok;
}

}  // namespace moorage::tool
