// lent_memory.h - memory that this process writes and policies may only read. It is mapped twice,
// and policies get the read-only mapping.
//
//   lent_vector<uint8_t> states(pages);    // a std::vector
//   states[17] = 1;                        // the host's side
//   view->host_state = lent(states);       // the policies' side: writing there is SIGSEGV
//
// After a fork, the child has its own copy at the same addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/host/call.h"

namespace moorage::core {

struct lent_range {
    uintptr_t begin = 0, bytes = 0, lent_offset = 0;
};
// The address of the host's mapping and the offset of the other one. Zero before the first use, or
// if no such memory is available.
extern lent_range lent_mapping;

// Falls back to ordinary memory, which is lent as it is.
void *lent_allocate(size_t bytes);
void lent_free(void *address, size_t bytes);

template <class T>
struct lent_allocator {
    using value_type = T;
    lent_allocator() = default;
    template <class Other>
    lent_allocator(const lent_allocator<Other> &) {}
    T *allocate(size_t count) { return static_cast<T *>(lent_allocate(count * sizeof(T))); }
    void deallocate(T *address, size_t count) { lent_free(address, count * sizeof(T)); }
    friend bool operator==(const lent_allocator &, const lent_allocator &) { return true; }
};
template <class T>
using lent_vector = std::vector<T, lent_allocator<T>>;

// The policies' address of the host's `host_data`; null stays null.
template <class T>
const T *lent(const T *host_data) {
    const auto address = reinterpret_cast<uintptr_t>(host_data);
    const bool protects = address - lent_mapping.begin < lent_mapping.bytes &&
                          board->guard.load(std::memory_order_relaxed) != call_guard::off;
    return reinterpret_cast<const T *>(address + (protects ? lent_mapping.lent_offset : 0));
}
template <class T>
const T *lent(const lent_vector<T> &host_data) {
    return lent(host_data.data());
}

// A single record.
template <class T>
class lent_record {
public:
    static_assert(std::is_trivially_copyable_v<T>);
    T &operator*() { return record_.front(); }
    T *operator->() { return record_.data(); }
    const T &operator*() const { return record_.front(); }
    const T *operator->() const { return record_.data(); }
    const T *lent() const { return core::lent(record_); }

private:
    lent_vector<T> record_ = lent_vector<T>(1);
};

}  // namespace moorage::core
