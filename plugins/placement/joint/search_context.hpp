// search_context.hpp - what all moves of the joint policy share: the state, limits and helpers.
//
// Moves ask the state for exact differences. Candidates are ranked by differences that may be old
// when their turn comes. The real gain of a move is found by making it, and taking it back if it
// does not pay. Ranks are seconds a byte.
#pragma once

#include <algorithm>
#include <vector>

#include "placement_state.hpp"

namespace moorage::joint {

// Smaller gains are ignored (seconds a token). Sums of doubles leave such remainders.
inline constexpr double least_gain_s = 1e-13;

struct ranked_expert {
    double change_s;
    uint32_t expert;
};

class search_context {
public:
    // The state is borrowed. `cover`: whether experts of wanted models need a copy. `steps_max`:
    // moves stop improving there.
    search_context(placement_state &state, bool cover, uint64_t steps_max, uint64_t seed)
        : state_(state),
          cover_(cover),
          steps_max_(steps_max),
          seed_(seed),
          wanted_(state.experts(), 0),
          layer_first_(state.experts()),
          layer_size_(state.experts()) {
        const moorage_demand &demand = state.latency().demand();
        uint64_t bytes = 0;
        for (uint32_t model = 0; model < demand.models; ++model) {
            const bool wanted = moorage::joint::is_wanted(demand, model);
            for (uint32_t expert = demand.host_model_first[model];
                 expert < demand.host_model_first[model + 1]; ++expert) {
                wanted_[expert] = wanted ? 1 : 0;
                layer_size_[expert] = demand.host_model_experts[model];
                layer_first_[expert] =
                    expert - (expert - demand.host_model_first[model]) % layer_size_[expert];
            }
            if (!wanted) continue;
            unequal_ = unequal_ || (bytes != 0 && bytes != demand.host_expert_bytes[model]);
            bytes = demand.host_expert_bytes[model];
        }
    }

    placement_state &state() { return state_; }
    const moorage_cluster &cluster() const { return state_.latency().cluster(); }
    uint32_t device_begin(uint32_t server) const { return state_.latency().device_begin(server); }
    uint32_t device_end(uint32_t server) const { return state_.latency().device_begin(server + 1); }
    bool has_devices(uint32_t server) const { return device_begin(server) != device_end(server); }
    uint32_t server_of(uint32_t device) const { return state_.times().server_of(device); }

    bool must_cover() const { return cover_; }
    // Whether the expert belongs to a model that some home uses.
    bool is_wanted(uint32_t expert) const { return wanted_[expert] != 0; }
    // Whether wanted experts differ in size.
    bool has_unequal_sizes() const { return unequal_; }
    // Whether the expert's last copy must stay.
    bool is_pinned(uint32_t expert) const {
        return cover_ && is_wanted(expert) && state_.copy_count(expert) == 1;
    }
    bool has_room(uint32_t expert, uint32_t device) const {
        return state_.free_bytes(device) >= static_cast<int64_t>(state_.bytes(expert));
    }
    // Whether the device could hold the expert if it were empty.
    bool can_hold(uint32_t expert, uint32_t device) const {
        return state_.bytes(expert) <= cluster().host_device_bytes[device];
    }
    // First expert of the expert's layer, and the number of its experts.
    uint32_t layer_first(uint32_t expert) const { return layer_first_[expert]; }
    uint32_t layer_size(uint32_t expert) const { return layer_size_[expert]; }
    uint32_t layer_end(uint32_t expert) const { return layer_first(expert) + layer_size(expert); }

    bool is_spent() const { return state_.steps() >= steps_max_; }
    uint64_t steps_left() const { return is_spent() ? 0 : steps_max_ - state_.steps(); }
    void set_limit(uint64_t steps_max) { steps_max_ = steps_max; }
    uint32_t random_below(size_t bound) {
        seed_ += 0x9e3779b97f4a7c15ull;
        return static_cast<uint32_t>(((mix_bits(seed_) >> 32) * bound) >> 32);
    }

    // The device of the server that would be done first with its experts of the layer, with room
    // for the expert or whatever its room. none: no room.
    uint32_t find_device(uint32_t expert, uint32_t server, bool with_room) const {
        uint32_t best = none;
        double least = infinity;
        for (uint32_t device = device_begin(server); device < device_end(server); ++device) {
            if (with_room && !has_room(expert, device)) continue;
            if (device_end(server) - device_begin(server) == 1) return device;
            double held = 1;
            for (uint32_t neighbour = layer_first(expert); neighbour < layer_end(expert);
                 ++neighbour)
                if (neighbour != expert && state_.device_at(neighbour, server) == device) ++held;
            const double busy_s =
                held * state_.times().call_s(device, state_.latency().model_of(expert));
            if (busy_s < least) least = busy_s, best = device;
        }
        return best;
    }

    // Keeps the changes since the mark if they gain. Otherwise takes them back.
    bool keep_if_better(size_t mark, double change_s) {
        if (change_s < -least_gain_s) return true;
        state_.rollback(mark);
        return false;
    }

    // Copies of the device, the least missed per byte first.
    void rank_losses(uint32_t device, std::vector<ranked_expert> &losses) {
        const uint32_t server = server_of(device);
        losses.clear();
        for (uint32_t expert = 0; expert < state_.experts(); ++expert)
            if (state_.device_at(expert, server) == device && !is_pinned(expert))
                losses.push_back({state_.change_s(expert, server, none), expert});
        std::sort(losses.begin(), losses.end(),
                  [this](const ranked_expert &first, const ranked_expert &second) {
                      const double left = first.change_s * size(second.expert),
                                   right = second.change_s * size(first.expert);
                      return left != right ? left < right : first.expert < second.expert;
                  });
    }
    // Experts that the server lacks and that would save something, the most per byte first. Their
    // change_s is what they save.
    void rank_gains(uint32_t server, std::vector<ranked_expert> &gains) {
        gains.clear();
        for (uint32_t expert = 0; expert < state_.experts(); ++expert) {
            if (state_.device_at(expert, server) != none || !is_wanted(expert) ||
                !has_devices(server))
                continue;
            const double gain_s =
                -state_.change_s(expert, server, find_device(expert, server, /*with_room=*/false));
            if (gain_s > least_gain_s) gains.push_back({gain_s, expert});
        }
        std::sort(gains.begin(), gains.end(),
                  [this](const ranked_expert &first, const ranked_expert &second) {
                      const double left = first.change_s * size(second.expert),
                                   right = second.change_s * size(first.expert);
                      return left != right ? left > right : first.expert < second.expert;
                  });
    }

    // Finds the copies of `losses` that leave the device for the expert. False if there are none,
    // or if they cost more than allowed.
    bool find_victims(uint32_t expert, uint32_t device, const std::vector<ranked_expert> &losses,
                      double allowed_s, std::vector<uint32_t> &victims) const {
        const uint32_t server = server_of(device);
        int64_t lacking = static_cast<int64_t>(state_.bytes(expert)) - state_.free_bytes(device);
        double sum = 0;
        victims.clear();
        std::vector<ranked_expert> chosen;
        for (const ranked_expert &loss : losses) {
            if (lacking <= 0) break;
            if (state_.device_at(loss.expert, server) != device || loss.expert == expert ||
                is_pinned(loss.expert))
                continue;
            chosen.push_back(loss);
            sum += loss.change_s;
            lacking -= static_cast<int64_t>(state_.bytes(loss.expert));
        }
        if (lacking > 0) return false;
        // An earlier victim is not needed if a larger one came after it.
        for (size_t index = chosen.size(); index-- > 0;) {
            const auto bytes = static_cast<int64_t>(state_.bytes(chosen[index].expert));
            if (lacking + bytes <= 0) {
                lacking += bytes;
                sum -= chosen[index].change_s;
            } else {
                victims.push_back(chosen[index].expert);
            }
        }
        return sum < allowed_s;
    }
    // Puts the expert in the place of the victims and returns the cost.
    double replace_victims(uint32_t expert, uint32_t device, const std::vector<uint32_t> &victims) {
        const uint32_t server = server_of(device);
        double change_s = 0;
        for (const uint32_t victim : victims) change_s += state_.put(victim, server, none);
        change_s += state_.put(expert, server, device);
        return change_s;
    }

private:
    double size(uint32_t expert) const { return static_cast<double>(state_.bytes(expert)); }

    placement_state &state_;
    const bool cover_;
    uint64_t steps_max_, seed_;
    bool unequal_ = false;
    std::vector<uint8_t> wanted_;        // [experts]
    std::vector<uint32_t> layer_first_;  // [experts]
    std::vector<uint32_t> layer_size_;   // [experts]
};

}  // namespace moorage::joint
