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

// Goes with whoever holds it.
class cuda_event {
public:
    cuda_event() = default;
    cuda_event(const cuda_event &) = delete;
    ~cuda_event() {
        if (event_) (void)cudaEventDestroy(event_);
    }
    // Once; borrowed.
    bool make(cuda_device &device);
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

class cuda_device {
public:
    using stream = cudaStream_t;
    using event = cuda_event;
    static constexpr const char *executor_name = "cuda";
    // `first`: of the same run, which notes the failures of both; borrowed.
    static result<std::unique_ptr<cuda_device>> create(int32_t index, cuda_device *first = nullptr);
    ~cuda_device();
    cuda_device(const cuda_device &) = delete;

    const std::string &name() const { return name_; }
    uint32_t multiprocessors() const { return multiprocessors_; }
    // What a block can have of shared memory; kernels have some beside what is asked for.
    uint32_t shared_bytes_max() const { return shared_max_ - 1024; }
    const failure_note &notes() const { return notes_; }
    failure_note &notes() { return notes_; }
    // Makes it the calling thread's, for whom memory is taken, events are made and kernels launched
    // from now on: what follows does it by itself. False, and a note: it failed.
    bool enter();
    // Whether both reach each other's memory from now on; else copies between them go by the
    // host's.
    bool reach(cuda_device &other);
    uint64_t free_bytes();
    uint64_t total_bytes();
    // Of the free ones, what the driver and its modules still take.
    static constexpr uint64_t reserved_bytes = 256u << 20;
    // Waits for all that is under way, on every stream: at the begin and the end of a run alone.
    void finish();
    // The GPU does not answer: nothing waits for it any more, and what it has is left to the end of
    // the process. `why` is noted as the failure.
    void abandon(const std::string &why);

    // Memory that lives as long as this object; null and a note on failure.
    std::byte *take_memory(uint64_t bytes);
    // `written`: kernels write there, too (tell_kernel).
    std::byte *take_pinned(uint64_t bytes, bool written = false);
    // Where products of many tokens keep the halves of their inputs, and what the library works in.
    void use_scratch(uint16_t *high, uint16_t *low, std::byte *workspace);
    static constexpr uint64_t workspace_bytes = 32u << 20;

    stream compute() const { return compute_; }
    stream demand() const { return demand_; }      // loads that a layer waits for
    stream prefetch() const { return prefetch_; }  // other loads
    stream side() const { return side_; }          // activations to and from the CPU

    // Between pinned memory and the GPU, within that, or to one that it reaches: the addresses say
    // which.
    void copy(void *to, const void *from, uint64_t bytes, stream on);

    // What forward.h asks of a device; all in the order of the compute stream but upload().
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
    // Between the two calls launches and copies are recorded into a graph instead of run. A failure
    // of recording is nobody else's: nothing is noted, and the number is not_recorded.
    bool recording_offered() const { return true; }
    bool begin_recording();
    uint32_t end_recording();
    void replay(uint32_t number);
    // Frees a recording. Requires: what was replayed of it has run.
    void drop(uint32_t number);

private:
    cuda_device(int32_t index, cuda_device *first)
        : index_(index), notes_(first ? first->notes_ : own_notes_) {}
    bool open();
    // Whether this program's kernels can run there.
    bool check_kernels(uint32_t capability);
    // One of them: what the driver says of it holds for all, which are compiled alike.
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
    std::vector<const void *> prepared_;  // functions that were allowed more shared memory
};

}  // namespace moorage::core::gpu
