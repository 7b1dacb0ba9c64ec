// emulated_device.h - a GPU made of loops: launches run at once, block by block, on the CPU.
#pragma once

#include <functional>

#include "core/execute/gpu/forward.h"
#include "tests/unit/host_blocks.h"

namespace moorage::core::gpu {

class emulated_device {
public:
    template <class Kernel>
    void launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t shared_bytes) {
        ++launches;
        submit([kernel, x, y, z, shared_bytes] {
            host_team team(Kernel::threads, shared_bytes);
            run_blocks(kernel, team, x, y, z);
        });
    }
    void copy_in(void *device, const void *pinned, uint64_t bytes) {
        submit([=] { std::memcpy(device, pinned, bytes); });
    }
    void copy_out(void *pinned, const void *device, uint64_t bytes) {
        submit([=] { std::memcpy(pinned, device, bytes); });
    }
    void upload(void *device, const void *host, uint64_t bytes) {
        std::memcpy(device, host, bytes);
    }
    // There is no library, so the executor's own kernel does it.
    bool product_of_many(const product_item &, uint32_t) { return false; }
    uint32_t multiprocessors() const { return 4; }
    uint32_t shared_bytes_max() const { return shared_bytes; }

    bool recording_offered() const { return offer_recording; }
    bool begin_recording() {
        if (!can_record) return false;
        recordings_.emplace_back();
        recording_ = true;
        return true;
    }
    uint32_t end_recording() {
        recording_ = false;
        if (breaks_recordings) return not_recorded;
        return static_cast<uint32_t>(recordings_.size() - 1);
    }
    void replay(uint32_t number) {
        ++replays;
        for (const std::function<void()> &recorded : recordings_[number]) recorded();
    }

    void drop(uint32_t number) {
        ++drops;
        recordings_[number].clear();
    }

    uint32_t shared_bytes = 98u << 10;  // that a block may have
    bool offer_recording = true, can_record = true, breaks_recordings = false;
    uint64_t launches = 0, replays = 0, drops = 0;

private:
    void submit(std::function<void()> work) {
        if (recording_)
            recordings_.back().push_back(std::move(work));
        else
            work();
    }
    bool recording_ = false;
    std::vector<std::vector<std::function<void()>>> recordings_;
};

}  // namespace moorage::core::gpu
