// pretended_device_test.cpp - goal: the pretended GPU refuses the same as a GPU, and shows the same
// bugs. Method: break each rule once by calls of the runtime alone, beside a call that just keeps
// it.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/gpu/pretended/device.h"

namespace pretended_device_test {

using pretended::order;

namespace {

struct bench {
    cudaStream_t one = nullptr, other = nullptr;
    cudaEvent_t event = nullptr, second = nullptr;
    void *device = nullptr, *pinned = nullptr;
    static constexpr size_t bytes = 1024;

    explicit bench(const pretended::settings &how = {}) {
        pretended::begin(how);
        for (cudaStream_t *stream : {&one, &other})
            REQUIRE(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0) == cudaSuccess);
        for (cudaEvent_t *made : {&event, &second}) REQUIRE(cudaEventCreate(made) == cudaSuccess);
        REQUIRE(cudaMalloc(&device, bytes) == cudaSuccess);
        REQUIRE(cudaHostAlloc(&pinned, bytes, 0) == cudaSuccess);
        std::memset(pinned, 1, bytes);
    }
    ~bench() {
        for (cudaStream_t stream : {one, other}) (void)cudaStreamDestroy(stream);
        for (cudaEvent_t made : {event, second}) (void)cudaEventDestroy(made);
        (void)cudaFree(device);
        (void)cudaFreeHost(pinned);
        CHECK(pretended::alive().none());
    }
    cudaError_t up(void *from, cudaStream_t stream) const {
        return cudaMemcpyAsync(device, from, bytes, cudaMemcpyHostToDevice, stream);
    }
    cudaError_t down(void *to, cudaStream_t stream) const {
        return cudaMemcpyAsync(to, device, bytes, cudaMemcpyDeviceToHost, stream);
    }
    int on_device() const { return *static_cast<const unsigned char *>(device); }
    int on_host() const { return *static_cast<const unsigned char *>(pinned); }
};

// A kernel that checks for its resources and does nothing.
pretended::work nothing(const void *, dim3, uint32_t) { return {}; }
constexpr pretended::kernel_entry kernel{&nothing, 128, 16};
cudaError_t launch(dim3 grid, size_t shared_bytes, cudaStream_t stream, unsigned threads = 128) {
    int argument = 0;
    void *arguments[] = {&argument};
    return cudaLaunchKernel(&kernel, grid, dim3(threads), arguments, shared_bytes, stream);
}

cudaError_t end_capture(cudaStream_t stream, bool &made) {
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(stream, &graph);
    made = graph != nullptr;
    if (graph) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return code;
}

// The error that ends a capture during which `call` was made.
template <class Call>
cudaError_t capture_with(const bench &on, Call &&call) {
    REQUIRE(launch(1, 0, on.one) == cudaSuccess);  // loaded before
    REQUIRE(cudaStreamBeginCapture(on.one, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(on.up(on.pinned, on.one) == cudaSuccess);
    call();
    bool made = false;
    const cudaError_t code = end_capture(on.one, made);
    CHECK(made == (code == cudaSuccess));
    return code;
}

}  // namespace

TEST_CASE("a copy takes what is there when it runs, so a buffer that is written too early shows") {
    const bench on({.how = order::lazy});
    CHECK(on.up(on.pinned, on.one) == cudaSuccess);
    std::memset(on.pinned, 2, bench::bytes);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(on.on_device() == 2);
}

TEST_CASE("copies of pageable memory are refused, or read late") {
    std::vector<unsigned char> pageable(bench::bytes, 1);
    {
        const bench on;
        CHECK(on.up(pageable.data(), on.one) == cudaErrorInvalidValue);
        CHECK(on.down(pageable.data(), on.one) == cudaErrorInvalidValue);
    }
    const bench on({.how = order::lazy, .pageable = true});
    CHECK(on.up(pageable.data(), on.one) == cudaSuccess);
    pageable.assign(bench::bytes, 2);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(on.on_device() == 2);
}

TEST_CASE("a copy that returns has read pageable memory, and may not have written yet") {
    const bench on({.how = order::lazy});
    std::vector<unsigned char> pageable(bench::bytes, 3);
    CHECK(cudaMemcpy(on.device, pageable.data(), bench::bytes, cudaMemcpyHostToDevice) ==
          cudaSuccess);
    pageable.assign(bench::bytes, 4);
    CHECK(on.on_device() == 0xff);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(on.on_device() == 3);
}

TEST_CASE("copies stay within what was allocated, on the side that they name") {
    const bench on;
    auto *beyond = static_cast<std::byte *>(on.device) + 1;
    CHECK(cudaMemcpyAsync(beyond, on.pinned, bench::bytes, cudaMemcpyHostToDevice, on.one) ==
          cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(beyond, on.pinned, bench::bytes - 1, cudaMemcpyHostToDevice, on.one) ==
          cudaSuccess);
    CHECK(on.down(on.device, on.one) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(on.pinned, on.device, 8, cudaMemcpyHostToDevice, on.one) ==
          cudaErrorInvalidValue);
    CHECK(cudaFree(on.pinned) == cudaErrorInvalidValue);
}

TEST_CASE("an event passes when its stream has come to it, and starves until it is asked for") {
    const bench on({.how = order::lazy});
    CHECK(on.up(on.pinned, on.one) == cudaSuccess);
    CHECK(cudaEventRecord(on.event, on.one) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(on.other, on.event, 0) == cudaSuccess);
    std::memset(on.pinned, 0, bench::bytes);
    CHECK(on.down(on.pinned, on.other) == cudaSuccess);
    CHECK(cudaEventRecord(on.second, on.other) == cudaSuccess);
    CHECK(on.on_device() == 0xff);
    int asked = 0;
    while (cudaEventQuery(on.second) == cudaErrorNotReady) CHECK(++asked < 1000);
    CHECK(on.on_device() == 0);  // the copy up came first
    CHECK(cudaEventQuery(on.event) == cudaSuccess);
}

// A kernel that writes eight words to the host, then that it has.
struct telling {
    uint32_t *words;
    bool fence;
    uint32_t *flag() const { return words + 8; }
};
pretended::work tell(const void *kernel, dim3, uint32_t) {
    return [own = *static_cast<const telling *>(kernel)] {
        for (uint32_t i = 0; i < 8; ++i) pretended::told().push_back({own.words + i, i + 1, 0});
        pretended::told().push_back({own.flag(), 1, own.fence ? 1u : 0u});
        return 0.0;
    };
}
constexpr pretended::kernel_entry teller{&tell, 32, 0, [](const void *kernel) -> const void * {
                                             return static_cast<const telling *>(kernel)->flag();
                                         }};

TEST_CASE("what a kernel tells the host comes before its end, in order where there is a fence") {
    uint32_t early = 0, torn[2] = {0, 0};
    for (const order how : {order::drawn, order::lazy})
        for (const bool fence : {true, false})
            for (uint32_t seed = 1; seed <= 20; ++seed) {
                const bench on({.how = how, .seed = seed});
                void *memory = nullptr;
                REQUIRE(cudaHostAlloc(&memory, 64, cudaHostAllocMapped) == cudaSuccess);
                std::memset(memory, 0, 64);
                telling kernel{static_cast<uint32_t *>(memory), fence};
                void *arguments[] = {&kernel};
                CHECK(cudaLaunchKernel(&teller, 1, dim3(32), arguments, 0, on.one) == cudaSuccess);
                CHECK(cudaEventRecord(on.event, on.one) == cudaSuccess);
                CHECK(*kernel.flag() == 0);
                cudaError_t code = cudaErrorNotReady;
                while (*kernel.flag() == 0) code = cudaEventQuery(on.event);
                early += code == cudaErrorNotReady;
                uint32_t seen = 0;
                for (uint32_t i = 0; i < 8; ++i) seen += kernel.words[i] == i + 1;
                torn[fence] += seen != 8;
                while (code == cudaErrorNotReady) code = cudaEventQuery(on.event);
                for (uint32_t i = 0; i < 8; ++i) CHECK(kernel.words[i] == i + 1);
                CHECK(cudaFreeHost(memory) == cudaSuccess);
            }
    CHECK(early > 10);
    CHECK(torn[true] == 0);
    CHECK(torn[false] > 10);
}

TEST_CASE("a kernel faults where it writes to memory of the host that is not mapped") {
    const bench on;
    telling kernel{static_cast<uint32_t *>(on.pinned), true};
    void *arguments[] = {&kernel};
    CHECK(cudaLaunchKernel(&teller, 1, dim3(32), arguments, 0, on.one) == cudaErrorIllegalAddress);
}

TEST_CASE("launches within the limits of each GPU") {
    const struct {
        const char *gpu;
        uint32_t shared_bytes;
    } gpus[] = {{"sm_80", 166912}, {"sm_86", 101376}, {"sm_89", 101376}, {"sm_90", 232448}};
    for (const auto &one : gpus) {
        const std::string gpu = one.gpu;
        CAPTURE(gpu);
        const bench on({.how = order::eager, .gpu = gpu});
        // 16 bytes are the kernel's own; 48 KB without a request.
        CHECK(launch(1, 49152 - 16, on.one) == cudaSuccess);
        CHECK(launch(1, 49152 - 15, on.one) == cudaErrorInvalidValue);
        const auto most = static_cast<int>(one.shared_bytes - 16);
        const cudaFuncAttribute attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
        CHECK(cudaFuncSetAttribute(&kernel, attribute, most + 1) == cudaErrorInvalidValue);
        CHECK(cudaFuncSetAttribute(&kernel, attribute, most) == cudaSuccess);
        CHECK(launch(1, one.shared_bytes - 16, on.one) == cudaSuccess);
        CHECK(launch(1, one.shared_bytes - 15, on.one) == cudaErrorInvalidValue);
        CHECK(launch(dim3(0x7fffffff, 1, 1), 0, on.one) == cudaSuccess);
        CHECK(launch(dim3(1, 65535, 65535), 0, on.one) == cudaSuccess);
        CHECK(launch(dim3(1, 65536, 1), 0, on.one) == cudaErrorInvalidConfiguration);
        CHECK(launch(dim3(1, 1, 65536), 0, on.one) == cudaErrorInvalidConfiguration);
        CHECK(launch(dim3(0, 1, 1), 0, on.one) == cudaErrorInvalidConfiguration);
        CHECK(launch(1, 0, on.one, 256) == cudaErrorInvalidConfiguration);
    }
}

TEST_CASE("calls that a capture does not bear spoil it") {
    const bench on({.how = order::eager});
    void *memory = nullptr;
    CHECK(capture_with(on, [] {}) == cudaSuccess);
    CHECK(capture_with(on, [&] { CHECK(launch(1, 0, on.one) == cudaSuccess); }) == cudaSuccess);
    const auto spoils = [&](auto &&call) {
        return capture_with(on, [&] { CHECK(call() == cudaErrorStreamCaptureUnsupported); }) ==
               cudaErrorStreamCaptureInvalidated;
    };
    CHECK(spoils([&] { return cudaMalloc(&memory, 8); }));
    CHECK(spoils([&] { return cudaHostAlloc(&memory, 8, 0); }));
    CHECK(spoils([&] { return cudaMemcpy(on.device, on.pinned, 8, cudaMemcpyHostToDevice); }));
    CHECK(spoils([&] { return cudaDeviceSynchronize(); }));
    CHECK(spoils([&] { return cudaEventQuery(on.second); }));
    // One that is launched for the first time.
    static constexpr pretended::kernel_entry fresh{&nothing, 128, 0};
    CHECK(spoils([&] {
        int argument = 0;
        void *arguments[] = {&argument};
        return cudaLaunchKernel(&fresh, 1, dim3(128), arguments, 0, on.one);
    }));
}

TEST_CASE("events across streams that are captured") {
    const bench on({.how = order::eager});
    // Not captured: a capture does not wait for it.
    CHECK(cudaEventRecord(on.event, on.other) == cudaSuccess);
    CHECK(capture_with(on, [&] {
              CHECK(cudaStreamWaitEvent(on.one, on.event, 0) == cudaErrorStreamCaptureIsolation);
          }) == cudaErrorStreamCaptureInvalidated);
    // The other stream follows, and comes back, or does not.
    const auto fork = [&](bool joins) {
        return capture_with(on, [&] {
            CHECK(cudaEventRecord(on.event, on.one) == cudaSuccess);
            CHECK(cudaStreamWaitEvent(on.other, on.event, 0) == cudaSuccess);
            CHECK(on.up(on.pinned, on.other) == cudaSuccess);
            CHECK(cudaEventRecord(on.second, on.other) == cudaSuccess);
            if (joins) CHECK(cudaStreamWaitEvent(on.one, on.second, 0) == cudaSuccess);
        });
    };
    CHECK(fork(true) == cudaSuccess);
    CHECK(fork(false) == cudaErrorStreamCaptureUnjoined);
    // An event recorded into a capture never passes.
    CHECK(cudaEventQuery(on.second) == cudaErrorCapturedEvent);
    CHECK(cudaEventRecord(on.second, on.other) == cudaSuccess);
    CHECK(cudaEventQuery(on.second) == cudaSuccess);
    bool made = true;
    CHECK(cudaStreamBeginCapture(on.one, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(on.one, cudaStreamCaptureModeThreadLocal) ==
          cudaErrorInvalidValue);
    CHECK(end_capture(on.other, made) == cudaErrorInvalidValue);
    CHECK(end_capture(on.one, made) == cudaSuccess);
}

TEST_CASE("a recording runs when it is launched, and goes when its launches have run") {
    const bench on({.how = order::lazy});
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    CHECK(cudaStreamBeginCapture(on.one, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(on.up(on.pinned, on.one) == cudaSuccess);
    CHECK(cudaStreamEndCapture(on.one, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&made, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(on.on_device() == 0xff);
    CHECK(cudaGraphLaunch(made, on.one) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(made) == cudaErrorInvalidValue);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(on.on_device() == 1);
    CHECK(cudaGraphExecDestroy(made) == cudaSuccess);
}

TEST_CASE("memory that there is not, and calls that are told to fail") {
    const bench on({.memory_bytes = 4096, .fail_call = "cudaEventRecord", .fail_at = 2});
    void *memory = nullptr;
    CHECK(cudaMalloc(&memory, 4096 - bench::bytes + 1) == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&memory, 4096 - bench::bytes) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(cudaEventRecord(on.event, on.one) == cudaSuccess);
    CHECK(cudaEventRecord(on.event, on.one) == cudaErrorUnknown);
    CHECK(cudaEventRecord(on.event, on.one) == cudaSuccess);
    CHECK(on.on_host() == 1);
}

TEST_CASE("calls for a stream, an event or memory of another device are refused") {
    const bench on({.devices = 2});
    int reached = 0;
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    CHECK(launch(1, 0, on.one) == cudaErrorInvalidResourceHandle);
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    void *there = nullptr;
    REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    REQUIRE(cudaMalloc(&there, bench::bytes) == cudaSuccess);
    CHECK(launch(1, 0, stream) == cudaSuccess);
    CHECK(cudaEventRecord(event, on.one) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(on.one, event, 0) == cudaSuccess);
    const auto across = [&] {
        return cudaMemcpyAsync(there, on.device, bench::bytes, cudaMemcpyDefault, stream);
    };
    CHECK(across() == cudaErrorInvalidValue);
    CHECK(cudaDeviceCanAccessPeer(&reached, 1, 0) == cudaSuccess);
    CHECK(reached == 1);
    CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
    CHECK(across() == cudaSuccess);
    // One that the stream's device was not asked to reach.
    CHECK(cudaMemcpyAsync(on.device, there, bench::bytes, cudaMemcpyDefault, on.one) ==
          cudaErrorInvalidValue);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaFree(there) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("devices that cannot reach each other say so") {
    const bench on({.devices = 2, .peers = false});
    int reached = 1;
    CHECK(cudaDeviceCanAccessPeer(&reached, 0, 1) == cudaSuccess);
    CHECK(reached == 0);
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessUnsupported);
}

}  // namespace pretended_device_test
