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
    int exit_status = 0;
    REQUIRE(::waitpid(child, &exit_status, 0) == child);
    return WIFSIGNALED(exit_status) ? format("signal {}", WTERMSIG(exit_status)) : said;
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
    const char *name = mapped_path_at(about->si_addr);
    if (name == nullptr) name = "no file";
    (void)!::write(answer_to, name, std::strlen(name));
    ::_exit(0);
}

}  // namespace

TEST_CASE("a file that is left alone, read, moved, removed or replaced did not change") {
    const two_files files;
    CHECK(in_child([&] {
              const mapped_file first = mapped(files.first), second = mapped(files.second);
              volatile auto byte = first.bytes()[0];
              (void)byte;
              write_file(files.first.string() + ".new", "other");
              fs::rename(files.first.string() + ".new", files.first);
              fs::rename(files.second, files.second.string() + ".old");
              fs::remove(files.second.string() + ".old");
              return verdict() + std::string(first.bytes().size() == file_bytes ? "" : "?");
          }) == "unchanged");
}

TEST_CASE("a file that was written or cut off while it was mapped is named") {
    for (const bool close_first : {false, true}) {
        CAPTURE(close_first);
        for (const char *change : {"overwrite", "cut", "append"}) {
            CAPTURE(change);
            const two_files files;
            const std::string said = in_child([&] {
                mapped_file first = mapped(files.first);
                const mapped_file second = mapped(files.second);
                if (change == std::string("overwrite"))
                    write_file(files.first, std::string(file_bytes, 'b'));
                else
                    fs::resize_file(files.first,
                                    change == std::string("cut") ? 10 : file_bytes + 1);
                if (close_first) first = mapped_file();
                // The next mapping must not hide it.
                const mapped_file third = mapped(files.second);
                return verdict();
            });
            CHECK(said.starts_with(files.first.string() + ": changed while it was read"));
        }
    }
}

TEST_CASE("a change after a file was closed is nobody's") {
    const two_files files;
    CHECK(in_child([&] {
              mapped(files.first);
              write_file(files.first, "b");
              return verdict();
          }) == "unchanged");
}

TEST_CASE("an address belongs to the file whose pages it lies in") {
    const two_files files;
    const int local = 0;
    mapped_file first = mapped(files.first);
    const std::byte *start = first.bytes().data(), *page_end = start + 5 * 4096;
    {
        const mapped_file second = mapped(files.second);
        CHECK(mapped_path_at(start) == files.first);
        CHECK(mapped_path_at(start + file_bytes - 1) == files.first);
        if (::sysconf(_SC_PAGESIZE) == 4096) CHECK(mapped_path_at(page_end - 1) == files.first);
        CHECK(mapped_path_at(second.bytes().data()) == files.second);
        CHECK(mapped_path_at(second.bytes().data() + file_bytes - 1) == files.second);
    }
    const mapped_file moved = std::move(first);
    CHECK(mapped_path_at(start) == files.first);
    CHECK(mapped_path_at(&local) == nullptr);
    CHECK(mapped_path_at(nullptr) == nullptr);
    const std::byte *gone = nullptr;
    {
        const mapped_file second = mapped(files.second);
        gone = second.bytes().data();
    }
    CHECK(mapped_path_at(gone) == nullptr);
}

TEST_CASE("a handler can name the file that was cut off") {
    const two_files files;
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    answer_to = ends[1];
    const auto read_behind_end = [&] {
        const mapped_file first = mapped(files.first), second = mapped(files.second);
        struct sigaction action {};
        action.sa_sigaction = tell_file;
        action.sa_flags = SA_SIGINFO;
        ::sigaction(SIGBUS, &action, nullptr);
        fs::resize_file(files.second, 10);
        volatile auto byte = second.bytes()[file_bytes - 1];
        (void)byte;
        return std::string("read it");
    };
    CHECK(in_child(read_behind_end) == "");
    ::close(ends[1]);
    std::string said(4096, '\0');
    said.resize(static_cast<size_t>(::read(ends[0], said.data(), said.size())));
    ::close(ends[0]);
    CHECK(said == files.second);
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
