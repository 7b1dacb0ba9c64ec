// real_cluster.cpp - edits the next epoch.
#include "tools/node/real_cluster.h"

#include <algorithm>
#include <utility>

#include "core/base/steady_time.h"
#include "moorage/base.h"

namespace moorage::core {

real_cluster::real_cluster(const scene &cluster_scene, const plan_record &in_force)
    : scene_(cluster_scene),
      begun_ns_(steady_ns()),
      plan_(in_force),
      devices_of_(in_force.holders.size()) {
    changed_ = !plan_.coming.empty();
    plan_.coming.clear();
    present_.assign(cluster_scene.cluster.servers, 1);
    // A plan names servers. This side keeps track of which of a server's devices has which expert.
    std::vector<uint64_t> used(cluster_scene.cluster.devices(), 0);
    const uint64_t bytes = cluster_scene.demand.expert_bytes.front();
    for (size_t page = 0; page < devices_of_.size(); ++page)
        for (const uint32_t server : plan_.holders[page]) {
            uint32_t best = MOORAGE_NONE;
            for (uint32_t device = 0; device < cluster_scene.cluster.devices(); ++device)
                if (server_of(device) == server &&
                    (best == MOORAGE_NONE || used[device] < used[best]))
                    best = device;
            if (best == MOORAGE_NONE) continue;
            used[best] += bytes;
            devices_of_[page].push_back(best);
        }
    for (auto &devices : devices_of_) std::ranges::sort(devices);
}

uint64_t real_cluster::now_ns() const { return steady_ns() - begun_ns_; }

std::vector<moorage_copy> real_cluster::copies() const {
    std::vector<moorage_copy> copies;
    for (uint32_t page = 0; page < devices_of_.size(); ++page)
        for (const uint32_t device : devices_of_[page]) copies.push_back({page, device});
    return copies;
}

void real_cluster::bring(const migration_step &step) {
    const uint32_t target = server_of(step.target);
    sent_.push_back({step.id, step.expert, target});
    target_devices_.push_back(step.target);
    plan_.coming.push_back(
        {step.expert, step.source == MOORAGE_NONE ? no_server : server_of(step.source), target});
    changed_ = true;
}

bool real_cluster::take(const moorage_copy &copy) {
    std::vector<uint32_t> &devices = devices_of_[copy.expert],
                          &holders = plan_.holders[copy.expert];
    const uint32_t server = server_of(copy.device);
    const auto found = std::ranges::find(devices, copy.device);
    if (found == devices.end()) return true;
    const bool only_device = std::ranges::count_if(devices, [&](uint32_t device) {
                                 return server_of(device) == server;
                             }) == 1;
    if (only_device && std::ranges::none_of(holders, [&](uint32_t holder) {
            return holder != server && present_[holder] != 0;
        }))
        return false;
    devices.erase(found);
    if (!only_device) return true;
    std::erase(holders, server);
    changed_ = true;
    return true;
}

void real_cluster::arrived(uint32_t server, const std::vector<uint32_t> &pages) {
    for (size_t i = 0; i < sent_.size();) {
        const sending sent = sent_[i];
        if (sent.server != server || std::ranges::find(pages, sent.page) == pages.end()) {
            ++i;
            continue;
        }
        std::vector<uint32_t> &holders = plan_.holders[sent.page];
        if (const auto position = std::ranges::lower_bound(holders, server);
            position == holders.end() || *position != server)
            holders.insert(position, server);
        std::vector<uint32_t> &devices = devices_of_[sent.page];
        devices.insert(std::ranges::lower_bound(devices, target_devices_[i]), target_devices_[i]);
        std::erase_if(plan_.coming, [&](const moving_copy &copy) {
            return copy.page == sent.page && copy.target == server;
        });
        sent_.erase(sent_.begin() + static_cast<ptrdiff_t>(i));
        target_devices_.erase(target_devices_.begin() + static_cast<ptrdiff_t>(i));
        changed_ = true;
        // It may ask for more at once, which is why the list is looked at anew.
        if (watcher_) watcher_->brought(sent.step);
        i = 0;
    }
}

void real_cluster::give_up() {
    changed_ |= !plan_.coming.empty();
    plan_.coming.clear();
    sent_.clear();
    target_devices_.clear();
}

std::optional<plan_record> real_cluster::take_next() {
    if (!std::exchange(changed_, false)) return std::nullopt;
    plan_record record = plan_;
    ++record.epoch;
    return record;
}

}  // namespace moorage::core
