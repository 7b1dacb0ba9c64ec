// call_times.hpp - the time of one call, from each entry to each device, for the joint policy.
#pragma once

#include <algorithm>
#include <vector>

#include "terms.hpp"

namespace moorage::joint {

class call_times {
public:
    explicit call_times(const latency_model &latency)
        : cluster_(latency.cluster()),
          servers_(cluster_.servers),
          serial_((cluster_.flags & MOORAGE_CALLS_SERIAL) != 0),
          returns_each_((cluster_.flags & MOORAGE_RETURNS_EACH) != 0),
          shared_((cluster_.flags & MOORAGE_LINKS_SHARED) != 0 && !serial_),
          server_entry_(servers_, none) {
        number_entries();
        for (uint32_t model = 0; model < cluster_.models; ++model) read_model(latency, model);
        rank_.assign(size_t{cluster_.models} * cluster_.devices * entries(), none);
        for (uint32_t model = 0; model < cluster_.models; ++model)
            for (uint32_t entry = 0; entry < entries(); ++entry) rank_devices(model, entry);
    }

    // Calls wait for each other. Otherwise the layer waits for the longest one.
    bool is_serial() const { return serial_; }
    // A server returns the output of each expert. Otherwise it returns their sum.
    bool returns_each() const { return returns_each_; }
    // Messages of parallel calls wait for each other.
    bool shares_links() const { return shared_; }
    bool has_cloud() const { return cluster_.host_cloud_s != nullptr; }
    uint32_t devices() const { return cluster_.devices; }
    uint32_t server_of(uint32_t device) const { return cluster_.host_device_server[device]; }
    uint32_t entries() const { return static_cast<uint32_t>(entry_server_.size()); }
    uint32_t entry_server(uint32_t entry) const { return entry_server_[entry]; }
    // none: no home enters through the server.
    uint32_t server_entry(uint32_t server) const { return server_entry_[server]; }

    // The computation alone.
    double call_s(uint32_t device, uint32_t model) const {
        return cluster_.host_device_call_s[size_t{device} * cluster_.models + model];
    }
    // Messages to a server and back. Infinite if there is no link in one of the directions.
    double request_s(uint32_t model, uint32_t entry, uint32_t server) const {
        return request_s_[link_index(model, entry, server)];
    }
    double reply_s(uint32_t model, uint32_t entry, uint32_t server) const {
        return reply_s_[link_index(model, entry, server)];
    }
    // How long the messages of a call with `count` experts keep a shared link busy.
    double busy_s(uint32_t model, uint32_t entry, uint32_t server, size_t count) const {
        const size_t link = link_index(model, entry, server);
        return std::max(request_busy_s_[link],
                        (returns_each_ ? static_cast<double>(count) : 1.0) * reply_busy_s_[link]);
    }
    bool is_reached(uint32_t entry, uint32_t server) const {
        return request_s(0, entry, server) < infinity;
    }

    // The whole time of the only missing expert of a layer, served by the device or by none.
    double alone_s(uint32_t model, uint32_t entry, uint32_t device) const {
        if (device == none) return absent_s(model, entry);
        return alone_s_[(size_t{model} * entries() + entry) * cluster_.devices + device];
    }
    const double *alone_s(uint32_t model, uint32_t entry) const {  // [devices]
        return &alone_s_[(size_t{model} * entries() + entry) * cluster_.devices];
    }
    // Whether the device serves the entry before the reference does.
    bool is_nearer(uint32_t model, uint32_t entry, uint32_t device, uint32_t reference) const {
        const double device_s = alone_s(model, entry, device),
                     reference_s = alone_s(model, entry, reference);
        return device_s != reference_s ? device_s < reference_s : device < reference;
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

    // The time of experts without a holder: all, a part that is paid once, a part for each.
    double absent_s(uint32_t model, uint32_t entry) const {
        return absent_once_s(model, entry) + absent_each_s(model, entry);
    }
    double absent_once_s(uint32_t model, uint32_t entry) const {
        return absent_once_s_[size_t{model} * entries() + entry];
    }
    double absent_each_s(uint32_t model, uint32_t entry) const {
        return absent_each_s_[size_t{model} * entries() + entry];
    }

private:
    size_t link_index(uint32_t model, uint32_t entry, uint32_t server) const {
        return (size_t{model} * entries() + entry) * servers_ + server;
    }
    static double message_s(double bytes, double bytes_per_s, double delay_s) {
        return bytes_per_s > 0 ? delay_s + bytes / bytes_per_s : infinity;
    }

    void number_entries() {
        for (uint32_t home = 0; home < cluster_.homes; ++home)
            server_entry_[cluster_.host_home_server[home]] = 0;
        for (uint32_t server = 0; server < servers_; ++server)
            if (server_entry_[server] != none) {
                server_entry_[server] = entries();
                entry_server_.push_back(server);
            }
    }

    void read_model(const latency_model &latency, uint32_t model) {
        const auto bytes = static_cast<double>(latency.demand().host_hidden_bytes[model]);
        for (const uint32_t own_server : entry_server_) {
            read_links(own_server, bytes);
            const size_t first_link = request_s_.size() - servers_;
            for (uint32_t device = 0; device < cluster_.devices; ++device)
                alone_s_.push_back(request_s_[first_link + server_of(device)] +
                                   call_s(device, model) +
                                   reply_s_[first_link + server_of(device)]);
            if (has_cloud())
                read_cloud(own_server, model, bytes);
            else
                absent_once_s_.push_back(0), absent_each_s_.push_back(latency.absent_s(model));
        }
    }

    void read_links(uint32_t own_server, double bytes) {
        for (uint32_t server = 0; server < servers_; ++server) {
            double request_s = 0, reply_s = 0, request_busy_s = 0, reply_busy_s = 0;
            if (server != own_server) {
                const size_t request_link = size_t{own_server} * servers_ + server,
                             reply_link = size_t{server} * servers_ + own_server;
                const double request_rate = cluster_.host_link_bytes_per_s[request_link],
                             reply_rate = cluster_.host_link_bytes_per_s[reply_link];
                request_s = message_s(bytes, request_rate, cluster_.host_link_s[request_link]);
                reply_s = message_s(bytes, reply_rate, cluster_.host_link_s[reply_link]);
                if (shared_) {
                    request_busy_s = message_s(bytes, request_rate, 0);
                    reply_busy_s = message_s(bytes, reply_rate, 0);
                }
            }
            if (request_s + reply_s == infinity) request_s = reply_s = infinity;
            request_s_.push_back(request_s), reply_s_.push_back(reply_s);
            request_busy_s_.push_back(request_busy_s), reply_busy_s_.push_back(reply_busy_s);
        }
    }

    void read_cloud(uint32_t own_server, uint32_t model, double bytes) {
        const double delay_s = cluster_.host_cloud_s[own_server];
        const double request_s =
            message_s(bytes, cluster_.host_cloud_up_bytes_per_s[own_server], delay_s);
        const double reply_s =
            message_s(bytes, cluster_.host_cloud_down_bytes_per_s[own_server], delay_s);
        absent_once_s_.push_back(request_s + cluster_.host_cloud_call_s[model] +
                                 (returns_each_ ? 0 : reply_s));
        absent_each_s_.push_back(returns_each_ ? reply_s : 0);
    }

    void rank_devices(uint32_t model, uint32_t entry) {
        std::vector<double> times;
        for (uint32_t device = 0; device < cluster_.devices; ++device)
            if (is_reached(entry, server_of(device)))
                times.push_back(alone_s(model, entry, device));
        std::sort(times.begin(), times.end());
        for (uint32_t device = 0; device < cluster_.devices; ++device) {
            uint32_t &rank = rank_[(size_t{model} * cluster_.devices + device) * entries() + entry];
            const auto position =
                std::lower_bound(times.begin(), times.end(), alone_s(model, entry, device));
            if (is_reached(entry, server_of(device)))
                rank = 1 + static_cast<uint32_t>(position - times.begin());
            if (server_of(device) == entry_server_[entry]) rank = 0;
        }
    }

    const moorage_cluster cluster_;
    const uint32_t servers_;
    const bool serial_, returns_each_, shared_;
    std::vector<uint32_t> server_entry_;                 // [servers]
    std::vector<uint32_t> entry_server_;                 // [entries]
    std::vector<double> request_s_, reply_s_;            // [models, entries, servers]
    std::vector<double> request_busy_s_, reply_busy_s_;  // the same without the link's delay
    std::vector<double> alone_s_;                        // [models, entries, devices]
    std::vector<uint32_t> rank_;                         // [models, devices, entries]
    std::vector<double> absent_once_s_, absent_each_s_;  // [models, entries]
};

}  // namespace moorage::joint
