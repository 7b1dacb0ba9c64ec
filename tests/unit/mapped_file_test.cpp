// mapped_file_test.cpp - goal: a mapped file that others change is detected and named. Method: each
// case in a child process of its own, since a detected change is remembered. A file is left alone,
// replaced, overwritten, or cut off before and after it is closed. Addresses at the edges of two
// mappings. A read behind the new end of a file, whose signal handler asks for its name. Pipes,
// devices and directories in place of files.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/config/run_config.h"
#include "core/source/convert.h"

namespace mapped_file_test {

using namespace moorage::core;

namespace {

namespace fs = std::filesystem;

constexpr uint64_t file_bytes = 20'000;  // five pages, the last one in part

// In place: the file stays the one that is mapped.
void write_file(const fs::path &path, const std::string &text) { std::ofstream(path) << text; }

class two_files {
public:
    two_files() : place_(fs::temp_directory_path() / format("moorage-mapped-{}", ::getpid())) {
        fs::create_directories(place_);
        for (const fs::path &path : {first, second}) {
            write_file(path, std::string(file_bytes, 'a'));
            // Times of change are as fine as the kernel's clock: far from those of a change below.
            fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
        }
    }
    ~two_files() { fs::remove_all(place_); }

private:
    fs::path place_;

public:
    fs::path first = place_ / "first", second = place_ / "second";
};

// Runs `work` in a process of its own. Returns its text, or "signal N".
std::string in_child(const std::function<std::string()> &work) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const std::string said = work();
        (void)!::write(ends[1], said.data(), said.size());
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    char piece[4096];
    for (ssize_t got = 0; (got = ::read(ends[0], piece, sizeof piece)) > 0;)
        said.append(piece, static_cast<size_t>(got));
    ::close(ends[0]);
    int how = 0;
    REQUIRE(::waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) ? format("signal {}", WTERMSIG(how)) : said;
}

std::string verdict() {
    const status same = mapped_files_unchanged();
    return same ? "unchanged" : same.failure().text;
}

mapped_file mapped(const fs::path &path) {
    result<mapped_file> file = mapped_file::open(path);
    if (!file) ::_exit(9);
    return std::move(*file);
}

int answer_to = -1;
extern "C" void tell_file(int, siginfo_t *about, void *) {
    const char *name = mapped_file_at(about->si_addr);
    if (name == nullptr) name = "no file";
    (void)!::write(answer_to, name, std::strlen(name));
    ::_exit(0);
}

}  // namespace

TEST_CASE("a file that is left alone, read, moved, removed or replaced did not change") {
    const two_files at;
    CHECK(in_child([&] {
              const mapped_file one = mapped(at.first), two = mapped(at.second);
              volatile auto byte = one.bytes()[0];
              (void)byte;
              write_file(at.first.string() + ".new", "other");
              fs::rename(at.first.string() + ".new", at.first);
              fs::rename(at.second, at.second.string() + ".old");
              fs::remove(at.second.string() + ".old");
              return verdict() + std::string(one.bytes().size() == file_bytes ? "" : "?");
          }) == "unchanged");
}

TEST_CASE("a file that was written or cut off while it was mapped is named") {
    for (const bool close_first : {false, true}) {
        CAPTURE(close_first);
        for (const char *how : {"overwrite", "cut", "append"}) {
            CAPTURE(how);
            const two_files at;
            const std::string said = in_child([&] {
                mapped_file one = mapped(at.first);
                const mapped_file two = mapped(at.second);
                if (how == std::string("overwrite"))
                    write_file(at.first, std::string(file_bytes, 'b'));
                else
                    fs::resize_file(at.first, how == std::string("cut") ? 10 : file_bytes + 1);
                if (close_first) one = mapped_file();
                // The next mapping must not hide it.
                const mapped_file three = mapped(at.second);
                return verdict();
            });
            CHECK(said.starts_with(at.first.string() + ": changed while it was read"));
        }
    }
}

TEST_CASE("a change after a file was closed is nobody's") {
    const two_files at;
    CHECK(in_child([&] {
              mapped(at.first);
              write_file(at.first, "b");
              return verdict();
          }) == "unchanged");
}

TEST_CASE("an address belongs to the file whose pages it lies in") {
    const two_files at;
    const int local = 0;
    mapped_file one = mapped(at.first);
    const std::byte *start = one.bytes().data(), *page_end = start + 5 * 4096;
    {
        const mapped_file two = mapped(at.second);
        CHECK(mapped_file_at(start) == at.first);
        CHECK(mapped_file_at(start + file_bytes - 1) == at.first);
        if (::sysconf(_SC_PAGESIZE) == 4096) CHECK(mapped_file_at(page_end - 1) == at.first);
        CHECK(mapped_file_at(two.bytes().data()) == at.second);
        CHECK(mapped_file_at(two.bytes().data() + file_bytes - 1) == at.second);
    }
    const mapped_file moved = std::move(one);
    CHECK(mapped_file_at(start) == at.first);
    CHECK(mapped_file_at(&local) == nullptr);
    CHECK(mapped_file_at(nullptr) == nullptr);
    const std::byte *gone = nullptr;
    {
        const mapped_file two = mapped(at.second);
        gone = two.bytes().data();
    }
    CHECK(mapped_file_at(gone) == nullptr);
}

TEST_CASE("a handler can name the file that was cut off") {
    const two_files at;
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    answer_to = ends[1];
    const auto read_behind_end = [&] {
        const mapped_file one = mapped(at.first), two = mapped(at.second);
        struct sigaction action {};
        action.sa_sigaction = tell_file;
        action.sa_flags = SA_SIGINFO;
        ::sigaction(SIGBUS, &action, nullptr);
        fs::resize_file(at.second, 10);
        volatile auto byte = two.bytes()[file_bytes - 1];
        (void)byte;
        return std::string("read it");
    };
    CHECK(in_child(read_behind_end) == "");
    ::close(ends[1]);
    std::string said(4096, '\0');
    said.resize(static_cast<size_t>(::read(ends[0], said.data(), said.size())));
    ::close(ends[0]);
    CHECK(said == at.second);
}

TEST_CASE("what is no regular file is refused, and nobody waits for a pipe") {
    const fs::path place = fs::temp_directory_path() / format("moorage-pipe-{}", ::getpid());
    fs::create_directories(place);
    const fs::path pipe = place / "pipe", zero = place / "zero";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    fs::create_symlink("/dev/zero", zero);
    for (const fs::path &path : {pipe, zero, place}) {
        CAPTURE(path);
        const auto refused = [&](const std::string &text) {
            CAPTURE(text);
            CHECK(text.starts_with(path.string() + ": "));
        };
        const auto mapped = mapped_file::open(path);
        REQUIRE_FALSE(mapped.ok());
        refused(mapped.failure().text);
        const auto config = load_run_config(path, {});
        REQUIRE_FALSE(config.ok());
        refused(config.failure().text);
        const auto log = convert_log(path, {.format = "csv"});
        REQUIRE_FALSE(log.ok());
        refused(log.failure().text);
    }
    fs::remove_all(place);
}

}  // namespace mapped_file_test
