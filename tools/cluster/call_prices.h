// call_prices.h - estimates what it would cost one home now to have an expert computed elsewhere.
//
// An estimate counts what queues on links and devices now, but not what will come. It considers the
// nearest holders of an expert. Among equally near holders it takes those that follow the home's
// own device, so that homes spread over the copies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/cluster/cluster_state.h"
#include "core/execute/peers.h"
#include "core/host/lent_memory.h"

namespace moorage::core {

class call_prices {
public:
    // `state` is borrowed.
    call_prices(cluster_state &state, const home_place &place);

    std::span<const uint8_t> distances() const { return distances_; }  // [servers]
    // Appends the time that each server with the page, or the cloud, would need for so many tokens.
    void offers(uint32_t page, uint32_t tokens, std::vector<remote_offer> &offers);

    // Whether the device belongs to the home itself, on a server without GPUs. Its experts are
    // computed there, without a call to others.
    bool is_own(uint32_t device) const {
        return home_.device == MOORAGE_NONE && !is_user() &&
               distances_[device] == MOORAGE_DISTANCE_OWN;
    }

    // Whether a call to the device is a message: to another server, or from a user to any server.
    bool leaves_server(uint32_t device) const {
        return is_user() || distances_[device] != MOORAGE_DISTANCE_OWN;
    }

    // Channels: to a server and back; for a user, to its entry server and back.
    uint32_t outbound_channel(uint32_t server) const { return routes_[server].outbound.channel; }
    uint32_t inbound_channel(uint32_t server) const { return routes_[server].inbound.channel; }
    bool is_user() const { return uplink_.channel != MOORAGE_NONE; }
    uint32_t up_channel() const { return uplink_.channel; }
    uint32_t down_channel() const { return downlink_.channel; }

private:
    struct channel_time {  // hidden states over one channel that is idle
        uint32_t channel = MOORAGE_NONE;
        uint64_t ns = MOORAGE_NEVER;  // for one token
        double further_token_ns = 0;  // for each further token
        uint64_t time_ns(double further_tokens) const {
            return ns + static_cast<uint64_t>(further_tokens * further_token_ns);
        }
    };
    struct server_route {  // the way to one server's device, or to the cloud
        channel_time outbound, inbound;
        uint64_t compute_ns;  // for one token, alone
        bool is_linked() const {
            return outbound.ns != MOORAGE_NEVER && inbound.ns != MOORAGE_NEVER;
        }
    };
    struct nearest {
        uint32_t version = 0, count = 0;
    };
    channel_time make_crossing(uint32_t source, uint32_t target) const;
    remote_offer offer(uint32_t server, uint32_t tokens) const;
    std::span<const uint32_t> near(uint32_t page);

    cluster_state &state_;
    const home_place home_;
    lent_vector<uint8_t> distances_;
    std::vector<server_route> routes_;       // [servers]
    channel_time uplink_, downlink_;         // for a user
    std::vector<nearest> nearest_;           // [pages]
    std::vector<uint32_t> nearest_devices_;  // [pages, offers_max]
};

}  // namespace moorage::core
