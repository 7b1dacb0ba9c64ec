// cuda_device.h - one GPU: its streams, its memory, copies, launches and the library's products.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/execute/gpu/arithmetic/product.h"
#include "core/execute/cuda/cuda_check.h"

namespace moorage::core::gpu {

// Threads, blocks and shared memory of a launch.
struct launch_shape {
    uint32_t x, y, z, threads, shared_bytes;
};

class cuda_device;

// Destroyed with its owner.
class cuda_event {
public:
    cuda_event() = default;
    cuda_event(const cuda_event &) = delete;
    ~cuda_event() {
        if (event_) (void)cudaEventDestroy(event_);
    }
    // Call once. The device is borrowed.
    bool make(cuda_device &device);
    void record(cudaStream_t stream) {
        MOORAGE_CUDA_CHECK(*notes_, cudaEventRecord(event_, stream));
    }
    void hold(cudaStream_t stream) {
        MOORAGE_CUDA_CHECK(*notes_, cudaStreamWaitEvent(stream, event_, 0));
    }
    bool passed() const {
        const cudaError_t code = cudaEventQuery(event_);
        if (code == cudaErrorNotReady) return false;
        return notes_->check(code, "cudaEventQuery(event)", __FILE__, __LINE__);
    }
    // Time since `begin`, which has also been passed.
    uint64_t since_ns(const cuda_event &begin) const {
        float milliseconds = 0;
        MOORAGE_CUDA_CHECK(*notes_, cudaEventElapsedTime(&milliseconds, begin.event_, event_));
        return static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6);
    }

private:
    cudaEvent_t event_ = nullptr;
    failure_note *notes_ = nullptr;
};

class cuda_device {
public:
    using stream = cudaStream_t;
    using event = cuda_event;
    static constexpr const char *executor_name = "cuda";
    // `first`: the first device of the same run, which notes the failures of both. Borrowed.
    static result<std::unique_ptr<cuda_device>> create(int32_t index, cuda_device *first = nullptr);
    ~cuda_device();
    cuda_device(const cuda_device &) = delete;

    // Names of all GPUs, by number. An error if there is none.
    static result<std::vector<std::string>> names();
    const std::string &name() const { return name_; }
    uint32_t multiprocessors() const { return multiprocessors_; }
    // Shared memory that a block can have. Kernels use some beside the amount that is asked for.
    uint32_t shared_bytes_max() const { return shared_max_ - 1024; }
    const failure_note &notes() const { return notes_; }
    failure_note &notes() { return notes_; }
    // Makes this the device of the calling thread. From now on memory is taken, events are made and
    // kernels are launched there. The functions below do this themselves. False, and a note: it
    // failed.
    bool enter();
    // Lets both devices reach each other's memory from now on. Otherwise copies between them go
    // through host memory.
    bool reach(cuda_device &peer);
    uint64_t free_bytes();
    uint64_t total_bytes();
    // The part of free memory that the driver and its modules still take.
    static constexpr uint64_t reserved_bytes = 256u << 20;
    // Waits for all work under way, on every stream. Only at the beginning and the end of a run.
    void finish();
    // The GPU does not answer. Nothing waits for it any more, and its resources stay until the
    // process ends. `reason` is noted as the failure.
    void abandon(const std::string &reason);

    // Memory that lives as long as this object. null and a note: it failed.
    std::byte *take_memory(uint64_t bytes);
    // `written`: kernels also write there (tell_kernel).
    std::byte *take_pinned(uint64_t bytes, bool written = false);
    // Memory for the halves of inputs in products of many tokens, and the workspace of the library.
    void use_scratch(uint16_t *high, uint16_t *low, std::byte *workspace);
    static constexpr uint64_t workspace_bytes = 32u << 20;

    stream compute() const { return compute_; }
    stream demand() const { return demand_; }      // loads that a layer waits for
    stream prefetch() const { return prefetch_; }  // other loads
    stream side() const { return side_; }          // activations to and from the CPU

    // Copies between pinned memory and the GPU, within the GPU, or to a GPU that it reaches. The
    // addresses say which.
    void copy(void *target, const void *source, uint64_t bytes, stream copy_stream);

    // The calls that forward.h makes to a device. All but upload() run in the order of the compute
    // stream.
    template <class Kernel>
    void launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t shared_bytes);
    void copy_in(void *device, const void *pinned, uint64_t bytes) {
        copy(device, pinned, bytes, compute_);
    }
    void copy_out(void *pinned, const void *device, uint64_t bytes) {
        copy(pinned, device, bytes, compute_);
    }
    void upload(void *device, const void *host, uint64_t bytes);
    bool product_of_many(const product_item &item, uint32_t tokens);
    // Between the two calls, launches and copies are recorded into a graph and do not run. A
    // failure of recording concerns nobody else: nothing is noted, and the number is not_recorded.
    bool recording_offered() const { return true; }
    bool begin_recording();
    uint32_t end_recording();
    void replay(uint32_t number);
    // Frees a recording. Requires: its replays have run.
    void drop(uint32_t number);

private:
    cuda_device(int32_t index, cuda_device *first)
        : index_(index), notes_(first ? first->notes_ : own_notes_) {}
    bool open();
    // Whether this program's kernels can run there.
    bool check_kernels(uint32_t capability);
    // Any kernel of the program. All are compiled alike, so the driver's answers for one hold for
    // all.
    static const void *any_kernel();
    void launch_function(const void *function, const void *kernel, const launch_shape &shape);

    const int32_t index_;
    failure_note own_notes_, &notes_;
    std::string name_;
    uint32_t multiprocessors_ = 1;
    uint32_t shared_max_ = 48u << 10;
    cudaStream_t compute_ = nullptr, demand_ = nullptr, prefetch_ = nullptr, side_ = nullptr;
    cublasHandle_t library_ = nullptr;
    uint16_t *high_ = nullptr, *low_ = nullptr;
    std::vector<cudaGraphExec_t> recordings_;
    bool abandoned_ = false;
    std::vector<std::byte *> memory_, pinned_;
    std::vector<const void *> prepared_;  // functions that are already allowed more shared memory
};

}  // namespace moorage::core::gpu
