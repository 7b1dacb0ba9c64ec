// device_bench.cpp - opens the GPU, asks its events.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/device_bench.h"

namespace moorage::core::cuda {

result<std::unique_ptr<device_bench>> device_bench::create(int32_t index,
                                                           std::function<double()> now) {
    auto opened = cuda_device::create(index);
    if (!opened) return opened.failure();
    std::unique_ptr<device_bench> made(new device_bench(std::move(opened).value(), std::move(now)));
    MOORAGE_CUDA_CHECK(made->device_->notes(), cudaEventCreate(&made->begin_));
    MOORAGE_CUDA_CHECK(made->device_->notes(), cudaEventCreate(&made->end_));
    if (const status good = made->check(); !good) return good.failure();
    return {std::move(made)};
}

device_bench::~device_bench() {
    device_->finish();
    for (const cudaEvent_t event : {begin_, end_})
        if (event) (void)cudaEventDestroy(event);
}

status device_bench::check() const {
    if (device_->notes().failed()) return error{device_->notes().text()};
    return success();
}

void device_bench::record(cudaEvent_t event, cudaStream_t stream) {
    MOORAGE_CUDA_CHECK(device_->notes(), cudaEventRecord(event, stream));
}

void device_bench::wait() {
    cudaError_t code = cudaErrorNotReady;
    while (code == cudaErrorNotReady && !device_->notes().failed()) code = cudaEventQuery(end_);
    if (code != cudaErrorNotReady)
        device_->notes().check(code, "cudaEventQuery(end_)", __FILE__, __LINE__);
}

double device_bench::between_s() {
    float milliseconds = 0;
    if (!device_->notes().failed())
        MOORAGE_CUDA_CHECK(device_->notes(), cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace moorage::core::cuda

#endif
