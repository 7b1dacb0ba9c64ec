// etcd_registry.cpp - leases, transactions, and a watch that is resumed.
#include "tools/registry/etcd_registry.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// The gateway has 64-bit integers as texts.
std::string decimal(uint64_t number) { return std::to_string(number); }

constexpr const char *members = "members/", *notes = "notes/";

}  // namespace

etcd_registry::etcd_registry(std::unique_ptr<etcd_client> etcd, const std::string &prefix)
    : prefix_(prefix + "/"), etcd_(std::move(etcd)) {}

etcd_registry::~etcd_registry() { leave(); }

std::string etcd_registry::location() const { return "etcd at " + etcd_->endpoint(); }

json etcd_registry::put_request(const std::string &key, const std::string &value,
                                bool leased) const {
    json request = {{"key", base64(prefix_ + key)}, {"value", base64(value)}};
    if (leased) request["lease"] = decimal(lease_);
    return request;
}

// A compare: the key is as it was read. A missing key has revision 0.
json etcd_registry::unchanged(const std::string &key, const etcd_pair &read) const {
    return {{"key", base64(prefix_ + key)},
            {"target", "MOD"},
            {"result", "EQUAL"},
            {"mod_revision", decimal(read.mod_revision)}};
}

// Losing the lease means losing the membership and the leadership.
void etcd_registry::lost_lease() {
    lease_ = 0;
    is_announced_ = false;
    known_ = false;  // if etcd forgot the lease, it may have forgotten more
}

status etcd_registry::keep_lease() {
    if (name_.empty()) return success();
    const uint64_t now_ns = steady_ns();
    if (lease_ != 0 && now_ns - kept_ns_ >= keep_ns) {
        const auto answer = etcd_->post("/v3/lease/keepalive", {{"ID", decimal(lease_)}});
        if (!answer) return answer.failure();
        kept_ns_ = now_ns;
        // An unknown lease is answered without its time.
        if (etcd_number(etcd_part(*answer, "result"), "TTL") == 0) {
            log_warning(format("registry: {} has forgotten {}, which says itself again", location(),
                               name_));
            lost_lease();
        }
    }
    if (lease_ == 0) {
        const auto answer = etcd_->post("/v3/lease/grant", {{"TTL", decimal(lease_s)}});
        if (!answer) return answer.failure();
        lease_ = etcd_number(*answer, "ID");
        if (lease_ == 0) return error{location() + ": grants a lease without a number"};
        kept_ns_ = now_ns;
    }
    return is_announced_ ? success() : write_member();
}

status etcd_registry::write_member() {
    const auto done = etcd_->post("/v3/kv/put", put_request(members + name_, text_, true));
    if (!done) {
        if (done.failure().text.find("lease not found") != std::string::npos) lost_lease();
        return done.failure();
    }
    is_announced_ = true;
    return success();
}

status etcd_registry::announce(const std::string &name, const std::string &text) {
    if (!is_registry_name(name))
        return error{format("registry: {} is no name of a member", name), true};
    if (const status fits = check_registry_text("what a member says", text); !fits) return fits;
    if (name != name_) {
        leave();
        if (state_.members.contains(name))
            log_warning(
                format("registry: {}: {} is there already; one that has ended is forgotten in {} "
                       "s, a second node of a name is not one",
                       location(), name, lease_s));
    }
    name_ = name;
    text_ = text;
    is_announced_ = false;
    return keep_lease();
}

void etcd_registry::leave() {
    // Do not wait for a registry that cannot be reached.
    if (lease_ != 0 && answers_) {
        const auto ignored = etcd_->post("/v3/lease/revoke", {{"ID", decimal(lease_)}});
        (void)ignored;  // the lease expires by itself
    }
    lost_lease();
    name_.clear();
}

// Reads all keys at one revision.
status etcd_registry::read_all() {
    const auto answer = etcd_->post(
        "/v3/kv/range", {{"key", base64(prefix_)}, {"range_end", base64(behind_prefix(prefix_))}});
    if (!answer) return answer.failure();
    const uint64_t revision = etcd_number(etcd_part(*answer, "header"), "revision");
    if (revision == 0) return error{location() + ": answers without a revision"};
    const registry_state old_state = std::exchange(state_, {});
    // Keep the plan even if the registry lost its data.
    state_.epoch = old_state.epoch, state_.plan = old_state.plan,
    state_.damaged = old_state.damaged;
    leader_ = plan_ = {};
    member_leases_.clear();
    for (const json &entry : etcd_part(*answer, "kvs"))
        if (const auto pair = etcd_pair_of(entry)) take(*pair, false);
    if (plan_.mod_revision == 0) take_plan();
    changed_ |= !(state_ == old_state);
    revision_ = revision;
    known_ = true;
    return success();
}

status etcd_registry::follow(bool elsewhere) {
    heard_ns_ = steady_ns();
    return etcd_->watch({{"key", base64(prefix_)},
                         {"range_end", base64(behind_prefix(prefix_))},
                         {"start_revision", decimal(revision_ + 1)}},
                        elsewhere);
}

void etcd_registry::take(const etcd_pair &pair, bool gone) {
    if (!pair.key.starts_with(prefix_)) return;
    const std::string key = pair.key.substr(prefix_.size());
    const auto list = [&](std::map<std::string, std::string> &entries, const char *folder,
                          size_t count_max) {
        const std::string name = key.substr(std::string_view(folder).size());
        if (gone)
            entries.erase(name);
        else if (is_registry_name(name) && pair.value.size() <= text_bytes_max &&
                 (entries.size() < count_max || entries.contains(name)))
            entries[name] = pair.value;
    };
    if (!gone && lease_ != 0 && pair.lease != lease_ && key == members + name_ &&
        std::exchange(other_lease_, pair.lease) != pair.lease)
        log_warning(format("registry: {}: another node calls itself {}, too; end one of them",
                           location(), name_));
    if (key.starts_with(members)) {
        list(state_.members, members, members_max);
        const std::string name = key.substr(std::string_view(members).size());
        member_leases_.erase(name);
        if (state_.members.contains(name)) member_leases_[name] = pair.lease;
        return;
    }
    if (key.starts_with(notes)) return list(state_.notes, notes, notes_max);
    if (key == "leader") {
        leader_ = gone ? etcd_pair() : pair;
        state_.leader = gone || !is_registry_name(pair.value) ? "" : pair.value;
    } else if (key == "plan") {
        plan_ = gone ? etcd_pair() : pair;
        take_plan();
    }
}

void etcd_registry::take_plan() {
    std::string old_damage = std::exchange(state_.damaged, "");
    plan_stays_ = false;
    if (plan_.mod_revision == 0) return;
    plan_seen plan = check_stored_plan(format("{}: {}plan", location(), prefix_), plan_.value,
                                       /*is_member=*/!name_.empty());
    plan_stays_ = plan.damaged.empty() || plan.of_other_cluster;
    if (plan.epoch != 0) {
        state_.epoch = plan.epoch, state_.plan = std::move(plan.text);
        return;
    }
    state_.damaged = std::move(plan.damaged);
    if (state_.damaged != old_damage) log_warning(state_.damaged);
}

// If the stored plan is missing or unusable, the leader writes the plan in force again.
status etcd_registry::keep_plan() {
    if (!leads() || !known_ || plan_stays_ || state_.epoch == 0) return success();
    log_warning(
        format("registry: {} has {}; epoch {} of the plan, which is in force, is written there "
               "again",
               location(), plan_.mod_revision == 0 ? "no plan" : "what is no plan", state_.epoch));
    const auto done = write_plan(state_.epoch, state_.plan);
    return done ? success() : status(done.failure());
}

status etcd_registry::take_line(const std::string &line) {
    const json answer = parse_etcd(line);
    if (answer.is_discarded()) return error{location() + ": a watch that is no JSON of etcd"};
    if (const std::string problem = etcd_error(answer); !problem.empty())
        return error{format("{}: a watch: {}", location(), problem)};
    const json &update = etcd_part(answer, "result");
    heard_ns_ = steady_ns();
    // A lower revision than the one seen means that etcd lost data or is behind.
    if (etcd_flag(update, "created"))
        known_ = etcd_number(etcd_part(update, "header"), "revision") >= revision_;
    if (etcd_flag(update, "canceled")) {
        known_ = false;  // compacted away, or refused: all is read again
        if (etcd_number(update, "compact_revision") != 0) return error{""};
        return error{location() + ": gave the watch up"};
    }
    const registry_state old_state = state_;
    // The header's revision is etcd's, not the watch's. Only events show how far the watch is.
    uint64_t latest = revision_;
    for (const json &event : etcd_part(update, "events")) {
        const auto pair = etcd_pair_of(etcd_part(event, "kv"));
        if (!pair) continue;
        if (pair->mod_revision <= revision_) continue;
        const auto type = event.is_object() ? event.find("type") : event.end();
        latest = std::max(latest, pair->mod_revision);
        take(*pair, type != event.end() && type->is_string() && *type == "DELETE");
    }
    revision_ = latest;
    changed_ |= !(state_ == old_state);
    return success();
}

// Lets all watchers hear from the leader.
status etcd_registry::beat() {
    const uint64_t now_ns = steady_ns();
    if (!leads() || now_ns - beat_ns_ < beat_ns) return success();
    beat_ns_ = now_ns;
    const auto done = etcd_->post("/v3/kv/put", put_request("beat", name_, false));
    return done ? success() : status(done.failure());
}

result<bool> etcd_registry::turn(uint64_t wait_ns) {
    auto done = take_turn(wait_ns);
    answers_ = done.ok();
    return done;
}

result<bool> etcd_registry::take_turn(uint64_t wait_ns) {
    if (const status kept = keep_lease(); !kept) return kept.failure();
    if (const status done = beat(); !done) return done.failure();
    const auto changed = [this] { return std::exchange(changed_, false); };
    if (!known_) {
        etcd_->stop_watch();
        if (const status read = read_all(); !read) return read.failure();
    }
    if (const status kept = keep_plan(); !kept) return kept.failure();
    const bool silent = etcd_->watching() && steady_ns() - heard_ns_ > silence_ns;
    if (silent || !etcd_->watching())
        if (const status begun = follow(silent); !begun) return begun.failure();
    // Wait at most beat_ns, because the caller's next turn does what is due meanwhile.
    const auto lines = etcd_->lines(changed_ ? 0 : std::min(wait_ns, beat_ns));
    if (!lines) return lines.failure();
    for (const std::string &line : *lines)
        if (const status taken = take_line(line); !taken) {
            etcd_->stop_watch();
            if (taken.failure().text.empty()) break;
            return taken.failure();
        }
    return changed();
}

// Runs a transaction. True: the compares held and `put` was done.
result<bool> etcd_registry::run_transaction(const json &compares, const json &put) {
    const auto answer = etcd_->post(
        "/v3/kv/txn", {{"compare", compares}, {"success", json::array({{{"request_put", put}}})}});
    if (!answer) {
        known_ = false;  // it may have been done anyway
        if (answer.failure().text.find("lease not found") != std::string::npos) lost_lease();
        return answer.failure();
    }
    return etcd_flag(*answer, "succeeded");
}

// The leader's key and its member's text have the same lease and end together.
bool etcd_registry::has_leader() {
    const auto lease = member_leases_.find(leader_.value);
    const bool owned = leader_.mod_revision != 0 && leader_.lease != 0 &&
                       lease != member_leases_.end() && lease->second == leader_.lease;
    if (leader_.mod_revision == 0 || owned) {
        ownerless_since_ns_ = 0;
        return owned;
    }
    const uint64_t now_ns = steady_ns();
    if (ownerless_since_ns_ == 0) ownerless_since_ns_ = now_ns;
    if (now_ns - ownerless_since_ns_ < ownerless_ns) return true;
    log_warning(format("registry: {}: {}leader is written by nobody who leads; {} takes it over",
                       location(), prefix_, name_));
    return false;
}

result<bool> etcd_registry::lead() {
    if (leads()) return true;
    if (name_.empty() || lease_ == 0 || !known_ || has_leader()) return false;
    const auto done = run_transaction(json::array({unchanged("leader", leader_)}),
                                      put_request("leader", name_, /*leased=*/true));
    if (!done) return done.failure();
    // Reads the revision of the new key.
    if (const status read = read_all(); !read) return read.failure();
    return leads();
}

// Replaces the plan that was read, if this node still leads.
result<bool> etcd_registry::write_plan(uint64_t epoch, const std::string &text) {
    const auto done =
        run_transaction(json::array({unchanged("plan", plan_), unchanged("leader", leader_)}),
                        put_request("plan", with_epoch(epoch, text), /*leased=*/false));
    if (!done) return done;
    if (const status read = read_all(); !read) return read.failure();
    return *done;
}

result<bool> etcd_registry::put_plan(uint64_t old_epoch, uint64_t epoch, const std::string &text) {
    if (const status fits = check_registry_text("the plan", text); !fits) return fits.failure();
    if (epoch > epoch_max)
        return error{format("registry: epoch {} is above {}, the last", epoch, epoch_max)};
    // A missing plan, for example after etcd was set up anew, does not stop a leader, who writes it
    // again.
    if (!leads() || (plan_.mod_revision != 0 && state_.epoch != old_epoch)) return false;
    if (plan_stays_ && !state_.damaged.empty()) return error{state_.damaged};
    return write_plan(epoch, text);
}

status etcd_registry::put_note(const std::string &name, const std::string &text) {
    if (!is_registry_name(name)) return error{format("registry: {} is no name of a note", name)};
    if (const status fits = check_registry_text("a note", text); !fits) return fits;
    const auto done = etcd_->post("/v3/kv/put", put_request(notes + name, text, false));
    return done ? success() : status(done.failure());
}

}  // namespace moorage::core
