// real_cluster.cpp - edits the next epoch.
#include "core/node/real_cluster.h"

#include <algorithm>
#include <utility>

#include "core/base/steady_time.h"
#include "moorage/base.h"

namespace moorage::core {

real_cluster::real_cluster(const scene &of, const plan_record &in_force)
    : scene_(of), begun_ns_(steady_ns()), plan_(in_force), devices_of_(in_force.holders.size()) {
    changed_ = !plan_.coming.empty();
    plan_.coming.clear();
    present_.assign(of.cluster.servers, 1);
    // A plan names servers. This side keeps track of which of a server's devices has which expert.
    std::vector<uint64_t> used(of.cluster.devices(), 0);
    const uint64_t bytes = of.demand.expert_bytes.front();
    for (size_t page = 0; page < devices_of_.size(); ++page)
        for (const uint32_t server : plan_.holders[page]) {
            uint32_t best = MOORAGE_NONE;
            for (uint32_t device = 0; device < of.cluster.devices(); ++device)
                if (server_of(device) == server &&
                    (best == MOORAGE_NONE || used[device] < used[best]))
                    best = device;
            if (best == MOORAGE_NONE) continue;
            used[best] += bytes;
            devices_of_[page].push_back(best);
        }
    for (auto &all : devices_of_) std::ranges::sort(all);
}

uint64_t real_cluster::now_ns() const { return steady_ns() - begun_ns_; }

std::vector<moorage_copy> real_cluster::copies() const {
    std::vector<moorage_copy> all;
    for (uint32_t page = 0; page < devices_of_.size(); ++page)
        for (const uint32_t device : devices_of_[page]) all.push_back({page, device});
    return all;
}

void real_cluster::bring(const migration_step &step) {
    const uint32_t to = server_of(step.to);
    sent_.push_back({step.id, step.expert, to});
    devices_to_.push_back(step.to);
    plan_.coming.push_back(
        {step.expert, step.from == MOORAGE_NONE ? no_server : server_of(step.from), to});
    changed_ = true;
}

bool real_cluster::take(const moorage_copy &copy) {
    std::vector<uint32_t> &devices = devices_of_[copy.expert],
                          &holders = plan_.holders[copy.expert];
    const uint32_t server = server_of(copy.device);
    const auto at = std::ranges::find(devices, copy.device);
    if (at == devices.end()) return true;
    const bool only_device =
        std::ranges::count_if(devices, [&](uint32_t one) { return server_of(one) == server; }) == 1;
    if (only_device && std::ranges::none_of(holders, [&](uint32_t one) {
            return one != server && present_[one] != 0;
        }))
        return false;
    devices.erase(at);
    if (!only_device) return true;
    std::erase(holders, server);
    changed_ = true;
    return true;
}

void real_cluster::arrived(uint32_t server, const std::vector<uint32_t> &pages) {
    for (size_t i = 0; i < sent_.size();) {
        const sending one = sent_[i];
        if (one.server != server || std::ranges::find(pages, one.page) == pages.end()) {
            ++i;
            continue;
        }
        std::vector<uint32_t> &holders = plan_.holders[one.page];
        if (const auto at = std::ranges::lower_bound(holders, server);
            at == holders.end() || *at != server)
            holders.insert(at, server);
        std::vector<uint32_t> &devices = devices_of_[one.page];
        devices.insert(std::ranges::lower_bound(devices, devices_to_[i]), devices_to_[i]);
        std::erase_if(plan_.coming, [&](const moving_copy &copy) {
            return copy.page == one.page && copy.to == server;
        });
        sent_.erase(sent_.begin() + static_cast<ptrdiff_t>(i));
        devices_to_.erase(devices_to_.begin() + static_cast<ptrdiff_t>(i));
        changed_ = true;
        // It may ask for more at once, which is why the list is looked at anew.
        if (watcher_) watcher_->brought(one.step);
        i = 0;
    }
}

void real_cluster::give_up() {
    changed_ |= !plan_.coming.empty();
    plan_.coming.clear();
    sent_.clear();
    devices_to_.clear();
}

std::optional<plan_record> real_cluster::next() {
    if (!std::exchange(changed_, false)) return std::nullopt;
    plan_record made = plan_;
    ++made.epoch;
    return made;
}

}  // namespace moorage::core
