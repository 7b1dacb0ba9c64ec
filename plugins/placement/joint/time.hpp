// time.hpp - the time of a layer from the holders of its experts, without a placement.
//
// The same time as moorage/latency.hpp; a test compares them. It is a function of the values that
// the joint policy looks up: an expert counts by the devices that would serve it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <moorage/latency.hpp>

namespace moorage::joint {

inline constexpr uint32_t none = latency_model::none;
inline constexpr double infinity = std::numeric_limits<double>::infinity();

// Devices that would serve an expert, one per server, ascending. If the home's own server has one,
// only that; otherwise those of all servers that it reaches. Empty: none.
using holders = std::span<const uint32_t>;

class layer_time {
public:
    explicit layer_time(const latency_model &latency)
        : cluster_(latency.cluster()),
          demand_(latency.demand()),
          servers_(cluster_.servers),
          serial_((cluster_.flags & MOORAGE_CALLS_SERIAL) != 0),
          returns_each_((cluster_.flags & MOORAGE_RETURNS_EACH) != 0),
          shared_((cluster_.flags & MOORAGE_LINKS_SHARED) != 0 && !serial_),
          server_entry_(servers_, none) {
        for (uint32_t home = 0; home < cluster_.homes; ++home)
            server_entry_[cluster_.host_home_server[home]] = 0;
        for (uint32_t server = 0; server < servers_; ++server)
            if (server_entry_[server] != none) {
                server_entry_[server] = entries();
                entry_server_.push_back(server);
            }
        for (uint32_t model = 0; model < cluster_.models; ++model) read_model(latency, model);
        rank_.assign(size_t{cluster_.models} * cluster_.devices * entries(), none);
        for (uint32_t model = 0; model < cluster_.models; ++model)
            for (uint32_t entry = 0; entry < entries(); ++entry) rank_devices(model, entry);
    }

    bool serial() const { return serial_; }
    uint32_t devices() const { return cluster_.devices; }
    bool has_cloud() const { return cluster_.host_cloud_s != nullptr; }
    // Entries are servers through which homes enter, with consecutive numbers.
    uint32_t entries() const { return static_cast<uint32_t>(entry_server_.size()); }
    uint32_t entry_server(uint32_t entry) const { return entry_server_[entry]; }
    uint32_t server_entry(uint32_t server) const { return server_entry_[server]; }
    uint32_t server_of(uint32_t device) const { return cluster_.host_device_server[device]; }
    double call_s(uint32_t device, uint32_t model) const {
        return cluster_.host_device_call_s[size_t{device} * cluster_.models + model];
    }
    // Infinite if there is no link in one of the directions.
    double there_s(uint32_t model, uint32_t entry, uint32_t server) const {
        return there_s_[link(model, entry, server)];
    }
    double back_s(uint32_t model, uint32_t entry, uint32_t server) const {
        return back_s_[link(model, entry, server)];
    }
    bool reached(uint32_t entry, uint32_t server) const {
        return there_s(0, entry, server) < infinity;
    }
    // The only missing expert of a layer, served by the device or by none.
    double alone_s(uint32_t model, uint32_t entry, uint32_t device) const {
        if (device == none) return absent_s(model, entry);
        return alone_s_[(size_t{model} * entries() + entry) * cluster_.devices + device];
    }
    const double *alone_s(uint32_t model, uint32_t entry) const {  // [devices]
        return &alone_s_[(size_t{model} * entries() + entry) * cluster_.devices];
    }
    // Order of devices by alone_s(), equal if that is equal. 0: the entry's own server, which
    // serves whatever it has. `none` is behind all devices, and devices that are not reached are
    // behind `none`.
    uint32_t rank(uint32_t model, uint32_t entry, uint32_t device) const {
        return device == none ? none - 1 : ranks(model, device)[entry];
    }
    const uint32_t *ranks(uint32_t model, uint32_t device) const {  // [entries]
        return &rank_[(size_t{model} * cluster_.devices + device) * entries()];
    }
    double absent_s(uint32_t model, uint32_t entry) const {
        return absent_once_s(model, entry) + absent_each_s(model, entry);
    }
    // The time for experts without a holder: once, and for each.
    double absent_once_s(uint32_t model, uint32_t entry) const {
        return absent_once_s_[size_t{model} * entries() + entry];
    }
    double absent_each_s(uint32_t model, uint32_t entry) const {
        return absent_each_s_[size_t{model} * entries() + entry];
    }
    bool returns_each() const { return returns_each_; }

    // Requires: 1 to 16 experts.
    double layer_s(uint32_t model, uint32_t entry, std::span<const holders> experts) const {
        std::array<uint32_t, 16> near{};
        std::array<holders, 16> far;
        size_t near_count = 0, far_count = 0;
        double absent = 0, total = 0;
        for (const holders &expert : experts) {
            if (expert.empty())
                ++absent;
            else if (server_of(expert[0]) == entry_server_[entry])
                near[near_count++] = expert[0];
            else
                far[far_count++] = expert;
        }
        if (near_count != 0) total = compute_s(model, {near.data(), near_count});
        const auto count_in = [&](double part) {
            total = serial_ ? total + part : std::max(total, part);
        };
        if (far_count != 0) count_in(far_s(model, entry, {far.data(), far_count}));
        if (absent != 0)
            count_in(absent_once_s(model, entry) + absent * absent_each_s(model, entry));
        return total;
    }

private:
    size_t link(uint32_t model, uint32_t entry, uint32_t server) const {
        return (size_t{model} * entries() + entry) * servers_ + server;
    }

    void rank_devices(uint32_t model, uint32_t entry) {
        std::vector<double> times;
        for (uint32_t device = 0; device < cluster_.devices; ++device)
            if (reached(entry, server_of(device))) times.push_back(alone_s(model, entry, device));
        std::sort(times.begin(), times.end());
        for (uint32_t device = 0; device < cluster_.devices; ++device) {
            uint32_t &rank = rank_[(size_t{model} * cluster_.devices + device) * entries() + entry];
            const auto position =
                std::lower_bound(times.begin(), times.end(), alone_s(model, entry, device));
            if (reached(entry, server_of(device)))
                rank = 1 + static_cast<uint32_t>(position - times.begin());
            if (server_of(device) == entry_server_[entry]) rank = 0;
        }
    }

    void read_model(const latency_model &latency, uint32_t model) {
        const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model]);
        const auto message_s = [&](double rate, double delay_s) {
            return rate > 0 ? delay_s + bytes / rate : infinity;
        };
        for (const uint32_t own_server : entry_server_) {
            for (uint32_t server = 0; server < servers_; ++server) {
                const size_t there_link = size_t{own_server} * servers_ + server,
                             back_link = size_t{server} * servers_ + own_server;
                double there_s = 0, back_s = 0;
                if (server != own_server) {
                    there_s = message_s(cluster_.host_link_bytes_per_s[there_link],
                                        cluster_.host_link_s[there_link]);
                    back_s = message_s(cluster_.host_link_bytes_per_s[back_link],
                                       cluster_.host_link_s[back_link]);
                }
                const bool lined = shared_ && server != own_server;
                there_line_s_.push_back(
                    lined ? message_s(cluster_.host_link_bytes_per_s[there_link], 0) : 0);
                back_line_s_.push_back(
                    lined ? message_s(cluster_.host_link_bytes_per_s[back_link], 0) : 0);
                if (there_s + back_s == infinity) there_s = back_s = infinity;
                there_s_.push_back(there_s), back_s_.push_back(back_s);
            }
            const size_t links = there_s_.size() - servers_;
            for (uint32_t device = 0; device < cluster_.devices; ++device)
                alone_s_.push_back(there_s_[links + server_of(device)] + call_s(device, model) +
                                   back_s_[links + server_of(device)]);
            if (!has_cloud()) {
                absent_once_s_.push_back(0), absent_each_s_.push_back(latency.absent_s(model));
                continue;
            }
            const double cloud_s = cluster_.host_cloud_s[own_server];
            const double back_s =
                message_s(cluster_.host_cloud_down_bytes_per_s[own_server], cloud_s);
            absent_once_s_.push_back(
                message_s(cluster_.host_cloud_up_bytes_per_s[own_server], cloud_s) +
                cluster_.host_cloud_call_s[model] + (returns_each_ ? 0 : back_s));
            absent_each_s_.push_back(returns_each_ ? back_s : 0);
        }
    }

    // Time on one server. A device that is named twice has two experts.
    double compute_s(uint32_t model, std::span<const uint32_t> devices) const {
        double longest = 0;
        for (size_t index = 0; index < devices.size(); ++index) {
            double sum = call_s(devices[index], model);
            if (!serial_)
                for (size_t earlier = 0; earlier < index; ++earlier)
                    if (devices[earlier] == devices[index]) sum += call_s(devices[index], model);
            longest = std::max(longest, sum);
        }
        return longest;
    }
    double server_s(uint32_t model, uint32_t entry, std::span<const uint32_t> devices) const {
        const size_t link_index = link(model, entry, server_of(devices[0]));
        return there_s_[link_index] + compute_s(model, devices) +
               (returns_each_ ? static_cast<double>(devices.size()) : 1.0) * back_s_[link_index];
    }

    // The least time over all ways to assign experts to their holders, for up to 8. Beyond that,
    // and as a first try, each goes to the holder that is nearest alone.
    double far_s(uint32_t model, uint32_t entry, std::span<const holders> experts) const {
        std::array<uint32_t, 16> chosen{};
        bool choice = false;
        double least = 0;
        for (size_t expert = 0; expert < experts.size(); ++expert) {
            chosen[expert] = experts[expert][0];
            for (const uint32_t device : experts[expert].subspan(1))
                if (alone_s(model, entry, device) < alone_s(model, entry, chosen[expert]))
                    chosen[expert] = device;
            choice = choice || experts[expert].size() > 1;
            least = std::max(least, alone_s(model, entry, chosen[expert]));
        }
        const double nearest = chosen_s(model, entry, {chosen.data(), experts.size()});
        if (shared_ && choice && experts.size() <= 8)
            return shared_s(model, entry, experts, nearest);
        if (!choice || experts.size() > 8 || (!serial_ && nearest <= least)) return nearest;
        return std::min(nearest, assigned_s(model, entry, experts));
    }
    // The best set of servers, if each call keeps the others waiting (latency.hpp).
    double shared_s(uint32_t model, uint32_t entry, std::span<const holders> experts,
                    double best) const {
        std::vector<uint32_t> servers;
        for (const holders &expert : experts)
            for (const uint32_t device : expert) servers.push_back(server_of(device));
        std::sort(servers.begin(), servers.end());
        servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
        if (servers.size() > 6) return best;
        for (uint32_t used = (1u << servers.size()) - 2; used != 0; --used) {
            std::array<uint32_t, 16> chosen{};
            bool enough = true;
            for (size_t expert = 0; expert < experts.size(); ++expert) {
                chosen[expert] = none;
                for (const uint32_t device : experts[expert]) {
                    const auto position =
                        std::lower_bound(servers.begin(), servers.end(), server_of(device));
                    if ((used >> (position - servers.begin()) & 1) == 0) continue;
                    if (chosen[expert] == none ||
                        alone_s(model, entry, device) < alone_s(model, entry, chosen[expert]))
                        chosen[expert] = device;
                }
                enough = enough && chosen[expert] != none;
            }
            if (enough)
                best = std::min(best, chosen_s(model, entry, {chosen.data(), experts.size()}));
        }
        return best;
    }
    double line_s(uint32_t model, uint32_t entry, uint32_t server, size_t count) const {
        const size_t link_index = link(model, entry, server);
        return std::max(
            there_line_s_[link_index],
            (returns_each_ ? static_cast<double>(count) : 1.0) * back_line_s_[link_index]);
    }
    double chosen_s(uint32_t model, uint32_t entry, std::span<const uint32_t> chosen) const {
        double total = 0, lines = 0;
        std::array<uint32_t, 16> devices{};
        for (size_t expert = 0; expert < chosen.size(); ++expert) {
            size_t count = 0;
            bool counted = false;
            for (size_t peer = 0; peer < chosen.size(); ++peer) {
                if (server_of(chosen[peer]) != server_of(chosen[expert])) continue;
                counted = counted || peer < expert;
                devices[count++] = chosen[peer];
            }
            if (counted) continue;
            const double part = server_s(model, entry, {devices.data(), count});
            const double line =
                shared_ ? line_s(model, entry, server_of(chosen[expert]), count) : 0;
            total = serial_ ? total + part : std::max(total, part - line);
            lines += line;
        }
        return total + lines;
    }

    // A server that may serve some of the experts.
    struct server_part {
        uint32_t server, has;              // the experts, by position
        double alone_s;                    // the least time for one of them
        std::array<uint32_t, 8> device{};  // [position]
    };
    std::vector<server_part> parts(uint32_t model, uint32_t entry,
                                   std::span<const holders> experts) const {
        std::vector<server_part> found;
        for (size_t expert = 0; expert < experts.size(); ++expert)
            for (const uint32_t device : experts[expert]) {
                const uint32_t server = server_of(device);
                auto position = std::find_if(
                    found.begin(), found.end(),
                    [server](const server_part &part) { return part.server == server; });
                if (position == found.end())
                    position =
                        found.insert(found.end(), {server, 0, alone_s(model, entry, device), {}});
                position->has |= 1u << expert;
                position->alone_s = std::min(position->alone_s, alone_s(model, entry, device));
                position->device[expert] = device;
            }
        std::sort(found.begin(), found.end(),
                  [](const server_part &left, const server_part &right) {
                      return left.alone_s != right.alone_s ? left.alone_s < right.alone_s
                                                           : left.server < right.server;
                  });
        // Among many servers with the same experts, only as many are considered as they have
        // experts: those that are nearest for one. This may miss a better way, but never invents
        // one.
        if (found.size() <= 8) return found;
        std::array<uint8_t, 256> seen{};
        std::erase_if(found, [&seen](const server_part &part) {
            return ++seen[part.has] > std::popcount(part.has);
        });
        return found;
    }
    // The least time for every subset of the experts that the servers so far serve.
    double assigned_s(uint32_t model, uint32_t entry, std::span<const holders> experts) const {
        std::array<double, 256> least, cost;
        const uint32_t full = (1u << experts.size()) - 1;
        std::fill_n(least.begin(), full + 1, infinity);
        least[0] = 0;
        for (const server_part &server : parts(model, entry, experts)) {
            for (uint32_t part = server.has; part != 0; part = (part - 1) & server.has) {
                std::array<uint32_t, 8> devices{};
                size_t count = 0;
                for (uint32_t left = part; left != 0; left &= left - 1)
                    devices[count++] = server.device[static_cast<size_t>(std::countr_zero(left))];
                cost[part] = server_s(model, entry, {devices.data(), count});
            }
            for (uint32_t set = full; set != 0; --set)
                for (uint32_t part = set & server.has; part != 0;
                     part = (part - 1) & set & server.has) {
                    const double rest_s = least[set ^ part];
                    least[set] = std::min(
                        least[set], serial_ ? rest_s + cost[part] : std::max(rest_s, cost[part]));
                }
        }
        return least[full];
    }

    const moorage_cluster cluster_;
    const moorage_demand demand_;
    const uint32_t servers_;
    const bool serial_, returns_each_, shared_;
    std::vector<uint32_t> server_entry_, entry_server_;
    std::vector<double> there_s_, back_s_;               // [M, entries, N]
    std::vector<double> there_line_s_, back_line_s_;     // [M, entries, N] without latency
    std::vector<double> alone_s_;                        // [M, entries, G]
    std::vector<uint32_t> rank_;                         // [M, G, entries]
    std::vector<double> absent_once_s_, absent_each_s_;  // [M, entries]
};

}  // namespace moorage::joint
