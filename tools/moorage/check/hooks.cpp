// hooks.cpp - the definitions of malloc and the clock that count and forward.
#include "tools/moorage/check/hooks.h"

#include <atomic>
#include <cerrno>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define MOORAGE_CHECK_NO_HOOKS
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define MOORAGE_CHECK_NO_HOOKS
#endif

#ifdef MOORAGE_CHECK_NO_HOOKS

namespace moorage::check {
bool can_watch() { return false; }
void begin_watch() {}
activity end_watch() { return {}; }
int64_t live_bytes() { return 0; }
void shift_clock(int64_t) {}
}  // namespace moorage::check

#else

#include <cstddef>

#include <dlfcn.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ctime>
#include <unistd.h>

extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *old);
}

namespace {

using clock_function = int (*)(clockid_t, timespec *);

struct thread_watch {
    bool enabled = false;
    moorage::check::activity seen;
};
thread_local thread_watch watch;
std::atomic<bool> counting_bytes{false};
std::atomic<int64_t> counted_bytes{0}, shift_seconds{0};
std::atomic<clock_function> real_clock{nullptr};

void *count_allocation(void *memory) {
    if (watch.enabled) ++watch.seen.allocations;
    if (counting_bytes.load(std::memory_order_relaxed) && memory)
        counted_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory)),
                                std::memory_order_relaxed);
    return memory;
}
void count_free(void *memory) {
    if (counting_bytes.load(std::memory_order_relaxed) && memory)
        counted_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)),
                                std::memory_order_relaxed);
}

int forward_clock(clockid_t id, timespec *result) {
    clock_function real = real_clock.load(std::memory_order_relaxed);
    if (!real) {
        // dlsym may itself allocate, which is fine: malloc above does not read the clock.
        void *found = dlsym(RTLD_NEXT, "clock_gettime");
        real = reinterpret_cast<clock_function>(found);
        real_clock.store(real, std::memory_order_relaxed);
    }
    return real ? real(id, result) : static_cast<int>(syscall(SYS_clock_gettime, id, result));
}

int read_clock(clockid_t id, timespec *result) {
    if (watch.enabled) ++watch.seen.clock_reads;
    const int status = forward_clock(id, result);
    result->tv_sec += shift_seconds.load(std::memory_order_relaxed);
    return status;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void *malloc(size_t bytes) noexcept {
    return count_allocation(__libc_malloc(bytes));
}
__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes) noexcept {
    return count_allocation(__libc_calloc(count, bytes));
}
__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes) noexcept {
    count_free(old);
    return count_allocation(__libc_realloc(old, bytes));
}
__attribute__((visibility("default"))) void *memalign(size_t alignment, size_t bytes) noexcept {
    return count_allocation(__libc_memalign(alignment, bytes));
}
__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment,
                                                           size_t bytes) noexcept {
    return count_allocation(__libc_memalign(alignment, bytes));
}
__attribute__((visibility("default"))) int posix_memalign(void **result, size_t alignment,
                                                          size_t bytes) noexcept {
    void *memory = count_allocation(__libc_memalign(alignment, bytes));
    if (!memory) return ENOMEM;
    *result = memory;
    return 0;
}
__attribute__((visibility("default"))) void free(void *old) noexcept {
    if (watch.enabled && old) ++watch.seen.frees;
    count_free(old);
    __libc_free(old);
}
__attribute__((visibility("default"))) int clock_gettime(clockid_t id, timespec *result) noexcept {
    return read_clock(id, result);
}
__attribute__((visibility("default"))) int gettimeofday(timeval *result, void *) noexcept {
    timespec now{};
    const int status = read_clock(CLOCK_REALTIME, &now);
    *result = {now.tv_sec, now.tv_nsec / 1000};
    return status;
}
__attribute__((visibility("default"))) time_t time(time_t *result) noexcept {
    timespec now{};
    read_clock(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

}  // extern "C"

namespace moorage::check {

bool can_watch() {
    // A library that is loaded later must find the definitions of this file.
    void *found = dlsym(RTLD_DEFAULT, "malloc");
    void *found_clock = dlsym(RTLD_DEFAULT, "clock_gettime");
    return found == reinterpret_cast<void *>(&malloc) &&
           found_clock == reinterpret_cast<void *>(&clock_gettime);
}

void begin_watch() {
    watch.seen = {};
    watch.enabled = true;
}
activity end_watch() {
    watch.enabled = false;
    return watch.seen;
}

int64_t live_bytes() {
    counting_bytes.store(true, std::memory_order_relaxed);
    return counted_bytes.load(std::memory_order_relaxed);
}

void shift_clock(int64_t seconds) { shift_seconds.store(seconds, std::memory_order_relaxed); }

}  // namespace moorage::check

#endif
