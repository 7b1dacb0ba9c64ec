// node_plan.cpp - holders as one list, and what nodes compare of plan, cluster and model.
#include "core/node/node_plan.h"

#include "core/execute/cpu/activation_form.h"
#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_codes.h"
#include "core/node/fingerprint.h"

namespace moorage::core {

void set_holders(node_plan &of, std::span<const std::vector<uint32_t>> of_pages) {
    of.first.assign(1, 0);
    of.holders.clear();
    for (std::vector<uint32_t> servers : of_pages) {
        std::ranges::sort(servers);
        const auto end = std::unique(servers.begin(), servers.end());
        of.holders.insert(of.holders.end(), servers.begin(), end);
        of.first.push_back(static_cast<uint32_t>(of.holders.size()));
    }
    of.plan = plan_fingerprint(of);
}

namespace {

void add_first_bytes(fingerprint &to, const matrix &of) {
    constexpr uint64_t sample_bytes = 64;
    to.add(static_cast<uint64_t>(of.type));
    to.add(of.rows);
    to.add(of.columns);
    if (of) to.add({of.data, static_cast<size_t>(std::min(bytes_of(of), sample_bytes))});
}

}  // namespace

uint64_t fingerprint_of(const model &of, arithmetic numbers) {
    const model_config &config = of.config();
    fingerprint made;
    made.add(config.architecture);
    for (const uint32_t size : {config.layers, config.hidden, config.vocabulary, config.experts,
                                config.top_k, config.moe_intermediate})
        made.add(size);
    bool pairs = false;
    for (const layer_weights &layer : of.weights().layers) {
        add_first_bytes(made, layer.router);
        for (const mlp_weights &expert : layer.experts)
            for (const matrix *one : {&expert.gate, &expert.up, &expert.down}) {
                add_first_bytes(made, *one);
                const activation_form form = form_of(numbers, one->type);
                made.add(static_cast<uint64_t>(form));
                // The size of a block that shares a scale. A build that rounds otherwise computes
                // another model.
                if (form == activation_form::codes) made.add(uint64_t{CODE_BLOCK});
                pairs |= form == activation_form::bfloats;
            }
    }
    if (pairs) made.add(pair_products());
    return made.value();
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

uint64_t plan_fingerprint(const node_plan &of) {
    fingerprint made;
    made.add(of.epoch);
    for (const uint32_t at : of.first) made.add(at);
    for (const uint32_t server : of.holders) made.add(server);
    return made.value();
}

}  // namespace moorage::core
