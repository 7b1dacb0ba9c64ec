// fenced.h - arrays that notice when somebody writes or reads beyond their end.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace moorage::check {

// The fence behind an array: bytes that show a write afterwards, or a page that cannot be touched.
enum class fence { canary, page };

// Room for `capacity` elements; last(n) gives an array of n that ends at the fence.
template <class T>
class fenced {
public:
    fenced(size_t capacity, fence kind) : capacity_(capacity), kind_(kind) {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)),
                     bytes = capacity * sizeof(T);
        if (kind == fence::page) {
            const size_t body = (bytes + page - 1) / page * page;
            total_ = body + page;
            void *base =
                mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (base == MAP_FAILED) throw std::bad_alloc();
            base_ = static_cast<char *>(base);
            mprotect(base_ + body, page, PROT_NONE);
            begin_ = reinterpret_cast<T *>(base_ + body - bytes);
        } else {
            total_ = bytes + 2 * margin;
            base_ = static_cast<char *>(::operator new(total_, std::align_val_t(margin)));
            std::memset(base_, mark, total_);
            begin_ = reinterpret_cast<T *>(base_ + margin);
            std::memset(static_cast<void *>(begin_), 0, bytes);
        }
    }
    ~fenced() {
        if (kind_ == fence::page)
            munmap(base_, total_);
        else
            ::operator delete(base_, std::align_val_t(margin));
    }
    fenced(const fenced &) = delete;

    size_t capacity() const { return capacity_; }
    T *last(size_t count) { return begin_ + (capacity_ - count); }
    T *data() { return begin_; }
    std::span<T> span() { return {begin_, capacity_}; }
    T &operator[](size_t index) { return begin_[index]; }
    // False if something was written to the margins. A fence of pages kills the process instead.
    bool intact() const {
        if (kind_ == fence::page) return true;
        const size_t bytes = capacity_ * sizeof(T);
        for (size_t i = 0; i < margin; ++i)
            if (base_[i] != mark || base_[margin + bytes + i] != mark) return false;
        return true;
    }

private:
    static constexpr size_t margin = 4096;
    static constexpr char mark = 0x5a;
    size_t capacity_, total_ = 0;
    fence kind_;
    char *base_ = nullptr;
    T *begin_ = nullptr;
};

}  // namespace moorage::check
