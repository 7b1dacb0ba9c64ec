// bound.inl - definitions of bound.hpp.
#pragma once

#include "bound.hpp"

namespace moorage::joint {

inline lower_bound::lower_bound(const latency_model &model, const layer_time &time,
                                const cost_weights &weights, bool cover, uint32_t stride)
    : time_(time),
      weights_(weights),
      servers_(model.cluster().servers),
      experts_(model.experts()),
      entries_(time.entries()),
      models_(model.cluster().models),
      cover_(cover),
      wanted_(experts_, 0),
      price_(servers_, 0),
      used_(servers_, 0),
      chosen_(experts_, 0) {
    if (servers_ <= 10 && (uint64_t{experts_} << servers_) <= uint64_t{1} << 22)
        subsets_ = size_t{1} << servers_;
    options_ = subsets_ != 0 ? subsets_ : servers_ + 1;
    if (too_large()) return;
    calls_.assign(size_t{experts_} * entries_, 0);
    fixed_.assign(size_t{experts_} * entries_, 0);
    paid_.assign(size_t{experts_} * entries_, 0);
    read(model, stride);
    read_options();
}

inline void lower_bound::read(const latency_model &latency, uint32_t stride) {
    const moorage_cluster &cluster = latency.cluster();
    const moorage_demand &demand = latency.demand();
    uint64_t unit = 0;
    for (uint32_t model = 0; model < models_; ++model) {
        bytes_.push_back(static_cast<double>(demand.host_expert_bytes[model]));
        bool wanted = false;
        for (uint32_t home = 0; home < demand.homes; ++home)
            wanted = wanted || demand.host_home_model[size_t{home} * models_ + model] > 0;
        for (uint32_t expert = demand.host_model_first[model];
             expert < demand.host_model_first[model + 1]; ++expert) {
            model_of_.push_back(model);
            wanted_[expert] = wanted || latency.asked(expert) ? 1 : 0;
        }
        if (wanted) unit = std::gcd(unit, demand.host_expert_bytes[model]);
    }
    unit = std::max<uint64_t>(unit, 1);
    room_.assign(servers_, 0);
    fits_.assign(size_t{models_} * servers_, 0);
    for (uint32_t device = 0; device < cluster.devices; ++device) {
        const uint64_t bytes = cluster.host_device_bytes[device];
        room_[time_.server_of(device)] += static_cast<double>(bytes / unit * unit);
        for (uint32_t model = 0; model < models_; ++model)
            if (demand.host_expert_bytes[model] <= bytes)
                fits_[model * servers_ + time_.server_of(device)] = 1;
    }
    double tokens_per_s = 0;
    for (uint32_t home = 0; home < demand.homes; ++home)
        tokens_per_s += demand.host_home_tokens_per_s[home];
    for (uint32_t home = 0; home < demand.homes; ++home) {
        const double weight = tokens_per_s > 0 ? demand.host_home_tokens_per_s[home] / tokens_per_s
                                               : 1.0 / demand.homes;
        const size_t row = size_t{home} * experts_;
        const uint32_t entry = time_.server_entry(cluster.host_home_server[home]);
        for (uint32_t expert = 0; expert < experts_; ++expert)
            if (!demand.host_home_holds || demand.host_home_holds[row + expert] == 0)
                calls_[pair_index(expert, entry)] += weight * demand.host_frequency[row + expert];
    }
    for (uint32_t expert = 0; expert < experts_; ++expert)
        for (uint32_t entry = 0; entry < entries_; ++entry)
            fixed_[pair_index(expert, entry)] =
                latency.single_weight(expert, time_.entry_server(entry));
    if (weights_.latency <= 0) return;
    uint64_t number = 0;
    latency.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> members) {
        if (number++ % stride != 0) return;
        sets_.push_back({static_cast<uint32_t>(members_.size()),
                         static_cast<uint32_t>(members.size()), time_.server_entry(server),
                         model_of_[members[0]], weight * stride});
        members_.insert(members_.end(), members.begin(), members.end());
        share_.insert(share_.end(), members.size(), 1.0 / static_cast<double>(members.size()));
    });
}

inline void lower_bound::set_weights(const cost_weights &weights) {
    weights_ = weights;
    best_ = -infinity, scale_ = 0;
    best_price_.clear(), stale_ = true;
}

// Options: every set of holders, or every server and none.
inline void lower_bound::read_options() {
    for (uint32_t model = 0; model < models_; ++model)
        for (uint32_t entry = 0; entry < entries_; ++entry) read_option(model, entry);
}

inline void lower_bound::read_option(uint32_t model, uint32_t entry) {
    const uint32_t own_server = time_.entry_server(entry);
    const bool apart = time_.serial() && time_.returns_each();
    std::vector<double> once_s(servers_, infinity), each_s(servers_, infinity);
    double least_back = infinity;
    for (uint32_t device = 0; device < time_.devices(); ++device) {
        const uint32_t server = time_.server_of(device);
        if (!time_.reached(entry, server)) continue;
        const double back = time_.back_s(model, entry, server);
        once_s[server] =
            std::min(once_s[server], time_.there_s(model, entry, server) +
                                         time_.call_s(device, model) + (apart ? 0 : back));
        each_s[server] = apart ? back : 0;
        if (server != own_server) least_back = std::min(least_back, each_s[server]);
    }
    const double none_once =
        time_.serial() ? time_.absent_once_s(model, entry) : time_.absent_s(model, entry);
    const double none_each = time_.serial() ? time_.absent_each_s(model, entry) : 0;
    for (size_t option = 0; option < options_; ++option) {
        double least_once = infinity, least_each = infinity;
        if (subsets_ == 0 && option < servers_) {
            least_once = once_s[option];
            least_each = option == own_server ? each_s[option] : least_back;
        }
        for (uint32_t server = 0; server < servers_ && subsets_ != 0; ++server)
            if ((option >> server & 1) != 0) {
                least_once = std::min(least_once, once_s[server]);
                least_each = std::min(least_each, each_s[server]);
            }
        if (subsets_ != 0 && (option >> own_server & 1) != 0 && once_s[own_server] < infinity)
            least_once = once_s[own_server], least_each = each_s[own_server];
        const bool served = least_once < infinity;
        if (!served && (subsets_ != 0 || option == servers_))
            least_once = none_once, least_each = none_each;
        option_once_.push_back(least_once);
        option_each_.push_back(least_once < infinity ? least_each : 0);
    }
}

// ---- the bound for given prices and shares ---------------------------------------------------

inline void lower_bound::sum_shares() {
    once_weight_ = each_weight_ = fixed_;
    for (const set &set : sets_)
        for (uint32_t member = set.first; member < set.first + set.count; ++member) {
            once_weight_[pair_index(members_[member], set.entry)] += set.weight * share_[member];
            each_weight_[pair_index(members_[member], set.entry)] += set.weight;
        }
    stale_ = false;
    if (subsets_ == 0) return;
    cost_.assign(experts_ * subsets_, 0);
    for (uint32_t expert = 0; expert < experts_; ++expert) {
        if (wanted_[expert] == 0) continue;
        const uint32_t model = model_of_[expert];
        double *cost = cost_.data() + expert * subsets_;
        for (uint32_t entry = 0; entry < entries_; ++entry) {
            const double once_weight = weights_.latency * once_weight_[pair_index(expert, entry)];
            const double each_weight = weights_.latency * each_weight_[pair_index(expert, entry)];
            const double remote = weights_.remote_s * calls_[pair_index(expert, entry)];
            if (once_weight + each_weight + remote <= 0) continue;
            const double *option_once = option_once_.data() + option_index(model, entry);
            const double *option_each = option_each_.data() + option_index(model, entry);
            const size_t own_bit = size_t{1} << time_.entry_server(entry);
            for (size_t subset = 0; subset < subsets_; ++subset)
                cost[subset] += once_weight * option_once[subset] +
                                each_weight * option_each[subset] +
                                ((subset & own_bit) != 0 ? 0 : remote);
        }
        for (size_t subset = 0; subset < subsets_; ++subset)
            for (uint32_t server = 0; server < servers_; ++server)
                if ((subset >> server & 1) != 0 && fits_[model * servers_ + server] == 0)
                    cost[subset] = infinity;
        if (cover_) cost[0] = infinity;
    }
}

inline double lower_bound::enumerate_all() {
    std::vector<double> price(models_ * subsets_, 0);
    for (uint32_t model = 0; model < models_; ++model)
        for (size_t subset = 0; subset < subsets_; ++subset)
            for (uint32_t server = 0; server < servers_; ++server)
                if ((subset >> server & 1) != 0)
                    price[model * subsets_ + subset] += bytes_[model] * price_[server];
    double sum = 0;
    for (uint32_t expert = 0; expert < experts_; ++expert) {
        if (wanted_[expert] == 0) continue;
        const double *cost = cost_.data() + expert * subsets_;
        const double *paid = price.data() + model_of_[expert] * subsets_;
        double least = infinity;
        uint32_t best = 0;
        for (size_t subset = 0; subset < subsets_; ++subset)
            if (cost[subset] + paid[subset] < least)
                least = cost[subset] + paid[subset], best = static_cast<uint32_t>(subset);
        sum += least;
        chosen_[expert] = best;
        for (uint32_t left = best; left != 0; left &= left - 1)
            used_[static_cast<size_t>(std::countr_zero(left))] += bytes_[model_of_[expert]];
        for (uint32_t entry = 0; entry < entries_; ++entry)
            paid_[pair_index(expert, entry)] +=
                option_once_[option_index(model_of_[expert], entry) + best];
    }
    return sum;
}

// A feasible dual solution of the expert's location problem. First every entry's level rises to the
// second cheapest way to serve it, then as far as the servers' prices allow.
inline double lower_bound::ascend_one(uint32_t expert) {
    const uint32_t model = model_of_[expert];
    slack_.resize(servers_), level_.assign(entries_, 0);
    for (uint32_t server = 0; server < servers_; ++server)
        slack_[server] =
            fits_[model * servers_ + server] != 0 ? bytes_[model] * price_[server] : infinity;
    const auto cost = [&](uint32_t entry, size_t server) {
        return weights_.latency * (once_weight_[pair_index(expert, entry)] *
                                       option_once_[option_index(model, entry) + server] +
                                   each_weight_[pair_index(expert, entry)] *
                                       option_each_[option_index(model, entry) + server]) +
               (server == time_.entry_server(entry)
                    ? 0
                    : weights_.remote_s * calls_[pair_index(expert, entry)]);
    };
    const auto raise = [&](uint32_t entry, double new_level) {
        for (uint32_t server = 0; server < servers_; ++server)
            if (const double served_cost = cost(entry, server); served_cost < new_level)
                slack_[server] -= new_level - std::max(served_cost, level_[entry]);
        level_[entry] = new_level;
    };
    double sum = 0;
    for (int pass = 0; pass < 2; ++pass) {
        for (uint32_t entry = 0; entry < entries_; ++entry) {
            if (once_weight_[pair_index(expert, entry)] + each_weight_[pair_index(expert, entry)] +
                    calls_[pair_index(expert, entry)] <=
                0)
                continue;
            double first = infinity, second = infinity, most = cost(entry, servers_);
            for (uint32_t server = 0; server < servers_; ++server) {
                const double served_cost = cost(entry, server);
                if (slack_[server] == infinity || served_cost == infinity) continue;
                second = served_cost < first ? first : std::min(second, served_cost);
                first = std::min(first, served_cost);
                most = std::min(
                    most, std::max(served_cost, level_[entry]) + std::max(0.0, slack_[server]));
            }
            if (pass == 0) most = std::min(most, second);
            if (most > level_[entry]) raise(entry, most);
        }
    }
    for (const double level : level_) sum += level;
    // Some server must have it, whichever entry requests it.
    uint32_t cheapest = 0;
    for (uint32_t server = 1; server < servers_; ++server)
        if (slack_[server] < slack_[cheapest]) cheapest = server;
    if (cover_) sum += std::max(0.0, slack_[cheapest]);
    bool opened = false;
    for (uint32_t server = 0; server < servers_; ++server)
        if (slack_[server] <= 1e-9 * bytes_[model] * price_[server])
            used_[server] += bytes_[model], opened = true;
    if (cover_ && !opened) used_[cheapest] += bytes_[model];
    return sum;
}

inline double lower_bound::evaluate() {
    if (stale_) sum_shares();
    std::fill(used_.begin(), used_.end(), 0.0);
    double sum = 0;
    if (subsets_ != 0)
        sum = enumerate_all();
    else
        for (uint32_t expert = 0; expert < experts_; ++expert)
            if (wanted_[expert] != 0) sum += ascend_one(expert);
    for (uint32_t server = 0; server < servers_; ++server) sum -= price_[server] * room_[server];
    return sum;
}

// ---- better prices and shares ----------------------------------------------------------------

// Shares move to the experts that are paid above the mean of their set. Payments are means over the
// prices tried since the last call.
inline void lower_bound::shift_shares(double rate) {
    for (const set &set : sets_) {
        std::array<double, 16> paid;
        double mean = 0, sum = 0;
        for (uint32_t member = 0; member < set.count; ++member) {
            paid[member] = paid_[pair_index(members_[set.first + member], set.entry)];
            mean += share_[set.first + member] * paid[member];
        }
        if (!(mean > 0)) continue;
        for (uint32_t member = 0; member < set.count; ++member) {
            double &share = share_[set.first + member];
            share *= std::clamp(1 + rate * (paid[member] / mean - 1), 0.25, 4.0);
            sum += share = std::max(share, 1e-4);
        }
        for (uint32_t member = 0; member < set.count; ++member) share_[set.first + member] /= sum;
    }
    stale_ = true;
    std::fill(paid_.begin(), paid_.end(), 0.0);
}

inline void lower_bound::move_shares(uint32_t rounds) {
    double rate = 0.5;
    std::fill(paid_.begin(), paid_.end(), 0.0);
    for (uint32_t round = 0; round < rounds && rate > 1e-3; ++round) {
        const double old_best = best_;
        run_ellipsoid(0.05, 8 * servers_);
        shift_shares(rate);
        price_ = best_price_;
        try_prices();
        if (best_ - old_best < 1e-4 * scale_) rate *= 0.8;
    }
    share_ = best_share_, stale_ = true;
}

// Every result is a bound; the best one is kept.
inline double lower_bound::try_prices() {
    const double value = evaluate();
    if (value > best_)
        best_ = value, best_price_ = price_, best_share_ = share_, best_chosen_ = chosen_;
    return value;
}

// First no price, which gives a bound too, then one price for all servers. The bound is concave in
// that price, so it rises and falls once.
inline void lower_bound::find_scale() {
    const double room = std::accumulate(room_.begin(), room_.end(), 0.0);
    const auto value = [&](double price) {
        std::fill(price_.begin(), price_.end(), price);
        return try_prices();
    };
    double most = value(0), best = 0;
    const auto attempt = [&](double price) {
        const double reached = value(price);
        if (reached <= most) return false;
        most = reached, best = price;
        return true;
    };
    double price = room > 0 ? scale_ / room : 0;
    for (uint32_t trial = 0; trial < 12; ++trial, price /= 4)
        if (!attempt(price) && best > 0) break;
    for (double step = 2; step > 1.05 && best > 0; step = std::sqrt(step))
        if (!attempt(best * step)) attempt(best / step);
    price_ = best_price_;
}

// The ellipsoid method with deep cuts, around the best prices; for few servers. Prices cannot be
// adjusted one by one: if servers are alike, a small change moves many experts to another server.
inline void lower_bound::run_ellipsoid(double radius, uint32_t steps) {
    const uint32_t dimensions = servers_;
    price_ = best_price_;
    const double unit = *std::max_element(price_.begin(), price_.end());
    if (dimensions < 2 || unit <= 0) return;
    std::vector<double> shape(size_t{dimensions} * dimensions, 0), slope(dimensions),
        towards(dimensions);
    for (uint32_t row = 0; row < dimensions; ++row)
        shape[row * dimensions + row] = radius * radius * unit * unit;
    for (uint32_t step = 0; step < steps; ++step) {
        const auto lowest = std::min_element(price_.begin(), price_.end());
        double depth = 0;
        std::fill(slope.begin(), slope.end(), 0.0);
        if (*lowest < 0) {
            slope[static_cast<size_t>(lowest - price_.begin())] = 1;
            depth = -*lowest;
        } else {
            const double value = try_prices();
            for (uint32_t row = 0; row < dimensions; ++row) slope[row] = used_[row] - room_[row];
            depth = best_ - value;
        }
        double norm = 0;
        for (uint32_t row = 0; row < dimensions; ++row) {
            towards[row] = 0;
            for (uint32_t column = 0; column < dimensions; ++column)
                towards[row] += shape[row * dimensions + column] * slope[column];
            norm += slope[row] * towards[row];
        }
        norm = std::sqrt(norm);
        if (!(norm > 0) || depth >= norm) return;
        const double alpha = depth / norm, count = dimensions;
        const double stride = (1 + count * alpha) / (count + 1) / norm;
        const double grow = count * count / (count * count - 1) * (1 - alpha * alpha);
        const double flat = 2 * (1 + count * alpha) / ((count + 1) * (1 + alpha)) / (norm * norm);
        for (uint32_t row = 0; row < dimensions; ++row) price_[row] += stride * towards[row];
        for (uint32_t row = 0; row < dimensions; ++row)
            for (uint32_t column = 0; column < dimensions; ++column)
                shape[row * dimensions + column] = grow * (shape[row * dimensions + column] -
                                                           flat * towards[row] * towards[column]);
    }
}

// Subgradient steps for prices; `target` is not below the maximum.
inline void lower_bound::follow_subgradient(double target, uint32_t steps) {
    double length = 1;
    uint32_t since = 0;
    for (uint32_t step = 0; step < steps && length > 1e-4; ++step) {
        const double old_best = best_, value = try_prices();
        if (best_ > old_best + 1e-4 * std::abs(target - old_best)) since = 0;
        if (++since > 6) {
            length /= 2, since = 0;
            price_ = best_price_, share_ = best_share_, stale_ = true;
            continue;
        }
        // In shares of a server's room, so all prices have one unit.
        double norm = 0;
        for (uint32_t server = 0; server < servers_; ++server) {
            const double excess = room_[server] > 0 ? used_[server] / room_[server] - 1 : 0;
            if (excess > 0 || price_[server] > 0) norm += excess * excess;
        }
        const double stride =
            norm > 0 ? length * std::max(target - value, 1e-9 * scale_) / norm : 0;
        for (uint32_t server = 0; server < servers_; ++server)
            if (room_[server] > 0)
                price_[server] =
                    std::max(0.0, price_[server] +
                                      stride * (used_[server] / room_[server] - 1) / room_[server]);
    }
}

inline void lower_bound::ascend(double target, uint32_t steps) {
    if (too_large()) return;
    scale_ = std::max(scale_, std::abs(target));
    const bool first = best_price_.empty();
    if (first) {
        find_scale();
    } else {
        price_ = best_price_, share_ = best_share_, stale_ = true;
    }
    const bool few = subsets_ != 0;
    if (few) run_ellipsoid(first ? 2 : 0.1, 60 * servers_);
    if (few && !sets_.empty()) move_shares(steps);
    price_ = best_price_;
    follow_subgradient(target, few ? 20 : steps);
    if (few) run_ellipsoid(0.1, 30 * servers_);
}

}  // namespace moorage::joint
