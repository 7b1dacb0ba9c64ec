// runtime.cpp - the calls of cuda_runtime_api.h and cublas_v2.h, on the pretended GPU.
#include <algorithm>
#include <cstring>

#include "core/execute/gpu/arithmetic/host_device.h"
#include "tests/gpu/pretended/device.h"

using pretended::now;

namespace {

pretended::stream &object_of(cudaStream_t handle) {
    return handle ? *reinterpret_cast<pretended::stream *>(handle)
                  : now().streams.legacy(now().current);
}
pretended::event &object_of(cudaEvent_t handle) {
    return *reinterpret_cast<pretended::event *>(handle);
}
pretended::graph &object_of(cudaGraph_t handle) {
    return *reinterpret_cast<pretended::graph *>(handle);
}
pretended::graph &object_of(cudaGraphExec_t handle) {
    return *reinterpret_cast<pretended::graph *>(handle);
}
pretended::library &object_of(cublasHandle_t handle) {
    return *reinterpret_cast<pretended::library *>(handle);
}
const pretended::kernel_entry *kernel_of(const void *function) {
    return static_cast<const pretended::kernel_entry *>(function);
}

// Objects of the current device, counted when they are created and released.
template <class Handle, class Object>
Handle add_object(Object *object, uint64_t &alive) {
    ++alive;
    object->device = now().current;
    return reinterpret_cast<Handle>(object);
}
template <class Object>
cudaError_t remove_object(Object &object, uint64_t &alive) {
    --alive;
    delete &object;
    return cudaSuccess;
}

}  // namespace

// A call that may fail, and one that a thread must not make while it captures.
#define PRETENDED_CALL() \
    if (const cudaError_t code = now().enter(__func__); code != cudaSuccess) return code
#define PRETENDED_UNSAFE_CALL() \
    if (const cudaError_t code = now().enter(__func__, true); code != cudaSuccess) return code
// A call that releases something does so even if it must fail, because the failure belongs to
// earlier work.
#define PRETENDED_RELEASE(release)                         \
    const cudaError_t code = now().enter(__func__, false); \
    const cudaError_t done = (release);                    \
    return code != cudaSuccess ? code : done
#define PRETENDED_LIBRARY_CALL() \
    if (now().enter(__func__) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
    PRETENDED_CALL();
    return *count = static_cast<int>(now().devices()), cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    PRETENDED_CALL();
    if (device < 0 || static_cast<uint32_t>(device) >= now().devices())
        return cudaErrorInvalidDevice;
    return now().current = static_cast<uint32_t>(device), cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    PRETENDED_CALL();
    return *can = now().peers() && device != peer, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    PRETENDED_CALL();
    return now().enable_peer(static_cast<uint32_t>(peer));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    PRETENDED_CALL();
    *properties = {};
    std::strcpy(properties->name, "pretended GPU");
    properties->multiProcessorCount = 4;
    properties->major = static_cast<int>(now().limits().capability / 10);
    properties->minor = static_cast<int>(now().limits().capability % 10);
    properties->sharedMemPerBlockOptin = now().limits().shared_optin_bytes;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest) {
    PRETENDED_CALL();
    return *lowest = 0, *highest = -1, cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    PRETENDED_UNSAFE_CALL();
    return now().finish();
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorMemoryAllocation ? "out of memory" : "pretended";
}
const char *cudaGetErrorName(cudaError_t code) {
    switch (code) {
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration:
            return "cudaErrorInvalidConfiguration";
        case cudaErrorNoKernelImageForDevice:
            return "cudaErrorNoKernelImageForDevice";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        default:
            return "pretended";
    }
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    PRETENDED_CALL();
    *available = now().free_bytes();
    *total = now().total_bytes();
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **memory, size_t bytes) {
    PRETENDED_UNSAFE_CALL();
    return now().allocate(memory, bytes, false);
}
cudaError_t cudaFree(void *memory) { PRETENDED_RELEASE(now().release(memory, false)); }
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
    PRETENDED_UNSAFE_CALL();
    return now().allocate(memory, bytes, true, (flags & cudaHostAllocMapped) != 0);
}
cudaError_t cudaFreeHost(void *memory) { PRETENDED_RELEASE(now().release(memory, true)); }
cudaError_t cudaMemcpy(void *target, const void *source, size_t bytes, cudaMemcpyKind kind) {
    PRETENDED_UNSAFE_CALL();
    return now().copy_now(target, source, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    PRETENDED_CALL();
    return now().copy(target, source, bytes, kind, object_of(stream));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    PRETENDED_CALL();
    // Other streams and the legacy stream wait for each other. That is not pretended, so it is
    // refused.
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    pretended::stream *created = now().streams.make(now().current);
    created->priority = priority;
    return *stream = reinterpret_cast<cudaStream_t>(created), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    PRETENDED_RELEASE((now().streams.destroy(&object_of(stream)), cudaSuccess));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    PRETENDED_CALL();
    return now().wait(object_of(stream), object_of(event));
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    PRETENDED_CALL();
    return *event = add_object<cudaEvent_t>(new pretended::event, now().events), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    // Streams that hang still hold it.
    bool stopped = true;
    for (uint32_t device = 0; device < now().devices(); ++device)
        stopped = now().streams.finish(device) && stopped;
    PRETENDED_RELEASE(stopped ? remove_object(object_of(event), now().events) : cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    PRETENDED_CALL();
    return now().record(object_of(event), object_of(stream));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    PRETENDED_UNSAFE_CALL();
    if (object_of(event).recording_capture) return cudaErrorCapturedEvent;
    if (now().rates)
        now().host_s = std::max(now().host_s, object_of(event).at_s);
    else if (!now().streams.query(object_of(event)))
        return cudaErrorNotReady;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *elapsed_ms, cudaEvent_t begin, cudaEvent_t end) {
    PRETENDED_CALL();
    if (object_of(begin).recorded == 0 || object_of(end).recorded == 0 ||
        object_of(begin).device != object_of(end).device)
        return cudaErrorInvalidResourceHandle;
    if (!object_of(begin).has_passed() || !object_of(end).has_passed()) return cudaErrorNotReady;
    *elapsed_ms = now().rates
                      ? static_cast<float>((object_of(end).at_s - object_of(begin).at_s) * 1e3)
                      : 0.001f;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
    PRETENDED_CALL();
    const uint32_t compiled_for = now().kernels_compiled_for();
    if (compiled_for > now().limits().capability) return cudaErrorNoKernelImageForDevice;
    *attributes = {static_cast<int>(compiled_for), static_cast<int>(now().limits().capability)};
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute, int value) {
    PRETENDED_CALL();
    return now().allow_shared(kernel_of(function), value);
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream) {
    PRETENDED_CALL();
    return now().launch(kernel_of(function), grid, block, arguments[0], shared_bytes,
                        object_of(stream));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    PRETENDED_CALL();
    return now().recorded.begin(object_of(stream), mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    *graph = nullptr;
    const cudaError_t failed = now().enter(__func__);
    auto captured = std::make_unique<pretended::graph>();
    const cudaError_t code = now().recorded.end(object_of(stream), captured->steps);
    if (failed != cudaSuccess || code != cudaSuccess) return failed != cudaSuccess ? failed : code;
    *graph = add_object<cudaGraph_t>(captured.release(), now().graphs);
    return object_of(*graph).device = object_of(stream).device, cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph,
                                 unsigned long long) {
    PRETENDED_CALL();
    auto *created = new pretended::graph;
    created->steps = object_of(graph).steps;
    *executable = add_object<cudaGraphExec_t>(created, now().graphs);
    return created->device = created->launched.device = object_of(graph).device, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    PRETENDED_RELEASE(remove_object(object_of(graph), now().graphs));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    PRETENDED_CALL();
    if (object_of(stream).device != object_of(graph).device) return cudaErrorInvalidResourceHandle;
    for (const pretended::step &step : object_of(graph).steps)
        if (const cudaError_t code = now().submit(object_of(stream), step.run); code != cudaSuccess)
            return code;
    return now().record(object_of(graph).launched, object_of(stream));
}
// Refused while a launch of it is under way. The executor promises that there is none.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    const bool runs = !object_of(graph).launched.has_passed();
    PRETENDED_RELEASE(runs ? cudaErrorInvalidValue : remove_object(object_of(graph), now().graphs));
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    PRETENDED_LIBRARY_CALL();
    *handle = add_object<cublasHandle_t>(new pretended::library, now().libraries);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    const cudaError_t code = now().enter(__func__);
    remove_object(object_of(handle), now().libraries);
    return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    PRETENDED_LIBRARY_CALL();
    if (object_of(stream).device != object_of(handle).device) return CUBLAS_STATUS_EXECUTION_FAILED;
    return object_of(handle).used_stream = &object_of(stream), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t) {
    PRETENDED_LIBRARY_CALL();
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_EXECUTION_FAILED"; }
// The executor uses only this form: A transposed, B not, both bf16; C float.
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType, int lda,
                            const void *b, cudaDataType, int ldb, const void *beta, void *c,
                            cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
    PRETENDED_LIBRARY_CALL();
    if (object_of(handle).device != now().current) return CUBLAS_STATUS_EXECUTION_FAILED;
    const float times = *static_cast<const float *>(alpha);
    const float old_factor = *static_cast<const float *>(beta);
    (void)now().submit(*object_of(handle).used_stream, [=] {
        const auto &rates = now().rates;
        if (rates) return rates->launch_s + 2.0 * m * n * k / rates->operations_per_s;
        const auto *left = static_cast<const uint16_t *>(a);
        const auto *right = static_cast<const uint16_t *>(b);
        auto *output = static_cast<float *>(c);
        for (int j = 0; j < n; ++j)
            for (int i = 0; i < m; ++i) {
                float sum = 0;
                for (int l = 0; l < k; ++l)
                    sum += moorage::core::gpu::float_of_bf16(left[i * lda + l]) *
                           moorage::core::gpu::float_of_bf16(right[j * ldb + l]);
                float &value = output[j * ldc + i];
                value = times * sum + (old_factor != 0 ? old_factor * value : 0);
            }
        return 0.0;
    });
    return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
