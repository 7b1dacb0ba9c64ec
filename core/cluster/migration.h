// migration.h - the way from one plan to another: one copy after another, every expert reachable at
// every moment, no device above its memory.
//
//   migration_order order(cluster, demand, in_force, adopted, drop);
//   while (auto step = order.next()) send(*step);   // again after every arrival
//   order.arrived(step);                            // the copy is there: it may be called now
//
// A copy counts once it has arrived; its room is taken from its start. A copy that the new plan has
// not goes when its room is needed, or at the end, and only while another copy is there (or the
// cloud). Of a device's copies the one with the largest gain per byte comes first: tokens a second
// that would find the expert on their own server.
//
// Where full devices wait for each other's only copies, one of them goes to a spare place on a
// third device first, or a copy of which there are others makes room for a while. Where neither
// helps, the copies are given up and told.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/placement/scene.h"

namespace moorage::core {

struct migration_step {
    uint32_t id = 0;  // for arrived()
    uint32_t expert = 0;
    uint32_t from = 0;  // device, the nearest that has it; MOORAGE_NONE: the cloud
    uint32_t to = 0;    // device
    uint64_t bytes = 0;
};

// Takes a copy out of what can be called. False: a call still uses it, ask again later.
using drop_copy = std::function<bool(const moorage_copy &)>;

struct migration_options {
    uint32_t at_once = 1;  // copies under way to one device
};

class migration_order {
public:
    // `cluster` and `demand` are borrowed for the call. Requires: both plans ascending by expert,
    // then device, none twice, within memory.
    migration_order(const cluster_arrays &cluster, const demand_arrays &demand,
                    std::span<const moorage_copy> current, std::span<const moorage_copy> target,
                    drop_copy drop, const migration_options &options = {});

    // A copy to start now, after what it needs was dropped; nothing while all wait. Call until it
    // gives nothing: after the start, after each arrival, and, while blocked(), when calls end.
    std::optional<migration_step> next();
    void arrived(uint32_t id);
    // No copy is started from now on; those under way still arrive. Copies that the new plan has
    // not stay.
    void stop();

    // Nothing is left to do: the new plan is in force, but for given_up().
    bool done() const {
        return under_way_ == 0 && (stopped_ || (waiting_ == 0 && !blocked_ && swept_));
    }
    // next() gave nothing because a copy could not be dropped.
    bool blocked() const { return blocked_; }
    uint32_t under_way() const { return under_way_; }
    // Copies that can be called now, ascending by expert, then device.
    std::vector<moorage_copy> copies() const;
    // Copies of the new plan that could not be made.
    std::span<const moorage_copy> given_up() const { return given_up_; }

    uint64_t copied() const { return copied_; }  // copies that were started
    uint64_t copied_bytes() const { return copied_bytes_; }
    uint64_t detours() const { return detours_; }  // of these, by a third device or again

private:
    enum class state : uint8_t {
        present,  // can be called
        arriving,
        waiting,  // to be started
    };
    struct place {  // of one expert on one device
        uint32_t device;
        state now;
        bool wanted;   // by the new plan
        bool settled;  // made by a migration: no longer dropped for a while
        uint32_t readers = 0;
    };
    struct request {  // a copy that waits to be started
        uint32_t expert;
        double gain_per_byte;
        bool detour;  // not of the new plan, or of it for a second time
    };
    struct sending {
        uint32_t expert, from, to;
        bool live;
    };

    uint64_t bytes_of(uint32_t expert) const { return model_bytes_[model_of_[expert]]; }
    place *find(uint32_t expert, uint32_t device);
    const place *find(uint32_t expert, uint32_t device) const;
    uint32_t present(uint32_t expert) const;
    bool reachable_without(uint32_t expert, const place &one) const;
    bool may_go(uint32_t expert, const place &one) const;
    double value(uint32_t expert, uint32_t device) const;
    std::optional<uint32_t> source_of(uint32_t expert, uint32_t to) const;
    uint64_t room(uint32_t device) const;

    void want(uint32_t device, const request &one);
    bool drop(uint32_t expert, uint32_t device);
    bool make_room(uint32_t device, uint64_t bytes);
    std::optional<migration_step> next_to(uint32_t device);
    migration_step start(uint32_t device, const request &one, uint32_t from);
    void touch(uint32_t expert);
    void sweep();
    bool untangle();
    bool untangle(uint32_t device, const request &one);
    uint32_t spare_device(uint32_t expert, const std::vector<uint64_t> &planned) const;
    void give_up();

    uint32_t devices_;
    bool cloud_;
    drop_copy drop_;
    migration_options options_;
    std::vector<uint64_t> model_bytes_;
    std::vector<uint16_t> model_of_;
    std::vector<uint32_t> device_server_;
    std::vector<double> way_s_, way_s_per_byte_;  // [G + 1, G]: from a device or the cloud
    std::vector<double> value_;                   // [servers, X] tokens per s
    std::vector<std::vector<place>> places_;      // [X] ascending by device
    std::vector<std::vector<request>> requests_;  // [G] best first
    std::vector<uint64_t> capacity_, used_;       // [G]
    std::vector<uint32_t> sending_to_;            // [G]
    std::vector<uint8_t> idle_;                   // [G] nothing can start: look no more
    std::vector<sending> sent_;
    std::vector<moorage_copy> given_up_;
    uint64_t waiting_ = 0, copied_ = 0, copied_bytes_ = 0, detours_ = 0;
    uint32_t under_way_ = 0;
    bool blocked_ = false, stopped_ = false, swept_ = false;
};

}  // namespace moorage::core
