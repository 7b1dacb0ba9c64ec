// live_cluster.h - a cluster that serves while its plan changes, as the code that changes it sees
// it: the emulator's in virtual time (cluster_emulator.h), or real servers.
#pragma once

#include <cstdint>

#include "tools/cluster/migration.h"

namespace moorage::core {

// Calls of homes to others that have come back: the time from when the hidden states were ready
// until the outputs were there, and the experts in them.
struct call_figures {
    uint64_t calls = 0;  // that were made
    uint64_t ns = 0, experts = 0;

    call_figures &operator+=(const call_figures &right) {
        calls += right.calls;
        ns += right.ns;
        experts += right.experts;
        return *this;
    }
};

class cluster_watcher {
public:
    virtual ~cluster_watcher() = default;
    // A layer step of a home asks for an expert. `expert`: its number among those of all models.
    virtual void activated(uint32_t home, uint32_t expert, uint32_t tokens) = 0;
    // A copy requested with bring() is there. It is called from now on.
    virtual void brought(uint32_t step) = 0;
};

class live_cluster {
public:
    virtual ~live_cluster() = default;
    virtual uint64_t now_ns() const = 0;
    virtual call_figures calls() const = 0;
    // Copies the expert to a device, behind the demand. The watcher is told the step's id when it
    // is there. Requires: the device has room, and the source keeps its copy until then.
    virtual void bring(const migration_step &step) = 0;
    // No call goes to the copy any more. False, and nothing has changed: a call is still on its way
    // there or being computed, or a step of the device's own uses it. Then ask again.
    virtual bool take(const moorage_copy &copy) = 0;
    // Borrowed. null: nobody.
    virtual void watch(cluster_watcher *observer) = 0;
};

}  // namespace moorage::core
