// layer_time.hpp - the time of a layer from the holders of its experts, for the joint policy.
//
// The same time as that of moorage/latency.hpp; a test compares them. It needs no placement: an
// expert counts by the devices that would serve it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "call_times.hpp"

namespace moorage::joint {

// For tokens of one model that enter through one entry.
class layer_time {
public:
    layer_time(const call_times &times, uint32_t model, uint32_t entry)
        : times_(times), serial_(times.is_serial()), model_(model), entry_(entry) {}

    // Requires: 1 to 16 experts.
    double seconds(std::span<const holders> experts) const {
        std::array<uint32_t, 16> own_devices{};
        std::array<holders, 16> far_experts;
        size_t own_count = 0, far_count = 0;
        double absent = 0, total = 0;
        for (const holders &expert : experts) {
            if (expert.empty())
                ++absent;
            else if (times_.server_of(expert[0]) == times_.entry_server(entry_))
                own_devices[own_count++] = expert[0];
            else
                far_experts[far_count++] = expert;
        }
        if (own_count != 0) total = compute_s({own_devices.data(), own_count});
        const auto add_part = [&](double part) {
            total = serial_ ? total + part : std::max(total, part);
        };
        if (far_count != 0) add_part(far_s({far_experts.data(), far_count}));
        if (absent != 0)
            add_part(times_.absent_once_s(model_, entry_) +
                     absent * times_.absent_each_s(model_, entry_));
        return total;
    }

private:
    // Experts by position, as bits of a number.
    using expert_mask = uint32_t;
    static constexpr size_t assigned_most = 8;  // experts for which all ways are tried

    // A server that may serve some of the experts.
    struct server_part {
        uint32_t server;
        expert_mask held;
        double alone_s;  // the least time for one of them
        std::array<uint32_t, assigned_most> device{};
    };

    double alone_s(uint32_t device) const { return times_.alone_s(model_, entry_, device); }

    // Time on one server. A device that is named twice has two experts.
    double compute_s(std::span<const uint32_t> devices) const {
        double longest = 0;
        for (size_t index = 0; index < devices.size(); ++index) {
            double sum = times_.call_s(devices[index], model_);
            if (!serial_)
                for (size_t earlier = 0; earlier < index; ++earlier)
                    if (devices[earlier] == devices[index])
                        sum += times_.call_s(devices[index], model_);
            longest = std::max(longest, sum);
        }
        return longest;
    }
    // The same with the messages there and back.
    double server_s(std::span<const uint32_t> devices) const {
        const uint32_t server = times_.server_of(devices[0]);
        return times_.request_s(model_, entry_, server) + compute_s(devices) +
               (times_.returns_each() ? static_cast<double>(devices.size()) : 1.0) *
                   times_.reply_s(model_, entry_, server);
    }

    // The least time over all ways to assign experts to their holders, for up to 8. Beyond that,
    // and as a first try, each goes to the holder that is nearest alone.
    double far_s(std::span<const holders> experts) const {
        std::array<uint32_t, 16> chosen{};
        bool has_choice = false;
        double least = 0;
        for (size_t expert = 0; expert < experts.size(); ++expert) {
            chosen[expert] = experts[expert][0];
            for (const uint32_t device : experts[expert].subspan(1))
                if (alone_s(device) < alone_s(chosen[expert])) chosen[expert] = device;
            has_choice = has_choice || experts[expert].size() > 1;
            least = std::max(least, alone_s(chosen[expert]));
        }
        const double nearest = chosen_s({chosen.data(), experts.size()});
        const bool few = experts.size() <= assigned_most;
        if (times_.shares_links() && has_choice && few) return shared_s(experts, nearest);
        if (!has_choice || !few || (!serial_ && nearest <= least)) return nearest;
        return std::min(nearest, assigned_s(experts));
    }

    // The time if each expert goes to its chosen device.
    double chosen_s(std::span<const uint32_t> chosen) const {
        double total = 0, busy_sum = 0;
        std::array<uint32_t, 16> devices{};
        for (size_t expert = 0; expert < chosen.size(); ++expert) {
            size_t count = 0;
            bool counted = false;
            for (size_t peer = 0; peer < chosen.size(); ++peer) {
                if (times_.server_of(chosen[peer]) != times_.server_of(chosen[expert])) continue;
                counted = counted || peer < expert;
                devices[count++] = chosen[peer];
            }
            if (counted) continue;
            const double part = server_s({devices.data(), count});
            const double busy =
                times_.shares_links()
                    ? times_.busy_s(model_, entry_, times_.server_of(chosen[expert]), count)
                    : 0;
            total = serial_ ? total + part : std::max(total, part - busy);
            busy_sum += busy;
        }
        return total + busy_sum;
    }

    // The best set of servers, if each call keeps the others waiting (moorage/latency.hpp).
    double shared_s(std::span<const holders> experts, double best) const {
        std::vector<uint32_t> servers;
        for (const holders &expert : experts)
            for (const uint32_t device : expert) servers.push_back(times_.server_of(device));
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
                        std::lower_bound(servers.begin(), servers.end(), times_.server_of(device));
                    if ((used >> (position - servers.begin()) & 1) == 0) continue;
                    if (chosen[expert] == none || alone_s(device) < alone_s(chosen[expert]))
                        chosen[expert] = device;
                }
                enough = enough && chosen[expert] != none;
            }
            if (enough) best = std::min(best, chosen_s({chosen.data(), experts.size()}));
        }
        return best;
    }

    // Servers that hold some of the experts, the nearest first.
    std::vector<server_part> find_parts(std::span<const holders> experts) const {
        std::vector<server_part> found;
        for (size_t expert = 0; expert < experts.size(); ++expert)
            for (const uint32_t device : experts[expert]) {
                const uint32_t server = times_.server_of(device);
                auto position = std::find_if(
                    found.begin(), found.end(),
                    [server](const server_part &part) { return part.server == server; });
                if (position == found.end())
                    position = found.insert(found.end(), {server, 0, alone_s(device), {}});
                position->held |= 1u << expert;
                position->alone_s = std::min(position->alone_s, alone_s(device));
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
            return ++seen[part.held] > std::popcount(part.held);
        });
        return found;
    }

    // The least time over all ways to assign at most 8 experts. Server after server, it finds the
    // least time for every subset of the experts that the servers so far serve.
    double assigned_s(std::span<const holders> experts) const {
        std::array<double, 256> least, part_s;
        const expert_mask full = (1u << experts.size()) - 1;
        std::fill_n(least.begin(), full + 1, infinity);
        least[0] = 0;
        for (const server_part &server : find_parts(experts)) {
            for (expert_mask part = server.held; part != 0; part = (part - 1) & server.held) {
                std::array<uint32_t, assigned_most> devices{};
                size_t count = 0;
                for (expert_mask left = part; left != 0; left &= left - 1)
                    devices[count++] = server.device[static_cast<size_t>(std::countr_zero(left))];
                part_s[part] = server_s({devices.data(), count});
            }
            for (expert_mask subset = full; subset != 0; --subset)
                for (expert_mask part = subset & server.held; part != 0;
                     part = (part - 1) & subset & server.held) {
                    const double rest_s = least[subset ^ part];
                    least[subset] =
                        std::min(least[subset],
                                 serial_ ? rest_s + part_s[part] : std::max(rest_s, part_s[part]));
                }
        }
        return least[full];
    }

    const call_times &times_;
    const bool serial_;
    const uint32_t model_, entry_;
};

}  // namespace moorage::joint
