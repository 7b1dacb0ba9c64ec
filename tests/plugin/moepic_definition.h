// moepic_definition.h - MoEpic's statistics and Algorithm 1 as printed: slow and plain.
//
// Nothing here is shared with the plugin. A separate lcp cache of every size serves the tokens. All
// sums are added up anew each time, in long double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace moorage::test {

// Eq. (4) for one layer.
class priorities {
public:
    priorities(uint32_t experts, long double omega, long double rho)
        : omega_(omega), rho_(rho), mu_(experts), nu_(experts) {}
    void token(const std::vector<uint32_t> &chosen) {
        for (uint64_t &nu : nu_) ++nu;
        for (const uint32_t expert : chosen) ++mu_[expert], nu_[expert] = 0;
    }
    // -1: lower priority than b, 0: the same, 1: higher.
    int compare(uint32_t a, uint32_t b) const {
        if (mu_[a] == 0 || mu_[b] == 0) return mu_[a] == mu_[b] ? 0 : mu_[a] == 0 ? -1 : 1;
        const long double difference = log(a) - log(b);
        return std::abs(difference) < 1e-14L ? 0 : difference < 0 ? -1 : 1;
    }

private:
    long double log(uint32_t expert) const {
        return std::log(static_cast<long double>(mu_[expert])) +
               static_cast<long double>(nu_[expert]) / omega_ * std::log(rho_);
    }
    const long double omega_, rho_;
    std::vector<uint64_t> mu_, nu_;
};

inline bool holds(const std::vector<uint32_t> &experts, uint32_t expert) {
    return std::find(experts.begin(), experts.end(), expert) != experts.end();
}

// H, P and PH of one layer; sizes from 0, ranks from 0.
struct layer_counts {
    layer_counts(uint32_t experts, uint32_t k, double omega, double rho, bool rank)
        : by_rank(rank),
          top_k(k),
          H(experts + 1),
          P(experts),
          PH(experts, std::vector<long double>(experts + 1)),
          order(experts, omega, rho),
          caches(experts + 1) {}

    void token(const std::vector<uint32_t> &chosen, const std::vector<uint32_t> &predicted) {
        const auto sizes = static_cast<uint32_t>(caches.size());
        for (uint32_t size = 0; size < sizes; ++size) {
            const std::vector<uint32_t> content = content_of(size);
            for (const uint32_t expert : chosen) H[size] += holds(content, expert) ? 1 : 0;
            for (uint32_t rank = 0; rank < predicted.size(); ++rank)
                PH[rank][size] += holds(content, predicted[rank]) ? 1 : 0;
        }
        for (uint32_t rank = 0; rank < predicted.size(); ++rank)
            P[rank] += holds(chosen, predicted[rank]) ? 1 : 0;
        ++q;
        order.token(chosen);
        for (uint32_t size = 0; size < sizes; ++size) serve(size, chosen);
    }
    long double hit_rate(uint32_t size) const { return H[size] / (q * top_k); }
    long double accuracy(uint32_t rank) const { return P[rank] / q; }
    long double present(uint32_t rank, uint32_t size) const { return PH[rank][size] / q; }

    std::vector<uint32_t> content_of(uint32_t size) const {
        if (!by_rank) return caches[size];
        std::vector<uint32_t> experts(caches.size() - 1);
        for (uint32_t expert = 0; expert < experts.size(); ++expert) experts[expert] = expert;
        std::stable_sort(experts.begin(), experts.end(),
                         [&](uint32_t a, uint32_t b) { return order.compare(a, b) > 0; });
        experts.resize(size);
        return experts;
    }
    // MOE-1.
    void serve(uint32_t size, const std::vector<uint32_t> &chosen) {
        std::vector<uint32_t> &cache = caches[size];
        for (const uint32_t expert : chosen) {
            if (holds(cache, expert)) continue;
            if (cache.size() == size) {
                uint32_t victim = UINT32_MAX;
                for (const uint32_t cached : cache) {
                    if (holds(chosen, cached)) continue;
                    const int comparison =
                        victim == UINT32_MAX ? -1 : order.compare(cached, victim);
                    if (comparison < 0 || (comparison == 0 && cached < victim)) victim = cached;
                }
                if (victim == UINT32_MAX) continue;
                cache.erase(std::find(cache.begin(), cache.end(), victim));
            }
            cache.push_back(expert);
        }
    }

    const bool by_rank;
    const long double top_k;
    long double q = 0;
    std::vector<long double> H, P;
    std::vector<std::vector<long double>> PH;
    priorities order;
    std::vector<std::vector<uint32_t>> caches;
};

struct split_result {
    uint32_t C = 0, Y = 0;
    long double theta = 1, m = 0, T = 0;
};

// Algorithm 1 over given counts (hit_rate, accuracy and present of each layer).
template <class Counts>
struct algorithm_1 {
    const std::vector<Counts> &layers;
    uint32_t N;
    long double K, att, moe, head, load, V_e;
    long double zeta = 0.01L, step = 0;

    split_result value(const Counts &counts, uint32_t C, long double theta,
                       long double window) const {
        split_result r{C, 0, theta, K * counts.hit_rate(C) * theta, 0};
        long double time = 0;
        for (uint32_t y = 0; y < N; ++y) {
            const long double share = 1 - counts.present(y, C) * theta;
            time += share * load;
            if (time > window + 1e-9L * load) break;
            r.m += share * counts.accuracy(y);
            ++r.Y;
        }
        r.m = std::min(std::max(r.m, 0.0L), K);
        return r;
    }
    split_result split(const Counts &counts, long double V, long double window) const {
        split_result best;
        best.m = -1;
        for (uint32_t C = 1; C <= N; ++C) {
            long double theta = V / C;
            if (theta > 1 + 1e-10L) {
                const bool largest = C + 1 > V + 1e-9L || C == N;
                if (C < N && !(largest && step > 0)) continue;
                theta = 1;
            } else if (theta > 1 - 1e-12L) {
                theta = 1;
            } else if (step > 0) {
                theta = std::floor(theta / step + 5e-7L) * step;
            }
            if (theta <= 0) continue;
            const split_result r = value(counts, C, theta, window);
            if (r.m > best.m * (1 + 1e-12L)) best = r;
        }
        return best;
    }
    std::vector<split_result> expert_split(const std::vector<long double> &V) const {
        std::vector<split_result> splits;
        long double window = head + att;
        for (size_t i = 0; i < layers.size(); ++i) {
            split_result r;
            if (V[i] > 1e-9L) r = split(layers[i], V[i], window);
            const long double hide = r.m * moe / K, miss = (K - r.m) * load;
            r.T = V[i] > 1e-9L ? std::max(0.0L, miss - hide) : INFINITY;
            window = moe - std::min(hide, miss) + att;
            splits.push_back(r);
        }
        return splits;
    }
    static long double sum(const std::vector<split_result> &splits) {
        long double total = 0;
        for (const split_result &r : splits) total += r.T;
        return total;
    }
    std::vector<long double> memory(const std::vector<int> &moves, int shift = 0) const {
        std::vector<long double> V;
        for (const int n : moves) V.push_back(V_e / moves.size() + (n + shift) * (zeta * V_e));
        return V;
    }
    // The moves of each layer; `totals` gets the total after each round.
    std::vector<int> allocate(std::vector<long double> *totals = nullptr) const {
        const auto L = static_cast<int>(layers.size());
        std::vector<int> moves(L, 0);
        for (;;) {
            const auto T1 = expert_split(memory(moves)), T2 = expert_split(memory(moves, 1)),
                       T3 = expert_split(memory(moves, -1));
            if (totals) totals->push_back(sum(T1));
            if (L == 1) return moves;
            int i1 = 0, i2 = -1;
            const long double same = 1e-12L * sum(T1);  // ties are found in spite of rounding
            for (int i = 1; i < L; ++i)
                if (T1[i].T - T2[i].T > T1[i1].T - T2[i1].T + same) i1 = i;
            for (int i = 0; i < L; ++i) {
                if (i == i1 || memory(moves, -1)[i] <= 1e-9L) continue;
                if (i2 < 0 || T3[i].T - T1[i].T < T3[i2].T - T1[i2].T - same) i2 = i;
            }
            if (i2 < 0) return moves;
            ++moves[i1], --moves[i2];
            if (!(sum(expert_split(memory(moves))) < sum(T1) * (1 - 1e-12L))) {
                --moves[i1], ++moves[i2];
                return moves;
            }
        }
    }
};

}  // namespace moorage::test
