// search.hpp - moves of the joint policy: fill, cover, shrink, replace, exchange, whole, kick.
//
// All moves ask the state for exact differences. Candidates are ranked by differences that may be
// old when their turn comes. The real gain of a move is found by making it, and taking it back if
// it does not pay. Ranks are seconds a byte.
#pragma once

#include <numeric>
#include <queue>

#include "state.hpp"

namespace moorage::joint {

class search {
public:
    // Smaller gains are ignored (seconds a token). Sums of doubles leave such remainders.
    static constexpr double least_s = 1e-13;

    // `cover`: whether experts of wanted models need a copy. `work_max`: stop improving there.
    search(state &state, bool cover, uint64_t work_max, uint64_t seed);

    bool spent() const { return state_.work() >= work_max_; }
    uint64_t work_left() const { return spent() ? 0 : work_max_ - state_.work(); }
    void set_limit(uint64_t work_max) { work_max_ = work_max; }

    // Places the copy that saves most, repeatedly, while anything that saves fits.
    void fill();
    // Servers take the experts that their own homes call most, in the order of their calls. With
    // `first`, every expert first goes to the server that calls it most, before any server gets a
    // second copy.
    void by_calls(bool first);
    // Server after server takes the experts that save most there, an exact knapsack (SlimCaching,
    // Algorithm 2), if that is not too large.
    void pack_all();
    // Places a copy of every expert that needs one. Returns false if there was no room.
    bool cover();
    // Removes copies from devices that hold more than they can. Returns false if that is
    // impossible.
    bool shrink();
    // Every server holds everything, with or without room.
    void put_everywhere();
    // Improves until nothing helps any more, or the limit. `layers`: also moves whole layers and
    // servers.
    void improve(bool layers = false);
    // Disturbs the placement at random and repairs it. Returns false if it could not be repaired.
    bool kick();

    // The device for the expert on the server, with room for it or without. none: no room.
    uint32_t device_for(uint32_t expert, uint32_t server, bool with_room) const {
        return spread_device(expert, server, with_room);
    }
    uint64_t moves() const { return moves_; }

private:
    struct candidate {
        double rank;
        uint32_t expert, server;
        friend bool operator<(const candidate &left, const candidate &right) {
            if (left.rank != right.rank) return left.rank < right.rank;
            return left.expert != right.expert ? left.expert > right.expert
                                               : left.server > right.server;
        }
    };
    struct item {
        double change_s;
        uint32_t expert;
    };

    const moorage_cluster &cluster() const { return state_.latency().cluster(); }
    uint32_t device_begin(uint32_t server) const { return state_.latency().device_begin(server); }
    uint32_t device_end(uint32_t server) const { return state_.latency().device_begin(server + 1); }
    double size(uint32_t expert) const { return static_cast<double>(state_.bytes(expert)); }
    bool fits(uint32_t expert, uint32_t device) const {
        return state_.free(device) >= static_cast<int64_t>(state_.bytes(expert));
    }
    bool pinned(uint32_t expert) const {
        return cover_ && needed_[expert] != 0 && state_.copies(expert) == 1;
    }
    uint64_t random() {
        seed_ += 0x9e3779b97f4a7c15ull;
        return pattern_table::mix(seed_);
    }
    uint32_t random_below(size_t bound) {
        return static_cast<uint32_t>(((random() >> 32) * bound) >> 32);
    }

    uint32_t spread_device(uint32_t expert, uint32_t server, bool with_room) const;
    void ask_servers(uint32_t expert);
    void rank_losses(uint32_t device, std::vector<item> &losses);
    void rank_gains(uint32_t server, std::vector<item> &gains);
    bool make_room(uint32_t expert, uint32_t device, const std::vector<item> &losses,
                   double allowed_s);
    bool insert(uint32_t expert, uint32_t server, double gain_s);
    bool replace(uint32_t server);
    bool trade(uint32_t server);
    bool relocate(uint32_t first, uint32_t second);
    bool relocate_pair(uint32_t expert, uint32_t source, uint32_t partner, uint32_t target);
    void rank_moves(uint32_t source, uint32_t target, std::vector<item> &moves);
    double move(uint32_t expert, uint32_t source, uint32_t target);
    bool settle_move(size_t mark, double change_s);
    bool evict_for(uint32_t expert);
    bool swap_in(uint32_t expert);
    bool shrink(uint32_t device);
    bool try_whole_layers();
    template <class Change>
    bool attempt(Change change);
    void take_layer(uint32_t server, uint32_t first);
    void drop_layer(uint32_t server, uint32_t first);
    void exchange_servers(uint32_t first, uint32_t second);
    void disturb_few();
    void disturb_swap();
    bool repack(uint32_t device);
    void disturb_layer();

    state &state_;
    const bool cover_;
    uint64_t work_max_, seed_, moves_ = 0;
    bool unequal_ = false;                   // wanted experts differ in size
    std::vector<uint8_t> needed_;            // [X] experts of wanted models
    std::vector<uint32_t> layer_first_;      // [X] first expert of the layer
    std::vector<uint32_t> layer_size_;       // [X]
    std::vector<std::vector<item>> losses_;  // [G] ascending by rank
    std::vector<uint32_t> victims_;
    std::vector<uint32_t> device_;  // [N] from ask_servers()
    std::vector<double> change_s_;
};

}  // namespace moorage::joint

#include "search.inl"
