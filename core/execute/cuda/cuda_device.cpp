// cuda_device.cpp - opens the GPU, and wraps its calls.
#if defined(MOORAGE_HAS_CUDA)

#include <algorithm>
#include <memory>

#include "core/base/text.h"
#include "core/execute/cuda/cuda_device.h"
#include "core/execute/gpu/recordings.h"

namespace moorage::core::gpu {

#ifndef MOORAGE_CUDA_BUILT_FOR
#define MOORAGE_CUDA_BUILT_FOR "none"
#endif

// Products are made of instructions that came with it (device_team.cuh); major and minor as one.
constexpr uint32_t capability_min = 80;

// The calling thread's device.
static thread_local int32_t current = -1;

bool failure_note::check(cudaError_t code, const char *call, const char *file, int line) {
    if (code == cudaSuccess) return true;
    note(call, file, line, format("{} ({})", cudaGetErrorString(code), cudaGetErrorName(code)));
    return false;
}

bool failure_note::check(cublasStatus_t code, const char *call, const char *file, int line) {
    if (code == CUBLAS_STATUS_SUCCESS) return true;
    note(call, file, line, cublasGetStatusName(code));
    return false;
}

void failure_note::note(const char *call, const char *file, int line, const std::string &message) {
    if (failed()) return;
    std::string place = file;
    const size_t core_begin = place.rfind("core/execute/");
    if (core_begin != std::string::npos) place = place.substr(core_begin);
    text_ = format("cuda: {} at {}:{} failed: {}", call, place, line, message);
}

bool cuda_event::make(cuda_device &device) {
    notes_ = &device.notes();
    return device.enter() && MOORAGE_CUDA_CHECK(*notes_, cudaEventCreate(&event_));
}

// An error if there is none.
static status count_devices(int &count) {
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count > 0) return success();
    return error{
        format("no GPU to run on ({}); check nvidia-smi and the driver, or set executor to cpu",
               code == cudaSuccess ? "none found" : cudaGetErrorString(code))};
}

result<std::unique_ptr<cuda_device>> cuda_device::create(int32_t index, cuda_device *first) {
    int count = 0;
    if (const status found = count_devices(count); !found) return found.failure();
    if (index < 0 || index >= count)
        return error{
            format("there is no GPU {}, this machine has {}: 0 to {}", index, count, count - 1)};
    std::unique_ptr<cuda_device> device(new cuda_device(index, first));
    current = -1;  // whoever had it before
    if (!device->open()) return device->notes_.failure();
    return {std::move(device)};
}

result<std::vector<std::string>> cuda_device::names() {
    int count = 0;
    if (const status found = count_devices(count); !found) return found.failure();
    std::vector<std::string> names;
    for (int index = 0; index < count; ++index) {
        cudaDeviceProp properties{};
        const cudaError_t code = cudaGetDeviceProperties(&properties, index);
        if (code != cudaSuccess)
            return error{format("GPU {} does not answer ({}); check nvidia-smi and the driver",
                                index, cudaGetErrorString(code))};
        names.emplace_back(properties.name);
    }
    return names;
}

bool cuda_device::enter() {
    if (current == index_) return true;
    if (!MOORAGE_CUDA_CHECK(notes_, cudaSetDevice(index_))) return false;
    current = index_;
    return true;
}

bool cuda_device::reach(cuda_device &peer) {
    for (cuda_device *device : {this, &peer}) {
        const int32_t target_index = device == this ? peer.index_ : index_;
        int can_access = 0;
        if (!device->enter() ||
            !MOORAGE_CUDA_CHECK(
                notes_, cudaDeviceCanAccessPeer(&can_access, device->index_, target_index)) ||
            !can_access)
            return false;
        const cudaError_t code = cudaDeviceEnablePeerAccess(target_index, 0);
        if (code == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError();  // by a run before
        else if (!notes_.check(code, "cudaDeviceEnablePeerAccess(peer)", __FILE__, __LINE__))
            return false;
    }
    return true;
}

bool cuda_device::check_kernels(uint32_t capability) {
    if (capability < capability_min) {
        notes_.note(
            format("{} is sm_{}, and the kernels need sm_{} or newer; set executor to cpu, or "
                   "take a newer GPU",
                   name_, capability, capability_min));
        return false;
    }
    cudaFuncAttributes about{};
    const cudaError_t code = cudaFuncGetAttributes(&about, any_kernel());
    const auto compiled_for = static_cast<uint32_t>(about.ptxVersion);
    if (code == cudaSuccess && compiled_for >= capability_min) return true;
    if (code != cudaSuccess && code != cudaErrorNoKernelImageForDevice &&
        code != cudaErrorInvalidDeviceFunction && code != cudaErrorUnsupportedPtxVersion)
        return notes_.check(code, "cudaFuncGetAttributes(&about, any_kernel())", __FILE__,
                            __LINE__);
    (void)cudaGetLastError();
    notes_.note(
        format("{} is sm_{}, and this program's kernels are compiled for {}; build it with "
               "-DCMAKE_CUDA_ARCHITECTURES={}, or set executor to cpu",
               name_, capability,
               code == cudaSuccess ? format("sm_{}", compiled_for)
                                   : std::string("other GPUs (" MOORAGE_CUDA_BUILT_FOR ")"),
               capability));
    return false;
}

bool cuda_device::open() {
    cudaDeviceProp properties{};
    if (!enter() || !MOORAGE_CUDA_CHECK(notes_, cudaGetDeviceProperties(&properties, index_)))
        return false;
    name_ = properties.name;
    if (!check_kernels(static_cast<uint32_t>(10 * properties.major + properties.minor)))
        return false;
    multiprocessors_ = static_cast<uint32_t>(properties.multiProcessorCount);
    shared_max_ = static_cast<uint32_t>(properties.sharedMemPerBlockOptin);
    int lowest = 0, highest = 0;
    if (!MOORAGE_CUDA_CHECK(notes_, cudaDeviceGetStreamPriorityRange(&lowest, &highest)))
        return false;
    const struct {
        cudaStream_t *stream;
        int priority;
    } wanted[] = {
        {&compute_, highest}, {&demand_, highest}, {&prefetch_, lowest}, {&side_, highest}};
    for (const auto &request : wanted)
        if (!MOORAGE_CUDA_CHECK(notes_,
                                cudaStreamCreateWithPriority(request.stream, cudaStreamNonBlocking,
                                                             request.priority)))
            return false;
    return true;
}

cuda_device::~cuda_device() {
    if (abandoned_) return;  // freeing would wait, too
    finish();
    (void)enter();
    for (const cudaGraphExec_t recording : recordings_)
        if (recording) (void)cudaGraphExecDestroy(recording);
    if (library_) (void)cublasDestroy(library_);
    for (const cudaStream_t stream : {compute_, demand_, prefetch_, side_})
        if (stream) (void)cudaStreamDestroy(stream);
    for (std::byte *memory : memory_) (void)cudaFree(memory);
    for (std::byte *memory : pinned_) (void)cudaFreeHost(memory);
}

void cuda_device::finish() {
    if (!compute_ || abandoned_ || !enter()) return;
    MOORAGE_CUDA_CHECK(notes_, cudaDeviceSynchronize());
}

void cuda_device::abandon(const std::string &reason) {
    notes_.note("cuda: " + reason);
    abandoned_ = true;
}

uint64_t cuda_device::free_bytes() {
    size_t available = 0, total = 0;
    if (enter()) MOORAGE_CUDA_CHECK(notes_, cudaMemGetInfo(&available, &total));
    return available;
}

uint64_t cuda_device::total_bytes() {
    size_t available = 0, total = 0;
    if (enter()) MOORAGE_CUDA_CHECK(notes_, cudaMemGetInfo(&available, &total));
    return total;
}

// Whole words: weights are read in them.
std::byte *cuda_device::take_memory(uint64_t bytes) {
    void *memory = nullptr;
    const uint64_t whole = (std::max<uint64_t>(bytes, 1) + 15) / 16 * 16;
    if (!enter() || !MOORAGE_CUDA_CHECK(notes_, cudaMalloc(&memory, whole))) return nullptr;
    memory_.push_back(static_cast<std::byte *>(memory));
    return memory_.back();
}

// Mapped memory has one address for both sides if they share an address space. That is so on every
// system of 64 bits.
std::byte *cuda_device::take_pinned(uint64_t bytes, bool written) {
    void *memory = nullptr;
    const unsigned flags = written ? cudaHostAllocMapped : cudaHostAllocDefault;
    if (!MOORAGE_CUDA_CHECK(notes_, cudaHostAlloc(&memory, std::max<uint64_t>(bytes, 1), flags)))
        return nullptr;
    pinned_.push_back(static_cast<std::byte *>(memory));
    return pinned_.back();
}

void cuda_device::use_scratch(uint16_t *high, uint16_t *low, std::byte *workspace) {
    high_ = high;
    low_ = low;
    if (!enter() || (!library_ && !MOORAGE_CUDA_CHECK(notes_, cublasCreate(&library_)))) return;
    if (MOORAGE_CUDA_CHECK(notes_, cublasSetStream(library_, compute_)))
        MOORAGE_CUDA_CHECK(notes_, cublasSetWorkspace(library_, workspace, workspace_bytes));
}

void cuda_device::launch_function(const void *function, const void *kernel,
                                  const launch_shape &shape) {
    if (notes_.failed() || !enter()) return;
    // A block gets more than 48 KB of shared memory, the kernel's own included, only on request,
    // once for each kernel.
    if (shape.shared_bytes > (47u << 10) &&
        std::find(prepared_.begin(), prepared_.end(), function) == prepared_.end()) {
        if (!MOORAGE_CUDA_CHECK(
                notes_, cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(shared_bytes_max()))))
            return;
        prepared_.push_back(function);
    }
    void *arguments[] = {const_cast<void *>(kernel)};
    MOORAGE_CUDA_CHECK(
        notes_, cudaLaunchKernel(function, dim3(shape.x, shape.y, shape.z), dim3(shape.threads),
                                 arguments, shape.shared_bytes, compute_));
}

bool cuda_device::begin_recording() {
    if (notes_.failed() || !enter()) return false;
    if (cudaStreamBeginCapture(compute_, cudaStreamCaptureModeThreadLocal) == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    return false;
}

uint32_t cuda_device::end_recording() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t recording = nullptr;
    const bool whole = cudaStreamEndCapture(compute_, &graph) == cudaSuccess && !notes_.failed() &&
                       cudaGraphInstantiate(&recording, graph, 0) == cudaSuccess;
    if (graph) (void)cudaGraphDestroy(graph);
    if (!whole) {
        // If it was more than the recording, the launches that follow will fail as well.
        notes_.forget();
        (void)cudaGetLastError();
        return not_recorded;
    }
    const auto free = std::find(recordings_.begin(), recordings_.end(), nullptr);
    const auto slot = free == recordings_.end() ? recordings_.insert(free, recording) : free;
    *slot = recording;
    return static_cast<uint32_t>(slot - recordings_.begin());
}

void cuda_device::drop(uint32_t number) {
    MOORAGE_CUDA_CHECK(notes_, cudaGraphExecDestroy(recordings_[number]));
    recordings_[number] = nullptr;
}

void cuda_device::replay(uint32_t number) {
    if (notes_.failed() || !enter()) return;
    if (number == not_recorded) return notes_.note("cuda: the launches could not be recorded");
    MOORAGE_CUDA_CHECK(notes_, cudaGraphLaunch(recordings_[number], compute_));
}

void cuda_device::copy(void *target, const void *source, uint64_t bytes, stream copy_stream) {
    if (notes_.failed()) return;
    MOORAGE_CUDA_CHECK(notes_,
                       cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, copy_stream));
}

void cuda_device::upload(void *device, const void *host, uint64_t bytes) {
    if (notes_.failed() || !enter()) return;
    MOORAGE_CUDA_CHECK(notes_, cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

}  // namespace moorage::core::gpu

#endif
