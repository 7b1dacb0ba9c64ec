// lent_memory.cpp - one sparse range of memory mapped twice, allocated in powers of two.
#include "core/host/lent_memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <mutex>
#include <new>

namespace moorage::core {

lent_range lent_mapping;

namespace {

// This reserves addresses, not memory: untouched pages cost nothing. The sizes are smaller under a
// limit (ulimit -v).
constexpr uintptr_t sizes[] = {uintptr_t{4} << 30, uintptr_t{512} << 20, uintptr_t{64} << 20};
constexpr size_t least_bytes = 64;  // a cache line
constexpr int classes = 64;

struct free_block {
    free_block *next;
};
// The free list is stored in the blocks themselves, in the host's writable mapping.
free_block *free_blocks[classes];
uintptr_t used_bytes = 0;
std::mutex mutex;

// Maps fresh memory twice, at the given addresses, or at new ones if they are null.
bool map(uintptr_t bytes, void *&host_side, void *&policy_side) {
    const int file = memfd_create("moorage-lent", MFD_CLOEXEC);
    if (file < 0) return false;
    const int fixed = host_side ? MAP_FIXED : 0;
    void *first = MAP_FAILED, *second = MAP_FAILED;
    if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
        first = mmap(host_side, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | fixed,
                     file, 0);
        second = mmap(policy_side, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE | fixed, file, 0);
    }
    close(file);
    if (first != MAP_FAILED && second != MAP_FAILED) {
        host_side = first, policy_side = second;
        return true;
    }
    if (first != MAP_FAILED) munmap(first, bytes);
    if (second != MAP_FAILED) munmap(second, bytes);
    return false;
}

// Otherwise parent and child would write into each other's memory. The child copies the content.
void separate() {
    new (&mutex) std::mutex;
    if (lent_mapping.bytes == 0 || used_bytes == 0) return;
    auto *host_side = reinterpret_cast<void *>(lent_mapping.begin);
    auto *policy_side = reinterpret_cast<void *>(lent_mapping.begin + lent_mapping.lent_offset);
    void *kept =
        mmap(nullptr, used_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (kept == MAP_FAILED) _exit(1);
    std::memcpy(kept, host_side, used_bytes);
    if (!map(lent_mapping.bytes, host_side, policy_side)) _exit(1);
    std::memcpy(host_side, kept, used_bytes);
    munmap(kept, used_bytes);
}

void open_mapping() {
    static bool tried = false;
    if (tried) return;
    tried = true;
    for (const uintptr_t bytes : sizes) {
        void *host_side = nullptr, *policy_side = nullptr;
        if (!map(bytes, host_side, policy_side)) continue;
        lent_mapping = {
            reinterpret_cast<uintptr_t>(host_side), bytes,
            reinterpret_cast<uintptr_t>(policy_side) - reinterpret_cast<uintptr_t>(host_side)};
        pthread_atfork(nullptr, nullptr, separate);
        return;
    }
}

size_t rounded(size_t bytes) { return std::bit_ceil(bytes < least_bytes ? least_bytes : bytes); }

}  // namespace

void *lent_allocate(size_t bytes) {
    const std::lock_guard lock(mutex);
    open_mapping();
    const size_t block = rounded(bytes);
    free_block *&first = free_blocks[std::countr_zero(block)];
    if (first) {
        free_block *taken = first;
        first = taken->next;
        return taken;
    }
    if (block > lent_mapping.bytes - used_bytes) return ::operator new(bytes);
    void *fresh = reinterpret_cast<void *>(lent_mapping.begin + used_bytes);
    used_bytes += block;
    return fresh;
}

void lent_free(void *address, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(address) - lent_mapping.begin >= lent_mapping.bytes)
        return ::operator delete(address);
    const std::lock_guard lock(mutex);
    free_block *&first = free_blocks[std::countr_zero(rounded(bytes))];
    first = new (address) free_block{first};
}

}  // namespace moorage::core
