// node_plan.h - who takes part and who holds what: the knowledge that all nodes of a cluster share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/protocol/messages.h"

namespace moorage::core {

struct node_server {
    std::string name;
    std::vector<std::string> addresses;  // addresses of one node; empty: nobody can call it
};

struct node_plan {
    std::vector<node_server> servers;
    uint64_t epoch = 1;
    uint64_t cluster = 0, model = 0, plan = 0;  // fingerprints
    peer_sizes sizes;
    uint32_t top_k = 0;
    std::string model_name;
    // Servers that hold a page, ascending: [first[page], first[page + 1]) of holders.
    std::vector<uint32_t> first, holders;

    uint32_t pages() const { return sizes.layers * sizes.experts; }
    std::span<const uint32_t> holders_of(uint32_t page) const {
        return std::span(holders).subspan(first[page], first[page + 1] - first[page]);
    }
    bool holds(uint32_t server, uint32_t page) const {
        const auto page_holders = holders_of(page);
        return std::binary_search(page_holders.begin(), page_holders.end(), server);
    }
    uint32_t held_by(uint32_t server) const {
        return static_cast<uint32_t>(std::ranges::count(holders, server));
    }
};

// Sets the holders of each page, in any order. A server named twice counts once.
void set_holders(node_plan &plan, std::span<const std::vector<uint32_t>> page_holders);

}  // namespace moorage::core
