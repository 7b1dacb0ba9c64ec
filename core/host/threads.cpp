// threads.cpp - counts threads, and finds libraries by the addresses in a thread's registers and
// stack.
#include "core/host/threads.h"

#include <link.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/host/call.h"

namespace moorage::core {

namespace {

// A signal handler may read these at any time, so an entry is written once, before it is counted.
struct code_range {
    uintptr_t begin = 0, end = 0;
    char path[sizeof(call_board::culprit)] = {};
    std::atomic<uint32_t> owner_from_1{0};
};
constexpr size_t libraries_max = 1024;
code_range known_code[libraries_max];
std::atomic<size_t> known_count{0};

std::atomic<pid_t> calling_thread{0};

struct code_search {
    uintptr_t code, begin, end;
};
int find_code(dl_phdr_info *about, size_t, void *data) {
    auto &found = *static_cast<code_search *>(data);
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (const ElfW(Phdr) *part = about->dlpi_phdr, *last = part + about->dlpi_phnum; part != last;
         ++part) {
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
        begin = std::min<uintptr_t>(begin, about->dlpi_addr + part->p_vaddr);
        end = std::max<uintptr_t>(end, about->dlpi_addr + part->p_vaddr + part->p_memsz);
    }
    if (found.code < begin || found.code >= end) return 0;
    found.begin = begin, found.end = end;
    return 1;
}

code_range *library_at(uintptr_t address) {
    const size_t count = known_count.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; ++i)
        if (address >= known_code[i].begin && address < known_code[i].end) return &known_code[i];
    return nullptr;
}

// The library that started the thread: the outermost word on the stack that is an address of
// library code. Inner words may be left over from the unwinder, which looks at all libraries. A
// thread's own record normally lies at the end of its stack, where the C library puts both. The
// kernel reads the words, in case that is not so.
const code_range *library_on_stack(uintptr_t stack) {
    static uintptr_t words[8192];  // static: one thread dies at a time
    const uintptr_t first = stack & ~(sizeof(uintptr_t) - 1);
    const iovec local{words, sizeof(words)};
    // One page at a time: if a later page is missing, the earlier ones are still read.
    constexpr size_t page_bytes = 4096;
    iovec remote[sizeof(words) / page_bytes + 1];
    size_t count = 0;
    const auto record = static_cast<uintptr_t>(pthread_self());
    const uintptr_t limit = first + sizeof(words);
    for (uintptr_t address = first, end = record > first ? std::min(record, limit) : limit;
         address < end; ++count) {
        const uintptr_t next = std::min((address | (page_bytes - 1)) + 1, end);
        remote[count] = {reinterpret_cast<void *>(address), next - address};
        address = next;
    }
    const ssize_t got = process_vm_readv(getpid(), &local, 1, remote, count, 0);
    for (ssize_t i = got / static_cast<ssize_t>(sizeof(uintptr_t)) - 1; i >= 0; --i)
        if (const code_range *found = library_at(words[i])) return found;
    return nullptr;
}

}  // namespace

size_t threads_of_process() {
    struct stat about {};
    // Two of the links are those of the folder itself.
    return stat("/proc/self/task", &about) == 0 ? about.st_nlink - 2 : 0;
}

thread_watch::~thread_watch() {
    if (threads_before_ == 0 || threads_of_process() <= threads_before_) return;
    uint32_t none = 0;
    board->threads_owner.compare_exchange_strong(none, lasting_owner(owner_) + 1);
}

void note_library(const std::string &path, const void *code) {
    code_search found{reinterpret_cast<uintptr_t>(code), 0, 0};
    const size_t index = known_count.load(std::memory_order_relaxed);
    if (index == libraries_max || dl_iterate_phdr(find_code, &found) != 1) return;
    known_code[index].begin = found.begin, known_code[index].end = found.end;
    path.copy(known_code[index].path, sizeof(known_code[index].path) - 1);
    known_count.store(index + 1, std::memory_order_release);
}

void note_owner_of_library(const void *code, uint32_t owner) {
    if (code_range *library = library_at(reinterpret_cast<uintptr_t>(code)))
        library->owner_from_1 = owner + 1;
}

void note_calling_thread() { calling_thread = gettid(); }

void note_culprit_of(uintptr_t instruction, uintptr_t stack) {
    if (calling_thread == 0 || calling_thread == gettid()) return;
    const code_range *library = library_at(instruction);
    if (!library) library = library_on_stack(stack);
    if (library) note_culprit(library->path, library->owner_from_1);
}

}  // namespace moorage::core
