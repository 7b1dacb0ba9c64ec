// device_bench.h - how long something takes on a GPU, by its own clock and by the host's.
#pragma once

#include <functional>
#include <memory>

#include "core/execute/cpu/measure_timing.h"
#include "core/execute/cuda/cuda_device.h"
#include "core/execute/gpu/gpu_lane.h"
#include "core/execute/gpu/recordings.h"

namespace moorage::core::gpu {

class device_bench {
public:
    // now: seconds, of the host.
    static result<std::unique_ptr<device_bench>> create(int32_t index, std::function<double()> now);
    ~device_bench() { device_->finish(); }
    device_bench(const device_bench &) = delete;

    cuda_device &device() { return *device_; }
    // An error once a call has failed; what is measured from then on means nothing.
    status check() const;

    // What body() puts on the compute stream, from the GPU's beginning of it to its end.
    template <class Body>
    double on_device(double budget_s, Body &&body) {
        return typical_sample(budget_s, now_, [&] {
            events_.begin.record(device_->compute());
            body();
            events_.end.record(device_->compute());
            wait();
            return check() ? static_cast<double>(events_.ns()) / 1e9 : 0;
        });
    }
    // What body() puts on `stream`, until the host has seen its end as the executor does: by
    // asking again and again.
    template <class Body>
    double by_host(double budget_s, cudaStream_t stream, Body &&body) {
        return typical_sample(budget_s, now_, [&] {
            const double from = now_();
            body();
            events_.end.record(stream);
            wait();
            return now_() - from;
        });
    }
    // The number of a recording of what body() launches; run once as it is, since loading a kernel
    // may not be recorded. Where it cannot be recorded, replay() notes the failure.
    template <class Body>
    uint32_t recorded(Body &&body) {
        body();
        device_->finish();
        if (!device_->begin_recording()) return not_recorded;
        body();
        return device_->end_recording();
    }

private:
    explicit device_bench(std::unique_ptr<cuda_device> device, std::function<double()> now)
        : device_(std::move(device)), now_(std::move(now)) {}
    void wait();

    std::unique_ptr<cuda_device> device_;
    std::function<double()> now_;
    event_pair<cuda_device> events_;
};

}  // namespace moorage::core::gpu
