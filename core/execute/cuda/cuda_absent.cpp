// cuda_absent.cpp - stands for the CUDA executor in builds without the toolkit.
#if !defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cuda_executor.h"

namespace moorage::core {

result<cuda_machine> make_cuda_executor(const cuda_executor_options &) {
    return error{
        "executor cuda is not part of this build; with the CUDA toolkit installed, build it with "
        "cmake --preset cuda, or set executor to cpu or emulator"};
}

}  // namespace moorage::core

#endif
