// cuda_event.h - events of streams that go with whoever holds them, and pairs of them that time.
#pragma once

#include <cstdint>

#include "core/execute/cuda/cuda_check.h"

namespace moorage::core::cuda {

class cuda_event {
public:
    cuda_event() = default;
    cuda_event(const cuda_event &) = delete;
    ~cuda_event() {
        if (event_) (void)cudaEventDestroy(event_);
    }
    // Once; `notes` is borrowed.
    bool make(failure_note &notes) {
        notes_ = &notes;
        return MOORAGE_CUDA_CHECK(notes, cudaEventCreate(&event_));
    }
    void record(cudaStream_t on) { MOORAGE_CUDA_CHECK(*notes_, cudaEventRecord(event_, on)); }
    void hold(cudaStream_t on) { MOORAGE_CUDA_CHECK(*notes_, cudaStreamWaitEvent(on, event_, 0)); }
    bool passed() const {
        const cudaError_t code = cudaEventQuery(event_);
        if (code == cudaErrorNotReady) return false;
        return notes_->check(code, "cudaEventQuery(event)", __FILE__, __LINE__);
    }
    // From `begin`, which this has passed too.
    uint64_t since_ns(const cuda_event &begin) const {
        float milliseconds = 0;
        MOORAGE_CUDA_CHECK(*notes_, cudaEventElapsedTime(&milliseconds, begin.event_, event_));
        return static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6);
    }

private:
    cudaEvent_t event_ = nullptr;
    failure_note *notes_ = nullptr;
};

struct event_pair {
    cuda_event begin, end;
    bool make(failure_note &notes) { return begin.make(notes) && end.make(notes); }
    uint64_t ns() const { return end.since_ns(begin); }
};

}  // namespace moorage::core::cuda
