// device_bench.h - times work on a GPU, by its own clock and by the host's.
#pragma once

#include <functional>
#include <memory>

#include "core/execute/measure_timing.h"
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
    // An error once a call has failed. Later measurements mean nothing.
    status check() const;

    // Times the work that body() puts on the compute stream, from its beginning on the GPU to its
    // end.
    template <class Body>
    double time_on_device(double budget_s, Body &&body) {
        return typical_sample(budget_s, now_, [&] {
            events_.begin.record(device_->compute());
            body();
            events_.end.record(device_->compute());
            wait();
            return check() ? static_cast<double>(events_.ns()) / 1e9 : 0;
        });
    }
    // Times the work that body() puts on `stream`, until the host has seen its end. The host asks
    // again and again, as the executor does.
    template <class Body>
    double time_by_host(double budget_s, cudaStream_t stream, Body &&body) {
        return typical_sample(budget_s, now_, [&] {
            const double begin = now_();
            body();
            events_.end.record(stream);
            wait();
            return now_() - begin;
        });
    }
    // Records what body() launches and returns the recording's number. body() runs once unrecorded
    // first, because loading a kernel may not be recorded. If it cannot be recorded, replay() notes
    // the failure.
    template <class Body>
    uint32_t record(Body &&body) {
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
