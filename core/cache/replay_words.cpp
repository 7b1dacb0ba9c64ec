// replay_words.cpp - the words of a replay's settings, and what they mean for an lru.
#include "core/base/text.h"
#include "core/cache/replay.h"

namespace moorage::core {

uint32_t slots_without_lru_hits(uint32_t layers, uint32_t top_k, order requests) {
    // In rounds a layer comes up again after one expert of each other layer, else after top_k.
    return (layers - 1) * (requests == order::rounds ? 1 : top_k);
}

const char *name_of(order value) {
    switch (value) {
        case order::rounds:
            return "rounds";
        case order::serial:
            return "serial";
        case order::token:
            break;
    }
    return "token";
}

const char *name_of(sharing value) { return value == sharing::shared ? "shared" : "per-layer"; }

result<order> parse_order(std::string_view text) {
    for (const order value : {order::rounds, order::token, order::serial})
        if (text == name_of(value)) return value;
    return error{format("order {} is not known; rounds, token and serial are", text), true};
}

result<sharing> parse_sharing(std::string_view text) {
    for (const sharing value : {sharing::shared, sharing::per_layer})
        if (text == name_of(value)) return value;
    return error{format("sharing {} is not known; shared and per-layer are", text), true};
}

}  // namespace moorage::core
