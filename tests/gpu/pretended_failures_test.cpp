// pretended_failures_test.cpp - goal: if any CUDA call fails, the run ends with an error that names
// it, or continues correctly without it. Nothing crashes, hangs or is left behind. Method: some
// passes of a golden model over the pretended GPU, once for each call of each kind (for frequent
// calls the first thirty and some later ones). This call fails alone, with the later ones of its
// kind, or with all later calls.
#include "tests/gpu/pretended_fixture.h"

#include <cmath>
#include <map>
#include <vector>

namespace pretended_failures_test {

using namespace moorage::test;

namespace {

constexpr const char *calls[] = {"cudaGetDeviceCount",
                                 "cudaSetDevice",
                                 "cudaGetDeviceProperties",
                                 "cudaDeviceGetStreamPriorityRange",
                                 "cudaDeviceSynchronize",
                                 "cudaMemGetInfo",
                                 "cudaMalloc",
                                 "cudaFree",
                                 "cudaHostAlloc",
                                 "cudaFreeHost",
                                 "cudaMemcpy",
                                 "cudaMemcpyAsync",
                                 "cudaStreamCreateWithPriority",
                                 "cudaStreamDestroy",
                                 "cudaStreamWaitEvent",
                                 "cudaEventCreate",
                                 "cudaEventDestroy",
                                 "cudaEventRecord",
                                 "cudaEventQuery",
                                 "cudaEventElapsedTime",
                                 "cudaLaunchKernel",
                                 "cudaStreamBeginCapture",
                                 "cudaStreamEndCapture",
                                 "cudaGraphInstantiate",
                                 "cudaGraphDestroy",
                                 "cudaGraphLaunch",
                                 "cudaGraphExecDestroy",
                                 "cublasCreate",
                                 "cublasDestroy",
                                 "cublasSetStream",
                                 "cublasSetWorkspace",
                                 "cublasGemmEx"};

// The library's calls have another name behind its header.
std::string name_of(const std::string &call) {
    const bool versioned = call.starts_with("cublas") && call != "cublasGemmEx";
    return versioned ? call + "_v2" : call;
}

std::vector<uint64_t> sampled_calls(uint64_t count) {
    std::vector<uint64_t> numbers;
    for (uint64_t n = 1; n <= count; n += n < 30 ? 1 : 1 + count / 8) numbers.push_back(n);
    return numbers;
}

double largest_difference(const std::vector<float> &is, const std::vector<float> &expected) {
    if (is.size() != expected.size()) return INFINITY;
    double most = 0;
    for (size_t i = 0; i < is.size(); ++i) {
        const double difference = std::abs(double{is[i]} - double{expected[i]});
        most = std::isfinite(difference) ? std::max(most, difference) : INFINITY;
    }
    return most;
}

}  // namespace

TEST_CASE("the failure of any call is an error with its name, or does no harm") {
    const opened_golden golden("olmoe");
    pretended::begin({});
    const short_outcome clean = run_shortly(golden);
    REQUIRE(clean.failure == "");
    std::map<std::string, uint64_t> call_counts;
    for (const std::string call : calls) call_counts[call] = pretended::calls(name_of(call));
    uint64_t ended = 0, went_on = 0;
    for (const auto &entry : call_counts) {
        const std::string call = entry.first;
        CAPTURE(call);
        for (const uint64_t n : sampled_calls(entry.second))
            for (const int mode : {0, 1, 2}) {
                CAPTURE(n);
                CAPTURE(mode);
                pretended::begin({.fail_call = name_of(call),
                                  .fail_at = n,
                                  .fails_after = mode == 1,
                                  .breaks_device = mode == 2});
                const short_outcome is = run_shortly(golden);
                if (is.failure.empty()) {
                    ++went_on;
                    CHECK(largest_difference(is.logits, clean.logits) < 1e-3);
                } else {
                    ++ended;
                    // If all calls fail, another failure may be noticed first.
                    const std::string expected = mode == 2 ? "cuda: " : call;
                    const bool named = is.failure.find(expected) != std::string::npos ||
                                       is.failure.find("no GPU to run on") != std::string::npos;
                    CHECK_MESSAGE(named, is.failure);
                }
                CHECK(pretended::alive().none());
            }
    }
    // If no call failed, nothing was tested.
    CHECK(ended > 300);
    CHECK(went_on > 20);
    for (const char *call : calls) CHECK_MESSAGE(call_counts[call] > 0, call);
}

TEST_CASE("a launch that fails while it is recorded costs the recording alone") {
    const opened_golden golden("olmoe");
    pretended::begin({.stream_order = pretended::order::eager});
    const short_outcome clean = run_shortly(golden);
    const uint64_t launches = pretended::calls("cudaLaunchKernel");
    uint64_t went_on = 0;
    for (uint64_t n = 1; n <= launches; ++n) {
        CAPTURE(n);
        pretended::begin({.stream_order = pretended::order::eager,
                          .fail_call = "cudaLaunchKernel",
                          .fail_at = n});
        const short_outcome is = run_shortly(golden);
        if (!is.failure.empty()) continue;
        ++went_on;
        CHECK(largest_difference(is.logits, clean.logits) < 1e-3);
    }
    // The second of four tokens is recorded, the experts' launches are not.
    CHECK(went_on > launches / 20);
    CHECK(went_on < launches / 3);
}

}  // namespace pretended_failures_test
