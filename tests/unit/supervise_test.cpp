// supervise_test.cpp - goal: however a child ends, the parent names the policy at work and the
// call. Method: works that end themselves in each way inside a call on the board. The expected
// names are written beside them.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/mapped_file.h"
#include "core/host/ending.h"
#include "core/host/registry.h"
#include "core/host/supervise.h"
#include "tests/sanitizers.h"

namespace supervise_test {

using namespace moorage::core;

namespace {

// The children's deaths are no failures of this test: doctest's own handlers stay out of them.
void without_handlers() {
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM})
        std::signal(signal, SIG_DFL);
}
ending run_supervised(const std::function<int(const sender &)> &work, const supervision &options) {
    without_handlers();
    return supervise(work, options);
}

// `deed` as done by the policy "mine" in victims, layer 3, token 17.
ending run_policy(const std::function<void()> &deed, supervision options = {}) {
    return run_supervised(
        [&](const sender &) {
            note_step(3, 17);
            const policy_call at_work(owner_of("mine", "cache", "./mine.so"),
                                      entry_point::cache_victims);
            deed();
            return 0;
        },
        options);
}

void check_named(const ending &process_end) {
    CHECK(process_end.policy_died());
    CHECK(process_end.policy == "mine");
    CHECK(process_end.library == "./mine.so");
    CHECK(process_end.kind == "cache");
    CHECK(process_end.call == "victims");
    CHECK(process_end.in_step);
    CHECK(process_end.layer == 3);
    CHECK(process_end.token == 17);
}

void check_dies_of(int signal, const char *name) {
    const ending process_end = run_policy([signal] { std::raise(signal); });
    check_named(process_end);
    CHECK(process_end.signal == signal);
    CHECK(process_end.signal_name() == name);
    CHECK(process_end.text().starts_with(std::string("cache policy mine (./mine.so): died of ") +
                                         name + " in victims"));
    CHECK(process_end.text().find(", layer 3, token 17") != std::string::npos);
}

volatile int zero = 0;
int *volatile nowhere = nullptr;

__attribute__((noinline)) int recurse(volatile char *above) {
    volatile char local[4096];
    local[0] = above ? above[0] : 0;
    return zero == 0 ? recurse(local) + local[1] : 0;
}

}  // namespace

TEST_CASE("a work that returns has finished, with its exit code and what it sent") {
    const std::string long_text(300'000, 'x');  // more than a pipe holds
    const ending process_end = run_supervised(
        [&](const sender &send) {
            send("first, ");
            send(long_text);
            return 7;
        },
        {});
    CHECK(process_end.finished);
    CHECK_FALSE(process_end.died());
    CHECK(process_end.exit_code == 7);
    CHECK(process_end.bytes == "first, " + long_text);
}

TEST_CASE("a policy that dies of a signal is named") {
    check_dies_of(SIGSEGV, "SIGSEGV");
    check_dies_of(SIGBUS, "SIGBUS");
    check_dies_of(SIGFPE, "SIGFPE");
    check_dies_of(SIGILL, "SIGILL");
    check_dies_of(SIGABRT, "SIGABRT");
    check_dies_of(SIGKILL, "SIGKILL");
    check_dies_of(SIGTERM, "SIGTERM");
    check_dies_of(SIGALRM, "SIGALRM");
    const ending twice = run_policy([] { std::abort(); });
    check_named(twice);
    CHECK(twice.signal == SIGABRT);
}

TEST_CASE("a policy that ends the process by itself is named") {
    for (const int code : {0, 5}) {
        CAPTURE(code);
        for (const auto &end : {std::function<void()>([code] { std::exit(code); }),
                                std::function<void()>([code] { std::quick_exit(code); }),
                                std::function<void()>([code] { _exit(code); }),
                                std::function<void()>([code] { syscall(SYS_exit_group, code); })}) {
            const ending process_end = run_policy(end);
            check_named(process_end);
            CHECK(process_end.signal == 0);
            CHECK(process_end.exit_code == code);
            CHECK(process_end.text() ==
                  "cache policy mine (./mine.so): ended the process with exit code " +
                      std::to_string(code) + " in victims, layer 3, token 17");
        }
    }
}

TEST_CASE("the child adds what a parent cannot see: address, stack, exception") {
    const ending write = run_policy([] { *nowhere = 1; });
    check_named(write);
    if (moorage::test::address_checks) return;  // which speak first
    CHECK(write.signal == SIGSEGV);
    CHECK(write.note == "touched address 0x0");

    const ending deep = run_policy([] { recurse(nullptr); });
    check_named(deep);
    CHECK(deep.signal == SIGSEGV);
    CHECK(deep.note.starts_with("stack overflow at address 0x"));
}

TEST_CASE("an exception that nobody catches is told with its text") {
    const auto thrower = [](auto exception) { throw exception; };
    const ending thrown =
        run_policy([&]() noexcept { thrower(std::runtime_error("17 is not a prime of mine")); });
    check_named(thrown);
    CHECK(thrown.signal == SIGABRT);
    CHECK(thrown.note == "an exception was thrown: 17 is not a prime of mine");
    const ending second_end = run_policy([&]() noexcept { thrower(17); });
    CHECK(second_end.note == "an exception was thrown that is no std::exception");
    const ending called = run_policy([] { std::terminate(); });
    CHECK(called.note == "std::terminate was called");
}

TEST_CASE("a note belongs to the call in which it was written") {
    const auto second_call = [](bool says_so) {
        return run_supervised(
            [&](const sender &) {
                const uint32_t mine = owner_of("mine", "cache", "./mine.so");
                {
                    const policy_call first(mine, entry_point::create);
                    if (!says_so) note_on_board("an older matter");
                }
                const policy_call second(mine, entry_point::activate);
                if (says_so) note_on_board("out of luck");
                std::abort();
                return 0;
            },
            {});
    };
    CHECK(second_call(true).note == "out of luck");
    CHECK(second_call(false).note == "");
    CHECK(second_call(false).text() ==
          "cache policy mine (./mine.so): died of SIGABRT in activate");
}

TEST_CASE("a call that does not come back is ended and named") {
    const auto endless = [](const std::function<void()> &deed) {
        const ending process_end = run_supervised(
            [&](const sender &) {
                board->call_limit_ms = 200;
                const policy_call at_work(owner_of("mine", "router", "./mine.so"),
                                          entry_point::router_select);
                deed();
                return 0;
            },
            {});
        CHECK(process_end.overran);
        CHECK(process_end.policy_died());
        CHECK(process_end.kind == "router");
        CHECK(process_end.text() ==
              "router policy mine (./mine.so): select did not return within 200 ms "
              "(plugins.call_limit_ms) and was ended");
    };
    endless([] {
        while (zero == 0) continue;
    });
    endless([] { std::this_thread::sleep_for(std::chrono::hours(1)); });
    endless([] {  // and will not be asked
        std::signal(SIGTERM, SIG_IGN);
        for (;;) pause();
    });
}

namespace {

// A plan may take 30 times as long as another call: 600 ms here.
ending planned(const std::function<void()> &deed) {
    return run_supervised(
        [&](const sender &) {
            board->call_limit_ms = 20;
            const policy_call at_work(owner_of("mine", "placement", "./mine.so"),
                                      entry_point::placement_plan);
            deed();
            return 0;
        },
        {});
}

}  // namespace

TEST_CASE("a plan is limited in processor time: on a busy machine it takes longer") {
    using clock = std::chrono::steady_clock;
    const auto compute = [](std::chrono::milliseconds how_long) {
        const std::clock_t end = std::clock() + how_long.count() * CLOCKS_PER_SEC / 1000;
        while (std::clock() < end) continue;
    };
    // 2 s and more, of which it computes at most 0.4.
    const ending slow = planned([&] {
        const auto end = clock::now() + std::chrono::seconds(2);
        for (int part = 0; part < 40 || clock::now() < end; ++part) {
            if (part < 40) compute(std::chrono::milliseconds(8));
            std::this_thread::sleep_for(std::chrono::milliseconds(42));
        }
    });
    CHECK(slow.finished);
    CHECK_FALSE(slow.overran);
    for (const bool computes : {true, false}) {
        const ending endless = planned([&] {
            for (;;)
                if (!computes) std::this_thread::sleep_for(std::chrono::hours(1));
        });
        CHECK(endless.overran);
        CHECK(endless.text() ==
              "placement policy mine (./mine.so): plan did not return within 600 ms "
              "(plugins.call_limit_ms) and was ended");
    }
}

TEST_CASE("a call on the thread beside is watched, whatever the one that works calls") {
    const auto beside_short_calls = [](const std::function<void()> &deed) {
        return run_supervised(
            [&](const sender &) {
                board->call_limit_ms = 20;
                const uint32_t busy = owner_of("busy", "cache", "./busy.so"),
                               mine = owner_of("mine", "placement", "./mine.so");
                std::thread beside([&] {
                    use_planning_lane();
                    const policy_call at_work(mine, entry_point::placement_plan);
                    deed();
                });
                for (;;) {
                    { const policy_call at_work(busy, entry_point::cache_victims); }
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                return 0;
            },
            {});
    };
    const ending endless = beside_short_calls([] {
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    });
    CHECK(endless.text() ==
          "placement policy mine (./mine.so): plan did not return within 600 ms "
          "(plugins.call_limit_ms) and was ended");
    const ending dead = beside_short_calls([] { std::abort(); });
    CHECK(dead.text() == "placement policy mine (./mine.so): died of SIGABRT in plan");
}

TEST_CASE("many short calls are not one long call") {
    const ending process_end = run_supervised(
        [&](const sender &) {
            board->call_limit_ms = 200;
            const uint32_t mine = owner_of("mine", "cache", "./mine.so");
            for (int i = 0; i < 30; ++i) {
                const policy_call at_work(mine, entry_point::cache_victims);
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
            }
            return 0;
        },
        {});
    CHECK(process_end.finished);
}

TEST_CASE("without a policy at work it is moorage's own fault") {
    const ending process_end = run_supervised(
        [](const sender &) {
            {
                const policy_call finished_call(owner_of("mine", "cache", "./mine.so"),
                                                entry_point::cache_victims);
            }
            std::raise(SIGSEGV);
            return 0;
        },
        {});
    CHECK(process_end.died());
    CHECK_FALSE(process_end.policy_died());
    CHECK(process_end.text() == "moorage itself, with no policy at work: died of SIGSEGV");
    const ending late = run_supervised(
        [](const sender &) {
            std::this_thread::sleep_for(std::chrono::hours(1));
            return 0;
        },
        {.time_limit_s = 0.2});
    CHECK(late.overran);
    CHECK(late.text() ==
          "moorage itself, with no policy at work: did not end within 200 ms and was ended");
}

TEST_CASE("a step in which nothing happens is reported once, and goes on") {
    const std::string file =
        (std::filesystem::temp_directory_path() / ("moorage-still-" + std::to_string(getpid())))
            .string();
    const int errors = dup(STDERR_FILENO), target = open(file.c_str(), O_CREAT | O_RDWR, 0600);
    dup2(target, STDERR_FILENO);
    const ending process_end = run_supervised(
        [](const sender &) {
            board->call_limit_ms = 50;
            for (const uint64_t token : {17, 18}) {
                note_step(3, token);
                std::this_thread::sleep_for(std::chrono::milliseconds(token == 17 ? 1200 : 100));
            }
            return 5;
        },
        {});
    dup2(errors, STDERR_FILENO);
    close(errors), close(target);
    std::string said;
    std::getline(std::ifstream(file), said, '\0');
    std::filesystem::remove(file);
    CHECK(process_end.exit_code == 5);
    const std::string words = "no policy has been called for 0.3 s in layer 3, token 17: ";
    CHECK(said.find(words) != std::string::npos);
    CHECK(said.find("no policy", said.find(words) + 1) == std::string::npos);
}

TEST_CASE("quiet: what it writes is kept for the note, cleaned for terminals") {
    const ending process_end = run_policy(
        [] {
            std::fputs("one\nthe \x1b[2J last\n", stderr);
            std::puts("not this");
            std::abort();
        },
        {.quiet = true});
    CHECK(process_end.note == "the \x1b[2J last");
    CHECK(process_end.text() ==
          "cache policy mine (./mine.so): died of SIGABRT in victims, layer 3, token 17: "
          "the  [2J last");
}

TEST_CASE("a library that is being opened is named by its file") {
    const ending process_end = run_supervised(
        [](const sender &) {
            const policy_call at_work(owner_being_opened("/x/y.so"), entry_point::constructors);
            _exit(0);
            return 0;
        },
        {});
    CHECK(process_end.policy_died());
    CHECK(process_end.text() ==
          "policy library /x/y.so: ended the process with exit code 0 in constructors");
}

TEST_CASE("a mapped file that changed is blamed, not the policy that read it") {
    const ending process_end = run_policy([] {
        std::snprintf(board->file, sizeof(board->file), "%s", "/data/a.safetensors");
        std::raise(SIGBUS);
    });
    CHECK(process_end.died());
    CHECK_FALSE(process_end.policy_died());
    CHECK(process_end.text() ==
          "/data/a.safetensors changed while it was in use, layer 3, token 17");
}

TEST_CASE("a file cut off while a policy reads it is named by its path") {
    const auto path = std::filesystem::temp_directory_path() /
                      ("moorage_cut_" + std::to_string(getpid()) + ".bin");
    std::ofstream(path) << std::string(100'000, 'x');
    const auto mapped = mapped_file::open(path);
    REQUIRE(mapped);
    const ending process_end = run_policy([&] {
        std::filesystem::resize_file(path, 10);
        if (mapped->bytes()[50'000] == std::byte{'x'}) _exit(1);
    });
    std::filesystem::remove(path);
    CHECK(process_end.died());
    CHECK_FALSE(process_end.policy_died());
    CHECK(process_end.signal == SIGBUS);
    CHECK(process_end.text().starts_with(path.string() + " changed while it was in use"));
}

TEST_CASE("works side by side end each in its own way") {
    without_handlers();
    std::string ends[5];
    supervise_all(
        5, 2,
        [](size_t index, const sender &send) {
            const policy_call at_work(owner_of("p" + std::to_string(index), "cache", "x.so"),
                                      entry_point::reset);
            if (index == 1) std::abort();
            if (index == 3) _exit(1);
            send(std::to_string(index * index));
            std::exit(0);  // in the call
            return 0;
        },
        {},
        [&](size_t index, const ending &process_end) {
            ends[index] = process_end.policy + " " + process_end.bytes;
        });
    CHECK(ends[0] == "p0 0");
    CHECK(ends[1] == "p1 ");
    CHECK(ends[2] == "p2 4");
    CHECK(ends[3] == "p3 ");
    CHECK(ends[4] == "p4 16");
}

TEST_CASE("one below the other: the inner parent tells, and lives on") {
    const ending outer = run_supervised(
        [](const sender &send) {
            const ending inner = run_policy([] { std::raise(SIGSEGV); });
            send(inner.text());
            return inner.policy_died() ? 4 : 0;
        },
        {});
    CHECK(outer.finished);
    CHECK(outer.exit_code == 4);
    CHECK(outer.bytes.starts_with("cache policy mine (./mine.so): died of SIGSEGV in victims"));
}

TEST_CASE("a supervisor that is stopped goes on, and sees what came meanwhile") {
    using namespace std::chrono_literals;
    // The exit code of a supervisor whose work stops it and then does `deed`; 100 and more: the
    // work, 200 and more: the supervisor died of that signal.
    const auto code_after = [](const std::function<void(pid_t supervisor)> &deed) {
        const pid_t supervisor = fork();
        if (supervisor == 0) {
            const ending process_end = run_supervised(
                [&](const sender &) {
                    kill(getppid(), SIGSTOP);
                    deed(getppid());
                    return 5;
                },
                {});
            _exit(process_end.signal != 0 ? 100 + process_end.signal : process_end.exit_code);
        }
        int state = 0;
        CHECK(waitpid(supervisor, &state, 0) == supervisor);
        return WIFSIGNALED(state) ? 200 + WTERMSIG(state) : WEXITSTATUS(state);
    };
    CHECK(code_after([](pid_t) {}) == 5);
    CHECK(code_after([](pid_t) { std::this_thread::sleep_for(700ms); }) == 5);
    CHECK(code_after([](pid_t) { *nowhere = 1; }) == 100 + SIGSEGV);
    CHECK(code_after([](pid_t supervisor) {
              kill(supervisor, SIGTERM);
              std::this_thread::sleep_for(1h);
          }) == 200 + SIGTERM);
}

TEST_CASE("a signal from outside is nobody's fault if only bundled policies are loaded") {
    using namespace std::chrono_literals;
    const std::string bundled = (registry::bundled_folder() / "wire/tcp.so").string();
    const auto ended_by = [&](int signal, const std::string &library, int second = 0) {
        return run_supervised(
            [&](const sender &) {
                const policy_call at_work(owner_of("tcp", "wire", library), entry_point::wire_poll);
                const pid_t host = getpid();
                if (fork() == 0) {  // a process of somebody else's
                    kill(host, signal);
                    std::this_thread::sleep_for(600ms);
                    if (second != 0) kill(host, second);
                    _exit(0);
                }
                std::this_thread::sleep_for(1500ms);
                return 5;
            },
            {});
    };
    for (const int signal : {SIGKILL, SIGUSR1, SIGSEGV, SIGABRT, SIGALRM}) {
        CAPTURE(signal);
        const ending outside = ended_by(signal, bundled);
        CHECK(outside.died());
        CHECK_FALSE(outside.policy_died());
        CHECK(outside.text().starts_with("moorage, by a signal from outside: died of " +
                                         outside.signal_name()));
        CHECK(outside.note == "wire policy tcp was in poll");
    }
    // A stop ends nothing then, as little as that of any other program.
    CHECK(ended_by(SIGSTOP, bundled, SIGCONT).exit_code == 5);
    const ending stopped = ended_by(SIGSTOP, "./mine.so", SIGCONT);
    CHECK(stopped.policy_died());
    CHECK(stopped.text().starts_with("wire policy tcp (./mine.so): stopped the process in poll"));
}

TEST_CASE("a signal that asks the parent to end reaches the child, and ends both") {
    const ending process_end = run_supervised(
        [](const sender &) {
            const pid_t middle = getpid();
            run_supervised(
                [middle](const sender &) {
                    kill(middle, SIGTERM);
                    std::this_thread::sleep_for(std::chrono::hours(1));
                    return 0;
                },
                {});
            return 0;  // not reached
        },
        {});
    CHECK(process_end.signal == SIGTERM);
    const ending caught = run_supervised(
        [](const sender &) {
            const pid_t middle = getpid();
            const ending inner = run_supervised(
                [middle](const sender &) {
                    std::signal(SIGINT, [](int) { _exit(9); });
                    kill(middle, SIGINT);
                    std::this_thread::sleep_for(std::chrono::hours(1));
                    return 0;
                },
                {});
            return inner.exit_code;
        },
        {});
    CHECK(caught.finished);
    CHECK(caught.exit_code == 9);
}

}  // namespace supervise_test
