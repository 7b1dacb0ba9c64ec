// device_rates.cpp - large copies, timed by events; the median of several.
#include "tests/gpu/device_rates.h"

#include <algorithm>
#include <array>

#include "core/execute/cuda/cuda_device.h"

namespace moorage::core {

result<device_rates> measure_device_rates() {
    auto made = cuda::cuda_device::create(0);
    if (!made) return made.failure();
    cuda::cuda_device &device = **made;
    constexpr uint64_t bytes = 1ull << 30;
    std::byte *from = device.take_memory(bytes), *to = device.take_memory(bytes);
    std::byte *pinned = device.take_pinned(bytes);
    cudaEvent_t begin = nullptr, end = nullptr;
    MOORAGE_CUDA_CHECK(device.notes(), cudaEventCreate(&begin));
    MOORAGE_CUDA_CHECK(device.notes(), cudaEventCreate(&end));
    if (device.notes().failed()) return error{device.notes().text()};
    const auto seconds = [&](const void *source, cudaMemcpyKind kind) {
        std::array<float, 9> times{};
        for (float &one : times) {
            MOORAGE_CUDA_CHECK(device.notes(), cudaEventRecord(begin, device.compute()));
            MOORAGE_CUDA_CHECK(device.notes(),
                               cudaMemcpyAsync(to, source, bytes, kind, device.compute()));
            MOORAGE_CUDA_CHECK(device.notes(), cudaEventRecord(end, device.compute()));
            MOORAGE_CUDA_CHECK(device.notes(), cudaEventSynchronize(end));
            MOORAGE_CUDA_CHECK(device.notes(), cudaEventElapsedTime(&one, begin, end));
        }
        std::sort(times.begin(), times.end());
        return static_cast<double>(times[times.size() / 2]) / 1e3;
    };
    device_rates out;
    out.name = device.name();
    out.memory = 2.0 * static_cast<double>(bytes) / seconds(from, cudaMemcpyDeviceToDevice);
    out.h2d = static_cast<double>(bytes) / seconds(pinned, cudaMemcpyHostToDevice);
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    if (device.notes().failed()) return error{device.notes().text()};
    return {std::move(out)};
}

}  // namespace moorage::core
