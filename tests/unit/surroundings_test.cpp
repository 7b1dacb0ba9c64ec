// surroundings_test.cpp - goal: each thing that a policy must leave as it was is found changed,
// named and put back. Method: change it, look, and look again.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <filesystem>

#include "core/host/surroundings.h"

namespace surroundings_test {

using namespace moorage::core;

namespace {

void check_found(const std::string &name) {
    CHECK(restore_surroundings(/*whole_state=*/true).find(name) != std::string::npos);
    CHECK(restore_surroundings(/*whole_state=*/true) == "");
}

}  // namespace

TEST_CASE("the process as it began is as it should be") {
    remember_surroundings();
    CHECK(arithmetic_is_usual());
    CHECK(restore_surroundings(true) == "");
}

TEST_CASE("the rounding mode is seen at once, flags of what has happened are not") {
    remember_surroundings();
    std::feraiseexcept(FE_INEXACT | FE_OVERFLOW);
    CHECK(restore_surroundings(false) == "");
    std::fesetround(FE_UPWARD);
    CHECK(restore_surroundings(false).find("floating-point environment") != std::string::npos);
    CHECK(std::fegetround() == FE_TONEAREST);
#if defined(__x86_64__)
    const uint16_t short_precision = 0x007f;  // x87 alone
    __asm__ volatile("fldcw %0" : : "m"(short_precision));
    check_found("floating-point environment");
    const uint32_t flush_to_zero = 0x9f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(flush_to_zero));
    check_found("floating-point environment");
#endif
}

#if defined(__x86_64__)
TEST_CASE("sums and quotients show every change of the arithmetic of SSE alone") {
    const auto set = [](uint32_t sse) { __asm__ volatile("ldmxcsr %0" : : "m"(sse)); };
    CHECK(arithmetic_shows_usual());
    // Rounding down, up and to zero; flushing to zero; taking subnormal numbers for zero.
    for (const uint32_t change : {0x2000u, 0x4000u, 0x6000u, 0x8000u, 0x40u}) {
        CAPTURE(change);
        set(usual_sse | change);
        const bool usual = arithmetic_shows_usual();
        set(usual_sse);
        CHECK(!usual);
    }
    CHECK(arithmetic_shows_usual());
    for (uint32_t mask = 0x80; mask <= 0x1000; mask <<= 1) {  // one of six exceptions is not masked
        CAPTURE(mask);
        const pid_t child = fork();
        if (child == 0) {
            std::signal(SIGFPE, SIG_DFL);
            set(usual_sse & ~mask);
            const bool usual = arithmetic_shows_usual();
            _exit(usual ? 0 : 1);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGFPE);
    }
}
#endif

TEST_CASE("locale, directory, handlers, blocked signals, signal stack and umask are put back") {
    remember_surroundings();
    if (std::setlocale(LC_ALL, "C.UTF-8")) check_found("the locale");
    const locale_t c_locale = newlocale(LC_NUMERIC_MASK, "C", nullptr);
    uselocale(c_locale);
    check_found("the thread's locale");
    const auto current = std::filesystem::current_path();
    REQUIRE(chdir("/") == 0);
    check_found("the working directory");
    CHECK(std::filesystem::current_path() == current);
    std::signal(SIGSEGV, SIG_IGN);
    std::signal(SIGPIPE, SIG_IGN);
    check_found("the handler of SIGSEGV, SIGPIPE");
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR2);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    check_found("the mask of blocked signals");
    static char stack[65536];
    const stack_t signal_stack{stack, 0, sizeof(stack)};
    sigaltstack(&signal_stack, nullptr);
    check_found("the signal stack");
    umask(umask(0) ^ 077);
    check_found("the umask");
}

}  // namespace surroundings_test
