// Goal: the progress line tells the truth on a terminal and is absent elsewhere. Method: lines
// worked out by hand, a pipe, and a pseudo-terminal whose other end is read back.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/progress.h"
#include "tests/skip.h"

namespace progress_test {

using namespace moorage::core;
using namespace std::chrono_literals;

namespace {

// The text at `descriptor` that can be read without waiting.
std::string arrived(int descriptor) {
    std::string text;
    pollfd ready{descriptor, POLLIN, 0};
    char part[4096];
    while (poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN)) {
        const ssize_t count = read(descriptor, part, sizeof part);
        if (count <= 0) break;
        text.append(part, size_t(count));
    }
    return text;
}

}  // namespace

TEST_CASE("the line shows share, counts and the time left") {
    CHECK(progress_line("replay", 0, 200, 0s) == "replay  [--------------------]   0 %  0/200");
    // A quarter after 10 s: three times as long to go.
    CHECK(progress_line("replay", 50, 200, 10s) ==
          "replay  [#####---------------]  25 %  50/200  0:30 left");
    CHECK(progress_line("replay", 200, 200, 10s) ==
          "replay  [####################] 100 %  200/200");
    CHECK(
        progress_line("x", 1'000'000, 12'800'000, 3600s).ends_with("1.00 M/12.8 M  11:48:00 left"));
    CHECK(progress_line("x", 1234, 0, 5s) == "x  1.23 k");
    // Never 100 % before the end, nor beyond it.
    CHECK(progress_line("x", 999, 1000, 0s).find(" 99 %") != std::string::npos);
    CHECK(progress_line("x", 11, 10, 0s).find("100 %") != std::string::npos);
    CHECK(columns_of(progress_line(std::string(200, 'w'), 1, UINT64_MAX, 100000h)) <= 79);
}

TEST_CASE("a pipe gets nothing") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    {
        progress shown("work", 10, ends[1]);
        std::this_thread::sleep_for(120ms);
        shown.advance(10);
        CHECK(shown.done() == 10);
    }
    CHECK(arrived(ends[0]).empty());
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE("a terminal gets few updates from many threads, and a clean line at the end") {
    setenv("TERM", "xterm", 1);
    const int outer = posix_openpt(O_RDWR | O_NOCTTY);
    if (outer < 0 || grantpt(outer) != 0 || unlockpt(outer) != 0)
        return moorage::test::skip("no pseudo-terminal here");
    const int inner = open(ptsname(outer), O_RDWR | O_NOCTTY);
    REQUIRE(inner >= 0);
    const auto begin = std::chrono::steady_clock::now();
    {
        progress shown("work", 40'001, inner);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&] {
                for (int step = 0; step < 10'000; ++step) shown.advance();
            });
        for (std::thread &thread : threads) thread.join();
        CHECK(shown.done() == 40'000);
        std::this_thread::sleep_for(250ms);
        shown.advance();
    }
    const auto tenths = (std::chrono::steady_clock::now() - begin) / 100ms;
    const std::string text = arrived(outer);
    CHECK(text.find("work  [####################] 100 %") != std::string::npos);
    CHECK(text.ends_with("\r\033[K"));
    // Each draw begins with a return; the last return is the wiping.
    const size_t draws = split(text, '\r').size() - 2;
    CHECK(draws >= 1);
    CHECK(int64_t(draws) <= int64_t(tenths));
    close(inner);
    close(outer);
}

TEST_CASE("a line while something loads: what, how long, and gone at the end") {
    setenv("TERM", "xterm", 1);
    const int outer = posix_openpt(O_RDWR | O_NOCTTY);
    if (outer < 0 || grantpt(outer) != 0 || unlockpt(outer) != 0)
        return moorage::test::skip("no pseudo-terminal here");
    const int inner = open(ptsname(outer), O_RDWR | O_NOCTTY);
    REQUIRE(inner >= 0);
    {
        loading_line hidden("loading a, 1 MB", true, inner);
        std::this_thread::sleep_for(150ms);
    }
    CHECK(arrived(outer).empty());
    std::string text;
    {
        loading_line shown("loading a, 1 MB", false, inner);
        while (text.find("\033[K") == text.npos) text += arrived(outer);
        shown.wipe();
        text += arrived(outer);
        shown.wipe();
    }
    CHECK(text.starts_with("\rloading a, 1 MB  0:00\033[K"));
    CHECK(text.ends_with("\r\033[K"));
    CHECK(arrived(outer).empty());
    close(inner);
    close(outer);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    {
        loading_line piped("loading a, 1 MB", false, ends[1]);
        std::this_thread::sleep_for(150ms);
    }
    CHECK(arrived(ends[0]).empty());
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE("processes that are forked later count together") {
    progress shown("rows", 10, ::open("/dev/null", O_WRONLY | O_CLOEXEC));
    for (const uint64_t count : {3, 4}) {
        const pid_t child = ::fork();
        if (child == 0) {
            shown.advance(count);
            ::_exit(0);
        }
        REQUIRE(::waitpid(child, nullptr, 0) == child);
    }
    CHECK(shown.done() == 7);
}

}  // namespace progress_test
