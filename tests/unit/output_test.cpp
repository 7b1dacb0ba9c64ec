// Goal: output of commands arrives whole, or they report that it did not. A terminal obeys no text
// of others. Method: the built program, with outputs that cannot be written, pipes that nobody
// reads, signals in the middle, and names that hold escape sequences.
#include "tests/unit/program.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/atomic_directory.h"
#include "core/base/atomic_file.h"
#include "core/base/json.h"
#include "core/base/partial_files.h"
#include "core/base/visible.h"
#include "core/source/trace_write.h"
#include "tests/sanitizers.h"
#include "tests/skip.h"

namespace output_test {

using namespace moorage::core;
using namespace std::chrono_literals;
using moorage::test::program;
using moorage::test::program_result;

namespace {

const std::string home = MOORAGE_SOURCE_DIR;
const std::string policies = std::string(MOORAGE_BINARY_DIR) + "/tests/policies/mortal.so";
const std::string loud_name = std::string("red\x1b[31m \xC2\x9B\x7F") + "2J model";
const std::string code_trace = home + "/configs/traces/qwen15moe-shape.code.safetensors";

// A trace whose metadata has control sequences, and a configuration with a policy that has them.
void write_control_sequences(const program &runner) {
    trace_data data;
    data.layers = 2, data.experts = 8, data.top_k = 1;
    for (uint32_t token = 0; token < 60; ++token)
        for (uint32_t layer = 0; layer < 2; ++layer)
            data.chosen.push_back(static_cast<uint16_t>((token * 5 + layer) % 8));
    data.tokens = 60;
    data.request_offsets = {0, 60};
    data.metadata["model"] = loud_name;
    REQUIRE(write_trace(data, runner.file("loud.safetensors")).ok());
    toy::write_files(runner.folder, 2, 8, 1);
    runner.folder.write(
        "loud.toml",
        "[source]\ntrace = \"loud.safetensors\"\n"
        "[hardware]\nprofile = \"device.toml\"\nlink = \"link.toml\"\n"
        "node = \"node.toml\"\n[memory]\nexperts = 4\n[cache]\nplugin = \"mortal\"\n"
        "[plugins]\npath = [\"" +
            policies + "\"]\n");
}

// The run of a bundled trace, too long to end within the test.
std::vector<std::string> small_run() {
    return {"run",   home + "/configs/quickstart.toml", "--set", "run.tokens=20",
            "--set", "source.trace=" + code_trace};
}

bool has_no_control_sequences(const std::string &text) { return visible(text) == text; }

}  // namespace

TEST_CASE("standard output that cannot be written is an error, whatever the command") {
    const program runner;
    const std::string demo = home + "/configs/demo";
    std::vector<std::vector<std::string>> commands = {
        {"--help"},
        {"--version"},
        {"plugins", "list"},
        {"plugins", "list", "--json", "-"},
        {"plugins", "describe", "lru"},
        {"plugins", "check", "--list-tests"},
        {"trace", "info", code_trace},
        {"model", "info", demo},
        {"tokenize", demo, "--prompt", "some words"},
        {"generate", demo, "-q", "--prompt", "The", "--max-tokens", "2"},
        {"place", home + "/configs/clusters/tiny.toml"},
        {"replay", code_trace, "--tokens", "50", "--policies", "lru,fifo"},
        small_run(),
        small_run(),
    };
    commands.back()[0] = "compare";
    for (const auto &command : commands) {
        CAPTURE(command[0]);
        const program_result well = runner.run(command);
        CHECK_MESSAGE(well.code == 0, well.errors);
        CHECK_FALSE(well.output.empty());
        const program_result full = runner.run(command, "/dev/full");
        CHECK(full.code == 1);
        CHECK(full.says("moorage: standard output cannot be written: No space left on device"));
    }
    // The files are written all the same.
    auto json_run = small_run();
    json_run.insert(json_run.end(), {"--json", "a.json"});
    CHECK(runner.run(json_run, "/dev/full").code == 1);
    CHECK(json::parse(runner.read("a.json"))["tokens"] == 20);
}

TEST_CASE("a pipe that nobody reads is an error, and ends a text that is being written") {
    const program runner;
    std::signal(SIGPIPE, SIG_IGN);
    for (const auto &command :
         {small_run(), std::vector<std::string>{"generate", home + "/configs/demo", "-q",
                                                "--prompt", "The", "--max-tokens", "400"}}) {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        ::close(ends[0]);
        const int errors =
            ::open(runner.file("errors").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(program::wait(runner.start(command, ends[1], errors)) == 1);
        ::close(ends[1]);
        ::close(errors);
        CHECK(runner.read("errors").find("cannot be written: Broken pipe") != std::string::npos);
        std::filesystem::remove(runner.file("errors"));
    }
}

TEST_CASE("a descriptor that the program was started without is an error, and no file of its own") {
    const program runner;
    auto command = small_run();
    const program_result whole = runner.run(command);
    REQUIRE(whole.code == 0);
    command.insert(command.end(), {"--json", "a.json"});
    const auto closed = [&](const char *redirection, int output, int errors) {
        const std::string line = std::string("exec \"$@\" ") + redirection;
        return program::wait(runner.start(command, output, errors, {"/bin/sh", "-c", line, "sh"}));
    };
    const auto open = [&](const char *name) {
        return ::open(runner.file(name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    };
    const int output = open("out"), errors = open("errors");
    CHECK(closed("<&-", output, errors) == 0);
    CHECK(runner.read("out") == whole.output);
    CHECK(runner.read("errors").empty());
    for (const char *redirection : {">&-", "<&- >&-", "<&- >&- 2>&-"}) {
        CAPTURE(redirection);
        std::filesystem::remove(runner.file("a.json"));
        CHECK(::ftruncate(errors, 0) == 0);
        ::lseek(errors, 0, SEEK_SET);
        CHECK(closed(redirection, output, errors) == 1);
        CHECK(runner.read("errors") ==
              (std::string(redirection).ends_with("2>&-")
                   ? ""
                   : "moorage: standard output cannot be written: Bad file descriptor\n"));
        CHECK(json::parse(runner.read("a.json"))["tokens"] == 20);
    }
    CHECK(runner.read("out") == whole.output);
    ::close(output);
    ::close(errors);
}

TEST_CASE("an output without a name is refused; a link stays, and what it leads to is written") {
    const program runner;
    auto command = small_run();
    for (const char *option : {"--json", "--html", "--timeline"}) {
        auto nameless = command;
        nameless.insert(nameless.end(), {option, ""});
        const program_result refused = runner.run(nameless);
        CHECK(refused.code == 2);
        CHECK(refused.says(std::string(option) + " is given no name"));
    }
    std::filesystem::create_directory(runner.file("far"));
    runner.folder.write("far/old.json", "old");
    std::filesystem::create_symlink("far/old.json", runner.file("first"));
    std::filesystem::create_symlink("first", runner.file("second"));
    std::filesystem::create_symlink(runner.file("far/new.json"), runner.file("dangling"));
    for (const auto &[name, target] : {std::pair{"first", "far/old.json"},
                                       {"second", "far/old.json"},
                                       {"dangling", "far/new.json"}}) {
        const std::string link = name;
        CAPTURE(link);
        auto linked = command;
        linked.insert(linked.end(), {"--json", link});
        CHECK(runner.run(linked).code == 0);
        CHECK(std::filesystem::is_symlink(runner.file(link)));
        CHECK(
            std::filesystem::is_regular_file(std::filesystem::symlink_status(runner.file(target))));
        CHECK(json::parse(runner.read(target))["tokens"] == 20);
        std::filesystem::resize_file(runner.file(target), 0);
    }
    std::filesystem::create_symlink("round", runner.file("round"));
    command.insert(command.end(), {"--json", "round"});
    const program_result endless = runner.run(command);
    CHECK(endless.code == 1);
    CHECK(endless.says("round: cannot create: "));
    CHECK(runner.names().size() == 5);  // no draft is left
}

TEST_CASE("an output that cannot be written is told before the work") {
    const program runner;
    const auto compare = [&](const char *option, const char *file) {
        return runner.run({"compare", home + "/configs/quickstart.toml", "--set", "run.tokens=20",
                           "--sweep", "memory.experts=200,300", option, file});
    };
    for (const char *option : {"--json", "--html", "--csv"}) {
        CAPTURE(option);
        // The table comes with the work, so there is none.
        const program_result result = compare(option, "no/such/folder/a");
        CHECK(result.code == 1);
        CHECK(result.output == "");
        CHECK(result.errors.find("no/such/folder/a: cannot create: ") != std::string::npos);
        // Another option is no name.
        const program_result taken = compare(option, "--repeat");
        CHECK(taken.code == 2);
        CHECK(taken.errors.find("--repeat: a name that begins with - is taken for an option") !=
              std::string::npos);
    }
    CHECK(runner.names().empty());  // nothing was left
}

TEST_CASE("two outputs with one name are refused before anything runs") {
    const program runner;
    std::filesystem::create_directory(runner.file("sub"));
    std::filesystem::create_symlink("sub", runner.file("link"));
    runner.folder.write("there.json", "old");
    std::filesystem::create_symlink("there.json", runner.file("alias.json"));
    const auto refused = [&](const std::string &command, const std::string &first,
                             const std::string &first_file, const std::string &second,
                             const std::string &second_file) {
        auto words = small_run();
        words[0] = command;
        words.insert(words.end(), {first, first_file, second, second_file});
        const program_result result = runner.run(words);
        CAPTURE(first_file);
        CAPTURE(second_file);
        CHECK((result.code == 2) == result.says("are one file"));
        CHECK((result.code == 2) == result.output.empty());
        return result.code == 2;
    };
    CHECK(refused("compare", "--json", "a", "--html", "a"));
    CHECK(refused("compare", "--json", "-", "--html", "-"));
    CHECK(refused("compare", "--json", "a", "--html", "./a"));
    CHECK(refused("compare", "--json", "sub/a", "--html", "link/../link/a"));
    CHECK(refused("compare", "--json", "alias.json", "--html", "there.json"));
    CHECK(refused("run", "--json", "a", "--timeline", runner.file("sub/../a")));
    CHECK(runner.read("there.json") == "old");
    CHECK_FALSE(refused("run", "--json", "a", "--timeline", "sub/a"));
    const program_result placed =
        runner.run({"place", home + "/configs/clusters/tiny.toml", "--out", "p", "--json", "p"});
    CHECK(placed.code == 2);
}

TEST_CASE("a signal takes its course and leaves nothing half written") {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        const program runner;
        write_control_sequences(runner);
        runner.folder.write("t.json", "old");
        const std::vector<std::string> names_before = runner.names();
        const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        const pid_t child = runner.start({"run", "loud.toml", "--set", "source.shape=shape.toml",
                                          "--set", "cache.mortal.way=wait", "--timeline", "t.json"},
                                         null, null);
        const auto is_part = [](const std::string &name) { return name.ends_with(".part"); };
        bool begun = false;
        for (int i = 0; i < 500 && !begun; ++i) {
            std::this_thread::sleep_for(20ms);
            begun = std::ranges::any_of(runner.names(), is_part);
        }
        CHECK(begun);
        std::this_thread::sleep_for(100ms);
        ::kill(child, number);
        CHECK(program::wait(child) == 128 + number);
        ::close(null);
        CHECK(std::ranges::none_of(runner.names(), is_part));
        CHECK(runner.read("t.json") == "old");
        CHECK(runner.names().size() == names_before.size());
    }
}

TEST_CASE("a policy that dies leaves nothing half written either") {
    const program runner;
    write_control_sequences(runner);
    runner.folder.write("t.json", "old");
    const size_t count_before = runner.names().size();
    for (const char *way : {"segv", "abort", "exit"}) {
        const program_result result =
            runner.run({"run", "loud.toml", "--set", "source.shape=shape.toml", "--set",
                        std::string("cache.mortal.way=") + way, "--timeline", "t.json"});
        CHECK(result.code != 0);
        CHECK(runner.read("t.json") == "old");
        CHECK(runner.names().size() == count_before);
    }
}

TEST_CASE("a directory that is half written is gone when a signal ends the program") {
    const program runner;
    const pid_t child = ::fork();
    if (child == 0) {
        remove_partial_files_on_signals();
        auto directory = atomic_directory::create(runner.file("made"));
        const auto half = atomic_file::create(directory->file("half"));
        std::ofstream(directory->file("whole")) << "x";
        ::raise(SIGTERM);
        ::_exit(1);
    }
    CHECK(program::wait(child) == 128 + SIGTERM);
    CHECK(runner.names().empty());
}

TEST_CASE("a directory appears at commit, in place of an empty one") {
    const program runner;
    std::filesystem::create_directory(runner.file("made"));
    {
        auto directory = atomic_directory::create(runner.file("made/"));
        REQUIRE_MESSAGE(directory.ok(), (directory.ok() ? "" : directory.failure().text));
        std::ofstream(directory->file("one")) << "x";
        CHECK(std::filesystem::is_empty(runner.file("made")));
        CHECK(directory->commit().ok());
    }
    CHECK(runner.names() == std::vector<std::string>{"made"});
    CHECK(runner.read("made/one") == "x");
    const auto full = atomic_directory::create(runner.file("made"));
    REQUIRE_FALSE(full.ok());
    CHECK(full.failure().text == runner.file("made") + ": is there; name a directory that is not");
    { const auto left = atomic_directory::create(runner.file("other")); }
    CHECK(runner.names() == std::vector<std::string>{"made"});
    CHECK_FALSE(atomic_directory::create(std::filesystem::current_path()).ok());
}

TEST_CASE("a conversion beyond the limit on files says so, and can be asked for again") {
    const program runner;
    const int errors = ::open(runner.file("errors").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (const char *target : {"made", "made.gguf"}) {
        const pid_t child = runner.start(
            {"model", "convert", home + "/configs/demo", "--format", "bf16", "--out", target},
            errors, errors, {"/bin/sh", "-c", "ulimit -f 100; exec \"$@\"", "sh"});
        CHECK(program::wait(child) == 1);
        CHECK(runner.names() == std::vector<std::string>{"errors"});
    }
    ::close(errors);
    const std::string said = runner.read("errors");
    CAPTURE(said);
    CHECK(said.find("tokenizer.json: cannot write: File too large") != std::string::npos);
    CHECK(said.find("made.gguf: cannot write: File too large") != std::string::npos);
    const program_result again = runner.run(
        {"model", "convert", home + "/configs/demo", "--format", "bf16", "--out", "made"});
    CHECK(again.code == 0);
    CHECK(std::filesystem::exists(runner.file("made/model.safetensors")));
}

TEST_CASE("a thread that cannot be started is told, with what forbids it") {
    if (moorage::test::sanitized)
        return moorage::test::skip("sanitizers take more memory than any limit");
    const program runner;
    const int errors = ::open(runner.file("errors").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const pid_t child =
        runner.start({"generate", home + "/configs/demo", "--prompt", "a", "--max-tokens", "2",
                      "--set", "run.threads=4"},
                     errors, errors, {"/bin/sh", "-c", "ulimit -d 8000; exec \"$@\"", "sh"});
    CHECK(program::wait(child) == 1);
    ::close(errors);
    const std::string said = runner.read("errors");
    CAPTURE(said);
    CHECK(said.find("one more thread could not be started; limits of this process: ulimit -u") !=
          std::string::npos);
}

TEST_CASE("what others wrote is shown, not obeyed") {
    const program runner;
    write_control_sequences(runner);
    const std::vector<std::vector<std::string>> commands = {
        {"trace", "info", "loud.safetensors"},
        {"replay", "loud.safetensors", "--policies", "lru", "--slots", "4"},
        {"plugins", "list", "--plugins", policies},
        {"plugins", "describe", "mortal", "--plugins", policies},
        {"plugins", "describe", "no\x1b[31mne"},
        {"run", "loud.toml"},  // names the model's shape, which is not known
        {"run", "loud.toml", "--set", "source.shape=shape.toml", "--set", "cache.mortal.way=cry"},
        {"compare", "loud.toml", "--set", "source.shape=shape.toml"},
        {"run", "loud.toml", "--set", "cache.mortal.way=\x1b[31m"},
        {"ru\x1b[31mn"},
        {"tokenize", home + "/configs/demo", "--prompt", "a\x1b[31mb", "--plain"},
    };
    for (const auto &command : commands) {
        CAPTURE(command[0]);
        const program_result result = runner.run(command);
        CAPTURE(result.output);
        CAPTURE(result.errors);
        CHECK(has_no_control_sequences(result.output));
        CHECK(has_no_control_sequences(result.errors));
        CHECK_FALSE((result.output + result.errors).empty());
    }
    const program_result cried = runner.run(commands[6]);
    REQUIRE_MESSAGE(cried.code == 0, cried.errors);
    CHECK(cried.says("␛[31mred"));
    CHECK(cried.says("␇ loud"));
    // The JSON has the exact text, and no byte of it that a terminal would obey.
    auto exact = commands[1];
    exact.insert(exact.end(), {"--json", "-"});
    const program_result figures = runner.run(exact);
    CHECK(has_no_control_sequences(figures.output));
    CHECK(json::parse(figures.output)["model"] == loud_name);
}

}  // namespace output_test
