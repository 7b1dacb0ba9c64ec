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

#include "tools/cluster/migration.h"

namespace moorage::core {

bool migration_order::untangle() {
    std::vector<std::pair<request, uint32_t>> waiting;
    for (uint32_t device = 0; device < devices_; ++device) {
        favoured_[device] = none;
        for (const request &request : requests_[device])
            if (!request.again && has_source(request.expert, device))
                waiting.emplace_back(request, device);
    }
    std::ranges::stable_sort(waiting, [](const auto &a, const auto &b) {
        return a.first.gain_per_byte > b.first.gain_per_byte;
    });
    take_stock();
    for (const auto &[request, device] : waiting) {
        const std::optional<detour> way = way_out(device, request.expert);
        if (!way) continue;
        favoured_[device] = request.expert;
        idle_[device] = 0;
        return follow(*way);
    }
    return false;
}

// Counts what each device could give: room at once, and room of wanted copies for a while.
void migration_order::take_stock() {
    for (uint32_t device = 0; device < devices_; ++device) {
        freeable_bytes_[device] = room(device) + droppable_bytes(device);
        spare_bytes_[device] = 0;
    }
    for (uint32_t expert = 0; expert < experts(); ++expert)
        for (const uint32_t device : devices_of_[expert])
            if (may_go_for_a_while(expert, place_at(expert, device)))
                spare_bytes_[device] += bytes_of(expert);
}

bool migration_order::may_go_for_a_while(uint32_t expert, const place &place) const {
    return place.wanted && !place.settled && place.now == state::present && place.readers == 0 &&
           (cloud_ || present_[expert] > 1);
}

std::optional<migration_order::detour> migration_order::way_out(uint32_t device, uint32_t expert) {
    const uint64_t bytes = bytes_of(expert);
    uint64_t missing = bytes - std::min(bytes, freeable_bytes_[device]);
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
            const auto is_it = [held](const detour::guest &guest) { return guest.expert == held; };
            if (missing == 0) return;
            if (std::ranges::any_of(way.guests, is_it)) continue;
            const uint32_t target = spare_device(held, device, way, free_only);
            if (target == none) continue;
            way.guests.push_back({held, target});
            missing -= std::min(missing, bytes_of(held));
        }
    };
    put_up(/*free_only=*/true);
    missing -= drop_for_a_while(device, missing, way);
    put_up(/*free_only=*/false);
    if (missing != 0) return std::nullopt;
    for (const detour::guest &guest : way.guests) {
        uint64_t taken = 0;
        for (const detour::guest &second_guest : way.guests)
            if (second_guest.device == guest.device) taken += bytes_of(second_guest.expert);
        const uint64_t freeable_bytes = freeable_bytes_[guest.device];
        if (taken > freeable_bytes) drop_for_a_while(guest.device, taken - freeable_bytes, way);
    }
    return way;
}

// Adds wanted copies of the device that exist elsewhere, until they hold the bytes. Returns the
// number of these bytes, at most the requested number.
uint64_t migration_order::drop_for_a_while(uint32_t device, uint64_t bytes, detour &way) {
    std::vector<std::pair<double, uint32_t>> found;
    uint64_t held = 0;
    for (uint32_t expert = 0; expert < experts() && bytes > 0; ++expert) {
        if (!may_go_for_a_while(expert, place_at(expert, device))) continue;
        uint32_t left = cloud_ ? UINT32_MAX : present_[expert];
        bool planned = false;
        for (const moorage_copy &copy : way.dropped) {
            left -= copy.expert == expert;
            planned = planned || (copy.expert == expert && copy.device == device);
        }
        if (planned) held += bytes_of(expert);
        if (!planned && left > 1) found.emplace_back(value_per_byte(expert, device), expert);
    }
    std::ranges::sort(found);
    for (const auto &[value, expert] : found) {
        if (held >= bytes) break;
        way.dropped.push_back({expert, device});
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
        if (device == but || place_at(expert, device).now != state::absent) continue;
        uint64_t taken = bytes_of(expert);
        for (const detour::guest &guest : so_far.guests)
            if (guest.device == device) taken += bytes_of(guest.expert);
        const double s = transfer_s(but, device, bytes_of(expert));
        if (s == std::numeric_limits<double>::infinity() || (best != none && s >= best_s)) continue;
        const uint64_t freeable_bytes = freeable_bytes_[device];
        if (freeable_bytes < taken) {
            if (free_only || freeable_bytes + spare_bytes_[device] < taken) continue;
            detour trial = so_far;
            if (drop_for_a_while(device, taken - freeable_bytes, trial) < taken - freeable_bytes)
                continue;
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
    for (const detour::guest &guest : way.guests) {
        if (!make_room(guest.device, bytes_of(guest.expert))) return false;
        set_place(guest.expert, guest.device, state::waiting, /*wanted=*/false);
        put_up_[guest.expert] = 1;
        ++detours_;
        ready_.push_back(start(guest.expert, guest.device));
    }
    return true;
}

void migration_order::give_up() {
    for (uint32_t device = 0; device < devices_; ++device) {
        for (const request &request : requests_[device]) {
            given_up_.push_back({request.expert, device});
            clear_place(request.expert, device);
        }
        requests_[device].clear();
    }
    waiting_ = 0;
    std::ranges::sort(given_up_, [](const moorage_copy &a, const moorage_copy &b) {
        return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
    });
}

}  // namespace moorage::core
