// pretended_runtime.cpp - the CUDA calls that the executor makes, without a GPU: streams are queues
// of work that moves on a little, in an order drawn by chance, whenever an event is asked for.
//
// So the executor's own part (queues, events, recordings, pinned buffers that are written too
// early) is checked on any machine that has the toolkit's headers. Kernels run as in
// cuda_arithmetic_test. Linked in place of the runtime and the library of products.
//
// The environment says how it behaves: PRETENDED_SEED draws the order and which streams starve for
// a while; PRETENDED_BYTES of memory are free; from the PRETENDED_LAUNCHES-th launch on launches
// fail, from the PRETENDED_RECORDINGS-th recording on recordings do; after PRETENDED_MOVES steps
// all streams hang; PRETENDED_DEAF: no stream waits for another's events (what depends on it must
// then go wrong).
//
// With rates (pretended_clock.h) the streams' time is kept instead and kernels compute nothing.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "core/execute/cuda/cuda_products.h"
#include "core/execute/cuda/forward.h"
#include "core/execute/cuda/measured_launches.h"
#include "tests/gpu/pretended_clock.h"
#include "tests/unit/host_team.h"

namespace {

using work = std::function<double()>;  // the seconds that it takes, where time is kept
struct pretended_event {
    uint64_t recorded = 0, passed = 0;
    double at_s = 0;
};
struct pretended_stream {
    // What is to be done, and the event and its number that must have passed first.
    struct step {
        work run;
        pretended_event *after = nullptr;
        uint64_t number = 0;
    };
    std::deque<step> steps;
    std::vector<work> *recording = nullptr;
    uint32_t weight = 1;  // how often it is this one that moves on
    double free_s = 0;    // the end of what it has been given
};

size_t figure(const char *name, size_t otherwise) {
    const char *text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::optional<pretended_rates> start_rates() {
    if (!std::getenv("PRETENDED_CLOCK")) return {};
    return pretended_rates{2e-6, 8e-6, 6e-6, 25e9, 20e9, 1e12, 32 << 20, 3e12, 5e11, 1e14};
}
std::optional<pretended_rates> rates = start_rates();
double host_s = 0;  // the host's clock

std::vector<pretended_stream *> streams;
std::mt19937 chance{static_cast<uint32_t>(figure("PRETENDED_SEED", 5))};

pretended_stream &of(cudaStream_t stream) { return *reinterpret_cast<pretended_stream *>(stream); }
pretended_event &of(cudaEvent_t event) { return *reinterpret_cast<pretended_event *>(event); }

void submit(cudaStream_t stream, work run) {
    if (of(stream).recording)
        of(stream).recording->push_back(std::move(run));
    else if (rates)
        of(stream).free_s = std::max(of(stream).free_s, host_s) + run();
    else
        of(stream).steps.push_back({std::move(run)});
}

// Every few hundred steps each stream gets a pace of its own: some run ahead, some hardly move.
pretended_stream &draw_stream() {
    static uint32_t moves = 0;
    if (moves++ % 256 == 0)
        for (pretended_stream *one : streams) one->weight = 1u << (chance() % 4 * 3);
    uint32_t all = 0;
    for (const pretended_stream *one : streams) all += one->weight;
    uint32_t at = static_cast<uint32_t>(chance() % all);
    size_t which = 0;
    while (at >= streams[which]->weight) at -= streams[which++]->weight;
    return *streams[which];
}

size_t moves_left = figure("PRETENDED_MOVES", SIZE_MAX);

void move_on() {
    pretended_stream &one = draw_stream();
    if (one.steps.empty()) return;
    const pretended_stream::step &front = one.steps.front();
    if (front.after && front.after->passed < front.number) return;
    if (moves_left == 0) return;
    --moves_left;
    const work run = front.run;
    one.steps.pop_front();
    if (run) run();
}

double copy_s(size_t bytes, cudaMemcpyKind kind) {
    if (!rates) return 0;
    const auto count = static_cast<double>(bytes);
    if (kind == cudaMemcpyHostToDevice) return rates->h2d_s + count / rates->h2d_bytes_per_s;
    if (kind == cudaMemcpyDeviceToHost) return rates->d2h_s + count / rates->d2h_bytes_per_s;
    return 2 * count / rates->memory_bytes_per_s;  // read and written
}

}  // namespace

void pretend_time(const pretended_rates &given) { rates = given; }
double pretended_now() { return host_s; }

namespace moorage::core::cuda {

namespace {

double read_s(double bytes) {
    return bytes /
           (bytes <= rates->cache_bytes ? rates->cache_bytes_per_s : rates->memory_bytes_per_s);
}
double bytes_of_item(const product_item &item) {
    const auto bytes = static_cast<double>(item.rows * item.weights.row_bytes);
    return item.second ? 2 * bytes : bytes;
}
double operations_s(const product_item &item) {
    const double weights = double{1} * item.rows * item.weights.columns * (item.second ? 2 : 1);
    return 2 * weights * item.count / rates->operations_per_s;
}

// Beyond its launch.
template <class Kernel>
double kernel_s(const Kernel &, dim3) {
    return 0;
}
template <weight_type type, uint32_t tokens_max>
double kernel_s(const row_kernel<type, tokens_max> &kernel, dim3 grid) {
    double bytes = 0;
    for (uint32_t i = 0; i < (kernel.table ? grid.y : kernel.count); ++i)
        bytes += bytes_of_item(kernel.table ? kernel.table[i] : kernel.items[i]);
    return read_s(bytes);
}
template <weight_type type, bool two>
double kernel_s(const tile_kernel<type, two> &kernel, dim3 grid) {
    double bytes = 0, computed_s = 0;
    for (uint32_t i = 0; i < grid.y; ++i) {
        const product_item &item = kernel.table ? kernel.table[i] : kernel.one;
        bytes += bytes_of_item(item);
        computed_s += operations_s(item);
    }
    return std::max(read_s(bytes), computed_s);
}
template <class Cache, uint32_t rows_max, uint32_t vectors>
double kernel_s(const attend_kernel<Cache, rows_max, vectors> &kernel, dim3) {
    const attend_shape &shape = kernel.shape;
    const double position_bytes =
        double{sizeof(Cache)} * shape.kv_heads * (shape.head_dim + shape.value_dim);
    return (kernel.positions[0] + 1) * position_bytes / rates->context_bytes_per_s;
}

// Stands for the address of a kernel: makes a launch of a copy of it.
template <class Kernel>
work make_launch(const void *kernel, dim3 grid, uint32_t shared_bytes) {
    const Kernel own = *static_cast<const Kernel *>(kernel);
    return [own, grid, shared_bytes] {
        if (rates) return rates->launch_s + kernel_s(own, grid);
        host_team team(Kernel::threads, shared_bytes);
        for (team.block_z = 0; team.block_z < grid.z; ++team.block_z)
            for (team.block_y = 0; team.block_y < grid.y; ++team.block_y)
                for (team.block_x = 0; team.block_x < grid.x; ++team.block_x) {
                    team.poison();
                    own(team);
                }
        return 0.0;
    };
}

}  // namespace

template <class Kernel>
void cuda_device::launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z,
                         uint32_t shared_bytes) {
    launch_function(reinterpret_cast<const void *>(&make_launch<Kernel>), &kernel,
                    {x, y, z, Kernel::threads, shared_bytes});
}

template class forward<cuda_device>;
template void launch_nothing(cuda_device &);
template void launch_product(cuda_device &, const product_item &);

}  // namespace moorage::core::cuda

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int) {
    std::memset(out, 0, sizeof(*out));
    std::strcpy(out->name, "pretended GPU");
    out->multiProcessorCount = 4;
    out->sharedMemPerBlockOptin = 99u << 10;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest) {
    return *lowest = 0, *highest = -1, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int) {
    streams.push_back(new pretended_stream);
    *out = reinterpret_cast<cudaStream_t>(streams.back());
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    std::erase(streams, &of(stream));
    delete &of(stream);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    const auto busy = [] {
        for (const pretended_stream *one : streams)
            if (!one->steps.empty()) return true;
        return false;
    };
    while (busy()) {
        if (moves_left == 0) return cudaErrorLaunchTimeout;
        move_on();
    }
    for (const pretended_stream *one : streams) host_s = std::max(host_s, one->free_s);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    return *available = *total = figure("PRETENDED_BYTES", size_t{1} << 33), cudaSuccess;
}
cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    // Where nothing is computed, results are the numbers that are there.
    std::memset(*out, rates ? 0 : 0xff, bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) { return cudaMalloc(out, bytes); }
cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    submit(stream, [=] {
        std::memcpy(to, from, bytes);
        return copy_s(bytes, kind);
    });
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3, void **arguments, size_t shared,
                             cudaStream_t stream) {
    static size_t left = figure("PRETENDED_LAUNCHES", SIZE_MAX);
    if (left-- == 0) return cudaErrorLaunchFailure;
    const auto make =
        reinterpret_cast<work (*)(const void *, dim3, uint32_t)>(const_cast<void *>(function));
    submit(stream, make(arguments[0], grid, static_cast<uint32_t>(shared)));
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *out) {
    *out = reinterpret_cast<cudaEvent_t>(new pretended_event);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &of(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    pretended_event *own = &of(event);
    const uint64_t number = ++own->recorded;
    submit(stream, [=] {
        own->passed = number;
        return 0.0;
    });
    own->at_s = of(stream).free_s;
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (rates)
        host_s = std::max(host_s, of(event).at_s);
    else
        move_on();
    return of(event).passed == of(event).recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *out, cudaEvent_t begin, cudaEvent_t end) {
    *out = rates ? static_cast<float>((of(end).at_s - of(begin).at_s) * 1e3) : 0.001f;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    static const bool deaf = figure("PRETENDED_DEAF", 0) != 0;
    if (deaf) return cudaSuccess;
    if (rates)
        of(stream).free_s = std::max(of(stream).free_s, of(event).at_s);
    else
        of(stream).steps.push_back({{}, &of(event), of(event).recorded});
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    of(stream).recording = new std::vector<work>;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    static size_t left = figure("PRETENDED_RECORDINGS", SIZE_MAX);
    if (left == 0) {
        delete of(stream).recording;
        of(stream).recording = nullptr;
        return *out = nullptr, cudaErrorStreamCaptureInvalidated;
    }
    --left;
    *out = reinterpret_cast<cudaGraph_t>(of(stream).recording);
    of(stream).recording = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    const auto *steps = reinterpret_cast<const std::vector<work> *>(graph);
    *out = reinterpret_cast<cudaGraphExec_t>(new std::vector<work>(*steps));
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return delete reinterpret_cast<std::vector<work> *>(graph), cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    return delete reinterpret_cast<std::vector<work> *>(graph), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    for (const work &one : *reinterpret_cast<const std::vector<work> *>(graph)) submit(stream, one);
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "pretended"; }
const char *cudaGetErrorName(cudaError_t) { return "pretended"; }

cublasStatus_t cublasCreate_v2(cublasHandle_t *out) {
    return *out = reinterpret_cast<cublasHandle_t>(new cudaStream_t{}), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    return delete reinterpret_cast<cudaStream_t *>(handle), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    return *reinterpret_cast<cudaStream_t *>(handle) = stream, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasGetStatusName(cublasStatus_t) { return "pretended"; }
// What the executor asks for alone: A transposed and B as it is, bf16; C float.
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                            int n, int k, const void *alpha, const void *a, cudaDataType, int lda,
                            const void *b, cudaDataType, int ldb, const void *beta, void *c,
                            cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
    const float times = *static_cast<const float *>(alpha);
    const float before = *static_cast<const float *>(beta);
    submit(*reinterpret_cast<cudaStream_t *>(handle), [=] {
        if (rates) return rates->launch_s + 2.0 * m * n * k / rates->operations_per_s;
        const auto *left = static_cast<const uint16_t *>(a);
        const auto *right = static_cast<const uint16_t *>(b);
        auto *out = static_cast<float *>(c);
        for (int j = 0; j < n; ++j)
            for (int i = 0; i < m; ++i) {
                float sum = 0;
                for (int l = 0; l < k; ++l)
                    sum += moorage::core::cuda::float_of_bf16(left[i * lda + l]) *
                           moorage::core::cuda::float_of_bf16(right[j * ldb + l]);
                float &at = out[j * ldc + i];
                at = times * sum + (before != 0 ? before * at : 0);
            }
        return 0.0;
    });
    return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
