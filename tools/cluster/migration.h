// migration.h - moves a cluster from one plan to another, copy by copy. Every expert stays
// reachable, and no device exceeds its memory.
//
//   migration_order order(cluster, demand, in_force, adopted, drop);
//   while (auto step = order.next()) send(*step);   // again after every arrival
//   order.arrived(step);                            // the copy is there: it may be called now
//
// A copy takes room from its start, but counts only after its arrival. A copy that is not in the
// new plan goes when its room is needed, or at the end, and only while another copy (or the cloud)
// is there. A device gets the copy with the largest gain per byte first. The gain is the number of
// tokens a second that would find the expert on their own server.
//
// Full devices may wait for each other's only copies. Then one copy goes to a spare place on a
// third device first, or a copy that exists elsewhere makes room for a while. If neither helps, the
// copies are given up and reported.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tools/placement/scene.h"

namespace moorage::core {

struct migration_step {
    uint32_t id = 0;  // for arrived()
    uint32_t expert = 0;
    uint32_t source = 0;  // the nearest device that has it; MOORAGE_NONE: the cloud
    uint32_t target = 0;  // device
    uint64_t bytes = 0;
};

// Takes a copy away from callers. False: a call still uses it, ask again later.
using drop_copy = std::function<bool(const moorage_copy &)>;

struct migration_options {
    uint32_t at_once = 1;  // copies under way to one device
};

class migration_order {
public:
    // `cluster` and `demand` are borrowed for the call. Requires: both plans are ascending by
    // expert, then device, have no copy twice, and are within memory.
    migration_order(const cluster_arrays &cluster, const demand_arrays &demand,
                    std::span<const moorage_copy> current, std::span<const moorage_copy> target,
                    drop_copy drop, const migration_options &options = {});

    // A copy to start now. The copies that have to go for it were dropped. Nothing: all wait. Call
    // until it gives nothing: after the start, after each arrival, and, while blocked(), when calls
    // end.
    std::optional<migration_step> next();
    void arrived(uint32_t id);
    // No copy is started from now on. Those under way still arrive. Copies that are not in the new
    // plan stay.
    void stop();

    // Whether nothing is left to do: the new plan is in force, except given_up() and the copies
    // that must stay for it.
    bool done() const {
        return under_way_ == 0 && ready_.empty() && (stopped_ || (waiting_ == 0 && swept_));
    }
    // Whether next() gave nothing because a copy could not be dropped.
    bool blocked() const { return blocked_; }
    uint32_t under_way() const { return under_way_; }
    // Copies that can be called now, ascending by expert, then device.
    std::vector<moorage_copy> copies() const;
    // Copies of the new plan that could not be made.
    std::span<const moorage_copy> given_up() const { return given_up_; }

    uint64_t copied() const { return copied_; }    // copies that were started
    uint64_t detours() const { return detours_; }  // of these: to a third device, or repeated

private:
    static constexpr uint32_t none = UINT32_MAX;
    enum class state : uint8_t { absent, waiting, arriving, present };
    struct place {  // one expert on one device
        state now = state::absent;
        bool wanted = false;   // the new plan wants it
        bool settled = false;  // it has arrived and is no longer dropped for a while
        uint32_t readers = 0;  // copies that are being made from it
    };
    struct request {  // a wanted copy that waits to be started
        uint32_t expert;
        double gain_per_byte;
        bool again;  // it was dropped for a while
    };
    struct sending {
        uint32_t expert, source, target;
    };
    // A way out for one request: experts to drop for a while, and experts to put up elsewhere.
    struct detour {
        struct guest {
            uint32_t expert, device;
        };
        std::vector<moorage_copy> dropped;
        std::vector<guest> guests;
    };

    void take_plans(std::span<const moorage_copy> current, std::span<const moorage_copy> target);
    void take_ways(const cluster_arrays &cluster);
    void take_values(const demand_arrays &demand, std::span<const uint32_t> home_server);

    uint64_t bytes_of(uint32_t expert) const { return model_bytes_[model_of_[expert]]; }
    uint64_t room(uint32_t device) const {
        return capacity_[device] - std::min(capacity_[device], used_[device]);
    }
    uint32_t experts() const { return static_cast<uint32_t>(devices_of_.size()); }
    place &place_at(uint32_t expert, uint32_t device) {
        return places_[size_t{expert} * devices_ + device];
    }
    const place &place_at(uint32_t expert, uint32_t device) const {
        return places_[size_t{expert} * devices_ + device];
    }
    void set_place(uint32_t expert, uint32_t device, state now, bool wanted);
    void clear_place(uint32_t expert, uint32_t device);
    bool lasts_without(uint32_t expert, const place &place) const;
    bool may_go(uint32_t expert, uint32_t device) const;
    bool may_go_for_a_while(uint32_t expert, const place &place) const;
    double value_per_byte(uint32_t expert, uint32_t device) const;
    double transfer_s(uint32_t source, uint32_t target, uint64_t bytes) const;
    uint32_t source_of(uint32_t expert, uint32_t target) const;
    bool has_source(uint32_t expert, uint32_t target) const;

    void want(uint32_t expert, uint32_t device, bool again);
    bool drop(uint32_t expert, uint32_t device);
    bool make_room(uint32_t device, uint64_t bytes);
    bool was_refused(uint32_t expert, uint32_t device) const;
    uint64_t droppable_bytes(uint32_t device) const;
    std::optional<migration_step> next_to(uint32_t device);
    std::optional<migration_step> next_any();
    migration_step start(uint32_t expert, uint32_t target);
    bool retry_refused();
    void look_again_at(uint32_t expert);
    void sweep();

    bool untangle();
    std::optional<detour> way_out(uint32_t device, uint32_t expert);
    uint64_t drop_for_a_while(uint32_t device, uint64_t bytes, detour &way);
    uint32_t spare_device(uint32_t expert, uint32_t but, const detour &so_far, bool free_only);
    void take_stock();
    bool follow(const detour &way);
    void give_up();

    uint32_t devices_, servers_;
    bool cloud_;
    drop_copy drop_;
    migration_options options_;
    std::vector<uint64_t> model_bytes_;
    std::vector<uint16_t> model_of_;  // [X]
    std::vector<uint32_t> device_server_;
    // [servers + 1, servers]: latency and seconds a byte, from a server or the cloud; infinite:
    // none
    std::vector<double> latency_s_, byte_s_;
    std::vector<double> value_;                      // [servers, X] tokens a second
    std::vector<place> places_;                      // [X, G]
    std::vector<std::vector<uint32_t>> devices_of_;  // [X] where it is not absent, ascending
    std::vector<uint32_t> server_first_;             // [servers + 1] device
    std::vector<std::vector<request>> requests_;     // [G] best first
    std::vector<std::vector<uint32_t>> surplus_;     // [G] present and not wanted, by arrival
    std::vector<uint64_t> capacity_, used_;          // [G] bytes
    std::vector<uint32_t> sending_to_;               // [G]
    std::vector<uint32_t> favoured_;  // [G] the one expert for which it is kept free, or none
    std::vector<uint8_t> idle_;       // [G] nothing can start there; do not look again
    std::vector<uint32_t> present_;   // [X] copies that can be called
    std::vector<uint8_t> needed_;     // [X] the new plan has a copy
    std::vector<uint8_t> put_up_;     // [X] was a guest already
    std::vector<uint64_t> freeable_bytes_,
        spare_bytes_;  // [G] used in untangle(): bytes that could be freed
    std::vector<sending> sent_;
    std::vector<migration_step> ready_;  // started, to be returned
    std::vector<moorage_copy> refused_, given_up_;
    std::vector<std::pair<double, uint32_t>> heads_;  // used in next_any()
    uint64_t waiting_ = 0, copied_ = 0, detours_ = 0;
    uint32_t under_way_ = 0;
    bool blocked_ = false, stopped_ = false, swept_ = false;
    bool changed_ = true;  // something has changed since next() gave nothing
};

}  // namespace moorage::core
