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

constexpr int places = 64, attempts_max = 100;

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
    void *memory = ::mmap(nullptr, sizeof(partial_file) * places, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    // The mapping is zeroed, as the constructor would do. Unused pages stay untouched.
    return memory == MAP_FAILED ? nullptr : static_cast<partial_file *>(memory);
}

partial_file *table() {
    static partial_file *const made = make_table();
    return made;
}

extern "C" void end_by_signal(int number) {
    const int before = errno;
    remove_partial_files(::getpid());
    // Only now: the same signal to another thread would otherwise end the process half way.
    ::signal(number, SIG_DFL);
    ::raise(number);  // once this handler returns
    errno = before;
}

}  // namespace

std::filesystem::path output_path(const std::filesystem::path &given) { return started_in / given; }

int note_partial_file(const std::string &absolute_path) {
    partial_file *const all = table();
    if (!all || absolute_path.size() >= sizeof all->path) return -1;
    for (int place = 0; place < places; ++place) {
        int free = 0;
        if (!all[place].process.compare_exchange_strong(free, ::getpid())) continue;
        std::memcpy(all[place].path, absolute_path.c_str(), absolute_path.size() + 1);
        all[place].named.store(true);
        return place;
    }
    return -1;
}

void forget_partial_file(int place) {
    if (place < 0) return;
    table()[place].named.store(false);
    table()[place].process.store(0);
}

made_partial make_partial(const std::string &place, int (*make)(const char *path)) {
    made_partial made{{}, -1, -1};
    for (int attempt = 0; made.answer < 0 && attempt < attempts_max; ++attempt) {
        made.path = format("{}.{}-{}.part", place, ::getpid(), attempt);
        made.noted = note_partial_file(made.path);
        made.answer = make(made.path.c_str());
        if (made.answer >= 0) break;
        const int failure = errno;
        forget_partial_file(std::exchange(made.noted, -1));
        errno = failure;
        if (failure != EEXIST) break;
    }
    return made;
}

void remove_partial_files(int process) {
    partial_file *const all = table();
    const auto each = [&](auto remove) {
        for (int place = 0; all && place < places; ++place) {
            const int owner = all[place].process.load();
            if (owner != 0 && (process == 0 || owner == process)) remove(all[place]);
        }
    };
    // Another thread may make one more file meanwhile; then a directory is not empty.
    bool left = true;
    for (int attempt = 0; left && attempt < attempts_max; ++attempt) {
        left = false;
        each([](partial_file &one) {
            if (one.named.load()) ::unlink(one.path);
        });
        each([&](partial_file &one) {
            if (one.named.load() && ::rmdir(one.path) != 0) left = left || errno == ENOTEMPTY;
        });
    }
    each([](partial_file &one) {
        one.named.store(false);
        one.process.store(0);
    });
}

void remove_partial_files_on_signals() {
    table();  // a signal handler must not be the first to make it
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction now {};
        if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
        struct sigaction then {};
        then.sa_handler = end_by_signal;
        ::sigemptyset(&then.sa_mask);
        ::sigaction(number, &then, nullptr);
    }
}

}  // namespace moorage::core
