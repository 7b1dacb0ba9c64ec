// cluster_world.cpp - draws servers, links, homes and statistics, in arrays with fences behind
// them.
#include "tools/moorage/check/cluster_world.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace moorage::check {

namespace {

constexpr uint64_t expert_bytes = 1u << 20;
constexpr uint32_t groups_of_layer = 5;  // sets of experts that are chosen together

}  // namespace

cluster_options cluster_variant(uint64_t number, uint64_t seed) {
    cluster_options o;
    using memory = cluster_options::memory;
    switch (number % cluster_variants) {
        case 0:
            break;
        case 1:
            o.memory_room = memory::tight, o.calls = true;
            break;
        case 2:
            o.memory_room = memory::scarce, o.cloud = o.users = o.calls = o.serial = true;
            o.homes = 5, o.models = 2;
            break;
        case 3:
            o.memory_room = memory::scarce;  // no plan exists
            break;
        case 4:
            o.cloud = true, o.models = 3, o.experts = 4;
            break;
        case 5:
            o.has_demand = false, o.devices = 3;
            break;
        case 6:
            o.servers = o.devices = o.homes = o.layers = o.experts = o.top_k = 1;
            o.memory_room = memory::tight;
            break;
        default:
            o.memory_room = memory::none, o.cloud = o.users = true;
            break;
    }
    o.seed = seed;
    return o;
}

cluster_world::cluster_world(const cluster_options &o)
    : options(o),
      draw_(o.seed * 2 + 3),
      expert_count_(o.models * o.layers * o.experts),
      calls_(o.calls ? uint64_t{o.homes} * o.models * o.layers * groups_of_layer : 0),
      groups_(o.calls ? uint64_t{o.models} * o.layers * groups_of_layer : 0),
      cluster_(1, o.arrays),
      demand_(1, o.arrays),
      device_server_(o.devices, o.arrays),
      home_server_(o.homes, o.arrays),
      model_first_(o.models + 1, o.arrays),
      model_layers_(o.models, o.arrays),
      model_experts_(o.models, o.arrays),
      model_top_k_(o.models, o.arrays),
      model_groups_(o.models, o.arrays),
      call_group_(calls_, o.arrays),
      group_experts_(groups_ * o.top_k, o.arrays),
      device_bytes_(o.devices, o.arrays),
      expert_bytes_(o.models, o.arrays),
      hidden_bytes_(o.models, o.arrays),
      home_first_call_(o.homes + 1, o.arrays),
      group_first_(groups_ + 1, o.arrays),
      device_load_(o.devices, o.arrays),
      device_call_(size_t{o.devices} * o.models, o.arrays),
      device_token_(size_t{o.devices} * o.models, o.arrays),
      link_rate_(size_t{o.servers} * o.servers, o.arrays),
      link_s_(size_t{o.servers} * o.servers, o.arrays),
      cloud_up_(o.servers, o.arrays),
      cloud_down_(o.servers, o.arrays),
      cloud_s_(o.servers, o.arrays),
      cloud_call_(o.models, o.arrays),
      home_up_(o.homes, o.arrays),
      home_down_(o.homes, o.arrays),
      home_call_(size_t{o.homes} * o.models, o.arrays),
      home_tokens_(o.homes, o.arrays),
      home_batch_(o.homes, o.arrays),
      home_model_(size_t{o.homes} * o.models, o.arrays),
      frequency_(size_t{o.homes} * expert_count_, o.arrays),
      call_share_(calls_, o.arrays),
      home_single_(o.homes, o.arrays),
      home_holds_(o.users ? size_t{o.homes} * expert_count_ : 0, o.arrays) {
    draw_cluster();
    draw_memory();
    draw_demand();
}

void cluster_world::draw_cluster() {
    const cluster_options &o = options;
    for (uint32_t g = 0; g < o.devices; ++g)
        device_server_[g] = std::min(g, o.servers - 1);  // the last server has what is left
    for (uint32_t g = 0; g < o.devices; ++g) device_load_[g] = 1e9 * (1 + draw_.below(8));
    for (double &s : device_call_.span()) s = 1e-5 * (1 + draw_.below(10));
    for (double &s : device_token_.span()) s = 1e-6 * (1 + draw_.below(5));
    for (uint32_t a = 0; a < o.servers; ++a)
        for (uint32_t b = 0; b < o.servers; ++b) {
            const size_t index = size_t{a} * o.servers + b;
            link_rate_[index] = a == b ? 0 : 1e8 * (1 + draw_.below(10));
            link_s_[index] = a == b ? 0 : 1e-4 * draw_.below(5);
        }
    for (uint32_t n = 0; n < o.servers; ++n) {
        cloud_up_[n] = draw_.one_in(3) ? std::numeric_limits<double>::infinity() : 1e7;
        cloud_down_[n] = 1e7, cloud_s_[n] = 0.05;
    }
    for (double &s : cloud_call_.span()) s = 1e-6;
    for (uint32_t h = 0; h < o.homes; ++h) {
        home_server_[h] = h % o.servers;
        const double rate = o.users ? 1e7 : std::numeric_limits<double>::infinity();
        home_up_[h] = home_down_[h] = rate;
    }
    for (double &s : home_call_.span()) s = o.users ? 1e-3 : 0;
    cluster_[0] = {sizeof(moorage_cluster),
                   o.serial ? uint32_t{MOORAGE_CALLS_SERIAL} | uint32_t{MOORAGE_RETURNS_EACH} : 0u,
                   o.servers,
                   o.devices,
                   o.homes,
                   o.models,
                   device_server_.data(),
                   device_bytes_.data(),
                   device_load_.data(),
                   device_call_.data(),
                   device_token_.data(),
                   link_rate_.data(),
                   link_s_.data(),
                   o.cloud ? cloud_up_.data() : nullptr,
                   o.cloud ? cloud_down_.data() : nullptr,
                   o.cloud ? cloud_s_.data() : nullptr,
                   o.cloud ? cloud_call_.data() : nullptr,
                   home_server_.data(),
                   home_up_.data(),
                   home_down_.data(),
                   home_call_.data()};
}

void cluster_world::draw_memory() {
    const cluster_options &o = options;
    using memory = cluster_options::memory;
    for (uint32_t m = 0; m < o.models; ++m) expert_bytes_[m] = expert_bytes * (m + 1);
    uint64_t total_bytes = 0;
    for (uint32_t m = 0; m < o.models; ++m)
        total_bytes += uint64_t{o.layers} * o.experts * expert_bytes_[m];
    for (uint32_t g = 0; g < o.devices; ++g)
        device_bytes_[g] =
            o.memory_room == memory::roomy ? total_bytes + draw_.below(expert_bytes) : 0;
    // Gives one slot after the other to a random device. A rest too small for a slot stays unused.
    uint64_t slots = o.memory_room == memory::tight    ? expert_count_
                     : o.memory_room == memory::scarce ? expert_count_ / 2
                                                       : 0;
    for (; slots > 0; --slots) device_bytes_[draw_.below(o.devices)] += expert_bytes;
    if (o.memory_room != memory::none)
        for (uint64_t &bytes : device_bytes_.span()) bytes += draw_.below(expert_bytes / 8);
}

void cluster_world::draw_demand() {
    const cluster_options &o = options;
    for (uint32_t m = 0; m < o.models; ++m) {
        model_first_[m] = m * o.layers * o.experts;
        model_layers_[m] = o.layers, model_experts_[m] = o.experts, model_top_k_[m] = o.top_k;
        model_groups_[m] = o.experts % 2 == 0 ? 2 : 1;
        hidden_bytes_[m] = 8192;
    }
    model_first_[o.models] = expert_count_;
    for (uint32_t h = 0; h < o.homes && o.has_demand; ++h) {
        home_tokens_[h] = 1 + draw_.below(20);
        home_batch_[h] = o.users ? 1 : 1 + draw_.below(8);
        home_single_[h] = home_batch_[h] > 1 ? 0.5 : 1;
        // Each home asks for at most two models, so some model may be asked for by nobody.
        const uint32_t model = h % std::min(o.models, 2u), share = 1 + draw_.below(4);
        home_model_[size_t{h} * o.models + model] = share / 4.0;
        home_model_[size_t{h} * o.models] += 1 - share / 4.0;
    }
    if (!o.has_demand) std::fill_n(home_batch_.data(), o.homes, 1.0);
    if (!o.has_demand) std::fill_n(home_single_.data(), o.homes, 1.0);
    drift();
    for (uint8_t &holds : home_holds_.span()) holds = draw_.one_in(8);
    demand_[0] = {sizeof(moorage_demand),
                  0,
                  o.models,
                  o.homes,
                  model_first_.data(),
                  model_layers_.data(),
                  model_experts_.data(),
                  model_top_k_.data(),
                  model_groups_.data(),
                  expert_bytes_.data(),
                  hidden_bytes_.data(),
                  home_tokens_.data(),
                  home_batch_.data(),
                  home_model_.data(),
                  frequency_.data(),
                  calls_,
                  calls_ ? home_first_call_.data() : nullptr,
                  calls_ ? call_group_.data() : nullptr,
                  calls_ ? call_share_.data() : nullptr,
                  groups_,
                  groups_ ? group_first_.data() : nullptr,
                  groups_ ? group_experts_.data() : nullptr,
                  o.users ? home_holds_.data() : nullptr,
                  o.has_demand ? 60.0 : 0.0,
                  home_single_.data()};
}

// Draws the groups of every layer. Shares sum to one; frequencies are the sums over the groups.
void cluster_world::drift() {
    const cluster_options &o = options;
    std::fill_n(frequency_.data(), frequency_.capacity(), 0.0);
    if (!o.has_demand) return;
    const uint32_t layers = o.models * o.layers;
    std::vector<uint32_t> drawn(size_t{layers} * groups_of_layer * o.top_k);
    for (uint32_t y = 0; y < layers * groups_of_layer; ++y) {
        uint32_t *group = drawn.data() + size_t{y} * o.top_k;
        draw_.distinct(o.experts, o.top_k, group);
        std::sort(group, group + o.top_k);
        for (uint32_t k = 0; k < o.top_k; ++k) group[k] += y / groups_of_layer * o.experts;
    }
    uint64_t call = 0;
    for (uint32_t h = 0; h < o.homes; ++h) {
        if (calls_) home_first_call_[h] = call;
        for (uint32_t layer = 0; layer < layers; ++layer) {
            const double model = home_model_[size_t{h} * o.models + layer / o.layers];
            uint32_t weights[groups_of_layer];
            for (uint32_t &weight : weights) weight = 1 + draw_.below(9);
            const double sum = std::accumulate(std::begin(weights), std::end(weights), 0.0);
            for (uint32_t i = 0; i < groups_of_layer; ++i, ++call) {
                const uint32_t y = layer * groups_of_layer + i;
                const double share = model * weights[i] / sum;
                if (calls_) call_group_[call] = y, call_share_[call] = share;
                for (uint32_t k = 0; k < o.top_k; ++k)
                    frequency_[size_t{h} * expert_count_ + drawn[size_t{y} * o.top_k + k]] += share;
            }
        }
    }
    if (!calls_) return;
    home_first_call_[o.homes] = call;
    std::copy(drawn.begin(), drawn.end(), group_experts_.data());
    for (uint64_t y = 0; y <= groups_; ++y) group_first_[y] = y * o.top_k;
}

uint64_t cluster_world::bytes_of(uint32_t expert) {
    return expert_bytes_[expert / (options.layers * options.experts)];
}

bool cluster_world::is_requested(uint32_t expert) {
    const uint32_t model = expert / (options.layers * options.experts);
    for (uint32_t h = 0; h < options.homes; ++h)
        if (home_model_[size_t{h} * options.models + model] > 0) return true;
    return false;
}

uint64_t cluster_world::checksum() {
    uint64_t sum = 0xcbf29ce484222325u;
    const auto add_arrays = [&](auto &...arrays) {
        const auto add_array = [&](auto &array) {
            for (const auto &element : array.span()) {
                unsigned char bytes[sizeof(element)];
                std::memcpy(bytes, &element, sizeof(element));
                for (const unsigned char byte : bytes) sum = (sum ^ byte) * 0x100000001b3u;
            }
        };
        (add_array(arrays), ...);
    };
    add_arrays(cluster_, demand_, device_server_, home_server_, model_first_, model_layers_,
               model_experts_, model_top_k_, model_groups_, call_group_, group_experts_,
               device_bytes_, expert_bytes_, hidden_bytes_, home_first_call_, group_first_,
               device_load_, device_call_, device_token_, link_rate_, link_s_, cloud_up_,
               cloud_down_, cloud_s_, cloud_call_, home_up_, home_down_, home_call_, home_tokens_,
               home_batch_, home_model_, frequency_, call_share_, home_single_, home_holds_);
    return sum;
}

bool cluster_world::intact() const {
    const auto all_intact = [](const auto &...arrays) { return (arrays.intact() && ...); };
    return all_intact(cluster_, demand_, device_server_, home_server_, model_first_, model_layers_,
                      model_experts_, model_top_k_, model_groups_, call_group_, group_experts_,
                      device_bytes_, expert_bytes_, hidden_bytes_, home_first_call_, group_first_,
                      device_load_, device_call_, device_token_, link_rate_, link_s_, cloud_up_,
                      cloud_down_, cloud_s_, cloud_call_, home_up_, home_down_, home_call_,
                      home_tokens_, home_batch_, home_model_, frequency_, call_share_, home_single_,
                      home_holds_);
}

}  // namespace moorage::check
