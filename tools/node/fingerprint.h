// fingerprint.h - 64 bits that two nodes derive independently from the things that they must have
// in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/config/arithmetic.h"
#include "core/model/model.h"
#include "tools/node/node_plan.h"

namespace moorage::core {

// FNV-1a of 64 bits. It is no defence against a deliberate collision.
class fingerprint {
public:
    void add(std::span<const std::byte> bytes) {
        for (const std::byte byte : bytes)
            value_ = (value_ ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
    }
    void add(uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }
    void add(std::string_view text) {
        add(uint64_t{text.size()});
        add(std::as_bytes(std::span(text)));
    }
    uint64_t value() const { return value_; }

private:
    uint64_t value_ = 0xcbf29ce484222325u;
};

// Covers the model's sizes, and the first bytes of every expert's matrices and of the routers. This
// reads one page of the files for each, not all of them. Also covers the form to which activations
// are rounded before they meet an expert.
uint64_t fingerprint_of(const model &model, arithmetic numbers);
// The upper half: names of the servers, in their order. The lower half: their addresses.
uint64_t cluster_fingerprint(std::span<const node_server> servers);
// Which keys of two clusters differ. Requires: they do.
std::string differing_key(uint64_t one_cluster, uint64_t other_cluster);
// Covers every copy, and the epoch.
uint64_t plan_fingerprint(const node_plan &plan);

}  // namespace moorage::core
