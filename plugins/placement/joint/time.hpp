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
    explicit layer_time(const latency_model &model)
        : cluster_(model.cluster()),
          demand_(model.demand()),
          servers_(cluster_.servers),
          serial_((cluster_.flags & MOORAGE_CALLS_SERIAL) != 0),
          each_((cluster_.flags & MOORAGE_RETURNS_EACH) != 0),
          shared_((cluster_.flags & MOORAGE_LINKS_SHARED) != 0 && !serial_),
          server_entry_(servers_, none) {
        for (uint32_t h = 0; h < cluster_.homes; ++h)
            server_entry_[cluster_.host_home_server[h]] = 0;
        for (uint32_t n = 0; n < servers_; ++n)
            if (server_entry_[n] != none) {
                server_entry_[n] = entries();
                entry_server_.push_back(n);
            }
        for (uint32_t m = 0; m < cluster_.models; ++m) read_model(model, m);
        rank_.assign(size_t{cluster_.models} * cluster_.devices * entries(), none);
        for (uint32_t m = 0; m < cluster_.models; ++m)
            for (uint32_t e = 0; e < entries(); ++e) rank_devices(m, e);
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
    bool returns_each() const { return each_; }

    // Requires: 1 to 16 experts.
    double layer_s(uint32_t model, uint32_t entry, std::span<const holders> of) const {
        std::array<uint32_t, 16> near{};
        std::array<holders, 16> far;
        size_t near_count = 0, far_count = 0;
        double absent = 0, total = 0;
        for (const holders &each : of) {
            if (each.empty())
                ++absent;
            else if (server_of(each[0]) == entry_server_[entry])
                near[near_count++] = each[0];
            else
                far[far_count++] = each;
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

    void rank_devices(uint32_t m, uint32_t e) {
        std::vector<double> times;
        for (uint32_t d = 0; d < cluster_.devices; ++d)
            if (reached(e, server_of(d))) times.push_back(alone_s(m, e, d));
        std::sort(times.begin(), times.end());
        for (uint32_t d = 0; d < cluster_.devices; ++d) {
            uint32_t &rank = rank_[(size_t{m} * cluster_.devices + d) * entries() + e];
            const auto at = std::lower_bound(times.begin(), times.end(), alone_s(m, e, d));
            if (reached(e, server_of(d))) rank = 1 + static_cast<uint32_t>(at - times.begin());
            if (server_of(d) == entry_server_[e]) rank = 0;
        }
    }

    void read_model(const latency_model &model, uint32_t m) {
        const auto bytes = static_cast<double>(demand_.host_hidden_bytes[m]);
        const auto message_s = [&](double rate, double s) {
            return rate > 0 ? s + bytes / rate : infinity;
        };
        for (const uint32_t at : entry_server_) {
            for (uint32_t n = 0; n < servers_; ++n) {
                const size_t to = size_t{at} * servers_ + n, from = size_t{n} * servers_ + at;
                double there = 0, back = 0;
                if (n != at) {
                    there = message_s(cluster_.host_link_bytes_per_s[to], cluster_.host_link_s[to]);
                    back =
                        message_s(cluster_.host_link_bytes_per_s[from], cluster_.host_link_s[from]);
                }
                const bool lined = shared_ && n != at;
                there_line_s_.push_back(lined ? message_s(cluster_.host_link_bytes_per_s[to], 0)
                                              : 0);
                back_line_s_.push_back(lined ? message_s(cluster_.host_link_bytes_per_s[from], 0)
                                             : 0);
                if (there + back == infinity) there = back = infinity;
                there_s_.push_back(there), back_s_.push_back(back);
            }
            const size_t links = there_s_.size() - servers_;
            for (uint32_t d = 0; d < cluster_.devices; ++d)
                alone_s_.push_back(there_s_[links + server_of(d)] + call_s(d, m) +
                                   back_s_[links + server_of(d)]);
            if (!has_cloud()) {
                absent_once_s_.push_back(0), absent_each_s_.push_back(model.absent_s(m));
                continue;
            }
            const double s = cluster_.host_cloud_s[at];
            const double back = message_s(cluster_.host_cloud_down_bytes_per_s[at], s);
            absent_once_s_.push_back(message_s(cluster_.host_cloud_up_bytes_per_s[at], s) +
                                     cluster_.host_cloud_call_s[m] + (each_ ? 0 : back));
            absent_each_s_.push_back(each_ ? back : 0);
        }
    }

    // Time on one server. A device that is named twice has two experts.
    double compute_s(uint32_t model, std::span<const uint32_t> devices) const {
        double longest = 0;
        for (size_t i = 0; i < devices.size(); ++i) {
            double sum = call_s(devices[i], model);
            if (!serial_)
                for (size_t j = 0; j < i; ++j)
                    if (devices[j] == devices[i]) sum += call_s(devices[i], model);
            longest = std::max(longest, sum);
        }
        return longest;
    }
    double server_s(uint32_t model, uint32_t entry, std::span<const uint32_t> devices) const {
        const size_t at = link(model, entry, server_of(devices[0]));
        return there_s_[at] + compute_s(model, devices) +
               (each_ ? static_cast<double>(devices.size()) : 1.0) * back_s_[at];
    }

    // The least time over all ways to assign experts to their holders, for up to 8. Beyond that,
    // and as a first try, each goes to the holder that is nearest alone.
    double far_s(uint32_t model, uint32_t entry, std::span<const holders> of) const {
        std::array<uint32_t, 16> chosen{};
        bool choice = false;
        double least = 0;
        for (size_t i = 0; i < of.size(); ++i) {
            chosen[i] = of[i][0];
            for (const uint32_t d : of[i].subspan(1))
                if (alone_s(model, entry, d) < alone_s(model, entry, chosen[i])) chosen[i] = d;
            choice = choice || of[i].size() > 1;
            least = std::max(least, alone_s(model, entry, chosen[i]));
        }
        const double nearest = chosen_s(model, entry, {chosen.data(), of.size()});
        if (shared_ && choice && of.size() <= 8) return shared_s(model, entry, of, nearest);
        if (!choice || of.size() > 8 || (!serial_ && nearest <= least)) return nearest;
        return std::min(nearest, assigned_s(model, entry, of));
    }
    // The best set of servers, if each call keeps the others waiting (latency.hpp).
    double shared_s(uint32_t model, uint32_t entry, std::span<const holders> of,
                    double best) const {
        std::vector<uint32_t> servers;
        for (const holders &each : of)
            for (const uint32_t d : each) servers.push_back(server_of(d));
        std::sort(servers.begin(), servers.end());
        servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
        if (servers.size() > 6) return best;
        for (uint32_t used = (1u << servers.size()) - 2; used != 0; --used) {
            std::array<uint32_t, 16> chosen{};
            bool enough = true;
            for (size_t i = 0; i < of.size(); ++i) {
                chosen[i] = none;
                for (const uint32_t d : of[i]) {
                    const auto at = std::lower_bound(servers.begin(), servers.end(), server_of(d));
                    if ((used >> (at - servers.begin()) & 1) == 0) continue;
                    if (chosen[i] == none ||
                        alone_s(model, entry, d) < alone_s(model, entry, chosen[i]))
                        chosen[i] = d;
                }
                enough = enough && chosen[i] != none;
            }
            if (enough) best = std::min(best, chosen_s(model, entry, {chosen.data(), of.size()}));
        }
        return best;
    }
    double line_s(uint32_t model, uint32_t entry, uint32_t server, size_t count) const {
        const size_t at = link(model, entry, server);
        return std::max(there_line_s_[at],
                        (each_ ? static_cast<double>(count) : 1.0) * back_line_s_[at]);
    }
    double chosen_s(uint32_t model, uint32_t entry, std::span<const uint32_t> chosen) const {
        double total = 0, lines = 0;
        std::array<uint32_t, 16> devices{};
        for (size_t i = 0; i < chosen.size(); ++i) {
            size_t count = 0;
            bool counted = false;
            for (size_t j = 0; j < chosen.size(); ++j) {
                if (server_of(chosen[j]) != server_of(chosen[i])) continue;
                counted = counted || j < i;
                devices[count++] = chosen[j];
            }
            if (counted) continue;
            const double part = server_s(model, entry, {devices.data(), count});
            const double line = shared_ ? line_s(model, entry, server_of(chosen[i]), count) : 0;
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
                                   std::span<const holders> of) const {
        std::vector<server_part> all;
        for (size_t i = 0; i < of.size(); ++i)
            for (const uint32_t d : of[i]) {
                const uint32_t n = server_of(d);
                auto at = std::find_if(all.begin(), all.end(),
                                       [n](const server_part &part) { return part.server == n; });
                if (at == all.end())
                    at = all.insert(all.end(), {n, 0, alone_s(model, entry, d), {}});
                at->has |= 1u << i;
                at->alone_s = std::min(at->alone_s, alone_s(model, entry, d));
                at->device[i] = d;
            }
        std::sort(all.begin(), all.end(), [](const server_part &a, const server_part &b) {
            return a.alone_s != b.alone_s ? a.alone_s < b.alone_s : a.server < b.server;
        });
        // Among many servers with the same experts, only as many are considered as they have
        // experts: those that are nearest for one. This may miss a better way, but never invents
        // one.
        if (all.size() <= 8) return all;
        std::array<uint8_t, 256> seen{};
        std::erase_if(all, [&seen](const server_part &part) {
            return ++seen[part.has] > std::popcount(part.has);
        });
        return all;
    }
    // The least time for every subset of the experts that the servers so far serve.
    double assigned_s(uint32_t model, uint32_t entry, std::span<const holders> of) const {
        std::array<double, 256> least, cost;
        const uint32_t full = (1u << of.size()) - 1;
        std::fill_n(least.begin(), full + 1, infinity);
        least[0] = 0;
        for (const server_part &by : parts(model, entry, of)) {
            for (uint32_t part = by.has; part != 0; part = (part - 1) & by.has) {
                std::array<uint32_t, 8> devices{};
                size_t count = 0;
                for (uint32_t left = part; left != 0; left &= left - 1)
                    devices[count++] = by.device[static_cast<size_t>(std::countr_zero(left))];
                cost[part] = server_s(model, entry, {devices.data(), count});
            }
            for (uint32_t set = full; set != 0; --set)
                for (uint32_t part = set & by.has; part != 0; part = (part - 1) & set & by.has) {
                    const double before = least[set ^ part];
                    least[set] = std::min(
                        least[set], serial_ ? before + cost[part] : std::max(before, cost[part]));
                }
        }
        return least[full];
    }

    const moorage_cluster cluster_;
    const moorage_demand demand_;
    const uint32_t servers_;
    const bool serial_, each_, shared_;
    std::vector<uint32_t> server_entry_, entry_server_;
    std::vector<double> there_s_, back_s_;               // [M, entries, N]
    std::vector<double> there_line_s_, back_line_s_;     // [M, entries, N] without latency
    std::vector<double> alone_s_;                        // [M, entries, G]
    std::vector<uint32_t> rank_;                         // [M, G, entries]
    std::vector<double> absent_once_s_, absent_each_s_;  // [M, entries]
};

}  // namespace moorage::joint
