// recordings.h - launches that are recorded once and replayed as one. Decides which shapes of work
// have a recording, and which recording goes when there are too many.
//
// Launches for few tokens cost the host more than the GPU. The second time that work comes with the
// same shape, its launches are recorded. From then on they are replayed. The kernels read
// everything that differs between tokens (ids, positions, slots) from tables. The first time runs
// unrecorded, because loading a kernel may not be recorded.
//
// A recording takes memory of the GPU and of the driver. A long text leaves shapes behind (contexts
// are rounded up to powers of two). So there are bounds: the shape that was used longest ago goes,
// but never one of the pass under way, whose launches may not have run yet. Work is launched
// unrecorded if there is no room, or if the device cannot record (it is out of memory, or a
// library's call may not be recorded). No run ends because a recording is missing.
//
// Device: begin_recording() -> bool, end_recording() -> number or not_recorded, replay(number),
// drop(number).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

namespace moorage::core::gpu {

inline constexpr uint32_t not_recorded = UINT32_MAX;

struct recording_limits {
    size_t recordings = 1024;  // at one time: a pass of 61 layers has 123
    size_t shapes = 8192;      // known, recorded or not
};

template <class Device>
class recordings {
public:
    using shape = std::array<uint32_t, 6>;
    explicit recordings(Device &device, const recording_limits &limits = {})
        : device_(device), limits_(limits) {}

    // Earlier launches have run, as far as they were recorded.
    void begin_pass() { ++pass_; }

    // Launches what body() launches. `body` may be called twice. It launches the same each time.
    template <class Body>
    void run(const shape &work_shape, Body &&body) {
        const auto found = known_.find(work_shape);
        if (found == known_.end()) {
            if (known_.size() < limits_.shapes || evict(/*recorded=*/false))
                known_[work_shape] = {not_recorded, pass_, true};
            return body();
        }
        entry &shape_entry = found->second;
        shape_entry.used = pass_;
        if (shape_entry.number == not_recorded) {
            if (!shape_entry.is_recordable ||
                (live_ >= limits_.recordings && !evict(/*recorded=*/true)))
                return body();
            if (!record(shape_entry, body)) return body();
        }
        device_.replay(shape_entry.number);
    }

    size_t live() const { return live_; }
    size_t shapes() const { return known_.size(); }

private:
    struct entry {
        uint32_t number;
        uint64_t used;       // the last pass that used it
        bool is_recordable;  // false: recording it has failed
    };

    template <class Body>
    bool record(entry &shape_entry, Body &body) {
        if (device_.begin_recording()) {
            body();
            shape_entry.number = device_.end_recording();
        }
        shape_entry.is_recordable = shape_entry.number != not_recorded;
        live_ += shape_entry.is_recordable;
        return shape_entry.is_recordable;
    }

    // Evicts the shape that was used longest ago, among those with a recording or among all. False:
    // all belong to this pass.
    bool evict(bool recorded) {
        auto oldest = known_.end();
        for (auto candidate = known_.begin(); candidate != known_.end(); ++candidate)
            if ((!recorded || candidate->second.number != not_recorded) &&
                candidate->second.used < pass_ &&
                (oldest == known_.end() || candidate->second.used < oldest->second.used))
                oldest = candidate;
        if (oldest == known_.end()) return false;
        if (oldest->second.number != not_recorded) {
            device_.drop(oldest->second.number);
            --live_;
        }
        known_.erase(oldest);
        return true;
    }

    Device &device_;
    const recording_limits limits_;
    std::map<shape, entry> known_;
    uint64_t pass_ = 0;
    size_t live_ = 0;
};

}  // namespace moorage::core::gpu
