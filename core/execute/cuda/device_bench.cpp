// device_bench.cpp - opens the GPU, asks its events.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/device_bench.h"

namespace moorage::core::gpu {

result<std::unique_ptr<device_bench>> device_bench::create(int32_t index,
                                                           std::function<double()> now) {
    auto opened = cuda_device::create(index);
    if (!opened) return opened.failure();
    std::unique_ptr<device_bench> bench(
        new device_bench(std::move(opened).value(), std::move(now)));
    (void)bench->events_.make(*bench->device_);
    if (const status good = bench->check(); !good) return good.failure();
    return {std::move(bench)};
}

status device_bench::check() const {
    if (device_->notes().failed()) return error{device_->notes().text()};
    return success();
}

void device_bench::wait() {
    while (!device_->notes().failed() && !events_.end.passed()) {
    }
}

}  // namespace moorage::core::gpu

#endif
