// fenced_memory.h - arrays that policies write into. The memory behind the last element cannot be
// accessed, so a policy that writes too much dies of it and is named.
#pragma once

#include <cstddef>
#include <vector>

namespace moorage::core {

// The array ends at the end of a page, and the next page has no access rights. For a few long-lived
// arrays.
void *fenced_allocate(size_t bytes);
void fenced_free(void *address, size_t bytes);

template <class T>
struct fenced_allocator {
    using value_type = T;
    fenced_allocator() = default;
    template <class Other>
    fenced_allocator(const fenced_allocator<Other> &) {}
    T *allocate(size_t count) { return static_cast<T *>(fenced_allocate(count * sizeof(T))); }
    void deallocate(T *address, size_t count) { fenced_free(address, count * sizeof(T)); }
    friend bool operator==(const fenced_allocator &, const fenced_allocator &) { return true; }
};
template <class T>
using fenced_vector = std::vector<T, fenced_allocator<T>>;

}  // namespace moorage::core
