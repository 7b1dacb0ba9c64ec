// prism_algorithm.hpp - Prism's Algorithms 1 and 2 on plain arrays of one model.
//
// Source: Prism, Section III-C. The printed pseudo-code loops for ever on three servers of 3 slots
// with two flat layers of 4 experts. It leaves a layer uncovered on two servers of 4 slots with
// entropies 2 and 1. Both are tests. So these rules make it safe. Slots are whole experts on each
// GPU. No layer gets more places of a server than it has experts. A layer only gives places that it
// can spare. Unplaced experts and duplicates are counted anew after every replacement. Entropies
// are computed only with divisions and products, so they are the same bits on every machine.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace moorage::prism {

struct problem {
    uint32_t servers = 0, layers = 0, experts = 0;
    const double *frequency = nullptr;  // [servers, layers, experts], rows `stride` apart
    size_t stride = 0;                  // from server to server
    std::vector<uint32_t> slots;        // [servers] whole experts
    std::vector<uint64_t> memory;       // [servers] bytes: the order of rebalancing
    bool cover = true;                  // every expert needs a place

    std::span<const double> row(uint32_t server, uint32_t layer) const {
        return {frequency + server * stride + size_t{layer} * experts, experts};
    }
    size_t place(uint32_t server, uint32_t layer) const { return size_t{server} * layers + layer; }
};

// Base 2, for a positive normal number, exact to the last bit or two: x = 2^n m, and log m by 2
// atanh((m - 1) / (m + 1)), |z| < 0.172.
inline double log2_of(double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
    double m = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1023} << 52);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++exponent;
    }
    const double z = (m - 1) / (m + 1), square = z * z;
    double sum = 0;
    for (int power = 23; power >= 1; power -= 2) sum = sum * square + 1.0 / power;
    return static_cast<double>(exponent) + sum * z * 2.8853900817779268;  // 2 / ln 2
}

// Section III-C1, in bits; 0 for a layer without activations.
inline double entropy(std::span<const double> frequency) {
    const double total = std::accumulate(frequency.begin(), frequency.end(), 0.0);
    if (!(total > 0)) return 0;
    double sum = 0;
    for (const double activations : frequency) {
        const double share = activations / total;
        if (share >= 0x1p-1000) sum -= share * log2_of(share);
    }
    return std::max(sum, 0.0);
}

// Algorithm 1: places of each layer on each server, [servers, layers].
class layer_counts {
public:
    explicit layer_counts(const problem &problem)
        : problem_(problem),
          count_(size_t{problem.servers} * problem.layers),
          free_(problem.slots.begin(), problem.slots.end()),
          total_(problem.layers, 0),
          order_(problem.servers) {
        std::iota(order_.begin(), order_.end(), 0u);
        std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
            return problem.memory[a] > problem.memory[b];
        });
    }

    std::vector<uint32_t> allocate() {
        for (uint32_t server = 0; server < problem_.servers; ++server) allocate_server(server);
        if (problem_.cover)
            for (uint32_t layer = 0; layer < problem_.layers; ++layer)
                while (total_[layer] < problem_.experts)
                    if (!move_places(layer) && !use_free_slot(layer)) fail(layer);
        return count_;
    }

private:
    // Step 1. A product such as 6 * 2/3 must give 4.
    void allocate_server(uint32_t server) {
        std::vector<double> diversity(problem_.layers);
        for (uint32_t layer = 0; layer < problem_.layers; ++layer)
            diversity[layer] = entropy(problem_.row(server, layer));
        const double sum = std::accumulate(diversity.begin(), diversity.end(), 0.0);
        const double slots = problem_.slots[server];
        for (uint32_t layer = 0; layer < problem_.layers; ++layer) {
            const double share = sum > 0 ? diversity[layer] / sum : 1.0 / problem_.layers;
            const auto places = static_cast<uint32_t>(slots * share + 1e-9);
            const uint32_t layer_places = std::min({places, problem_.experts, free_[server]});
            count_[problem_.place(server, layer)] = layer_places;
            free_[server] -= layer_places;
            total_[layer] += layer_places;
        }
    }
    // Step 2, once over the servers. Returns whether a place moved to another layer.
    bool move_places(uint32_t layer) {
        bool moved = false;
        for (const uint32_t server : order_) {
            const auto giver = static_cast<uint32_t>(
                std::max_element(total_.begin(), total_.end()) - total_.begin());
            if (total_[giver] <= problem_.experts) return moved;
            uint32_t &giver_places = count_[problem_.place(server, giver)];
            uint32_t &layer_places = count_[problem_.place(server, layer)];
            if (giver_places == 0 || layer_places == problem_.experts) continue;
            --giver_places, ++layer_places;
            --total_[giver], ++total_[layer];
            moved = true;
            if (total_[layer] == problem_.experts) break;
        }
        return moved;
    }
    bool use_free_slot(uint32_t layer) {
        for (const uint32_t server : order_) {
            uint32_t &layer_places = count_[problem_.place(server, layer)];
            if (free_[server] == 0 || layer_places == problem_.experts) continue;
            ++layer_places, --free_[server], ++total_[layer];
            return true;
        }
        return false;
    }
    [[noreturn]] void fail(uint32_t layer) const {
        uint64_t places = 0;
        for (const uint32_t slots : problem_.slots)
            places += std::min<uint64_t>(slots, uint64_t{problem_.layers} * problem_.experts);
        throw std::invalid_argument("the servers have " + std::to_string(places) + " places for " +
                                    std::to_string(uint64_t{problem_.layers} * problem_.experts) +
                                    " experts: layer " + std::to_string(layer) +
                                    " is not covered; give them more memory or a cloud");
    }

    const problem &problem_;
    std::vector<uint32_t> count_, free_;
    std::vector<uint64_t> total_;  // [layers]
    std::vector<uint32_t> order_;  // servers by memory
};

// Algorithm 2: the holders, [servers, layers, experts].
class assignment {
public:
    assignment(const problem &problem, std::span<const uint32_t> counts)
        : problem_(problem),
          held_(size_t{problem.servers} * problem.layers * problem.experts),
          copies_(size_t{problem.layers} * problem.experts),
          ranking_(problem.experts) {
        for (uint32_t server = 0; server < problem.servers; ++server)
            for (uint32_t layer = 0; layer < problem.layers; ++layer)
                take_top(server, layer, counts[problem.place(server, layer)]);
        if (problem.cover)
            for (uint32_t layer = 0; layer < problem.layers; ++layer) cover(layer);
    }

    bool holds(uint32_t server, uint32_t layer, uint32_t expert) const {
        return held_[problem_.place(server, layer) * problem_.experts + expert] != 0;
    }
    uint64_t replaced() const { return replaced_; }

    // Gives slots that the counts left over to the server's most frequent missing experts, as far
    // as it requests them. Returns how many stay empty.
    uint64_t fill() {
        uint64_t empty = 0;
        std::vector<uint32_t> missing;
        for (uint32_t server = 0; server < problem_.servers; ++server) {
            const double *frequency = problem_.row(server, 0).data();
            uint8_t *held = held_.data() + problem_.place(server, 0) * problem_.experts;
            missing.clear();
            uint32_t used = 0;
            for (uint32_t expert = 0; expert < problem_.layers * problem_.experts; ++expert)
                if (held[expert] != 0)
                    ++used;
                else if (frequency[expert] > 0)
                    missing.push_back(expert);
            const size_t count = std::min<size_t>(problem_.slots[server] - used, missing.size());
            const auto last = missing.begin() + static_cast<std::ptrdiff_t>(count);
            std::partial_sort(missing.begin(), last, missing.end(), [&](uint32_t a, uint32_t b) {
                return frequency[a] != frequency[b] ? frequency[a] > frequency[b] : a < b;
            });
            for (auto position = missing.begin(); position != last; ++position) {
                held[*position] = 1;
                ++copies_[*position];
            }
            empty += problem_.slots[server] - used - count;
        }
        return empty;
    }

private:
    uint8_t *held(uint32_t server, uint32_t layer) {
        return held_.data() + problem_.place(server, layer) * problem_.experts;
    }
    uint32_t *copies(uint32_t layer) { return copies_.data() + size_t{layer} * problem_.experts; }

    void take_top(uint32_t server, uint32_t layer, uint32_t count) {
        const std::span<const double> frequency = problem_.row(server, layer);
        std::iota(ranking_.begin(), ranking_.end(), 0u);
        std::partial_sort(ranking_.begin(), ranking_.begin() + count, ranking_.end(),
                          [&](uint32_t a, uint32_t b) {
                              return frequency[a] != frequency[b] ? frequency[a] > frequency[b]
                                                                  : a < b;
                          });
        for (uint32_t i = 0; i < count; ++i) {
            held(server, layer)[ranking_[i]] = 1;
            ++copies(layer)[ranking_[i]];
        }
    }
    // Terminates: with fewer than E distinct experts on E places or more, a duplicate exists, and
    // every replacement places one more expert for good.
    void cover(uint32_t layer) {
        uint32_t open = 0;
        for (uint32_t expert = 0; expert < problem_.experts; ++expert)
            open += copies(layer)[expert] == 0;
        while (open > 0) {
            const uint32_t old_open = open;
            for (const uint32_t server : by_duplicates(layer))
                if (open > 0 && replace(server, layer)) --open;
            if (open == old_open) throw std::logic_error("prism: no duplicate to replace");
        }
    }
    std::vector<uint32_t> by_duplicates(uint32_t layer) {
        std::vector<uint32_t> order(problem_.servers), duplicates(problem_.servers, 0);
        std::iota(order.begin(), order.end(), 0u);
        for (uint32_t server = 0; server < problem_.servers; ++server)
            for (uint32_t expert = 0; expert < problem_.experts; ++expert)
                duplicates[server] += held(server, layer)[expert] && copies(layer)[expert] > 1;
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return duplicates[a] < duplicates[b]; });
        return order;
    }
    // Puts the server's most frequent unplaced expert in place of its least frequent duplicate.
    bool replace(uint32_t server, uint32_t layer) {
        const std::span<const double> frequency = problem_.row(server, layer);
        uint32_t placed = problem_.experts, removed = problem_.experts;
        for (uint32_t expert = 0; expert < problem_.experts; ++expert) {
            if (copies(layer)[expert] == 0) {
                if (placed == problem_.experts || frequency[expert] > frequency[placed])
                    placed = expert;
            } else if (held(server, layer)[expert] && copies(layer)[expert] > 1) {
                if (removed == problem_.experts || frequency[expert] <= frequency[removed])
                    removed = expert;
            }
        }
        if (removed == problem_.experts) return false;
        held(server, layer)[removed] = 0, --copies(layer)[removed];
        held(server, layer)[placed] = 1, ++copies(layer)[placed];
        ++replaced_;
        return true;
    }

    const problem &problem_;
    std::vector<uint8_t> held_;
    std::vector<uint32_t> copies_;   // [layers, experts] over all servers
    std::vector<uint32_t> ranking_;  // for the running call of take_top
    uint64_t replaced_ = 0;
};

// Eq. (2): activations of experts that their server does not hold.
inline double remote_calls(const problem &problem, const assignment &placed) {
    double sum = 0;
    for (uint32_t server = 0; server < problem.servers; ++server)
        for (uint32_t layer = 0; layer < problem.layers; ++layer)
            for (uint32_t expert = 0; expert < problem.experts; ++expert)
                if (!placed.holds(server, layer, expert)) sum += problem.row(server, layer)[expert];
    return sum;
}

}  // namespace moorage::prism
