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

inline void lower_bound::read(const latency_model &model, uint32_t stride) {
    const moorage_cluster &cluster = model.cluster();
    const moorage_demand &demand = model.demand();
    uint64_t unit = 0;
    for (uint32_t m = 0; m < models_; ++m) {
        bytes_.push_back(static_cast<double>(demand.host_expert_bytes[m]));
        bool wanted = false;
        for (uint32_t h = 0; h < demand.homes; ++h)
            wanted = wanted || demand.host_home_model[size_t{h} * models_ + m] > 0;
        for (uint32_t x = demand.host_model_first[m]; x < demand.host_model_first[m + 1]; ++x) {
            model_of_.push_back(m);
            wanted_[x] = wanted || model.asked(x) ? 1 : 0;
        }
        if (wanted) unit = std::gcd(unit, demand.host_expert_bytes[m]);
    }
    unit = std::max<uint64_t>(unit, 1);
    room_.assign(servers_, 0);
    fits_.assign(size_t{models_} * servers_, 0);
    for (uint32_t d = 0; d < cluster.devices; ++d) {
        const uint64_t bytes = cluster.host_device_bytes[d];
        room_[time_.server_of(d)] += static_cast<double>(bytes / unit * unit);
        for (uint32_t m = 0; m < models_; ++m)
            if (demand.host_expert_bytes[m] <= bytes) fits_[m * servers_ + time_.server_of(d)] = 1;
    }
    double all = 0;
    for (uint32_t h = 0; h < demand.homes; ++h) all += demand.host_home_tokens_per_s[h];
    for (uint32_t h = 0; h < demand.homes; ++h) {
        const double weight = all > 0 ? demand.host_home_tokens_per_s[h] / all : 1.0 / demand.homes;
        const size_t row = size_t{h} * experts_;
        const uint32_t e = time_.server_entry(cluster.host_home_server[h]);
        for (uint32_t x = 0; x < experts_; ++x)
            if (!demand.host_home_holds || demand.host_home_holds[row + x] == 0)
                calls_[flow(x, e)] += weight * demand.host_frequency[row + x];
    }
    for (uint32_t x = 0; x < experts_; ++x)
        for (uint32_t e = 0; e < entries_; ++e)
            fixed_[flow(x, e)] = model.single_weight(x, time_.entry_server(e));
    if (weights_.latency <= 0) return;
    uint64_t number = 0;
    model.for_sets([&](uint32_t server, double weight, std::span<const uint32_t> of) {
        if (number++ % stride != 0) return;
        sets_.push_back({static_cast<uint32_t>(members_.size()), static_cast<uint32_t>(of.size()),
                         time_.server_entry(server), model_of_[of[0]], weight * stride});
        members_.insert(members_.end(), of.begin(), of.end());
        share_.insert(share_.end(), of.size(), 1.0 / static_cast<double>(of.size()));
    });
}

inline void lower_bound::weigh(const cost_weights &weights) {
    weights_ = weights;
    best_ = -infinity, scale_ = 0;
    best_price_.clear(), stale_ = true;
}

// Options: every set of holders, or every server and none.
inline void lower_bound::read_options() {
    for (uint32_t m = 0; m < models_; ++m)
        for (uint32_t e = 0; e < entries_; ++e) read_option(m, e);
}

inline void lower_bound::read_option(uint32_t m, uint32_t e) {
    const uint32_t own = time_.entry_server(e);
    const bool apart = time_.serial() && time_.returns_each();
    std::vector<double> once(servers_, infinity), each(servers_, infinity);
    double least_back = infinity;
    for (uint32_t d = 0; d < time_.devices(); ++d) {
        const uint32_t n = time_.server_of(d);
        if (!time_.reached(e, n)) continue;
        const double back = time_.back_s(m, e, n);
        once[n] =
            std::min(once[n], time_.there_s(m, e, n) + time_.call_s(d, m) + (apart ? 0 : back));
        each[n] = apart ? back : 0;
        if (n != own) least_back = std::min(least_back, each[n]);
    }
    const double none_once = time_.serial() ? time_.absent_once_s(m, e) : time_.absent_s(m, e);
    const double none_each = time_.serial() ? time_.absent_each_s(m, e) : 0;
    for (size_t s = 0; s < options_; ++s) {
        double least_once = infinity, least_each = infinity;
        if (subsets_ == 0 && s < servers_) {
            least_once = once[s];
            least_each = s == own ? each[s] : least_back;
        }
        for (uint32_t n = 0; n < servers_ && subsets_ != 0; ++n)
            if ((s >> n & 1) != 0) {
                least_once = std::min(least_once, once[n]);
                least_each = std::min(least_each, each[n]);
            }
        if (subsets_ != 0 && (s >> own & 1) != 0 && once[own] < infinity)
            least_once = once[own], least_each = each[own];
        const bool served = least_once < infinity;
        if (!served && (subsets_ != 0 || s == servers_))
            least_once = none_once, least_each = none_each;
        option_once_.push_back(least_once);
        option_each_.push_back(least_once < infinity ? least_each : 0);
    }
}

// ---- the bound for given prices and shares ---------------------------------------------------

inline void lower_bound::sum_shares() {
    once_ = each_ = fixed_;
    for (const set &of : sets_)
        for (uint32_t i = of.first; i < of.first + of.count; ++i) {
            once_[flow(members_[i], of.entry)] += of.weight * share_[i];
            each_[flow(members_[i], of.entry)] += of.weight;
        }
    stale_ = false;
    if (subsets_ == 0) return;
    cost_.assign(experts_ * subsets_, 0);
    for (uint32_t x = 0; x < experts_; ++x) {
        if (wanted_[x] == 0) continue;
        const uint32_t m = model_of_[x];
        double *cost = cost_.data() + x * subsets_;
        for (uint32_t e = 0; e < entries_; ++e) {
            const double once = weights_.latency * once_[flow(x, e)];
            const double each = weights_.latency * each_[flow(x, e)];
            const double remote = weights_.remote_s * calls_[flow(x, e)];
            if (once + each + remote <= 0) continue;
            const double *option_once = option_once_.data() + option(m, e);
            const double *option_each = option_each_.data() + option(m, e);
            const size_t own = size_t{1} << time_.entry_server(e);
            for (size_t s = 0; s < subsets_; ++s)
                cost[s] +=
                    once * option_once[s] + each * option_each[s] + ((s & own) != 0 ? 0 : remote);
        }
        for (size_t s = 0; s < subsets_; ++s)
            for (uint32_t n = 0; n < servers_; ++n)
                if ((s >> n & 1) != 0 && fits_[m * servers_ + n] == 0) cost[s] = infinity;
        if (cover_) cost[0] = infinity;
    }
}

inline double lower_bound::enumerate_all() {
    std::vector<double> price(models_ * subsets_, 0);
    for (uint32_t m = 0; m < models_; ++m)
        for (size_t s = 0; s < subsets_; ++s)
            for (uint32_t n = 0; n < servers_; ++n)
                if ((s >> n & 1) != 0) price[m * subsets_ + s] += bytes_[m] * price_[n];
    double sum = 0;
    for (uint32_t x = 0; x < experts_; ++x) {
        if (wanted_[x] == 0) continue;
        const double *cost = cost_.data() + x * subsets_;
        const double *paid = price.data() + model_of_[x] * subsets_;
        double least = infinity;
        uint32_t best = 0;
        for (size_t s = 0; s < subsets_; ++s)
            if (cost[s] + paid[s] < least)
                least = cost[s] + paid[s], best = static_cast<uint32_t>(s);
        sum += least;
        chosen_[x] = best;
        for (uint32_t left = best; left != 0; left &= left - 1)
            used_[static_cast<size_t>(std::countr_zero(left))] += bytes_[model_of_[x]];
        for (uint32_t e = 0; e < entries_; ++e)
            paid_[flow(x, e)] += option_once_[option(model_of_[x], e) + best];
    }
    return sum;
}

// A feasible dual solution of the expert's location problem. First every entry's level rises to the
// second cheapest way to serve it, then as far as the servers' prices allow.
inline double lower_bound::ascend_one(uint32_t x) {
    const uint32_t m = model_of_[x];
    slack_.resize(servers_), level_.assign(entries_, 0);
    for (uint32_t n = 0; n < servers_; ++n)
        slack_[n] = fits_[m * servers_ + n] != 0 ? bytes_[m] * price_[n] : infinity;
    const auto cost = [&](uint32_t e, size_t s) {
        return weights_.latency * (once_[flow(x, e)] * option_once_[option(m, e) + s] +
                                   each_[flow(x, e)] * option_each_[option(m, e) + s]) +
               (s == time_.entry_server(e) ? 0 : weights_.remote_s * calls_[flow(x, e)]);
    };
    const auto raise = [&](uint32_t e, double to) {
        for (uint32_t n = 0; n < servers_; ++n)
            if (const double c = cost(e, n); c < to) slack_[n] -= to - std::max(c, level_[e]);
        level_[e] = to;
    };
    double sum = 0;
    for (int pass = 0; pass < 2; ++pass) {
        for (uint32_t e = 0; e < entries_; ++e) {
            if (once_[flow(x, e)] + each_[flow(x, e)] + calls_[flow(x, e)] <= 0) continue;
            double first = infinity, second = infinity, most = cost(e, servers_);
            for (uint32_t n = 0; n < servers_; ++n) {
                const double c = cost(e, n);
                if (slack_[n] == infinity || c == infinity) continue;
                second = c < first ? first : std::min(second, c);
                first = std::min(first, c);
                most = std::min(most, std::max(c, level_[e]) + std::max(0.0, slack_[n]));
            }
            if (pass == 0) most = std::min(most, second);
            if (most > level_[e]) raise(e, most);
        }
    }
    for (const double level : level_) sum += level;
    // Some server must have it, whichever entry requests it.
    uint32_t cheapest = 0;
    for (uint32_t n = 1; n < servers_; ++n)
        if (slack_[n] < slack_[cheapest]) cheapest = n;
    if (cover_) sum += std::max(0.0, slack_[cheapest]);
    bool any = false;
    for (uint32_t n = 0; n < servers_; ++n)
        if (slack_[n] <= 1e-9 * bytes_[m] * price_[n]) used_[n] += bytes_[m], any = true;
    if (cover_ && !any) used_[cheapest] += bytes_[m];
    return sum;
}

inline double lower_bound::evaluate() {
    if (stale_) sum_shares();
    std::fill(used_.begin(), used_.end(), 0.0);
    double sum = 0;
    if (subsets_ != 0)
        sum = enumerate_all();
    else
        for (uint32_t x = 0; x < experts_; ++x)
            if (wanted_[x] != 0) sum += ascend_one(x);
    for (uint32_t n = 0; n < servers_; ++n) sum -= price_[n] * room_[n];
    return sum;
}

// ---- better prices and shares ----------------------------------------------------------------

// Shares move to the experts that are paid above the mean of their set. Payments are means over the
// prices tried since the last call.
inline void lower_bound::shift_shares(double rate) {
    for (const set &of : sets_) {
        std::array<double, 16> paid;
        double mean = 0, sum = 0;
        for (uint32_t i = 0; i < of.count; ++i) {
            paid[i] = paid_[flow(members_[of.first + i], of.entry)];
            mean += share_[of.first + i] * paid[i];
        }
        if (!(mean > 0)) continue;
        for (uint32_t i = 0; i < of.count; ++i) {
            double &share = share_[of.first + i];
            share *= std::clamp(1 + rate * (paid[i] / mean - 1), 0.25, 4.0);
            sum += share = std::max(share, 1e-4);
        }
        for (uint32_t i = 0; i < of.count; ++i) share_[of.first + i] /= sum;
    }
    stale_ = true;
    std::fill(paid_.begin(), paid_.end(), 0.0);
}

inline void lower_bound::move_shares(uint32_t rounds) {
    double rate = 0.5;
    std::fill(paid_.begin(), paid_.end(), 0.0);
    for (uint32_t round = 0; round < rounds && rate > 1e-3; ++round) {
        const double before = best_;
        cut(0.05, 8 * servers_);
        shift_shares(rate);
        price_ = best_price_;
        try_prices();
        if (best_ - before < 1e-4 * scale_) rate *= 0.8;
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
    for (uint32_t i = 0; i < 12; ++i, price /= 4)
        if (!attempt(price) && best > 0) break;
    for (double step = 2; step > 1.05 && best > 0; step = std::sqrt(step))
        if (!attempt(best * step)) attempt(best / step);
    price_ = best_price_;
}

// The ellipsoid method with deep cuts, around the best prices; for few servers. Prices cannot be
// adjusted one by one: if servers are alike, a small change moves many experts to another server.
inline void lower_bound::cut(double radius, uint32_t steps) {
    const uint32_t n = servers_;
    price_ = best_price_;
    const double unit = *std::max_element(price_.begin(), price_.end());
    if (n < 2 || unit <= 0) return;
    std::vector<double> shape(size_t{n} * n, 0), slope(n), towards(n);
    for (uint32_t i = 0; i < n; ++i) shape[i * n + i] = radius * radius * unit * unit;
    for (uint32_t step = 0; step < steps; ++step) {
        const auto lowest = std::min_element(price_.begin(), price_.end());
        double depth = 0;
        std::fill(slope.begin(), slope.end(), 0.0);
        if (*lowest < 0) {
            slope[static_cast<size_t>(lowest - price_.begin())] = 1;
            depth = -*lowest;
        } else {
            const double value = try_prices();
            for (uint32_t i = 0; i < n; ++i) slope[i] = used_[i] - room_[i];
            depth = best_ - value;
        }
        double norm = 0;
        for (uint32_t i = 0; i < n; ++i) {
            towards[i] = 0;
            for (uint32_t j = 0; j < n; ++j) towards[i] += shape[i * n + j] * slope[j];
            norm += slope[i] * towards[i];
        }
        norm = std::sqrt(norm);
        if (!(norm > 0) || depth >= norm) return;
        const double alpha = depth / norm, count = n;
        const double stride = (1 + count * alpha) / (count + 1) / norm;
        const double grow = count * count / (count * count - 1) * (1 - alpha * alpha);
        const double flat = 2 * (1 + count * alpha) / ((count + 1) * (1 + alpha)) / (norm * norm);
        for (uint32_t i = 0; i < n; ++i) price_[i] += stride * towards[i];
        for (uint32_t i = 0; i < n; ++i)
            for (uint32_t j = 0; j < n; ++j)
                shape[i * n + j] = grow * (shape[i * n + j] - flat * towards[i] * towards[j]);
    }
}

// Subgradient steps for prices; `target` is not below the maximum.
inline void lower_bound::follow(double target, uint32_t steps) {
    double length = 1;
    uint32_t since = 0;
    for (uint32_t step = 0; step < steps && length > 1e-4; ++step) {
        const double before = best_, value = try_prices();
        if (best_ > before + 1e-4 * std::abs(target - before)) since = 0;
        if (++since > 6) {
            length /= 2, since = 0;
            price_ = best_price_, share_ = best_share_, stale_ = true;
            continue;
        }
        // In shares of a server's room, so all prices have one unit.
        double norm = 0;
        for (uint32_t n = 0; n < servers_; ++n) {
            const double over = room_[n] > 0 ? used_[n] / room_[n] - 1 : 0;
            if (over > 0 || price_[n] > 0) norm += over * over;
        }
        const double stride =
            norm > 0 ? length * std::max(target - value, 1e-9 * scale_) / norm : 0;
        for (uint32_t n = 0; n < servers_; ++n)
            if (room_[n] > 0)
                price_[n] =
                    std::max(0.0, price_[n] + stride * (used_[n] / room_[n] - 1) / room_[n]);
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
    if (few) cut(first ? 2 : 0.1, 60 * servers_);
    if (few && !sets_.empty()) move_shares(steps);
    price_ = best_price_;
    follow(target, few ? 20 : steps);
    if (few) cut(0.1, 30 * servers_);
}

}  // namespace moorage::joint
