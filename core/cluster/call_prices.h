// call_prices.h - estimates what it would cost one home now to have an expert computed elsewhere.
//
// An estimate counts what queues on links and devices now, but not what will come. It considers the
// nearest holders of an expert. Among equally near holders it takes those that follow the home's
// own device, so that homes spread over the copies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cluster/cluster_state.h"
#include "core/execute/peers.h"
#include "core/host/lent_memory.h"

namespace moorage::core {

class call_prices {
public:
    // `all` is borrowed.
    call_prices(cluster_state &all, const home_place &of);

    std::span<const uint8_t> distances() const { return distances_; }  // [servers]
    // Appends the time that each server with the page, or the cloud, would need for so many tokens.
    void offers(uint32_t page, uint32_t tokens, std::vector<remote_offer> &out);

    // Whether the device belongs to the home itself, on a server without GPUs. Its experts are
    // computed there, without a call to others.
    bool own(uint32_t device) const {
        return home_.device == MOORAGE_NONE && !user() &&
               distances_[device] == MOORAGE_DISTANCE_OWN;
    }

    // Whether a call to the device is a message: to another server, or from a user to any server.
    bool leaves(uint32_t device) const {
        return user() || distances_[device] != MOORAGE_DISTANCE_OWN;
    }

    // Channels: to a server and back; for a user, to its entry server and back.
    uint32_t there(uint32_t server) const { return ways_[server].there.channel; }
    uint32_t back(uint32_t server) const { return ways_[server].back.channel; }
    bool user() const { return up_.channel != MOORAGE_NONE; }
    uint32_t up() const { return up_.channel; }
    uint32_t down() const { return down_.channel; }

private:
    struct crossing {  // hidden states over one channel that is idle
        uint32_t channel = MOORAGE_NONE;
        uint64_t ns = MOORAGE_NEVER;  // for one token
        double more_ns = 0;           // for each further token
        uint64_t of(double more) const { return ns + static_cast<uint64_t>(more * more_ns); }
    };
    struct way {  // the way to one server's device, or to the cloud
        crossing there, back;
        uint64_t compute_ns;  // for one token, alone
        bool linked() const { return there.ns != MOORAGE_NEVER && back.ns != MOORAGE_NEVER; }
    };
    struct nearest {
        uint32_t version = 0, count = 0;
    };
    crossing make_crossing(uint32_t from, uint32_t to) const;
    remote_offer offer(uint32_t server, uint32_t tokens) const;
    std::span<const uint32_t> near(uint32_t page);

    cluster_state &all_;
    const home_place home_;
    lent_vector<uint8_t> distances_;
    std::vector<way> ways_;                  // [servers]
    crossing up_, down_;                     // for a user
    std::vector<nearest> nearest_;           // [pages]
    std::vector<uint32_t> nearest_devices_;  // [pages, offers_max]
};

}  // namespace moorage::core
