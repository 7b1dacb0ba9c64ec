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
#include "tools/node/node_setup.h"
#include "tools/node/plan_record.h"
#include "tools/node/registrar.h"
#include "tools/registry/open_registry.h"
#include "core/report/figures.h"
#include "tools/moorage/command.h"
#include "tools/moorage/node_run.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

constexpr uint64_t poll_ns = 200'000'000, first_poll_ns = 10'000'000'000;

// A cluster's file, and its registry as it is now.
class cluster_view {
public:
    status open(const plan_arguments &arguments) {
        auto config = node_config_of({arguments.cluster, "", arguments.settings}, "");
        if (!config) return config.failure();
        config_ = std::move(*config);
        if (!config_.cluster)
            return error{format("{}: no [cluster], so there are no nodes", arguments.cluster),
                         true};
        if (const status done = shared_.scan(config_.plugin_paths); !done) return done;
        auto setup = set_up_node(config_, config_.cluster->servers.front().name, shared_);
        if (!setup) return setup.failure();
        setup_ = std::make_unique<node_setup>(std::move(*setup));
        auto registry = open_registry(config_.registry, /*make=*/false);
        if (!registry) return registry.failure();
        registry_ = std::move(*registry);
        return refresh();
    }
    // Once it has answered.
    status refresh() {
        error last;
        for (const uint64_t end_ns = steady_ns() + first_poll_ns; steady_ns() < end_ns;) {
            const auto turned = registry_->turn(poll_ns);
            if (turned) return read();
            last = turned.failure();
            std::this_thread::sleep_for(std::chrono::nanoseconds(poll_ns));
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
    const plan_record &file_plan() const { return file_plan_; }
    const node_plan &layout() const { return setup_->plan; }
    const registry_state &state() const { return registry_->state(); }
    cluster_registry &registry() { return *registry_; }
    std::string name(uint32_t server) const { return layout().servers[server].name; }
    uint64_t count_held(const plan_record &record, uint32_t server) const {
        return static_cast<uint64_t>(
            std::ranges::count_if(record.holders, [&](const auto &holders) {
                return std::ranges::find(holders, server) != holders.end();
            }));
    }

private:
    status read() {
        file_plan_ = record_of(layout());
        plan_ = file_plan_;
        if (state().epoch == 0) return success();
        auto read = read_plan_record(state().epoch, state().plan, layout());
        if (!read) return read.failure();
        plan_ = std::move(*read);
        return success();
    }

    run_config config_;
    run_resources shared_;
    std::unique_ptr<node_setup> setup_;
    std::unique_ptr<cluster_registry> registry_;
    plan_record plan_, file_plan_;
};

struct server_row {
    std::string name, says;
    uint64_t held = 0, file = 0, coming = 0, leaving = 0, epoch = 0;
    bool is_present = false;
};

std::vector<server_row> rows_of(const cluster_view &view) {
    std::vector<server_row> rows;
    for (uint32_t server = 0; server < view.layout().servers.size(); ++server) {
        server_row &row = rows.emplace_back();
        row.name = view.name(server);
        row.held = view.count_held(view.plan(), server);
        row.file = view.count_held(view.file_plan(), server);
        row.coming = static_cast<uint64_t>(std::ranges::count_if(
            view.plan().coming, [&](const moving_copy &copy) { return copy.target == server; }));
        const auto member = view.state().members.find(row.name);
        if (member == view.state().members.end()) continue;
        row.is_present = true;
        if (const auto record = read_member_record(member->second, view.layout()))
            row.epoch = record->epoch, row.leaving = record->leaving;
    }
    return rows;
}

// Number of copies that only `plan` has.
uint64_t copies_beyond(const plan_record &plan, const plan_record &base) {
    uint64_t count = 0;
    for (size_t page = 0; page < plan.holders.size(); ++page)
        for (const uint32_t server : plan.holders[page])
            count += std::ranges::find(base.holders[page], server) == base.holders[page].end();
    return count;
}

json view_json(const cluster_view &view) {
    json servers = json::array();
    for (const server_row &row : rows_of(view))
        servers.push_back({{"server", row.name},
                           {"there", row.is_present},
                           {"epoch", row.epoch},
                           {"holds", row.held},
                           {"coming", row.coming},
                           {"leaving", row.leaving},
                           {"holds_by_file", row.file}});
    return {{"epoch", view.plan().epoch},
            {"leader", view.state().leader},
            {"servers", servers},
            {"copies_not_in_file", copies_beyond(view.plan(), view.file_plan())},
            {"copies_only_in_file", copies_beyond(view.file_plan(), view.plan())},
            {"holders", view.plan().holders}};
}

std::string new_id() {
    std::random_device chance;
    return format("{:08x}{:08x}", chance(), chance());
}

// Puts `wish` as a note and returns the leader's answer to it.
result<json> ask_leader(cluster_view &view, const std::string &wish, uint64_t within_ns) {
    if (view.state().leader.empty())
        return error{"nobody leads the cluster now; start a node, or wait until one leads"};
    const std::string id = new_id();
    if (const status put =
            view.registry().put_note(wish_note, json_line({{"id", id}, {"what", wish}}));
        !put)
        return put.failure();
    for (const uint64_t end_ns = steady_ns() + within_ns; steady_ns() < end_ns;) {
        if (const status seen = view.refresh(); !seen) return seen.failure();
        const auto answer = view.state().notes.find(answer_note);
        if (answer == view.state().notes.end()) continue;
        const json reply = json_or_discarded(answer->second);
        if (!reply.is_object() || reply.value("id", json()) != id) continue;
        for (const char *key : {"error", "text"})
            if (reply.contains(key) && reply[key].is_string())
                return error{reply[key].get<std::string>()};
        return reply;
    }
    return error{format("{}, which leads, does not answer", view.state().leader)};
}

// Waits until nothing moves and `done` is true. Prints a line a second meanwhile.
status wait_until(cluster_view &view, uint32_t within_s, const std::function<bool()> &done) {
    uint64_t reported_ns = steady_ns();
    for (const uint64_t end_ns = reported_ns + within_s * uint64_t{1'000'000'000};;) {
        if (const status seen = view.refresh(); !seen) return seen;
        if (view.plan().coming.empty() && done()) return success();
        const uint64_t now_ns = steady_ns();
        if (now_ns > end_ns)
            return error{
                format("{} copies are still on their way after {} s; ask again with "
                       "cluster plan",
                       view.plan().coming.size(), within_s)};
        if (now_ns - reported_ns < 1'000'000'000) continue;
        reported_ns = now_ns;
        print(format("epoch {}: {} copies on their way\n", view.plan().epoch,
                     view.plan().coming.size()));
    }
}

double number_at(const json &object, const char *key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// Why the leader could not drain the server. The leader looks at once, and answers a later question
// with the result. Empty: it has said nothing about this server yet.
std::string why_not_drained(const registry_state &state, const std::string &server) {
    const auto note = state.notes.find(answer_note);
    if (note == state.notes.end()) return "";
    const json reply = json_or_discarded(note->second);
    if (!reply.is_object() || reply.value("id", json()) != "") return "";
    const json drained = reply.value("drained", json());
    const bool meant =
        drained.is_array() && std::ranges::find(drained, json(server)) != drained.end();
    if (!meant || !reply.contains("error") || !reply["error"].is_string()) return "";
    return reply["error"].get<std::string>();
}

}  // namespace

int show_plan(const plan_arguments &arguments) {
    cluster_view view;
    if (const status opened = view.open(arguments); !opened) return fail(opened.failure());
    if (!view.state().damaged.empty())  // and told as it was read
        return fail(
            {"there is no plan to show: nodes go on with the one that they have, and whoever "
             "leads writes it there again"});
    if (arguments.json_file != "-") {
        print(format("epoch {} by {}{}; {} experts of {}\n", view.plan().epoch,
                     view.has_registry() ? view.registry().location() : "the file",
                     view.state().leader.empty() ? "" : ", " + view.state().leader + " leads",
                     view.layout().pages(), view.layout().model_name));
        print(format("  {:<12} {:<8} {:>6} {:>7} {:>8} {:>6} {:>8}\n", "server", "state", "holds",
                     "coming", "leaving", "epoch", "by file"));
        for (const server_row &row : rows_of(view))
            print(format("  {:<12} {:<8} {:>6} {:>7} {:>8} {:>6} {:>8}\n", row.name,
                         !view.has_registry() ? "-"
                         : row.is_present     ? "there"
                                              : "away",
                         row.held, row.coming, row.leaving, row.epoch, row.file));
        print(format("against the file's plan: {} copies more, {} fewer\n",
                     copies_beyond(view.plan(), view.file_plan()),
                     copies_beyond(view.file_plan(), view.plan())));
    }
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, view_json(view)); !done)
            return fail(done.failure());
    return exit_ok;
}

int drain_server(const plan_arguments &arguments) {
    cluster_view view;
    if (const status opened = view.open(arguments); !opened) return fail(opened.failure());
    if (const status can = view.needs_registry("drain"); !can) return fail(can.failure());
    const auto server = server_named(view.layout(), arguments.server);
    if (!server) return fail({format("{}: {}", arguments.cluster, server.failure().text), true});
    json drained = json::array();
    bool was_drained = false;
    if (const auto note = view.state().notes.find(drained_note); note != view.state().notes.end())
        if (const json marked = json_or_discarded(note->second); marked.is_array())
            for (const json &name : marked) {
                was_drained |= name == arguments.server;
                if (name.is_string() && name != arguments.server &&
                    drained.size() < view.layout().servers.size())
                    drained.push_back(name);
            }
    if (!arguments.undo) drained.push_back(arguments.server);
    if (arguments.undo && !was_drained) {
        print(format("{} was not drained, so nothing changes\n", arguments.server));
        return exit_ok;
    }
    if (const status put = view.registry().put_note(drained_note, json_line(drained)); !put)
        return fail(put.failure());
    if (arguments.undo) {
        print(format("{} may hold experts again, from the next rebalance on\n", arguments.server));
        return exit_ok;
    }
    std::string trouble;
    const auto has_ended = [&] {
        if (view.count_held(view.plan(), *server) == 0) return true;
        trouble = why_not_drained(view.state(), arguments.server);
        return !trouble.empty();
    };
    if (const status done = wait_until(view, arguments.within_s, has_ended); !done)
        return fail(done.failure());
    if (!trouble.empty())
        return fail(
            {format("{} cannot be drained now: {}; it stays marked, and what it holds goes "
                    "elsewhere once that is possible (cluster drain {} {} --undo: no longer)",
                    arguments.server, trouble, arguments.cluster, arguments.server)});
    print(format("{} holds nothing any more at epoch {}; it can be stopped\n", arguments.server,
                 view.plan().epoch));
    return exit_ok;
}

// The policy's facts about the plan; "" if it states none.
static std::string facts_line(const json &reply) {
    const auto facts = reply.find("facts");
    if (facts == reply.end() || !facts->is_object()) return "";
    std::vector<std::string> texts;
    for (const auto &[name, value] : facts->items())
        if (value.is_number()) texts.push_back(format("{} {:.4g}", name, value.get<double>()));
    return texts.empty() ? "" : "policy: " + shortened(listed(texts, "and"), 72) + "\n";
}

int rebalance_cluster(const plan_arguments &arguments) {
    cluster_view view;
    if (const status opened = view.open(arguments); !opened) return fail(opened.failure());
    if (const status can = view.needs_registry("rebalance"); !can) return fail(can.failure());
    constexpr uint64_t answer_ns = 60'000'000'000;
    const auto reply = ask_leader(view, arguments.dry_run ? "look" : "rebalance", answer_ns);
    if (!reply) return fail(reply.failure());
    print(format("{} copies, {}; calls of other servers: {:.4g} a second now, {:.4g} then\n",
                 number_at(*reply, "added_copies"), human_bytes(number_at(*reply, "added_bytes")),
                 number_at(*reply, "remote_per_s_current"),
                 number_at(*reply, "remote_per_s_candidate")));
    print(facts_line(*reply));
    const bool adopted = reply->value("adopted", json()) == true;
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, *reply); !done)
            return fail(done.failure());
    if (arguments.dry_run || !adopted) {
        print(arguments.dry_run ? "nothing was changed\n"
                                : "the plan in force is the best one known\n");
        return exit_ok;
    }
    const uint64_t old_epoch = view.plan().epoch;
    if (const status done =
            wait_until(view, arguments.within_s, [&] { return view.plan().epoch > old_epoch; });
        !done)
        return fail(done.failure());
    print(format("epoch {} is in force\n", view.plan().epoch));
    return exit_ok;
}

}  // namespace moorage::tool
