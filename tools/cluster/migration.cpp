// migration.cpp - decides which copy may start, what goes for it, and the ways out if all wait.
#include "tools/cluster/migration.h"

#include <cassert>
#include <limits>

namespace moorage::core {

namespace {
constexpr double infinite = std::numeric_limits<double>::infinity();
}

migration_order::migration_order(const cluster_arrays &cluster, const demand_arrays &demand,
                                 std::span<const moorage_copy> current,
                                 std::span<const moorage_copy> target, drop_copy drop,
                                 const migration_options &options)
    : devices_(cluster.devices()),
      servers_(cluster.servers),
      cloud_(cluster.has_cloud()),
      drop_(std::move(drop)),
      options_(options),
      model_bytes_(demand.expert_bytes),
      model_of_(demand.experts()),
      device_server_(cluster.device_server),
      places_(size_t{demand.experts()} * devices_),
      devices_of_(demand.experts()),
      server_first_(size_t{servers_} + 1, 0),
      requests_(devices_),
      surplus_(devices_),
      capacity_(cluster.device_bytes),
      used_(devices_, 0),
      sending_to_(devices_, 0),
      favoured_(devices_, none),
      idle_(devices_, 0),
      present_(demand.experts(), 0),
      needed_(demand.experts(), 0),
      put_up_(demand.experts(), 0),
      freeable_bytes_(devices_, 0),
      spare_bytes_(devices_, 0) {
    assert(drop_ && options.at_once > 0);
    for (uint32_t model = 0; model < demand.models; ++model)
        for (uint32_t x = demand.model_first[model]; x < demand.model_first[model + 1]; ++x)
            model_of_[x] = static_cast<uint16_t>(model);
    for (const uint32_t server : device_server_) ++server_first_[server + 1];
    for (uint32_t server = 0; server < servers_; ++server)
        server_first_[server + 1] += server_first_[server];
    take_ways(cluster);
    take_values(demand, cluster.home_server);
    take_plans(current, target);
}

void migration_order::take_ways(const cluster_arrays &cluster) {
    const size_t columns = servers_;
    latency_s_.assign((columns + 1) * columns, infinite);
    byte_s_.assign((columns + 1) * columns, 0);
    for (size_t target = 0; target < columns; ++target) {
        for (size_t source = 0; source < columns; ++source) {
            const size_t index = source * columns + target;
            if (source == target) {
                latency_s_[index] = 0;
            } else if (cluster.link_bytes_per_s[index] > 0) {
                latency_s_[index] = cluster.link_s[index];
                byte_s_[index] = 1 / cluster.link_bytes_per_s[index];
            }
        }
        if (!cloud_ || !(cluster.cloud_down_bytes_per_s[target] > 0)) continue;
        latency_s_[columns * columns + target] = cluster.cloud_s[target];
        byte_s_[columns * columns + target] = 1 / cluster.cloud_down_bytes_per_s[target];
    }
}

// Tokens of a server's homes that choose each expert, a second; where rates are not known, their
// share.
void migration_order::take_values(const demand_arrays &demand,
                                  std::span<const uint32_t> home_server) {
    value_.assign(size_t{servers_} * demand.experts(), 0);
    const bool rated =
        std::ranges::any_of(demand.home_tokens_per_s, [](double r) { return r > 0; });
    for (uint32_t home = 0; home < demand.homes; ++home) {
        const double rate = rated ? demand.home_tokens_per_s[home] : 1;
        const double *frequencies = &demand.frequency[size_t{home} * demand.experts()];
        double *values = &value_[size_t{home_server[home]} * demand.experts()];
        for (uint32_t x = 0; x < demand.experts(); ++x) values[x] += rate * frequencies[x];
    }
}

void migration_order::take_plans(std::span<const moorage_copy> current,
                                 std::span<const moorage_copy> target) {
    for (const moorage_copy &copy : current) {
        set_place(copy.expert, copy.device, state::present, false);
        ++present_[copy.expert];
        used_[copy.device] += bytes_of(copy.expert);
    }
    for (const moorage_copy &copy : target) {
        needed_[copy.expert] = 1;
        place &entry = place_at(copy.expert, copy.device);
        if (entry.now != state::absent) entry.wanted = true;
    }
    for (const moorage_copy &copy : current)
        if (!place_at(copy.expert, copy.device).wanted)
            surplus_[copy.device].push_back(copy.expert);
    for (const moorage_copy &copy : target)
        if (place_at(copy.expert, copy.device).now == state::absent)
            want(copy.expert, copy.device, /*again=*/false);
}

void migration_order::set_place(uint32_t expert, uint32_t device, state now, bool wanted) {
    place_at(expert, device) = {now, wanted, false, 0};
    std::vector<uint32_t> &devices = devices_of_[expert];
    devices.insert(std::ranges::lower_bound(devices, device), device);
}

void migration_order::clear_place(uint32_t expert, uint32_t device) {
    place_at(expert, device) = {};
    std::vector<uint32_t> &devices = devices_of_[expert];
    devices.erase(std::ranges::lower_bound(devices, device));
}

// Whether the expert can still be called without this copy, or need not be, because the new plan
// has no copy.
bool migration_order::lasts_without(uint32_t expert, const place &place) const {
    return cloud_ || !needed_[expert] || present_[expert] > (place.now == state::present ? 1u : 0u);
}

bool migration_order::may_go(uint32_t expert, uint32_t device) const {
    const place &place = place_at(expert, device);
    return place.now == state::present && place.readers == 0 && lasts_without(expert, place);
}

// The gain of a copy on the device, if no other device of its server has one.
double migration_order::value_per_byte(uint32_t expert, uint32_t device) const {
    const uint32_t server = device_server_[device];
    for (uint32_t neighbour = server_first_[server]; neighbour < server_first_[server + 1];
         ++neighbour)
        if (neighbour != device && place_at(expert, neighbour).now == state::present) return 0;
    return value_[size_t{server} * experts() + expert] /
           static_cast<double>(std::max<uint64_t>(bytes_of(expert), 1));
}

// From a device, or from the cloud (none).
double migration_order::transfer_s(uint32_t source, uint32_t target, uint64_t bytes) const {
    const size_t row = source == none ? servers_ : device_server_[source];
    const size_t index = row * servers_ + device_server_[target];
    return latency_s_[index] + byte_s_[index] * static_cast<double>(bytes);
}

// The nearest device that has the expert; among equal ones the least read. `none`: the cloud is
// nearer, or nothing has it.
uint32_t migration_order::source_of(uint32_t expert, uint32_t target) const {
    const uint64_t bytes = bytes_of(expert);
    uint32_t best = none, best_readers = 0;
    double best_s = transfer_s(none, target, bytes);
    for (const uint32_t device : devices_of_[expert]) {
        const place &place = place_at(expert, device);
        if (place.now != state::present || device == target) continue;
        const double s = transfer_s(device, target, bytes);
        if (s > best_s || s == infinite) continue;
        if (s == best_s && best != none && place.readers >= best_readers) continue;
        best = device, best_s = s, best_readers = place.readers;
    }
    return best;
}

bool migration_order::has_source(uint32_t expert, uint32_t target) const {
    return source_of(expert, target) != none || transfer_s(none, target, 1) < infinite;
}

void migration_order::want(uint32_t expert, uint32_t device, bool again) {
    set_place(expert, device, state::waiting, true);
    const request added{expert, value_per_byte(expert, device), again};
    std::vector<request> &requests = requests_[device];
    const auto position = std::ranges::find_if(requests, [&added](const request &queued) {
        return queued.gain_per_byte != added.gain_per_byte
                   ? queued.gain_per_byte < added.gain_per_byte
                   : queued.expert > added.expert;
    });
    requests.insert(position, added);
    ++waiting_;
    idle_[device] = 0;
}

// False: the copy is in use. If the new plan has it, it is made again later. Requires: may_go().
bool migration_order::drop(uint32_t expert, uint32_t device) {
    if (!drop_({expert, device})) {
        refused_.push_back({expert, device});
        return false;
    }
    const bool wanted = place_at(expert, device).wanted;
    used_[device] -= bytes_of(expert);
    --present_[expert];
    std::erase(surplus_[device], expert);
    clear_place(expert, device);
    if (wanted) want(expert, device, /*again=*/true);
    changed_ = true;
    return true;
}

uint64_t migration_order::droppable_bytes(uint32_t device) const {
    uint64_t bytes = 0;
    for (const uint32_t expert : surplus_[device])
        if (may_go(expert, device)) bytes += bytes_of(expert);
    return bytes;
}

// Drops copies that are not in the new plan, the least used first. Drops none if they do not
// suffice.
bool migration_order::make_room(uint32_t device, uint64_t bytes) {
    if (room(device) >= bytes) return true;
    if (room(device) + droppable_bytes(device) < bytes) return false;
    while (room(device) < bytes) {
        // Few go for one copy, so the least is looked for each time.
        std::pair<double, uint32_t> least = {infinite, none};
        for (const uint32_t expert : surplus_[device]) {
            if (!may_go(expert, device) || was_refused(expert, device)) continue;
            least = std::min(least, {value_per_byte(expert, device), expert});
        }
        if (least.second == none) return false;
        drop(least.second, device);
    }
    return true;
}

bool migration_order::was_refused(uint32_t expert, uint32_t device) const {
    return std::ranges::any_of(refused_, [=](const moorage_copy &copy) {
        return copy.expert == expert && copy.device == device;
    });
}

migration_step migration_order::start(uint32_t expert, uint32_t target) {
    const uint32_t source = source_of(expert, target);
    place &place = place_at(expert, target);
    assert(place.now == state::waiting && room(target) >= bytes_of(expert));
    place.now = state::arriving;
    if (source != none) ++place_at(expert, source).readers;
    used_[target] += bytes_of(expert);
    if (favoured_[target] == expert) favoured_[target] = none;
    const auto id = static_cast<uint32_t>(sent_.size());
    sent_.push_back({expert, source, target});
    ++sending_to_[target];
    ++under_way_;
    ++copied_;
    changed_ = true;
    return {id, expert, source == none ? MOORAGE_NONE : source, target, bytes_of(expert)};
}

void migration_order::arrived(uint32_t id) {
    assert(id < sent_.size());
    const sending done = sent_[id];
    place &place = place_at(done.expert, done.target);
    assert(place.now == state::arriving);
    place.now = state::present;
    place.settled = true;
    ++present_[done.expert];
    if (!place.wanted) surplus_[done.target].push_back(done.expert);
    if (done.source != none) --place_at(done.expert, done.source).readers;
    --sending_to_[done.target];
    --under_way_;
    look_again_at(done.expert);
}

void migration_order::look_again_at(uint32_t expert) {
    changed_ = true;
    for (const uint32_t device : devices_of_[expert]) idle_[device] = 0;
}

// The first of a device's copies that can have room.
std::optional<migration_step> migration_order::next_to(uint32_t device) {
    std::vector<request> &requests = requests_[device];
    const size_t refused_before = refused_.size();
    const uint64_t available_bytes = room(device) + droppable_bytes(device);
    for (size_t i = 0; i < requests.size(); ++i) {
        const request request = requests[i];
        if (favoured_[device] != none && favoured_[device] != request.expert) continue;
        if (bytes_of(request.expert) > available_bytes || !has_source(request.expert, device) ||
            !make_room(device, bytes_of(request.expert)))
            continue;
        requests.erase(requests.begin() + static_cast<ptrdiff_t>(i));
        --waiting_;
        detours_ += request.again;
        return start(request.expert, device);
    }
    idle_[device] = refused_.size() == refused_before;
    return std::nullopt;
}

// Devices by the best that they wait for.
std::optional<migration_step> migration_order::next_any() {
    heads_.clear();
    for (uint32_t device = 0; device < devices_; ++device)
        if (!idle_[device] && !requests_[device].empty() && sending_to_[device] < options_.at_once)
            heads_.emplace_back(-requests_[device].front().gain_per_byte, device);
    std::ranges::sort(heads_);
    for (const auto &[gain, device] : heads_)
        if (auto step = next_to(device)) return step;
    return std::nullopt;
}

// Tries to drop the copies that could not be dropped the last time. Nothing else has changed since.
bool migration_order::retry_refused() {
    const std::vector<moorage_copy> retried = std::exchange(refused_, {});
    for (const moorage_copy &copy : retried) {
        if (may_go(copy.expert, copy.device)) drop(copy.expert, copy.device);
        idle_[copy.device] = 0;
    }
    return changed_;
}

std::optional<migration_step> migration_order::next() {
    if (!changed_ && !retry_refused()) return std::nullopt;
    for (;;) {
        if (!ready_.empty()) {
            const migration_step step = ready_.back();
            ready_.pop_back();
            return step;
        }
        refused_.clear();
        blocked_ = false;
        if (stopped_) break;
        if (auto step = next_any()) return step;
        blocked_ = !refused_.empty();
        if (blocked_ || under_way_ > 0) break;
        if (waiting_ == 0) {
            sweep();
            break;
        }
        const bool found = untangle();
        blocked_ = !refused_.empty();
        if (blocked_ && ready_.empty()) break;
        if (!found && !blocked_) give_up();
    }
    changed_ = false;
    return std::nullopt;
}

void migration_order::stop() {
    stopped_ = true;
    blocked_ = false;
    refused_.clear();
}

// At the end all goes that the new plan has not.
void migration_order::sweep() {
    for (uint32_t device = 0; device < devices_; ++device) {
        const std::vector<uint32_t> left = surplus_[device];
        for (const uint32_t expert : left)
            if (may_go(expert, device)) drop(expert, device);
    }
    blocked_ = !refused_.empty();
    swept_ = refused_.empty();
}

std::vector<moorage_copy> migration_order::copies() const {
    std::vector<moorage_copy> copies;
    for (uint32_t expert = 0; expert < experts(); ++expert)
        for (const uint32_t device : devices_of_[expert])
            if (place_at(expert, device).now == state::present) copies.push_back({expert, device});
    return copies;
}

}  // namespace moorage::core
