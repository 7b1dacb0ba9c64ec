// float_buffer.h - scratch memory for vectors: aligned, grows to the largest request, never
// shrinks.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace moorage::core {

class float_buffer {
public:
    // `count` floats with undefined values. Invalidates the result of an earlier call.
    float *get(size_t count) {
        if (count > size_) {
            data_.reset();
            data_.reset(static_cast<float *>(::operator new(count * sizeof(float), ALIGNMENT)));
            size_ = count;
        }
        return data_.get();
    }
    size_t size() const { return size_; }

private:
    static constexpr std::align_val_t ALIGNMENT{64};
    struct release {
        void operator()(float *data) const { ::operator delete(data, ALIGNMENT); }
    };
    std::unique_ptr<float, release> data_;
    size_t size_ = 0;
};

}  // namespace moorage::core
