// partial_files.cpp - a table of names in memory shared across forks. A process claims an entry.
#include "core/base/partial_files.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr int entry_count = 64, attempts_max = 100;

const std::filesystem::path started_in = [] {
    std::error_code code;
    return std::filesystem::current_path(code);
}();

struct partial_file {
    std::atomic<int> process{0};  // 0: free
    std::atomic<bool> named{false};
    char path[4096 - 8];
};

// Null if there is no memory for it. Then nothing is noted.
partial_file *make_table() {
    void *memory = ::mmap(nullptr, sizeof(partial_file) * entry_count, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    // The mapping is zeroed, as the constructor would do. Unused pages stay untouched.
    return memory == MAP_FAILED ? nullptr : static_cast<partial_file *>(memory);
}

partial_file *table() {
    static partial_file *const shared_table = make_table();
    return shared_table;
}

extern "C" void end_by_signal(int number) {
    const int saved_errno = errno;
    remove_partial_files(::getpid());
    // Only now: the same signal to another thread would otherwise end the process half way.
    ::signal(number, SIG_DFL);
    ::raise(number);  // once this handler returns
    errno = saved_errno;
}

}  // namespace

std::filesystem::path output_path(const std::filesystem::path &path) { return started_in / path; }

int note_partial_file(const std::string &absolute_path) {
    partial_file *const entries = table();
    if (!entries || absolute_path.size() >= sizeof entries->path) return -1;
    for (int entry = 0; entry < entry_count; ++entry) {
        int free = 0;
        if (!entries[entry].process.compare_exchange_strong(free, ::getpid())) continue;
        std::memcpy(entries[entry].path, absolute_path.c_str(), absolute_path.size() + 1);
        entries[entry].named.store(true);
        return entry;
    }
    return -1;
}

void forget_partial_file(int entry) {
    if (entry < 0) return;
    table()[entry].named.store(false);
    table()[entry].process.store(0);
}

partial_draft make_partial(const std::string &place, int (*make)(const char *path)) {
    partial_draft draft{{}, -1, -1};
    for (int attempt = 0; draft.make_result < 0 && attempt < attempts_max; ++attempt) {
        draft.path = format("{}.{}-{}.part", place, ::getpid(), attempt);
        draft.table_entry = note_partial_file(draft.path);
        draft.make_result = make(draft.path.c_str());
        if (draft.make_result >= 0) break;
        const int failure = errno;
        forget_partial_file(std::exchange(draft.table_entry, -1));
        errno = failure;
        if (failure != EEXIST) break;
    }
    return draft;
}

void remove_partial_files(int process) {
    partial_file *const entries = table();
    const auto for_each_owned = [&](auto remove) {
        for (int entry = 0; entries && entry < entry_count; ++entry) {
            const int owner = entries[entry].process.load();
            if (owner != 0 && (process == 0 || owner == process)) remove(entries[entry]);
        }
    };
    // Another thread may make one more file meanwhile; then a directory is not empty.
    bool left = true;
    for (int attempt = 0; left && attempt < attempts_max; ++attempt) {
        left = false;
        for_each_owned([](partial_file &file) {
            if (file.named.load()) ::unlink(file.path);
        });
        for_each_owned([&](partial_file &file) {
            if (file.named.load() && ::rmdir(file.path) != 0) left = left || errno == ENOTEMPTY;
        });
    }
    for_each_owned([](partial_file &file) {
        file.named.store(false);
        file.process.store(0);
    });
}

void remove_partial_files_on_signals() {
    table();  // a signal handler must not be the first to make it
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction current {};
        if (::sigaction(number, nullptr, &current) != 0 || current.sa_handler == SIG_IGN) continue;
        struct sigaction action {};
        action.sa_handler = end_by_signal;
        ::sigemptyset(&action.sa_mask);
        ::sigaction(number, &action, nullptr);
    }
}

}  // namespace moorage::core
