// kernel_check.cu - every kernel on the GPU compared with slow references, over fresh random inputs
// and poisoned outputs. Prints a line a case. Exit code 1 if one is off.
//
//   kernel_check [--seeds N] [--small]     --small: formats and attention, for slow checkers
//
// It needs nothing but CUDA and this repository: the same cases as cuda_arithmetic_test. All scales
// of the quantised formats come with the first seed.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/execute/cuda/device_team.cuh"
#include "tests/gpu/kernel_attention.h"
#include "tests/gpu/kernel_formats.h"
#include "tests/gpu/kernel_products.h"

namespace {

using namespace moorage::core::gpu;

void need(cudaError_t code, const char *call) {
    if (code == cudaSuccess) return;
    std::printf("%s failed: %s\n", call, cudaGetErrorString(code));
    std::exit(1);
}

class gpu_device {
public:
    template <class Kernel>
    void launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t shared_bytes) {
        if (shared_bytes > 48u << 10)
            need(cudaFuncSetAttribute(run_kernel<Kernel>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared_bytes)),
                 "cudaFuncSetAttribute");
        run_kernel<Kernel><<<dim3(x, y, z), Kernel::threads, shared_bytes>>>(kernel);
        need(cudaGetLastError(), "launch");
    }
};

class gpu_memory {
public:
    ~gpu_memory() {
        for (std::byte *block : blocks_) (void)cudaFree(block);
    }
    std::byte *allocate(uint64_t bytes) {
        void *block = nullptr;
        // Whole words, because weights are read in words.
        const size_t whole = (bytes / 16 + 1) * 16;
        need(cudaMalloc(&block, whole), "cudaMalloc");
        need(cudaMemset(block, 0, whole), "cudaMemset");
        blocks_.push_back(static_cast<std::byte *>(block));
        return blocks_.back();
    }
    void write(void *target, const void *source, uint64_t bytes) {
        need(cudaMemcpy(target, source, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the GPU");
    }
    void read(void *target, const void *source, uint64_t bytes) {
        need(cudaMemcpy(target, source, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the GPU");
    }
    void finish() { need(cudaDeviceSynchronize(), "the kernel"); }

private:
    std::vector<std::byte *> blocks_;
};

bool run(uint64_t seed, bool small, bool all_scales) {
    gpu_device device;
    gpu_memory memory;
    kernel_bench<gpu_device, gpu_memory> bench(device, memory, seed);
    check_formats(bench, all_scales && !small);
    if (!small) check_products(bench);
    check_attentions(bench);
    bool good = true;
    for (const case_result &entry : bench.results) {
        const bool within = entry.error <= entry.limit;
        good = good && within;
        std::printf("%-4s %-52s error %.2e limit %.0e\n", within ? "ok" : "OFF", entry.name.c_str(),
                    entry.error, entry.limit);
    }
    std::printf("%zu cases, seed %llu: %s\n", bench.results.size(),
                static_cast<unsigned long long>(seed), good ? "all within limits" : "FAILED");
    return good;
}

}  // namespace

int main(int count, char **arguments) {
    bool small = false;
    long seeds = 3;
    for (int i = 1; i < count; ++i) {
        if (std::strcmp(arguments[i], "--small") == 0) small = true;
        if (std::strcmp(arguments[i], "--seeds") == 0 && i + 1 < count)
            seeds = std::strtol(arguments[i + 1], nullptr, 10);
    }
    bool good = true;
    std::random_device random;
    for (long i = 0; i < seeds; ++i) good = run(random(), small, i == 0) && good;
    return good ? 0 : 1;
}
