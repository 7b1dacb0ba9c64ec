// outside_test.cpp - goal: actions of a policy outside of calls (threads, handlers at exit,
// destructors, second processes, stops) harm no other row, hang nothing, change no exit code, and
// are reported by name. Method: as hostile_test. The required text stands beside each deed.
#include <doctest/doctest.h>

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/abi/hostile_program.h"
#include "tests/sanitizers.h"

namespace {

using namespace hostile_program;

std::string run_with(const std::string &deed, const std::string &call = "activate",
                     const std::string &stage = "cache") {
    return "run " + buffered + " --set plugins.path='" + hostile +
           "' --set plugins.call_limit_ms=300 --set " + stage + ".plugin=hostile --set " + stage +
           ".does=" + deed + " --set " + stage + ".in=" + call;
}

std::string in_constructors(const std::string &variable, const std::string &deed) {
    return variable + "=" + deed;
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

// Processes of this user that run the program, also those of other tests.
std::vector<std::string> processes_with(const std::string &mark) {
    std::vector<std::string> found;
    for (const auto &entry : fs::directory_iterator("/proc")) {
        const std::string line = text_of(entry.path() / "cmdline");
        if (has(line, mark)) found.push_back(entry.path().filename());
    }
    return found;
}

// In a process of its own.
bool may_raise_limits() {
    const pid_t trial = fork();
    if (trial == 0) {
        rlimit limit{};
        getrlimit(RLIMIT_FSIZE, &limit);
        const rlimit none{0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        _exit(setrlimit(RLIMIT_FSIZE, &limit) == 0 ? 0 : 1);
    }
    int state = 0;
    waitpid(trial, &state, 0);
    return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

}  // namespace

TEST_CASE("handlers at exit and destructors of a policy do not run") {
    const outcome sound = program(run_with("nothing"));
    REQUIRE(sound.code == 0);
    for (const char *deed : {"at_exit_hang", "at_exit_die", "at_exit__exit"}) {
        CAPTURE(deed);
        const outcome done = program(run_with(deed));
        CAPTURE(done.errors);
        CHECK(done.code == 0);
        CHECK(done.figures["tpot_ms"] == sound.figures["tpot_ms"]);
    }
    for (const char *deed : {"loop", "write_null", "_exit"}) {
        CAPTURE(deed);
        const outcome done =
            program(run_with("nothing"), in_constructors("HOSTILE_DESTRUCTORS", deed));
        CHECK(done.code == 0);
        CHECK(done.figures["tpot_ms"] == sound.figures["tpot_ms"]);
    }
    // A failure stays a failure, whatever a handler does.
    const outcome wrong = program(run_with("at_exit__exit") +
                                  " --set run.tokens=12 --set "
                                  "cache.nobody=3");
    CHECK(wrong.code == 2);
}

TEST_CASE("a library that is refused does not run at exit either") {
    const outcome done = program("plugins list --plugins '" + hostile + "'",
                                 "HOSTILE_CONSTRUCTORS=rounding HOSTILE_DESTRUCTORS=loop");
    CHECK(done.code == 0);
    CHECK(has(done.figures.dump(), "floating-point environment"));
}

TEST_CASE("a thread of a policy that dies later is named, and not who is called meanwhile") {
    if (moorage::test::sanitized) return;  // its handlers print first
    for (const char *deed : {"later_write_null", "later_throw", "later_exit", "later__exit"}) {
        CAPTURE(deed);
        // Another stage's policy is called all the time meanwhile.
        const outcome done = program(run_with(deed) + " --set run.tokens=3000");
        CAPTURE(done.errors);
        REQUIRE(done.code == 3);
        CHECK(has(done.errors, "hostile/hostile/hostile.so"));
    }
}

TEST_CASE("a policy that stops the process from a thread is named and leaves no process") {
    const std::string mark = "run.seed=471108";
    const outcome done = program(run_with("later_stop") + " --set run.tokens=3000 --set " + mark);
    CAPTURE(done.errors);
    CHECK(done.code == 3);
    CHECK(has(done.errors, "hostile.so"));
    CHECK(has(done.errors, "stopped the process"));
    CHECK(processes_with(mark).empty());
}

TEST_CASE("a policy that stops the supervisor stops nothing, and is named") {
    const outcome sound = program(run_with("nothing", "victims"));
    const std::string mark = "run.seed=471110";
    for (const char *deed : {"stop_parent", "stop_parent_and_wait"}) {
        CAPTURE(deed);
        const outcome done = program(run_with(deed, "victims") + " --set " + mark);
        CAPTURE(done.errors);
        CHECK(done.code == 0);
        CHECK(done.figures["tpot_ms"] == sound.figures["tpot_ms"]);
        if (deed == std::string("stop_parent_and_wait"))
            CHECK(has(done.errors, "hostile.so), or somebody outside, stopped the process"));
        CHECK(processes_with(mark).empty());
    }
}

TEST_CASE("a second process of a policy writes nothing and does not stay") {
    const outcome sound = program(run_with("nothing", "victims"));
    for (const char *deed : {"fork", "fork_and_sleep"})
        for (const char *call : {"activate", "victims", "create"}) {
            CAPTURE(deed);
            CAPTURE(call);
            const std::string mark = "run.seed=471109";
            const outcome done = program(run_with(deed, call) + " --set " + mark);
            CAPTURE(done.errors);
            CHECK(done.code == 0);
            CHECK(done.figures["tpot_ms"] == sound.figures["tpot_ms"]);
            CHECK(std::count(done.text.begin(), done.text.end(), '\n') ==
                  std::count(sound.text.begin(), sound.text.end(), '\n'));
            if (deed == std::string("fork"))
                CHECK(has(done.errors, "made a second process of this one"));
            CHECK(processes_with(mark).empty());
        }
}

TEST_CASE("a policy that forbids to write files loses no word") {
    // A process that may raise limits would put it back.
    const char *const unprivileged =
        may_raise_limits() ? "setpriv --bounding-set -sys_resource" : "";
    const outcome done = program(run_with("no_files", "victims"), unprivileged);
    CAPTURE(done.errors);
    CAPTURE(done.text);
    CHECK(done.code == 1);
    CHECK(has(done.errors, "File too large"));
    CHECK(has(done.text, "the limit of file sizes (it cannot be put back)"));
}

TEST_CASE("what a policy prints is not in the report") {
    const std::string line = "run " + few_tokens + " --set plugins.path='" + hostile +
                             "' --set cache.plugin=hostile --set cache.does=print"
                             " --set cache.in=victims --json -";
    const std::string output =
        (fs::temp_directory_path() / ("moorage-outside-" + std::to_string(getpid()))).string();
    const int state = std::system(("'" + (build / "bin/moorage").string() + "' " + line + " > " +
                                   output + " 2> " + output + ".err")
                                      .c_str());
    CHECK(WEXITSTATUS(state) == 0);
    const json figures = json::parse(text_of(output), nullptr, false);
    CHECK(figures.is_object());
    CHECK(figures.contains("tpot_ms"));
    CHECK(has(text_of(output + ".err"), "is no report"));
    CHECK(has(text_of(output + ".err"), "nor is this"));
    fs::remove(output);
    fs::remove(output + ".err");
}

TEST_CASE("what a library hands out may lie nowhere: the library is named") {
    if (moorage::test::address_checks) return;
    const std::string run = "run '" + (source / "configs/quickstart.toml").string() +
                            "' --set run.tokens=12 --set cache.plugin=door --set plugins.path='" +
                            door + "'";
    for (const char *function : {"descriptor", "get_interface"}) {
        CAPTURE(function);
        const outcome done = program(run, "HOSTILE_WILD=" + std::string(function));
        CAPTURE(done.errors);
        CHECK(done.code == 3);
        CHECK(done.figures["failed"]["call"] == function);
        CHECK(has(done.errors, "door.so"));
    }
    for (const char *library : {"resolver", "wild_door"}) {
        CAPTURE(library);
        const outcome done =
            program("plugins list --plugins '" + (build / "hostile" / library).string() + "'");
        CAPTURE(done.errors);
        CHECK(done.code == 3);
        CHECK(has(done.errors, std::string(library) + ".so"));
        CHECK(has(done.errors, "touched address 0x"));
    }
}

TEST_CASE("a transport that hands over a byte at a time is named") {
    const outcome done = program(run_with("byte_by_byte", "nowhere", "transport"));
    CAPTURE(done.errors);
    CHECK(done.code == 3);
    const json &failure = done.figures["failed"];
    CHECK(failure["policy"] == "hostile");
    CHECK(failure["kind"] == "transport");
    CHECK(failure["overran"] == true);
    CHECK(has(failure["error"].get<std::string>(), "the layer step did not end within 300 ms"));
}

TEST_CASE("in compare a deed outside of calls costs its own row") {
    if (moorage::test::sanitized) return;
    for (const char *deed : {"later_write_null", "fork_and_sleep", "later_stop", "at_exit_hang"}) {
        CAPTURE(deed);
        const outcome done =
            program("compare " + few_tokens + " --sweep cache.plugin=lru,hostile,fifo,llru" +
                    " --set run.tokens=2000 --set cache.hostile.in=activate --set "
                    "cache.hostile.does=" +
                    deed + " --set plugins.path='" + hostile + "'");
        CAPTURE(done.errors);
        const bool dies = std::string(deed).starts_with("later");
        CHECK(done.code == (dies ? 1 : 0));
        CHECK(done.figures["results"].size() == (dies ? 3 : 4));
        if (dies) CHECK(has(done.figures["failed"].dump(), "hostile.so"));
    }
}

TEST_CASE("of two libraries that share C++ variables the second is refused with the remedy") {
    const outcome listing =
        program("plugins list --plugins '" + (build / "hostile/shared").string() + "'");
    CHECK(listing.code == 0);
    const std::string report = listing.figures.dump();
    CHECK(has(report, "\"shared_one\""));
    if (!has(listing.errors, "refused")) return;  // a compiler without such variables
    CHECK(has(listing.errors, "shared_two.so: refused: exports "));
    CHECK(has(listing.errors, "shared_table<1>::table"));
    CHECK(has(listing.errors, "build it with moorage_add_policy()"));
    // Each alone is sound.
    const outcome alone =
        program("run " + few_tokens + " --set cache.plugin=shared_two" + " --set plugins.path='" +
                (build / "hostile/shared/shared_two.so").string() + "'");
    CHECK(alone.code == 0);
}
