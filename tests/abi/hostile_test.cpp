// hostile_test.cpp - goal: a policy that harms the process in any call is named, with library,
// kind, call, step and signal. It cannot change lent memory. Method: run the program with
// tests/abi/hostile in place of one stage. The required text stands beside each deed.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/abi/hostile_program.h"
#include "tests/sanitizers.h"
#include "tests/skip.h"

namespace {

using namespace hostile_program;

// A run of a few tokens with the hostile policy in the place of `stage`.
std::string run_with(const std::string &stage, const std::string &call, const std::string &deed) {
    const bool placement = stage == "placement";
    std::string line = placement
                           ? "place '" + (source / "configs/clusters/tiny.toml").string() + "'"
                           : "run " + buffered;
    if (stage == "budget") line += " --set memory.sharing=per-layer";
    line += " --set plugins.path='" + hostile + "' --set plugins.call_limit_ms=300";
    line += " --set " + stage + ".plugin=hostile --set " + stage + ".does=" + deed;
    return line + " --set " + stage + ".in=" + call;
}

// Calls of each kind: their names for `in`, and in messages.
struct call_of_kind {
    const char *stage, *key, *name, *kind;
    bool in_step = true;
};
const call_of_kind calls[] = {
    {"router", "select", "select", "router"},
    {"cache", "victims", "victims", "cache"},
    {"cache", "admit", "admit", "cache"},
    {"cache", "on_load", "on_load", "cache"},
    {"cache", "on_evict", "on_evict", "cache"},
    {"cache", "fill", "fill", "cache", false},
    {"cache", "observe", "observe", ""},
    {"budget", "budget_plan", "plan", "budget", false},
    {"budget", "interval", "interval", "budget", false},
    {"prefetch", "horizon", "horizon", "prefetch", false},
    {"prefetch", "predict", "predict", "prefetch"},
    {"prefetch", "prefetch_plan", "plan", "prefetch"},
    {"prefetch", "prefetch_outcome", "outcome", "prefetch"},
    {"dispatch", "assign", "assign", "dispatch"},
    {"dispatch", "dispatch_outcome", "outcome", "dispatch"},
    {"transport", "submit", "submit", "transport"},
    {"transport", "next", "next", "transport"},
    {"placement", "placement_plan", "plan", "placement", false},
    {"cache", "create", "create", "", false},
    {"router", "activate", "activate", "", false},
    {"dispatch", "destroy", "destroy", "", false},
};

// A build with checks replaces functions of the C library. Its findings end the process with a
// signal and with its own text.
using moorage::test::address_checks;
using moorage::test::sanitized;

struct way_to_die {
    const char *deed;
    int signal;             // 0: it ended the process itself ...
    int exit_code = 0;      // ... with this
    const char *note = "";  // part of the text
    bool overran = false;
};
const way_to_die ways[] = {
    {"write_null", SIGSEGV, 0, "touched address 0x0"},
    {"read_wild", SIGSEGV, 0, "touched address 0x123456789000"},
    {"read_odd", SIGSEGV},
    {"write_code", SIGSEGV},
    {"call_null", SIGSEGV},
    {"run_data", SIGSEGV},
    {"overflow", SIGSEGV, 0, "stack overflow at address 0x"},
    {"bus", SIGBUS, 0, "touched address 0x"},
    {"divide", SIGFPE},
    {"trap", SIGILL},
    {"abort", SIGABRT},
    {"pure_virtual", SIGABRT},
    {"free_twice", SIGABRT},
    {"throw", SIGABRT, 0, "an exception was thrown: I throw"},
    {"throw_int", SIGABRT, 0, "an exception was thrown that is no std::exception"},
    {"terminate", SIGABRT, 0, "std::terminate was called"},
    {"want", SIGABRT, 0, sanitized ? "" : "an exception was thrown: std::bad_alloc"},
    {"set_error", SIGABRT, 0, "my last words"},
    {"thread", SIGSEGV, 0, "touched address 0x0"},
    {"exit", 0, 0},
    {"exit_7", 0, 7},
    {"quick_exit", 0, 0},
    {"_exit", 0, 0},
    {"exit_group", 0, 0},
    {"kill", SIGKILL},
    {"raise_2", SIGINT},
    {"raise_3", SIGQUIT},
    {"raise_5", SIGTRAP},
    {"raise_10", SIGUSR1},
    {"raise_14", SIGALRM},
    {"raise_15", SIGTERM},
    {"raise_24", SIGXCPU},
    {"raise_31", SIGSYS},
    {"loop", 0, 0, "did not return within 300 ms (plugins.call_limit_ms)", true},
    {"sleep", 0, 0, "did not return within 300 ms", true},
    {"deaf", 0, 0, "did not return within 300 ms", true},
    {"stop", SIGKILL, 0, "stopped the process in "},
    {"stop_traced", SIGKILL, 0, "stopped the process in "},
    {"deadlock", 0, 0, "did not return within 300 ms", true},
};

void check_named(const call_of_kind &hostile_call, const way_to_die &way) {
    // The allocator of the thread sanitizer accepts this.
    if (moorage::test::thread_checks && way.deed == std::string("free_twice")) return;
    const std::string title = std::string(hostile_call.key) + " does " + way.deed;
    CAPTURE(title);
    const outcome done = program(run_with(hostile_call.stage, hostile_call.key, way.deed));
    CAPTURE(done.errors);
    // A placement policy runs in a row, whose death must not harm others.
    const bool row = hostile_call.stage == std::string("placement");
    REQUIRE(done.code == (row ? 1 : 3));
    const json &failure = row ? done.figures["results"][0]["death"] : done.figures["failed"];
    CHECK(failure["policy"] == "hostile");
    CHECK(failure["library"].get<std::string>().ends_with("hostile/hostile/hostile.so"));
    CHECK(failure["call"] == hostile_call.name);
    if (*hostile_call.kind) CHECK(failure["kind"] == hostile_call.kind);
    CHECK(failure["layer"].is_number() == hostile_call.in_step);
    CHECK(failure["token"].is_number() == hostile_call.in_step);
    CHECK(failure["overran"] == way.overran);
    if (way.signal != 0)
        CHECK(failure["signal"] == std::string("SIG") + sigabbrev_np(way.signal));
    else if (!way.overran)
        CHECK(failure["exit_code"] == way.exit_code);
    const std::string text = failure["error"];
    CHECK(text.find(way.note) != std::string::npos);
    CHECK(done.errors.find("moorage: " + std::string(row ? "hostile: " : "") + text) !=
          std::string::npos);
}

}  // namespace

TEST_CASE("a policy that dies in any call of any kind is named") {
    for (const call_of_kind &hostile_call : calls) check_named(hostile_call, ways[0]);
}

TEST_CASE("whatever it dies of") {
    CHECK(std::size(ways) >= 30);
    for (const way_to_die &way : ways) check_named(calls[1], way);
}

TEST_CASE("each kind with another way to die") {
    for (size_t i = 0; i < std::size(calls); ++i)
        if (calls[i].stage != std::string("cache"))
            check_named(calls[i], ways[(7 * i + 5) % std::size(ways)]);
}

// A run begins with its first pass. A real clock stands at 0 then, whatever happened before.
TEST_CASE("what a policy takes before the run is not of its first token") {
    const outcome done = program("run '" + (source / "configs/demo.toml").string() +
                                 "' --set run.executor=cpu --set source.max_tokens=2"
                                 " --set plugins.path='" +
                                 hostile +
                                 "' --set cache.plugin=hostile --set cache.does=doze"
                                 " --set cache.in=activate");
    CAPTURE(done.errors);
    REQUIRE(done.code == 0);
    CHECK(done.figures["ttft_ms"]["mean"].get<double>() < 1000);
    CHECK(done.figures["total_ms"].get<double>() < 1000);
}

TEST_CASE("what a policy is lent it cannot change") {
    const struct {
        const char *stage, *call, *deed;
    } lent[] = {{"cache", "victims", "write_state"},    {"cache", "victims", "write_slots"},
                {"cache", "victims", "write_used"},     {"cache", "victims", "write_split"},
                {"cache", "victims", "write_view"},     {"cache", "victims", "write_costs"},
                {"cache", "observe", "write_step"},     {"cache", "observe", "write_chosen"},
                {"cache", "observe", "write_distinct"}, {"cache", "observe", "write_requests"},
                {"router", "select", "write_chosen"},   {"router", "select", "write_beyond"},
                {"prefetch", "x", "write_forecast"},    {"dispatch", "x", "write_items"},
                {"dispatch", "x", "write_table"},       {"budget", "x", "write_request"}};
    for (const auto &attempt : lent) {
        CAPTURE(attempt.deed);
        const outcome done = program(run_with(attempt.stage, attempt.call, attempt.deed));
        CAPTURE(done.errors);
        CHECK(done.code == 3);
        if (!address_checks) CHECK(done.figures["failed"]["signal"] == "SIGSEGV");
        CHECK(done.figures["failed"]["policy"] == "hostile");
    }
    // A plan is asked for once, so lent memory is compared after it. Limits are a copy.
    for (const std::string memory : {"cluster", "demand"}) {
        const outcome done = program(run_with("placement", "x", "write_" + memory));
        CHECK(done.code == 1);
        CHECK(done.errors.find("placement plugin hostile: plan wrote to the " + memory +
                               ", which was lent for reading") != std::string::npos);
    }
    CHECK(program(run_with("router", "x", "write_limits")).text ==
          program(run_with("router", "x", "nothing")).text);
}

TEST_CASE("calls that a policy leaves to the default are counted under its name") {
    for (const bool router : {true, false}) {
        const std::string stage = router ? "router" : "dispatch",
                          usual = router ? "topk" : "load_all";
        CAPTURE(stage);
        const outcome done = program(run_with(stage, "x", "abstain"));
        REQUIRE(done.code == 0);
        CHECK(done.figures["without_advice"] == json{{"hostile", 288}});
        CHECK(done.text.find("plugin hostile left 288 steps to the default") != std::string::npos);
        const outcome by_default =
            program("run " + buffered + " --set " + stage + ".plugin=" + usual);
        CHECK(done.figures["tpot_ms"] == by_default.figures["tpot_ms"]);
        CHECK_FALSE(by_default.figures.contains("without_advice"));
    }
}

TEST_CASE("a change of the process is a fault of who made it, and is put back") {
    const struct {
        const char *deed, *message;
        bool by_default;  // found in steps without guard = "full"
    } changes[] = {{"rounding", "floating-point environment", true},
                   {"traps", "floating-point environment", true},
                   {"locale", "the locale", false},
                   {"directory", "the working directory", false},
                   {"handler", "the handler of SIGSEGV", false},
                   {"umask", "the umask", false},
                   {"limit", "the limit of open files", false},
                   {"mask", "the mask of blocked signals", false}};
    const outcome sound = program(run_with("cache", "nowhere", "nothing"));
    REQUIRE(sound.code == 0);
    for (const auto &change : changes) {
        CAPTURE(change.deed);
        const std::string step = run_with("cache", "victims", change.deed);
        // Without checks within steps, lasting changes are found at the end.
        const std::string message = change.message;
        if (!change.by_default && message.find("signal") == message.npos &&
            message.find("SIG") == message.npos) {
            const outcome late = program(step + " --set plugins.guard=default");
            CHECK(late.code == 0);
            CHECK(late.figures["warnings"].dump().find(message + " of the process") !=
                  message.npos);
        }
        const std::string full = change.by_default ? "" : " --set plugins.guard=full";
        const outcome done = program(step + full);
        CHECK(done.code == 1);
        CHECK(done.errors.find("policy hostile: victims changed ") != std::string::npos);
        CHECK(done.errors.find(change.message) != std::string::npos);
        // With replacement the run goes on, and its figures are those of a sound policy.
        outcome replaced = program(step + full + " --set plugins.on_fault=replace");
        REQUIRE(replaced.code == 0);
        CHECK(replaced.figures["faults"]["hostile"] >= 1);
        for (const char *figure : {"tpot_ms", "experts", "bytes", "layers", "time_ms"})
            CHECK(replaced.figures[figure] == sound.figures[figure]);
        // Outside of steps everything is always checked.
        const outcome control = program(run_with("budget", "budget_plan", change.deed));
        CHECK(control.code == 1);
        CHECK(control.errors.find(change.message) != std::string::npos);
        const outcome creation = program(run_with("router", "create", change.deed));
        CHECK(creation.code == 1);
        CHECK(creation.errors.find(change.message) != std::string::npos);
    }
}

TEST_CASE("opening a library that dies, hangs or changes the process") {
    const std::string list = "plugins list --plugins '" + hostile + "'";
    for (const char *deed : {"write_null", "exit", "_exit", "terminate", "kill"}) {
        CAPTURE(deed);
        const outcome done = program(list, "HOSTILE_CONSTRUCTORS=" + std::string(deed));
        CAPTURE(done.errors);
        CHECK(done.code == 3);
        CHECK(done.errors.find("hostile.so: ") != std::string::npos);
        CHECK(done.errors.find(" in constructors") != std::string::npos);
    }
    const outcome changed = program(list, "HOSTILE_CONSTRUCTORS=rounding");
    CHECK(changed.figures.dump().find("floating-point environment") != std::string::npos);

    const std::string config = "run '" + (source / "configs/quickstart.toml").string() +
                               "' --set run.tokens=12 --set plugins.path='" + door +
                               "' --set cache.plugin=door --set plugins.call_limit_ms=300";
    for (const char *function :
         {"moorage_module_v2", "descriptor", "init", "get_interface", "deinit"}) {
        for (const char *deed : {"write_null", "exit_7", "loop"}) {
            CAPTURE(function);
            CAPTURE(deed);
            const outcome done =
                program(config, std::string("HOSTILE_AT=") + function + " HOSTILE_DOES=" + deed);
            CAPTURE(done.errors);
            CHECK(done.code == 3);
            CHECK(done.errors.find("door.so") != std::string::npos);
            CHECK(done.figures["failed"]["call"] == function);
        }
    }
}

TEST_CASE("the conformance kit names the call, and finds what it changed") {
    const auto check = [](const std::string &test, const std::string &call,
                          const std::string &deed) {
        const outcome done = program("plugins check '" + hostile + "/hostile.so' --only " + test,
                                     "HOSTILE_DOES=" + deed + " HOSTILE_IN=" + call);
        REQUIRE(done.code == 1);
        for (const json &entry : done.figures["tests"])
            if (entry["test"] == test) return entry;
        FAIL("no such test");
        return json();
    };
    for (const call_of_kind &hostile_call : calls) {
        CAPTURE(hostile_call.key);
        const std::string name = hostile_call.name, kind = hostile_call.kind;
        const bool shared = name == "plan" || name == "outcome";
        const json dead = check("life-cycle", hostile_call.key, "write_null");
        CHECK(dead["outcome"] == "crashed");
        CHECK(dead["text"].get<std::string>().find(
                  " in " + name + (shared ? " (" + kind + ")" : "")) != std::string::npos);
    }
    for (const char *deed : {"rounding", "locale", "directory", "handler", "umask", "mask"}) {
        CAPTURE(deed);
        const json changed = check("surroundings-kept", "victims", deed);
        CHECK(changed["outcome"] == "failed");
        CHECK(changed["text"].get<std::string>().find("victims changed ") != std::string::npos);
    }
}

TEST_CASE("in compare a policy of any kind costs its own row, which names it") {
    const struct {
        const char *stage, *key, *rival;
    } kinds[] = {{"router", "select", "topk"},
                 {"prefetch", "prefetch_plan", "next_gate"},
                 {"dispatch", "assign", "load_all"},
                 {"transport", "next", "direct"},
                 {"budget", "budget_plan", "uniform"}};
    for (const auto &kind : kinds) {
        CAPTURE(kind.stage);
        const std::string stage = kind.stage;
        const outcome done = program(
            "compare " + buffered + (stage == "budget" ? " --set memory.sharing=per-layer" : "") +
            " --sweep " + stage + ".plugin=hostile," + kind.rival + " --set " + stage +
            ".hostile.in=" + kind.key + " --set " + stage +
            ".hostile.does=abort --set plugins.path='" + hostile + "'");
        CHECK(done.code == 1);
        CHECK(done.errors.find(stage + " policy hostile (") != std::string::npos);
        CHECK(done.figures.dump().find("\"policy\":\"hostile\"") != std::string::npos);
        CHECK(done.text.find("FAILED") != std::string::npos);
    }
    for (const char *deed : {"write_null", "exit", "loop", "throw", "write_state"}) {
        CAPTURE(deed);
        const outcome done =
            program("compare " + few_tokens +
                    " --sweep cache.plugin=lru,hostile,fifo"
                    " --set cache.hostile.in=victims --set plugins.call_limit_ms=300"
                    " --set plugins.path='" +
                    hostile + "' --set cache.hostile.does=" + deed);
        CHECK(done.code == 1);
        CHECK(done.errors.find("cache policy hostile (") != std::string::npos);
        CHECK(done.figures.dump().find("\"policy\":\"hostile\"") != std::string::npos);
        CHECK(done.figures.dump().find("\"plugin\":\"fifo\"") != std::string::npos);
    }
}

TEST_CASE("a panic in Rust ends the run, with its text") {
    std::string code = text_of((build / "tests/abi/templates/rust_cache.rs").string());
    if (code.empty() || std::system("rustc --version > /dev/null 2>&1") != 0)
        return moorage::test::skip("no rustc");
    const std::string place = "let view = self.host.residency();";
    REQUIRE(code.find(place) != std::string::npos);
    code.insert(code.find(place), "if room.count > 0 { panic!(\"I know no victim\") }\n");
    const fs::path folder = fs::path(hostile).parent_path() / "panics";
    fs::create_directories(folder);
    std::ofstream(folder / "panics.rs") << code;
    REQUIRE(std::system(("MOORAGE_SDK='" + (source / "sdk").string() +
                         "' rustc --edition 2021 -O --crate-type cdylib -C panic=unwind '" +
                         (folder / "panics.rs").string() + "' -o '" +
                         (folder / "panics.so").string() + "'")
                            .c_str()) == 0);
    const outcome done =
        program("run " + few_tokens + " --set cache.plugin=rust_cache --set plugins.path='" +
                folder.string() + "'");
    CHECK(done.code == 3);
    const json &failure = done.figures["failed"];
    CHECK(failure["policy"] == "rust_cache");
    CHECK(failure["call"] == "victims");
    CHECK(failure["layer"].is_number());
    CHECK(failure["error"].get<std::string>().find("I know no victim") != std::string::npos);
}

TEST_CASE("text and JSON are the same whatever the guard, and whoever runs it") {
    const auto run_output = [](const std::string &guard, const std::string &environment) {
        const std::string line = "run '" + (source / "configs/quickstart.toml").string() +
                                 "' --set run.tokens=300 --set prefetch.plugin=random"
                                 " --set memory.buffer_experts=4 --set plugins.guard=" +
                                 guard;
        const outcome done = program(line, environment);
        REQUIRE(done.code == 0);
        return done.text + done.figures.dump();
    };
    const std::string usual = run_output("default", "");
    CHECK(run_output("full", "") == usual);
    CHECK(run_output("off", "") == usual);
    CHECK(run_output("default", "MOORAGE_ONE_PROCESS=1") == usual);
}
