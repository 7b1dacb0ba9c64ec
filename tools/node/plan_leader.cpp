// plan_leader.cpp - looks at the registry, decides, writes the next epoch.
#include "tools/node/plan_leader.h"

#include <algorithm>
#include <utility>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "core/host/call.h"

namespace moorage::core {

namespace {

constexpr uint64_t again_ns = 3'000'000'000;  // a plan that is not in force by then is written anew

json object_of(const registry_state &state, const char *note) {
    const auto found = state.notes.find(note);
    return found == state.notes.end() ? json() : json_or_discarded(found->second);
}

std::string text_of(const json &object, const char *key) {
    if (!object.is_object()) return "";
    const auto field = object.find(key);
    return field != object.end() && field->is_string() ? field->get<std::string>().substr(0, 64)
                                                       : "";
}

}  // namespace

plan_leader::plan_leader(scene cluster_scene, std::unique_ptr<placement_stage> policy,
                         const cluster_config &config, const node_plan &plan, leader_desk &desk,
                         plan_board &board, const watch *heartbeats)
    : scene_(std::move(cluster_scene)),
      device_bytes_(scene_.cluster.device_bytes),
      policy_(std::move(policy)),
      config_(config),
      plan_(plan),
      desk_(desk),
      board_(board),
      heartbeats_(heartbeats) {
    // Nodes are called at once and answer each output, whatever the file has the emulator do.
    scene_.cluster.flags &= ~uint32_t{MOORAGE_CALLS_SERIAL};
    scene_.cluster.flags |= MOORAGE_RETURNS_EACH;
}

plan_leader::~plan_leader() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
}

void plan_leader::begin() {
    thread_ = std::thread([this] {
        use_planning_lane();
        while (!stopping_) {
            turned_ns_ = steady_ns();
            step();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
}

void plan_leader::step() {
    const leader_desk::snapshot seen = desk_.look();
    uint32_t leader = no_server;
    for (uint32_t server = 0; server < plan_.servers.size(); ++server)
        if (plan_.servers[server].name == seen.state.leader) leader = server;
    board_.set_leader(leader);
    if (!seen.leads) {
        balance_.reset();
        cluster_.reset();
        known_ = {};
        return;
    }
    if (!take_state(seen)) return;
    take_demand();
    take_wish(seen.state);
    if (repair_) restart();
    if (balance_->next_ns() <= cluster_->now_ns()) {
        take_measured();
        if (const status done = balance_->act(); !done)
            log_warning(format("node: no new plan: {}", done.failure().text));
    }
    balance_->look_again();
    write(seen.state);
}

// False: there is nothing to build on yet.
bool plan_leader::take_state(const leader_desk::snapshot &seen) {
    const registry_state &state = seen.state;
    if (!cluster_) {
        // The plan in force, or where there is none that of this node, as nobody has a later one.
        plan_record first = board_.plan();
        if (state.epoch != 0 && first.epoch != state.epoch) return false;
        if (first.epoch == 0) first = record_of(plan_);
        since_ns_ = steady_ns();
        start(first);
        if (state.epoch == 0) cluster_->propose_again();
    }
    if (proposed_ != 0 && state.epoch == proposed_) {
        cluster_->accept(std::exchange(proposed_, 0));
    } else if (state.epoch != 0 && state.epoch != cluster_->plan().epoch) {
        // Somebody else wrote a plan, by hand perhaps: that one is built on.
        balance_.reset();
        cluster_.reset();
        return false;
    } else if (proposed_ != 0 && steady_ns() - proposed_ns_ > again_ns) {
        proposed_ = 0;
        cluster_->propose_again();
    }
    repair_ |= take_presence(state);
    if (seen.version == known_.version) return true;
    known_.version = seen.version;
    known_.members.clear();
    for (uint32_t server = 0; server < plan_.servers.size(); ++server) {
        const auto found = state.members.find(plan_.servers[server].name);
        if (found == state.members.end()) continue;
        auto record = read_member_record(found->second, plan_);
        if (!record) continue;
        cluster_->arrived(server, record->arrived);
        known_.members.emplace(server, std::move(*record));
    }
    return true;
}

void plan_leader::start(const plan_record &in_force) {
    proposed_ = 0;
    scene_.cluster.device_bytes = device_bytes_;
    cluster_ = std::make_unique<real_cluster>(scene_, in_force);
    plan first;
    first.copies = cluster_->copies();
    // A node brings one copy after the other. It knows the next one before it reports that one is
    // there.
    balance_ = std::make_unique<rebalancer>(scene_, *cluster_, policy_.get(), first, config_,
                                            migration_options{.at_once = 8});
    cluster_->watch(balance_.get());
    known_ = {};
    known_.present.assign(plan_.servers.size(), 1);
    known_.drained.assign(plan_.servers.size(), 0);
    known_.missed_ns.assign(plan_.servers.size(), 0);
    known_.member.assign(plan_.servers.size(), 0);
}

// Whether any server has gone or come. An expired lease is only a hint: a server that answers
// heartbeats is there. A stopped process keeps its file's lock, but sends no heartbeats.
bool plan_leader::take_presence(const registry_state &state) {
    std::vector<uint8_t> present(plan_.servers.size(), 1), drained(plan_.servers.size(), 0);
    const json named = object_of(state, drained_note);
    const bool early = steady_ns() - since_ns_ < away_ns;
    for (uint32_t server = 0; server < plan_.servers.size(); ++server) {
        const std::string &name = plan_.servers[server].name;
        const bool lives = heartbeats_ && heartbeats_->pulse_of(server) == pulse::alive;
        const bool is_member = state.members.contains(name);
        if (named.is_array())
            drained[server] = std::ranges::any_of(named, [&](const json &entry) {
                return entry.is_string() && entry.get_ref<const std::string &>() == name;
            });
        const bool dead = heartbeats_ && heartbeats_->pulse_of(server) == pulse::dead;
        uint64_t &missed_ns = known_.missed_ns[server];
        const bool was_member = std::exchange(known_.member[server], is_member ? 1 : 0) != 0;
        const bool came = is_member && !was_member;
        if (!dead) missed_ns = 0;
        if (dead && (missed_ns == 0 || came)) missed_ns = steady_ns();
        const bool silent = dead && steady_ns() - missed_ns > silent_ns;
        if (!early && !lives && (!is_member || silent)) present[server] = 0;
    }
    if (present == known_.present && drained == known_.drained) return false;
    for (uint32_t server = 0; server < plan_.servers.size(); ++server)
        if (present[server] != known_.present[server])
            log_warning(format("node: {} {}", plan_.servers[server].name,
                               present[server] ? "has come back"
                                               : "is away: what it holds is "
                                                 "brought elsewhere"));
    known_.present = std::move(present);
    known_.drained = std::move(drained);
    return true;
}

// The set of servers has changed. Gives up what is under way, and makes a plan for the servers that
// are there.
void plan_leader::restart() {
    repair_ = false;
    cluster_->give_up();
    balance_->restart(cluster_->copies());
    cluster_->set_present(known_.present);
    bool some_away = false, needed = false;
    for (uint32_t device = 0; device < scene_.cluster.devices(); ++device) {
        const uint32_t server = scene_.cluster.device_server[device];
        const bool is_away = !known_.present[server] || known_.drained[server];
        scene_.cluster.device_bytes[device] = is_away ? 0 : device_bytes_[device];
        some_away |= is_away;
        for (const auto &holders : cluster_->plan().holders)
            needed |= is_away && std::ranges::find(holders, server) != holders.end();
    }
    if (some_away && needed) decide(rebalancer::decision_mode::adopt, "");
}

// Takes what nodes measured, in place of the configured links and devices.
void plan_leader::take_measured() {
    cluster_arrays &cluster = scene_.cluster;
    call_figures calls;
    for (const auto &[server, record] : known_.members) {
        uint64_t trips_ns = 0, trips = 0;
        for (uint32_t target = 0; target < cluster.servers; ++target) {
            if (target == server || record.round_trip_ns[target] == 0) continue;
            cluster.link_s[size_t{server} * cluster.servers + target] =
                static_cast<double>(record.round_trip_ns[target]) / 2e9;
            trips_ns += record.round_trip_ns[target];
            ++trips;
        }
        for (uint32_t device = 0; device < cluster.devices(); ++device) {
            if (cluster.device_server[device] != server) continue;
            if (record.bytes_per_s != 0)
                cluster.device_load_bytes_per_s[device] = static_cast<double>(record.bytes_per_s);
            if (record.pair_ns != 0)
                cluster.device_call_s[device] = cluster.device_token_s[device] =
                    static_cast<double>(record.pair_ns) / 1e9;
        }
        if (record.pair_ns == 0) continue;
        calls += {1, record.pair_ns + (trips == 0 ? 0 : trips_ns / trips), 1};
    }
    cluster_->set_calls(calls);
}

void plan_leader::take_demand() {
    for (const auto &[server, pages] : board_.take_demand())
        for (uint32_t page = 0; page < pages.size() && page < scene_.demand.experts(); ++page)
            if (pages[page] != 0 && server < scene_.demand.homes)
                balance_->activated(server, page, static_cast<uint32_t>(pages[page]));
}

void plan_leader::take_wish(const registry_state &state) {
    const json wish = object_of(state, wish_note);
    const std::string id = text_of(wish, "id"), action = text_of(wish, "what");
    if (id.empty() || id == wish_) return;
    const bool first = wish_.empty();
    wish_ = id;
    // The answer belongs to an earlier leader. The requester asks again.
    if (first && text_of(object_of(state, answer_note), "id") == id) return;
    if (balance_->moving())
        return desk_.answer(json_line(
            {{"id", id}, {"text", "a migration is under way; ask again when it has ended"}}));
    decide(
        action == "rebalance" ? rebalancer::decision_mode::adopt : rebalancer::decision_mode::say,
        id);
}

void plan_leader::decide(rebalancer::decision_mode mode, const std::string &id) {
    take_measured();
    const status done = policy_ ? balance_->decide(mode)
                                : status(error{"no [placement] policy makes plans; name one"});
    json answer = {{"id", id}, {"drained", json::array()}};
    for (uint32_t server = 0; server < plan_.servers.size(); ++server)
        if (known_.drained[server]) answer["drained"].push_back(plan_.servers[server].name);
    if (!done) {
        log_warning(format("node: no new plan: {}", done.failure().text));
        answer["error"] = done.failure().text;
    } else {
        const cluster_report::migration &migration = balance_->decisions().back();
        answer["adopted"] = migration.adopted;
        answer["added_copies"] = migration.added_copies;
        answer["added_bytes"] = migration.added_bytes;
        answer["remote_per_s_current"] = migration.remote_per_s_current;
        answer["remote_per_s_candidate"] = migration.remote_per_s_candidate;
        for (const fact &fact : balance_->facts()) answer["facts"][fact.name] = fact.value;
    }
    desk_.answer(json_line(answer));
}

void plan_leader::write(const registry_state &state) {
    if (proposed_ != 0) return;
    auto next = cluster_->take_next();
    if (!next) return;
    // The first plan of all is written as it is.
    if (state.epoch == 0) next->epoch = std::max<uint64_t>(cluster_->plan().epoch, 1);
    uint64_t latest = next->epoch;
    // Above every epoch that members use. An epoch that nobody can have reached by itself is not
    // believed.
    const uint64_t believed =
        std::min(next->epoch + cluster_registry::epoch_step_max, cluster_registry::epoch_max - 1);
    for (const auto &[server, record] : known_.members)
        if (record.epoch > 1 && record.epoch >= latest && record.epoch <= believed)
            latest = record.epoch + 1;
    next->epoch = latest;
    proposed_ = next->epoch;
    proposed_ns_ = steady_ns();
    desk_.propose({state.epoch, std::move(*next)});
}

}  // namespace moorage::core
