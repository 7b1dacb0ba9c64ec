// node_plan.cpp - holders as one list, and what nodes compare of plan, cluster and model.
#include "tools/node/node_plan.h"

#include "core/execute/executor_module.h"
#include "tools/node/fingerprint.h"

namespace moorage::core {

void set_holders(node_plan &plan, std::span<const std::vector<uint32_t>> page_holders) {
    plan.first.assign(1, 0);
    plan.holders.clear();
    for (std::vector<uint32_t> servers : page_holders) {
        std::ranges::sort(servers);
        const auto end = std::unique(servers.begin(), servers.end());
        plan.holders.insert(plan.holders.end(), servers.begin(), end);
        plan.first.push_back(static_cast<uint32_t>(plan.holders.size()));
    }
    plan.plan = plan_fingerprint(plan);
}

namespace {

void add_first_bytes(fingerprint &hash, const matrix &weights) {
    constexpr uint64_t sample_bytes = 64;
    hash.add(static_cast<uint64_t>(weights.type));
    hash.add(weights.rows);
    hash.add(weights.columns);
    if (weights)
        hash.add({weights.data, static_cast<size_t>(std::min(bytes_of(weights), sample_bytes))});
}

}  // namespace

uint64_t fingerprint_of(const model &model, arithmetic numbers) {
    const model_config &config = model.config();
    fingerprint hash;
    hash.add(config.architecture);
    for (const uint32_t size : {config.layers, config.hidden, config.vocabulary, config.experts,
                                config.top_k, config.moe_intermediate})
        hash.add(size);
    const node_arithmetic &computing = node_arithmetic_of();
    for (const layer_weights &layer : model.weights().layers) {
        add_first_bytes(hash, layer.router);
        for (const mlp_weights &expert : layer.experts)
            for (const matrix *weights : {&expert.gate, &expert.up, &expert.down}) {
                add_first_bytes(hash, *weights);
                hash.add(computing.describe(weights->type, numbers));
            }
    }
    return hash.value();
}

uint64_t cluster_fingerprint(std::span<const node_server> servers) {
    fingerprint names, addresses;
    for (const node_server &server : servers) {
        names.add(server.name);
        addresses.add(uint64_t{server.addresses.size()});
        for (const std::string &address : server.addresses) addresses.add(address);
    }
    // Folded, so that each half depends on all bits.
    const auto folded = [](uint64_t value) { return (value ^ value >> 32) & UINT32_MAX; };
    return folded(names.value()) << 32 | folded(addresses.value());
}

std::string differing_key(uint64_t one_cluster, uint64_t other_cluster) {
    const bool names = one_cluster >> 32 != other_cluster >> 32;
    const bool addresses = (one_cluster & UINT32_MAX) != (other_cluster & UINT32_MAX);
    if (names && addresses) return "[[cluster.servers]] name and address";
    return names ? "[[cluster.servers]] name" : "[[cluster.servers]] address";
}

uint64_t plan_fingerprint(const node_plan &plan) {
    fingerprint hash;
    hash.add(plan.epoch);
    for (const uint32_t first : plan.first) hash.add(first);
    for (const uint32_t server : plan.holders) hash.add(server);
    return hash.value();
}

}  // namespace moorage::core
