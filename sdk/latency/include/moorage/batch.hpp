// batch.hpp - the extra time when the tokens of a batch pass a layer together (Apache-2.0).
//
//   moorage::batch_model batches(cluster, demand);
//   if (batches.any()) more_s = batches.extra_s(entry, first, holders);   // of one layer
//
// latency.hpp gives the latency of a token alone. If B tokens of a home pass together, the pass
// takes the time of one token. On top comes what the other tokens add to the work that the layer
// waits for:
//
//     pass_s(B) = token_s + F(B) - F(1),   and a token's part of it is pass_s(B) / B.
//
// The tokens of a prompt pass together, those of the output one by one. Let passes have b tokens in
// the mean, and let a share s of the passes have one token. Then the other passes have B = (b - s)
// / (1 - s) tokens, and a token's part is
//
//     (s pass_s(1) + (1 - s) pass_s(B)) / b = (token_s + (1 - s) (F(B) - F(1))) / b
//
//     F(B) = expected time of the longest of the servers n that are called:
//            server n is called with probability some(n) and then takes
//            latency there and back +
//            (messages(n) + the most over its devices of work(d)) / some(n)
//
// Each of the B tokens chooses expert x with probability f(x) and calls server n with probability
// u(n). At least one of them chooses x with probability p(x) = 1 - (1 - f(x))^B and calls n with
// probability some(n):
//
//     some(n)     = 1 - (1 - u(n))^B;  u(n) = 1 - prod (1 - f)
//     messages(n) = B u(n) bytes / rate there + B u(n) bytes / rate back
//     work(d)     = sum over x served by d of  p(x) call_s + (B f(x) - p(x)) token_s
//
// A single token may hardly ever call a server that nearly every prompt calls. That server then
// costs a latency each way, however few of the tokens go there. The model calls servers
// independently of each other, and a called server takes its mean time. So F(B) is a sum over the
// servers, the longest first: time times probability times the probability that no longer one is
// called.
//
// With serial calls F is the sum over all servers instead of the longest. If outputs return one by
// one, there are B sum f(x) messages back. If links are shared, the messages of all servers add up.
// The home's own server needs no messages. An expert goes to the server that is nearest for it
// alone, and to equally near ones in equal parts. Tokens of different models pass separately.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "moorage/placement.h"

namespace moorage {

class batch_model {
public:
    static constexpr uint32_t none = 0xffffffffu;

    // Requires: both are as placement.h says and live as long as the model. An entry is a server
    // through which homes enter; entries have consecutive numbers, as in latency.hpp.
    batch_model(const moorage_cluster &cluster, const moorage_demand &demand);

    // Whether some batch has more than one token.
    bool any() const { return has_batches_; }
    // Mean number of tokens per pass, over all passes of the entry's homes.
    double batch(uint32_t entry) const { return batch_[entry]; }
    // Seconds a token, mean over all homes, that the entry's homes add in the layer that begins
    // with expert `first`: their weight times (1 - s) (F(B) - F(1)) / b. `holders.at(x, server)` is
    // the expert's device there, or none. `holders.each(x, f)` calls f(server, device) for each
    // holder. Not for several threads at once.
    template <class Holders>
    double extra_s(uint32_t entry, uint32_t first, const Holders &holders) const;

private:
    static constexpr uint32_t parts_max = 4;  // equally near holders that share an expert

    // Sums of one server in the running layer, for B tokens and for one token.
    struct server_sum {
        double missed = 1, returns = 0;
        double work[2] = {0, 0};  // of its device with the most work
    };
    // Probability that at least one of `tokens` tokens chooses what one token chooses with
    // probability f.
    static double pass_chance(double f, double tokens) {
        return f >= 1 ? 1 : 1 - std::pow(1 - f, tokens);
    }
    void read_homes();
    void read_pass_chances();
    template <class Holders>
    void add_expert(uint32_t x, uint32_t entry, const Holders &holders) const;
    void add_work(uint32_t x, uint32_t entry, uint32_t server, uint32_t device, double part) const;
    double latency_s(uint32_t entry, uint32_t server) const;
    double trip_s(uint32_t entry, uint32_t server) const;
    double messages_s(uint32_t entry, uint32_t server, double tokens) const;
    double layer_s(uint32_t entry, double tokens, size_t which) const;
    double longest_s() const;

    moorage_cluster cluster_;
    moorage_demand demand_;
    uint32_t experts_, entries_ = 0;
    bool has_batches_ = false, serial_, returns_each_, shared_;
    std::vector<uint32_t> expert_model_, entry_server_, server_entry_;
    std::vector<double> weight_, batch_;  // [entries]
    std::vector<double> together_;        // [entries] B, of passes with more than one token
    std::vector<double> many_share_;      // [entries] share of passes with more than one token: 1 -
                                          // s
    std::vector<double> share_;           // [entries, M] share of the entry's tokens
    std::vector<double> chosen_;          // [entries, X] f, among the model's tokens
    std::vector<double> pass_chance_;     // [entries, X] p, for a pass of B tokens
    // State of the layer that is being added up.
    mutable uint32_t model_ = 0;
    mutable std::vector<server_sum> sums_;                   // [N + 1], the cloud last
    mutable std::vector<std::pair<double, double>> device_;  // [G] work for B tokens and for one
    mutable std::vector<std::pair<uint32_t, uint32_t>> near_;
    mutable std::vector<uint32_t> touched_;
    mutable std::vector<std::pair<double, double>> called_;  // time and probability of each server
};

inline batch_model::batch_model(const moorage_cluster &cluster, const moorage_demand &demand)
    : cluster_(cluster),
      demand_(demand),
      experts_(demand.host_model_first[demand.models]),
      serial_((cluster.flags & MOORAGE_CALLS_SERIAL) != 0),
      returns_each_((cluster.flags & MOORAGE_RETURNS_EACH) != 0),
      shared_((cluster.flags & MOORAGE_LINKS_SHARED) != 0),
      server_entry_(cluster.servers, none) {
    for (uint32_t h = 0; h < demand.homes; ++h)
        has_batches_ =
            has_batches_ || (demand.host_home_batch[h] > 1 && demand.host_home_tokens_per_s[h] > 0);
    if (!has_batches_) return;
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
    weight_.assign(entries_, 0), batch_.assign(entries_, 1);
    together_.assign(entries_, 1), many_share_.assign(entries_, 0);
    std::vector<double> passes(entries_, 0);
    share_.assign(size_t{entries_} * demand_.models, 0);
    chosen_.assign(size_t{experts_} * entries_, 0);
    double tokens_per_s = 0;
    for (uint32_t h = 0; h < demand_.homes; ++h) tokens_per_s += demand_.host_home_tokens_per_s[h];
    const double *singles = MOORAGE_HAS(&demand_, moorage_demand, host_home_single_share)
                                ? demand_.host_home_single_share
                                : nullptr;
    for (uint32_t h = 0; h < demand_.homes; ++h) {
        const double weight =
            tokens_per_s > 0 ? demand_.host_home_tokens_per_s[h] / tokens_per_s : 0;
        const uint32_t e = server_entry_[cluster_.host_home_server[h]];
        weight_[e] += weight;
        const double home_passes = weight / demand_.host_home_batch[h];
        passes[e] += home_passes;
        many_share_[e] += home_passes * (1 - (singles ? singles[h] : 0));
        for (uint32_t m = 0; m < demand_.models; ++m)
            share_[size_t{e} * demand_.models + m] +=
                weight * demand_.host_home_model[size_t{h} * demand_.models + m];
        const double *frequency = demand_.host_frequency + size_t{h} * experts_;
        const uint8_t *held =
            demand_.host_home_holds ? demand_.host_home_holds + size_t{h} * experts_ : nullptr;
        for (uint32_t x = 0; x < experts_; ++x)
            if (!held || held[x] == 0) chosen_[size_t{e} * experts_ + x] += weight * frequency[x];
    }
    for (uint32_t e = 0; e < entries_; ++e) {
        if (passes[e] > 0) {
            const double many = many_share_[e] /= passes[e];
            batch_[e] = std::max(1.0, weight_[e] / passes[e]);
            together_[e] = many > 0 ? std::max(1.0, (batch_[e] - (1 - many)) / many) : 1;
        }
        for (uint32_t x = 0; x < experts_; ++x) {
            const double tokens = share_[size_t{e} * demand_.models + expert_model_[x]];
            double &chosen = chosen_[size_t{e} * experts_ + x];
            chosen = tokens > 0 ? std::min(1.0, chosen / tokens) : 0;
        }
    }
    read_pass_chances();
}

// Entries with equal demand, as drawn statistics have, are computed once.
inline void batch_model::read_pass_chances() {
    pass_chance_.resize(chosen_.size());
    for (uint32_t e = 0; e < entries_; ++e)
        for (uint32_t x = 0; x < experts_; ++x) {
            const size_t pair = size_t{e} * experts_ + x;
            const bool alike = e > 0 && together_[e] == together_[e - 1] &&
                               chosen_[pair] == chosen_[pair - experts_];
            pass_chance_[pair] =
                alike ? pass_chance_[pair - experts_] : pass_chance(chosen_[pair], together_[e]);
        }
}

inline void batch_model::add_work(uint32_t x, uint32_t entry, uint32_t server, uint32_t device,
                                  double part) const {
    const size_t chosen = size_t{entry} * experts_ + x;
    const double f = part * chosen_[chosen], tokens = together_[entry];
    const size_t index = size_t{device} * cluster_.models + model_;
    const double call_s = cluster_.host_device_call_s[index];
    const double chance = part == 1 ? pass_chance_[chosen] : pass_chance(f, tokens);
    auto &[many, single] = device_[device];
    many += chance * call_s + (tokens * f - chance) * cluster_.host_device_token_s[index];
    single += f * call_s;
    server_sum &sum = sums_[server];
    if (sum.returns == 0) touched_.push_back(server);
    sum.missed *= 1 - f, sum.returns += f;
    sum.work[0] = std::max(sum.work[0], many), sum.work[1] = std::max(sum.work[1], single);
}

// Assigns an expert to its nearest holders: the home's own server, or those that take least for it
// alone.
template <class Holders>
void batch_model::add_expert(uint32_t x, uint32_t entry, const Holders &holders) const {
    const double f = chosen_[size_t{entry} * experts_ + x];
    if (f <= 0) return;
    const uint32_t own_server = entry_server_[entry];
    if (const uint32_t device = holders.at(x, own_server); device != none)
        return add_work(x, entry, own_server, device, 1);
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
    cloud.work[0] += together_[entry] * f * call_s, cloud.work[1] += f * call_s;
}

// Latency of a message there and one back, without their bytes.
inline double batch_model::latency_s(uint32_t entry, uint32_t server) const {
    const uint32_t own_server = entry_server_[entry];
    if (server == own_server) return 0;
    if (server == cluster_.servers)
        return cluster_.host_cloud_s ? 2 * cluster_.host_cloud_s[own_server] : 0;
    return cluster_.host_link_s[size_t{own_server} * cluster_.servers + server] +
           cluster_.host_link_s[size_t{server} * cluster_.servers + own_server];
}

// Time of one hidden state there and back.
inline double batch_model::trip_s(uint32_t entry, uint32_t server) const {
    const uint32_t own_server = entry_server_[entry];
    const size_t there_link = size_t{own_server} * cluster_.servers + server;
    const size_t back_link = size_t{server} * cluster_.servers + own_server;
    const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model_]);
    const double there_rate = cluster_.host_link_bytes_per_s[there_link];
    const double back_rate = cluster_.host_link_bytes_per_s[back_link];
    if (!(there_rate > 0) || !(back_rate > 0)) return std::numeric_limits<double>::infinity();
    return latency_s(entry, server) + bytes / there_rate + bytes / back_rate;
}

// Time of the hidden states of `tokens` tokens there and back; for the cloud too, if there is one.
inline double batch_model::messages_s(uint32_t entry, uint32_t server, double tokens) const {
    const uint32_t own_server = entry_server_[entry];
    if (server == own_server) return 0;
    const auto bytes = static_cast<double>(demand_.host_hidden_bytes[model_]);
    const server_sum &sum = sums_[server];
    const double called = 1 - sum.missed, returned = returns_each_ ? sum.returns : called;
    double there_rate = 0, back_rate = 0;
    if (server < cluster_.servers) {
        there_rate = cluster_.host_link_bytes_per_s[size_t{own_server} * cluster_.servers + server];
        back_rate = cluster_.host_link_bytes_per_s[size_t{server} * cluster_.servers + own_server];
    } else if (cluster_.host_cloud_s) {
        there_rate = cluster_.host_cloud_up_bytes_per_s[own_server];
        back_rate = cluster_.host_cloud_down_bytes_per_s[own_server];
    } else {
        return 0;
    }
    return tokens * bytes * (called / there_rate + returned / back_rate);
}

// Expected time of the longest of `called_`. The servers are called independently of each other.
inline double batch_model::longest_s() const {
    std::sort(called_.begin(), called_.end(), std::greater<>());
    double sum = 0, none_longer = 1;
    for (const auto &[time_s, chance] : called_) {
        sum += none_longer * chance * time_s;
        none_longer *= 1 - chance;
    }
    return sum;
}

// F of the layer that was added up. `which`: 0 for B tokens, 1 for one token.
inline double batch_model::layer_s(uint32_t entry, double tokens, size_t which) const {
    double sum = 0, messages = 0;
    called_.clear();
    for (const uint32_t n : touched_) {
        const double missed = sums_[n].missed;
        const double chance = 1 - (tokens == 1 ? missed : std::pow(missed, tokens));
        const double sent = messages_s(entry, n, tokens), work = sums_[n].work[which];
        messages += sent;
        sum += chance * latency_s(entry, n) + sent + work;
        if (!serial_ && chance > 0)
            called_.emplace_back(latency_s(entry, n) + ((shared_ ? 0 : sent) + work) / chance,
                                 chance);
    }
    if (serial_) return sum;
    return shared_ ? longest_s() + messages : longest_s();
}

template <class Holders>
double batch_model::extra_s(uint32_t entry, uint32_t first, const Holders &holders) const {
    model_ = expert_model_[first];
    const double tokens = together_[entry];
    const double share = many_share_[entry] * share_[size_t{entry} * demand_.models + model_];
    if (tokens <= 1 || share <= 0) return 0;
    touched_.clear();
    for (uint32_t x = first; x < first + demand_.host_model_experts[model_]; ++x)
        add_expert(x, entry, holders);
    const double added = layer_s(entry, tokens, 0) - layer_s(entry, 1, 1);
    for (const uint32_t n : touched_) sums_[n] = {};
    std::fill(device_.begin(), device_.end(), std::pair(0.0, 0.0));
    return share * std::max(0.0, added) / batch_[entry];
}

}  // namespace moorage
