// cuda_absent.cpp - stands for the CUDA executor in builds without the toolkit.
#if !defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/cuda/cuda_measure.h"

namespace moorage::core {

static error absent() {
    return error{
        "executor cuda is not part of this build; with the CUDA toolkit installed, build it with "
        "cmake --preset cuda (-DMOORAGE_CUDA=ON), or set executor to cpu or emulator"};
}

result<gpu_machine> make_cuda_executor(const gpu_executor_options &) { return absent(); }

result<uint64_t> cuda_room_for_experts(const gpu_executor_options &) { return absent(); }

result<std::vector<std::string>> cuda_device_names() { return absent(); }

result<measured_machine> measure_cuda(const cuda_measure_options &) { return absent(); }

result<device_rates> measure_device_rates(int32_t) { return absent(); }

}  // namespace moorage::core

#endif
