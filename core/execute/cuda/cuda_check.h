// cuda_check.h - makes CUDA calls and remembers the first one that fails.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <string>

#include "core/base/result.h"

namespace moorage::core::gpu {

class failure_note {
public:
    bool failed() const { return !text_.empty(); }
    const std::string &text() const { return text_; }
    error failure() const { return error{text_}; }

    // Forgets a failed call, because another way was taken.
    void forget() { text_.clear(); }
    void note(const std::string &message) {
        if (!failed()) text_ = message;
    }
    bool check(cudaError_t code, const char *call, const char *file, int line);
    bool check(cublasStatus_t code, const char *call, const char *file, int line);

private:
    void note(const char *call, const char *file, int line, const std::string &message);
    std::string text_;
};

}  // namespace moorage::core::gpu

// True when the call succeeded.
#define MOORAGE_CUDA_CHECK(notes, call) (notes).check((call), #call, __FILE__, __LINE__)
