// migration_detour.cpp - ways out if every copy waits for room that only other waiting copies could
// free.
//
// Nothing is under way then. Every waiting device is full of copies that it needs or that are the
// last of their expert. For one request after another, the best first, room is looked for in this
// order:
//   1. Its last copies go to devices with room to spare.
//   2. Copies that other devices have too are dropped for a while.
//   3. Last copies go to devices where such copies can be dropped.
// Each expert is put up once at most, and no arrived copy is dropped for a while. So this ends.
#include <limits>

#include "core/cluster/migration.h"

namespace moorage::core {

bool migration_order::untangle() {
    std::vector<std::pair<request, uint32_t>> all;
    for (uint32_t device = 0; device < devices_; ++device) {
        favoured_[device] = none;
        for (const request &one : requests_[device])
            if (!one.again && has_source(one.expert, device)) all.emplace_back(one, device);
    }
    std::ranges::stable_sort(all, [](const auto &a, const auto &b) {
        return a.first.gain_per_byte > b.first.gain_per_byte;
    });
    take_stock();
    for (const auto &[one, device] : all) {
        const std::optional<detour> way = way_out(device, one.expert);
        if (!way) continue;
        favoured_[device] = one.expert;
        idle_[device] = 0;
        return follow(*way);
    }
    return false;
}

// Counts what each device could give: room at once, and room of wanted copies for a while.
void migration_order::take_stock() {
    for (uint32_t device = 0; device < devices_; ++device) {
        given_[device] = room(device) + droppable_bytes(device);
        spare_[device] = 0;
    }
    for (uint32_t expert = 0; expert < experts(); ++expert)
        for (const uint32_t device : devices_of_[expert])
            if (may_go_for_a_while(expert, at(expert, device))) spare_[device] += bytes_of(expert);
}

bool migration_order::may_go_for_a_while(uint32_t expert, const place &one) const {
    return one.wanted && !one.settled && one.now == state::present && one.readers == 0 &&
           (cloud_ || present_[expert] > 1);
}

std::optional<migration_order::detour> migration_order::way_out(uint32_t device, uint32_t expert) {
    const uint64_t bytes = bytes_of(expert);
    uint64_t missing = bytes - std::min(bytes, given_[device]);
    if (missing == 0) return std::nullopt;  // it does not wait for room
    detour way;
    std::vector<std::pair<uint64_t, uint32_t>> last;  // copies of their expert; the largest first
    for (const uint32_t held : surplus_[device])
        if (!may_go(held, device) && !put_up_[held])
            last.emplace_back(std::numeric_limits<uint64_t>::max() - bytes_of(held), held);
    std::ranges::sort(last);
    const auto put_up = [&](bool free_only) {
        for (const auto &[order, expert_held] : last) {
            const uint32_t held = expert_held;
            const auto is_it = [held](const detour::guest &one) { return one.expert == held; };
            if (missing == 0) return;
            if (std::ranges::any_of(way.guests, is_it)) continue;
            const uint32_t to = spare_device(held, device, way, free_only);
            if (to == none) continue;
            way.guests.push_back({held, to});
            missing -= std::min(missing, bytes_of(held));
        }
    };
    put_up(/*free_only=*/true);
    missing -= drop_for_a_while(device, missing, way);
    put_up(/*free_only=*/false);
    if (missing != 0) return std::nullopt;
    for (const detour::guest &one : way.guests) {
        uint64_t taken = 0;
        for (const detour::guest &other : way.guests)
            if (other.device == one.device) taken += bytes_of(other.expert);
        const uint64_t there = given_[one.device];
        if (taken > there) drop_for_a_while(one.device, taken - there, way);
    }
    return way;
}

// Adds wanted copies of the device that exist elsewhere, until they hold the bytes. Returns the
// number of these bytes, at most the requested number.
uint64_t migration_order::drop_for_a_while(uint32_t device, uint64_t bytes, detour &out) {
    std::vector<std::pair<double, uint32_t>> found;
    uint64_t held = 0;
    for (uint32_t expert = 0; expert < experts() && bytes > 0; ++expert) {
        if (!may_go_for_a_while(expert, at(expert, device))) continue;
        uint32_t left = cloud_ ? UINT32_MAX : present_[expert];
        bool planned = false;
        for (const moorage_copy &copy : out.dropped) {
            left -= copy.expert == expert;
            planned = planned || (copy.expert == expert && copy.device == device);
        }
        if (planned) held += bytes_of(expert);
        if (!planned && left > 1) found.emplace_back(value_per_byte(expert, device), expert);
    }
    std::ranges::sort(found);
    for (const auto &[value, expert] : found) {
        if (held >= bytes) break;
        out.dropped.push_back({expert, device});
        held += bytes_of(expert);
    }
    return std::min(held, bytes);
}

// The nearest device that can hold one more copy; `free_only`: without dropping wanted ones.
uint32_t migration_order::spare_device(uint32_t expert, uint32_t but, const detour &so_far,
                                       bool free_only) {
    uint32_t best = none;
    double best_s = 0;
    for (uint32_t device = 0; device < devices_; ++device) {
        if (device == but || at(expert, device).now != state::absent) continue;
        uint64_t taken = bytes_of(expert);
        for (const detour::guest &one : so_far.guests)
            if (one.device == device) taken += bytes_of(one.expert);
        const double s = way_s(but, device, bytes_of(expert));
        if (s == std::numeric_limits<double>::infinity() || (best != none && s >= best_s)) continue;
        const uint64_t given = given_[device];
        if (given < taken) {
            if (free_only || given + spare_[device] < taken) continue;
            detour trial = so_far;
            if (drop_for_a_while(device, taken - given, trial) < taken - given) continue;
        }
        best = device, best_s = s;
    }
    return best;
}

// False: nothing was changed, or a copy is in use and refused_ has it.
bool migration_order::follow(const detour &way) {
    for (const moorage_copy &copy : way.dropped) {
        if (!drop(copy.expert, copy.device)) return false;
    }
    for (const detour::guest &one : way.guests) {
        if (!make_room(one.device, bytes_of(one.expert))) return false;
        make(one.expert, one.device, state::waiting, /*wanted=*/false);
        put_up_[one.expert] = 1;
        ++detours_;
        ready_.push_back(start(one.expert, one.device));
    }
    return true;
}

void migration_order::give_up() {
    for (uint32_t device = 0; device < devices_; ++device) {
        for (const request &one : requests_[device]) {
            given_up_.push_back({one.expert, device});
            forget(one.expert, device);
        }
        requests_[device].clear();
    }
    waiting_ = 0;
    std::ranges::sort(given_up_, [](const moorage_copy &a, const moorage_copy &b) {
        return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
    });
}

}  // namespace moorage::core
