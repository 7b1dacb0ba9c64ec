// batch.hpp - what it adds that the tokens of a batch pass a layer together (Apache-2.0).
//
//   moorage::batch_model batches(cluster, demand);
//   if (batches.any()) more_s = batches.extra_s(entry, first, holders);   // of one layer
//
// Latency is that of a token alone (latency.hpp). Where B tokens of a home pass together, the pass
// takes what one token takes and what the others add to the work that the layer waits for,
//
//     pass_s(B) = token_s + F(B) - F(1),   and a token's part of it is pass_s(B) / B,
//     F(B) = the most over servers n of  messages(n) + the most over its devices of work(d)
//
// with what is expected of B tokens, of which each chooses x with a chance of f(x), u(n) calls the
// server n at all, and some one chooses x with a chance of p(x) = 1 - (1 - f(x))^B:
//
//     messages(n) = B u(n) bytes / rate there + B u(n) bytes / rate back;  u(n) = 1 - prod (1 - f)
//     work(d)     = sum over x served by d of  p(x) call_s + (B f(x) - p(x)) token_s
//
// The sum instead of the most where calls are serial, B sum f(x) messages back where outputs return
// one by one; where links are shared the messages of all servers add up. The home's own server
// needs no messages. An expert goes to the server nearest for it alone, to equally near ones in
// equal parts. That is the mean of the parts, not of the longest: of many tokens the same, of few
// token_s has it. Tokens of several models pass apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "moorage/placement.h"

namespace moorage {

class batch_model {
public:
    static constexpr uint32_t none = 0xffffffffu;

    // Requires: both as placement.h says, and alive as long as the model. Servers that homes enter
    // by are numbered through as entries, as in latency.hpp.
    batch_model(const moorage_cluster &cluster, const moorage_demand &demand);

    // Whether some batch has more than one token.
    bool any() const { return any_; }
    // Mean over the entry's homes.
    double batch(uint32_t entry) const { return batch_[entry]; }
    // Seconds a token, mean over all homes, that the entry's homes add in the layer that begins
    // with expert `first`: their weight times (F(B) - F(1)) / B. `holders.at(x, server)` is the
    // expert's device there or none, `holders.each(x, f)` calls f(server, device) for all that hold
    // it. Not for several threads at once.
    template <class Holders>
    double extra_s(uint32_t entry, uint32_t first, const Holders &holders) const;

private:
    static constexpr uint32_t parts_max = 4;  // equally near holders that share an expert

    // Of one server in the running layer, for B tokens and for one.
    struct server_sum {
        double missed = 1, returns = 0;
        double work[2] = {0, 0};  // of its device with the most
    };
    void read_homes();
    template <class Holders>
    void add_expert(uint32_t x, uint32_t entry, const Holders &holders) const;
    void add_work(uint32_t x, uint32_t entry, uint32_t server, uint32_t device, double part) const;
    double trip_s(uint32_t entry, uint32_t server) const;
    double messages_s(uint32_t entry, uint32_t server, double tokens) const;
    double layer_s(uint32_t entry, double tokens, size_t which) const;

    moorage_cluster cluster_;
    moorage_demand demand_;
    uint32_t experts_, entries_ = 0;
    bool any_ = false, serial_, each_, shared_;
    std::vector<uint32_t> expert_model_, entry_server_, server_entry_;
    std::vector<double> weight_, batch_;  // [entries]
    std::vector<double> share_;           // [entries, M] of the entry's tokens
    std::vector<double> chosen_;          // [X, entries] of the model's tokens
    // Of the layer that is added up.
    mutable uint32_t model_ = 0;
    mutable std::vector<server_sum> sums_;                   // [N + 1], the cloud last
    mutable std::vector<std::pair<double, double>> device_;  // [G] work for B and for one
    mutable std::vector<std::pair<uint32_t, uint32_t>> near_;
    mutable std::vector<uint32_t> touched_;
};

inline batch_model::batch_model(const moorage_cluster &cluster, const moorage_demand &demand)
    : cluster_(cluster),
      demand_(demand),
      experts_(demand.host_model_first[demand.models]),
      serial_((cluster.flags & MOORAGE_CALLS_SERIAL) != 0),
      each_((cluster.flags & MOORAGE_RETURNS_EACH) != 0),
      shared_((cluster.flags & MOORAGE_LINKS_SHARED) != 0),
      server_entry_(cluster.servers, none) {
    for (uint32_t h = 0; h < demand.homes; ++h)
        any_ = any_ || (demand.host_home_batch[h] > 1 && demand.host_home_tokens_per_s[h] > 0);
    if (!any_) return;
    for (uint32_t h = 0; h < cluster.homes; ++h) server_entry_[cluster.host_home_server[h]] = 0;
    for (uint32_t n = 0; n < cluster.servers; ++n) {
        if (server_entry_[n] == none) continue;
        server_entry_[n] = entries_++;
        entry_server_.push_back(n);
    }
    for (uint32_t m = 0; m < demand.models; ++m)
        expert_model_.resize(demand.host_model_first[m + 1], m);
    sums_.resize(size_t{cluster.servers} + 1), device_.resize(cluster.devices);
    read_homes();
}

inline void batch_model::read_homes() {
    weight_.assign(entries_, 0), batch_.assign(entries_, 0);
    share_.assign(size_t{entries_} * demand_.models, 0);
    chosen_.assign(size_t{experts_} * entries_, 0);
    double all = 0;
    for (uint32_t h = 0; h < demand_.homes; ++h) all += demand_.host_home_tokens_per_s[h];
    for (uint32_t h = 0; h < demand_.homes; ++h) {
        const double weight = all > 0 ? demand_.host_home_tokens_per_s[h] / all : 0;
        const uint32_t e = server_entry_[cluster_.host_home_server[h]];
        weight_[e] += weight;
        batch_[e] += weight * demand_.host_home_batch[h];
        for (uint32_t m = 0; m < demand_.models; ++m)
            share_[size_t{e} * demand_.models + m] +=
                weight * demand_.host_home_model[size_t{h} * demand_.models + m];
        const double *frequency = demand_.host_frequency + size_t{h} * experts_;
        const uint8_t *held =
            demand_.host_home_holds ? demand_.host_home_holds + size_t{h} * experts_ : nullptr;
        for (uint32_t x = 0; x < experts_; ++x)
            if (!held || held[x] == 0) chosen_[size_t{x} * entries_ + e] += weight * frequency[x];
    }
    for (uint32_t e = 0; e < entries_; ++e) {
        batch_[e] = weight_[e] > 0 ? std::max(1.0, batch_[e] / weight_[e]) : 1;
        for (uint32_t x = 0; x < experts_; ++x) {
            const double tokens = share_[size_t{e} * demand_.models + expert_model_[x]];
            double &chosen = chosen_[size_t{x} * entries_ + e];
            chosen = tokens > 0 ? std::min(1.0, chosen / tokens) : 0;
        }
    }
}

inline void batch_model::add_work(uint32_t x, uint32_t entry, uint32_t server, uint32_t device,
                                  double part) const {
    const double f = part * chosen_[size_t{x} * entries_ + entry], tokens = batch_[entry];
    const size_t at = size_t{device} * cluster_.models + model_;
    const double call_s = cluster_.host_device_call_s[at];
    const double some = f >= 1 ? 1 : 1 - std::pow(1 - f, tokens);
    auto &[many, one] = device_[device];
    many += some * call_s + (tokens * f - some) * cluster_.host_device_token_s[at];
    one += f * call_s;
    server_sum &sum = sums_[server];
    if (sum.returns == 0) touched_.push_back(server);
    sum.missed *= 1 - f, sum.returns += f;
    sum.work[0] = std::max(sum.work[0], many), sum.work[1] = std::max(sum.work[1], one);
}

// To its nearest holders: the home's own server, or those that take least for it alone.
template <class Holders>
void batch_model::add_expert(uint32_t x, uint32_t entry, const Holders &holders) const {
    const double f = chosen_[size_t{x} * entries_ + entry];
    if (f <= 0) return;
    const uint32_t own = entry_server_[entry];
    if (const uint32_t device = holders.at(x, own); device != none)
        return add_work(x, entry, own, device, 1);
    near_.clear();
    double least = std::numeric_limits<double>::infinity();
    holders.each(x, [&](uint32_t n, uint32_t device) {
        const double alone = trip_s(entry, n) +
                             cluster_.host_device_call_s[size_t{device} * cluster_.models + model_];
        if (!(alone < least * (1 + 1e-9))) return;
        if (alone < least * (1 - 1e-9)) near_.clear();
        least = std::min(least, alone);
        if (near_.size() < parts_max) near_.emplace_back(n, device);
    });
    for (const auto &[n, device] : near_)
        add_work(x, entry, n, device, 1.0 / static_cast<double>(near_.size()));
    if (!near_.empty()) return;
    server_sum &cloud = sums_[cluster_.servers];
    if (cloud.returns == 0) touched_.push_back(cluster_.servers);
    const double call_s = cluster_.host_cloud_call_s ? cluster_.host_cloud_call_s[model_] : 0;
    cloud.missed *= 1 - f, cloud.returns += f;
    cloud.work[0] += batch_[entry] * f * call_s, cloud.work[1] += f * call_s;
}

// One hidden state there and back.
inline double batch_model::trip_s(uint32_t entry, uint32_t server) const {
    const uint32_t own = entry_server_[entry];
    const size_t to = size_t{own} * cluster_.servers + server;
    const size_t from = size_t{server} * cluster_.servers + own;
    const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model_]);
    const double there = cluster_.host_link_bytes_per_s[to];
    const double back = cluster_.host_link_bytes_per_s[from];
    if (!(there > 0) || !(back > 0)) return std::numeric_limits<double>::infinity();
    return cluster_.host_link_s[to] + cluster_.host_link_s[from] + bytes / there + bytes / back;
}

// Hidden states of so many tokens there, and as many back; of the cloud, where there is one.
inline double batch_model::messages_s(uint32_t entry, uint32_t server, double tokens) const {
    const uint32_t own = entry_server_[entry];
    if (server == own) return 0;
    const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model_]);
    const server_sum &sum = sums_[server];
    const double called = 1 - sum.missed, returned = each_ ? sum.returns : called;
    double there = 0, back = 0;
    if (server < cluster_.servers) {
        there = cluster_.host_link_bytes_per_s[size_t{own} * cluster_.servers + server];
        back = cluster_.host_link_bytes_per_s[size_t{server} * cluster_.servers + own];
    } else if (cluster_.host_cloud_s) {
        there = cluster_.host_cloud_up_bytes_per_s[own];
        back = cluster_.host_cloud_down_bytes_per_s[own];
    } else {
        return 0;
    }
    return tokens * bytes * (called / there + returned / back);
}

// F of the layer that was added up: `which` 0 for B tokens, 1 for one.
inline double batch_model::layer_s(uint32_t entry, double tokens, size_t which) const {
    double all = 0, messages = 0;
    for (const uint32_t n : touched_) {
        const double sent = messages_s(entry, n, tokens), work = sums_[n].work[which];
        messages += sent;
        if (serial_)
            all += sent + work;
        else
            all = std::max(all, shared_ ? work : sent + work);
    }
    return shared_ && !serial_ ? all + messages : all;
}

template <class Holders>
double batch_model::extra_s(uint32_t entry, uint32_t first, const Holders &holders) const {
    model_ = expert_model_[first];
    const double tokens = batch_[entry];
    const double share = share_[size_t{entry} * demand_.models + model_];
    if (tokens <= 1 || share <= 0) return 0;
    touched_.clear();
    for (uint32_t x = first; x < first + demand_.host_model_experts[model_]; ++x)
        add_expert(x, entry, holders);
    const double more = layer_s(entry, tokens, 0) - layer_s(entry, 1, 1);
    for (const uint32_t n : touched_) sums_[n] = {};
    std::fill(device_.begin(), device_.end(), std::pair(0.0, 0.0));
    return share * std::max(0.0, more) / tokens;
}

}  // namespace moorage
