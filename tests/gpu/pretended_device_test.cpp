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
    cudaStream_t first_stream = nullptr, second_stream = nullptr;
    cudaEvent_t first_event = nullptr, second_event = nullptr;
    void *device = nullptr, *pinned = nullptr;
    static constexpr size_t bytes = 1024;

    explicit bench(const pretended::settings &settings = {}) {
        pretended::begin(settings);
        for (cudaStream_t *stream : {&first_stream, &second_stream})
            REQUIRE(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0) == cudaSuccess);
        for (cudaEvent_t *created : {&first_event, &second_event})
            REQUIRE(cudaEventCreate(created) == cudaSuccess);
        REQUIRE(cudaMalloc(&device, bytes) == cudaSuccess);
        REQUIRE(cudaHostAlloc(&pinned, bytes, 0) == cudaSuccess);
        std::memset(pinned, 1, bytes);
    }
    ~bench() {
        for (cudaStream_t stream : {first_stream, second_stream}) (void)cudaStreamDestroy(stream);
        for (cudaEvent_t destroyed : {first_event, second_event}) (void)cudaEventDestroy(destroyed);
        (void)cudaFree(device);
        (void)cudaFreeHost(pinned);
        CHECK(pretended::alive().none());
    }
    cudaError_t upload(void *source, cudaStream_t stream) const {
        return cudaMemcpyAsync(device, source, bytes, cudaMemcpyHostToDevice, stream);
    }
    cudaError_t download(void *target, cudaStream_t stream) const {
        return cudaMemcpyAsync(target, device, bytes, cudaMemcpyDeviceToHost, stream);
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

cudaError_t end_capture(cudaStream_t stream, bool &has_graph) {
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(stream, &graph);
    has_graph = graph != nullptr;
    if (graph) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return code;
}

// The error that ends a capture during which `call` was made.
template <class Call>
cudaError_t capture_with(const bench &fixture, Call &&call) {
    REQUIRE(launch(1, 0, fixture.first_stream) == cudaSuccess);  // loaded before
    REQUIRE(cudaStreamBeginCapture(fixture.first_stream, cudaStreamCaptureModeThreadLocal) ==
            cudaSuccess);
    CHECK(fixture.upload(fixture.pinned, fixture.first_stream) == cudaSuccess);
    call();
    bool has_graph = false;
    const cudaError_t code = end_capture(fixture.first_stream, has_graph);
    CHECK(has_graph == (code == cudaSuccess));
    return code;
}

}  // namespace

TEST_CASE("a copy takes what is there when it runs, so a buffer that is written too early shows") {
    const bench fixture({.stream_order = order::lazy});
    CHECK(fixture.upload(fixture.pinned, fixture.first_stream) == cudaSuccess);
    std::memset(fixture.pinned, 2, bench::bytes);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(fixture.on_device() == 2);
}

TEST_CASE("copies of pageable memory are refused, or read late") {
    std::vector<unsigned char> pageable(bench::bytes, 1);
    {
        const bench fixture;
        CHECK(fixture.upload(pageable.data(), fixture.first_stream) == cudaErrorInvalidValue);
        CHECK(fixture.download(pageable.data(), fixture.first_stream) == cudaErrorInvalidValue);
    }
    const bench fixture({.stream_order = order::lazy, .pageable = true});
    CHECK(fixture.upload(pageable.data(), fixture.first_stream) == cudaSuccess);
    pageable.assign(bench::bytes, 2);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(fixture.on_device() == 2);
}

TEST_CASE("a copy that returns has read pageable memory, and may not have written yet") {
    const bench fixture({.stream_order = order::lazy});
    std::vector<unsigned char> pageable(bench::bytes, 3);
    CHECK(cudaMemcpy(fixture.device, pageable.data(), bench::bytes, cudaMemcpyHostToDevice) ==
          cudaSuccess);
    pageable.assign(bench::bytes, 4);
    CHECK(fixture.on_device() == 0xff);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(fixture.on_device() == 3);
}

TEST_CASE("copies stay within what was allocated, on the side that they name") {
    const bench fixture;
    auto *beyond = static_cast<std::byte *>(fixture.device) + 1;
    CHECK(cudaMemcpyAsync(beyond, fixture.pinned, bench::bytes, cudaMemcpyHostToDevice,
                          fixture.first_stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(beyond, fixture.pinned, bench::bytes - 1, cudaMemcpyHostToDevice,
                          fixture.first_stream) == cudaSuccess);
    CHECK(fixture.download(fixture.device, fixture.first_stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(fixture.pinned, fixture.device, 8, cudaMemcpyHostToDevice,
                          fixture.first_stream) == cudaErrorInvalidValue);
    CHECK(cudaFree(fixture.pinned) == cudaErrorInvalidValue);
}

TEST_CASE("an event passes when its stream has come to it, and starves until it is asked for") {
    const bench fixture({.stream_order = order::lazy});
    CHECK(fixture.upload(fixture.pinned, fixture.first_stream) == cudaSuccess);
    CHECK(cudaEventRecord(fixture.first_event, fixture.first_stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(fixture.second_stream, fixture.first_event, 0) == cudaSuccess);
    std::memset(fixture.pinned, 0, bench::bytes);
    CHECK(fixture.download(fixture.pinned, fixture.second_stream) == cudaSuccess);
    CHECK(cudaEventRecord(fixture.second_event, fixture.second_stream) == cudaSuccess);
    CHECK(fixture.on_device() == 0xff);
    int asked = 0;
    while (cudaEventQuery(fixture.second_event) == cudaErrorNotReady) CHECK(++asked < 1000);
    CHECK(fixture.on_device() == 0);  // the copy up came first
    CHECK(cudaEventQuery(fixture.first_event) == cudaSuccess);
}

// A kernel that writes eight words to the host, then that it has.
struct telling {
    uint32_t *words;
    bool fence;
    uint32_t *flag() const { return words + 8; }
};
pretended::work tell(const void *kernel, dim3, uint32_t) {
    return [telling_copy = *static_cast<const telling *>(kernel)] {
        for (uint32_t i = 0; i < 8; ++i)
            pretended::told_words().push_back({telling_copy.words + i, i + 1, 0});
        pretended::told_words().push_back({telling_copy.flag(), 1, telling_copy.fence ? 1u : 0u});
        return 0.0;
    };
}
constexpr pretended::kernel_entry teller{&tell, 32, 0, [](const void *kernel) -> const void * {
                                             return static_cast<const telling *>(kernel)->flag();
                                         }};

TEST_CASE("what a kernel tells the host comes before its end, in order where there is a fence") {
    uint32_t early = 0, torn[2] = {0, 0};
    for (const order stream_order : {order::drawn, order::lazy})
        for (const bool fence : {true, false})
            for (uint32_t seed = 1; seed <= 20; ++seed) {
                const bench fixture({.stream_order = stream_order, .seed = seed});
                void *memory = nullptr;
                REQUIRE(cudaHostAlloc(&memory, 64, cudaHostAllocMapped) == cudaSuccess);
                std::memset(memory, 0, 64);
                telling kernel{static_cast<uint32_t *>(memory), fence};
                void *arguments[] = {&kernel};
                CHECK(cudaLaunchKernel(&teller, 1, dim3(32), arguments, 0, fixture.first_stream) ==
                      cudaSuccess);
                CHECK(cudaEventRecord(fixture.first_event, fixture.first_stream) == cudaSuccess);
                CHECK(*kernel.flag() == 0);
                cudaError_t code = cudaErrorNotReady;
                while (*kernel.flag() == 0) code = cudaEventQuery(fixture.first_event);
                early += code == cudaErrorNotReady;
                uint32_t seen = 0;
                for (uint32_t i = 0; i < 8; ++i) seen += kernel.words[i] == i + 1;
                torn[fence] += seen != 8;
                while (code == cudaErrorNotReady) code = cudaEventQuery(fixture.first_event);
                for (uint32_t i = 0; i < 8; ++i) CHECK(kernel.words[i] == i + 1);
                CHECK(cudaFreeHost(memory) == cudaSuccess);
            }
    CHECK(early > 10);
    CHECK(torn[true] == 0);
    CHECK(torn[false] > 10);
}

TEST_CASE("a kernel faults where it writes to memory of the host that is not mapped") {
    const bench fixture;
    telling kernel{static_cast<uint32_t *>(fixture.pinned), true};
    void *arguments[] = {&kernel};
    CHECK(cudaLaunchKernel(&teller, 1, dim3(32), arguments, 0, fixture.first_stream) ==
          cudaErrorIllegalAddress);
}

TEST_CASE("launches within the limits of each GPU") {
    const struct {
        const char *gpu;
        uint32_t shared_bytes;
    } gpus[] = {{"sm_80", 166912}, {"sm_86", 101376}, {"sm_89", 101376}, {"sm_90", 232448}};
    for (const auto &limits : gpus) {
        const std::string gpu = limits.gpu;
        CAPTURE(gpu);
        const bench fixture({.stream_order = order::eager, .gpu = gpu});
        // 16 bytes are the kernel's own; 48 KB without a request.
        CHECK(launch(1, 49152 - 16, fixture.first_stream) == cudaSuccess);
        CHECK(launch(1, 49152 - 15, fixture.first_stream) == cudaErrorInvalidValue);
        const auto most = static_cast<int>(limits.shared_bytes - 16);
        const cudaFuncAttribute attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
        CHECK(cudaFuncSetAttribute(&kernel, attribute, most + 1) == cudaErrorInvalidValue);
        CHECK(cudaFuncSetAttribute(&kernel, attribute, most) == cudaSuccess);
        CHECK(launch(1, limits.shared_bytes - 16, fixture.first_stream) == cudaSuccess);
        CHECK(launch(1, limits.shared_bytes - 15, fixture.first_stream) == cudaErrorInvalidValue);
        CHECK(launch(dim3(0x7fffffff, 1, 1), 0, fixture.first_stream) == cudaSuccess);
        CHECK(launch(dim3(1, 65535, 65535), 0, fixture.first_stream) == cudaSuccess);
        CHECK(launch(dim3(1, 65536, 1), 0, fixture.first_stream) == cudaErrorInvalidConfiguration);
        CHECK(launch(dim3(1, 1, 65536), 0, fixture.first_stream) == cudaErrorInvalidConfiguration);
        CHECK(launch(dim3(0, 1, 1), 0, fixture.first_stream) == cudaErrorInvalidConfiguration);
        CHECK(launch(1, 0, fixture.first_stream, 256) == cudaErrorInvalidConfiguration);
    }
}

TEST_CASE("calls that a capture does not bear spoil it") {
    const bench fixture({.stream_order = order::eager});
    void *memory = nullptr;
    CHECK(capture_with(fixture, [] {}) == cudaSuccess);
    CHECK(capture_with(fixture, [&] {
              CHECK(launch(1, 0, fixture.first_stream) == cudaSuccess);
          }) == cudaSuccess);
    const auto spoils = [&](auto &&call) {
        return capture_with(fixture, [&] { CHECK(call() == cudaErrorStreamCaptureUnsupported); }) ==
               cudaErrorStreamCaptureInvalidated;
    };
    CHECK(spoils([&] { return cudaMalloc(&memory, 8); }));
    CHECK(spoils([&] { return cudaHostAlloc(&memory, 8, 0); }));
    CHECK(spoils(
        [&] { return cudaMemcpy(fixture.device, fixture.pinned, 8, cudaMemcpyHostToDevice); }));
    CHECK(spoils([&] { return cudaDeviceSynchronize(); }));
    CHECK(spoils([&] { return cudaEventQuery(fixture.second_event); }));
    // One that is launched for the first time.
    static constexpr pretended::kernel_entry fresh{&nothing, 128, 0};
    CHECK(spoils([&] {
        int argument = 0;
        void *arguments[] = {&argument};
        return cudaLaunchKernel(&fresh, 1, dim3(128), arguments, 0, fixture.first_stream);
    }));
}

TEST_CASE("events across streams that are captured") {
    const bench fixture({.stream_order = order::eager});
    // Not captured: a capture does not wait for it.
    CHECK(cudaEventRecord(fixture.first_event, fixture.second_stream) == cudaSuccess);
    CHECK(capture_with(fixture, [&] {
              CHECK(cudaStreamWaitEvent(fixture.first_stream, fixture.first_event, 0) ==
                    cudaErrorStreamCaptureIsolation);
          }) == cudaErrorStreamCaptureInvalidated);
    // The other stream follows, and comes back, or does not.
    const auto fork = [&](bool joins) {
        return capture_with(fixture, [&] {
            CHECK(cudaEventRecord(fixture.first_event, fixture.first_stream) == cudaSuccess);
            CHECK(cudaStreamWaitEvent(fixture.second_stream, fixture.first_event, 0) ==
                  cudaSuccess);
            CHECK(fixture.upload(fixture.pinned, fixture.second_stream) == cudaSuccess);
            CHECK(cudaEventRecord(fixture.second_event, fixture.second_stream) == cudaSuccess);
            if (joins)
                CHECK(cudaStreamWaitEvent(fixture.first_stream, fixture.second_event, 0) ==
                      cudaSuccess);
        });
    };
    CHECK(fork(true) == cudaSuccess);
    CHECK(fork(false) == cudaErrorStreamCaptureUnjoined);
    // An event recorded into a capture never passes.
    CHECK(cudaEventQuery(fixture.second_event) == cudaErrorCapturedEvent);
    CHECK(cudaEventRecord(fixture.second_event, fixture.second_stream) == cudaSuccess);
    CHECK(cudaEventQuery(fixture.second_event) == cudaSuccess);
    bool has_graph = true;
    CHECK(cudaStreamBeginCapture(fixture.first_stream, cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    CHECK(cudaStreamBeginCapture(fixture.first_stream, cudaStreamCaptureModeThreadLocal) ==
          cudaErrorInvalidValue);
    CHECK(end_capture(fixture.second_stream, has_graph) == cudaErrorInvalidValue);
    CHECK(end_capture(fixture.first_stream, has_graph) == cudaSuccess);
}

TEST_CASE("a recording runs when it is launched, and goes when its launches have run") {
    const bench fixture({.stream_order = order::lazy});
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaStreamBeginCapture(fixture.first_stream, cudaStreamCaptureModeThreadLocal) ==
          cudaSuccess);
    CHECK(fixture.upload(fixture.pinned, fixture.first_stream) == cudaSuccess);
    CHECK(cudaStreamEndCapture(fixture.first_stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(fixture.on_device() == 0xff);
    CHECK(cudaGraphLaunch(executable, fixture.first_stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable) == cudaErrorInvalidValue);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(fixture.on_device() == 1);
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
}

TEST_CASE("memory that there is not, and calls that are told to fail") {
    const bench fixture({.memory_bytes = 4096, .fail_call = "cudaEventRecord", .fail_at = 2});
    void *memory = nullptr;
    CHECK(cudaMalloc(&memory, 4096 - bench::bytes + 1) == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&memory, 4096 - bench::bytes) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(cudaEventRecord(fixture.first_event, fixture.first_stream) == cudaSuccess);
    CHECK(cudaEventRecord(fixture.first_event, fixture.first_stream) == cudaErrorUnknown);
    CHECK(cudaEventRecord(fixture.first_event, fixture.first_stream) == cudaSuccess);
    CHECK(fixture.on_host() == 1);
}

TEST_CASE("calls for a stream, an event or memory of another device are refused") {
    const bench fixture({.devices = 2});
    int reached = 0;
    CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    CHECK(launch(1, 0, fixture.first_stream) == cudaErrorInvalidResourceHandle);
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    void *other_memory = nullptr;
    REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    REQUIRE(cudaMalloc(&other_memory, bench::bytes) == cudaSuccess);
    CHECK(launch(1, 0, stream) == cudaSuccess);
    CHECK(cudaEventRecord(event, fixture.first_stream) == cudaErrorInvalidResourceHandle);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(fixture.first_stream, event, 0) == cudaSuccess);
    const auto across = [&] {
        return cudaMemcpyAsync(other_memory, fixture.device, bench::bytes, cudaMemcpyDefault,
                               stream);
    };
    CHECK(across() == cudaErrorInvalidValue);
    CHECK(cudaDeviceCanAccessPeer(&reached, 1, 0) == cudaSuccess);
    CHECK(reached == 1);
    CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess);
    CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessAlreadyEnabled);
    CHECK(across() == cudaSuccess);
    // One that the stream's device was not asked to reach.
    CHECK(cudaMemcpyAsync(fixture.device, other_memory, bench::bytes, cudaMemcpyDefault,
                          fixture.first_stream) == cudaErrorInvalidValue);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaFree(other_memory) == cudaSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("devices that cannot reach each other say so") {
    const bench fixture({.devices = 2, .peers = false});
    int reached = 1;
    CHECK(cudaDeviceCanAccessPeer(&reached, 0, 1) == cudaSuccess);
    CHECK(reached == 0);
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessUnsupported);
}

}  // namespace pretended_device_test
