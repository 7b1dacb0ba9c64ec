// fenced_memory.cpp - whole pages for each array, and one more page without access rights.
#include "core/host/fenced_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

namespace moorage::core {

namespace {

size_t page_bytes() {
    static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}
size_t whole_pages(size_t bytes) {
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace

void *fenced_allocate(size_t bytes) {
    const size_t whole = whole_pages(bytes);
    void *pages = mmap(nullptr, whole + page_bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    char *first = static_cast<char *>(pages);
    mprotect(first + whole, page_bytes(), PROT_NONE);
    return first + (whole - bytes);
}

void fenced_free(void *address, size_t bytes) {
    const size_t whole = whole_pages(bytes);
    munmap(static_cast<char *>(address) - (whole - bytes), whole + page_bytes());
}

}  // namespace moorage::core
