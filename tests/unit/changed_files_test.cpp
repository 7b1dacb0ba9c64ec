// changed_files_test.cpp - goal: if a trace or a shard changes while a command reads it, the error
// names the file, for every command, and blames no policy. Method: the built program with a cache
// policy that overwrites or cuts off a copy of the file within a call, so that it always happens at
// the same place. The same command is right with a policy that leaves the file alone.
#include <doctest/doctest.h>

#include <chrono>

#include "core/base/random.h"
#include "core/base/text.h"
#include "core/source/future.h"
#include "tests/unit/model_files.h"
#include "tests/unit/program.h"
#include "tests/unit/toy_machine.h"

namespace changed_files_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

namespace fs = std::filesystem;

using outcome = moorage::test::program_result;

// Times of change are as fine as the kernel's clock, so files of a test are made to look old.
void make_old(const fs::path &file) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

struct bench {
    toy::folder folder;
    fs::path trace = folder / "trace.safetensors", model = folder / "model";
    fs::path shard = model / "model.safetensors";

    bench() {
        toy::write_files(folder, 4, 16, 2);
        make_trace();
        fs::create_directories(model);
        const fs::path source = golden_directory("olmoe");
        for (const char *name : {"config.json", "generation_config.json", "model.safetensors"})
            if (fs::exists(source / name)) fs::copy_file(source / name, model / name);
        make_old(shard);
        write_file(folder / "windows.json", std::string("[[1,2,3,4,5,6,7,8,9,10,11,12,13]]"));
    }
    void make_trace() {
        random_stream random(1, 0);
        std::vector<std::vector<std::vector<uint16_t>>> chosen(40'000);
        for (auto &token : chosen)
            for (int layer = 0; layer < 4; ++layer) {
                const auto first = static_cast<uint16_t>(random.below(16));
                const auto second = static_cast<uint16_t>((first + 1 + random.below(15)) % 16);
                token.push_back({first, second});
            }
        const trace_data data = toy::routing(chosen, 16, {0, 40'000}, false);
        REQUIRE(write_trace(data, trace).ok());
        make_old(trace);
    }

    // The files of the toy machine, a cache of six experts and the meddler.
    fs::path config(const std::string &name, const std::string &source,
                    const std::string &cache) const {
        folder.write(name + ".toml", R"([hardware]
profile = "device.toml"
[source]
)" + source + R"([memory]
experts = 6
[plugins]
path = [")" + std::string(MOORAGE_BINARY_DIR) +
                                         R"(/tests/policies/meddler.so"]
[cache]
plugin = "meddler"
)" + cache);
        return folder / (name + ".toml");
    }
    fs::path trace_config(const std::string &name, const std::string &cache) const {
        return config(name, "trace = \"trace.safetensors\"\nshape = \"shape.toml\"\n", cache);
    }
    static std::string meddle(const fs::path &file, const std::string &method,
                              uint64_t first_byte) {
        return format("file = \"{}\"\nhow = \"{}\"\nfrom = {}\n", file.string(), method,
                      first_byte);
    }

    outcome moorage(const std::string &arguments) const {
        return ::moorage::test::run_line(arguments, (folder / "errors").string());
    }
    // The command fails, names the file, blames no policy and leaves no figures.
    void names(const fs::path &file, const std::string &arguments, const fs::path &json) const {
        fs::remove(json);
        const outcome result = moorage(arguments);
        CAPTURE(arguments);
        CAPTURE(result.output);
        CAPTURE(result.errors);
        CHECK(result.code == 1);
        const std::string said = result.errors + result.output;
        CHECK(said.find(file.string()) != std::string::npos);
        CHECK(result.errors.find("policy meddler") == std::string::npos);
        CHECK(read_file(json).find("tokens_per_s") == std::string::npos);
        CHECK(read_file(json).find("\"hits\"") == std::string::npos);
    }
};

constexpr uint64_t behind_header = 64 * 1024;

}  // namespace

TEST_CASE("a trace that changes under a run, a comparison or a replay is named") {
    for (const std::string method : {"fill", "cut"}) {
        CAPTURE(method);
        for (const std::string command : {"run", "compare", "tune", "replay"}) {
            const bench fixture;
            const fs::path json = fixture.folder / "figures.json";
            const fs::path meddling = fixture.trace_config(
                "meddling", fixture.meddle(fixture.trace, method, behind_header));
            std::string line = command + " " + meddling.string();
            if (command == "compare") line += " " + fixture.trace_config("quiet", "").string();
            if (command == "tune")
                line += " --param memory.experts --from 6 --to 8 --target hit_rate=0.1";
            if (command == "replay")
                line = format(
                    "replay {0} --policies meddler --slots 6 --plugins {3} "
                    "--param cache.meddler.file={0} --param cache.meddler.how={1} "
                    "--param cache.meddler.from={2}",
                    fixture.trace.string(), method, behind_header,
                    std::string(MOORAGE_BINARY_DIR) + "/tests/policies/meddler.so");
            fixture.names(fixture.trace, line + " --json " + json.string(), json);
        }
    }
}

TEST_CASE("a shard that changes under a model is named") {
    for (const std::string method : {"fill", "cut"}) {
        CAPTURE(method);
        for (const std::string command : {"eval", "run"}) {
            const bench fixture;
            const fs::path json = fixture.folder / "figures.json";
            const std::string windows = (fixture.folder / "windows.json").string();
            const fs::path meddling = fixture.config(
                "meddling", command == "run" ? "model = \"model\"\ntext = \"windows.json\"\n" : "",
                fixture.meddle(fixture.shard, method, behind_header) + "at = 0\n");
            const std::string line =
                command == "run" ? format("run {} --set run.executor=cpu", meddling.string())
                                 : format("eval {} --windows {} --config {} --executor cpu",
                                          fixture.model.string(), windows, meddling.string());
            fixture.names(fixture.shard, line + " --json " + json.string(), json);
        }
    }
}

TEST_CASE("files that nobody touches make no error") {
    const bench fixture;
    const outcome run = fixture.moorage("run " + fixture.trace_config("quiet", "").string());
    CHECK_MESSAGE(run.code == 0, run.errors);
    const outcome eval =
        fixture.moorage(format("eval {} --windows {} --config {} --executor cpu",
                               fixture.model.string(), (fixture.folder / "windows.json").string(),
                               fixture.config("quiet_model", "", "").string()));
    CHECK_MESSAGE(eval.code == 0, eval.errors);
}

TEST_CASE("ids and counts of a trace that was overwritten stay within their tables") {
    const bench fixture;
    const auto opened = trace::open(fixture.trace);
    REQUIRE(opened.ok());
    const future future_before(*opened);
    std::string content = read_file(fixture.trace);
    std::fill(content.begin() + behind_header, content.end() - behind_header, '\xff');
    write_file(fixture.trace, content);  // in place: the same file
    bool changed = false;
    std::vector<uint32_t> ids(4 * 2);
    for (uint64_t token = 0; token < opened->tokens(); ++token) {
        opened->read_experts(token, 1, ids.data());
        for (uint32_t i = 0; i < 8; ++i) {
            CHECK_UNARY(ids[i] < 16);
            CHECK_UNARY(opened->expert(token, i / 2, i % 2) == ids[i]);
        }
        changed = changed || ids[0] == ids[1];
    }
    CHECK(changed);
    // A future is written after it is counted: here from two different contents of one file.
    const future future_after(*opened);
    future_cursor cursor(future_after, order::token);
    for (uint32_t page = 0; page < 64; ++page)
        for (uint64_t step = 0; (step = cursor.next_use(page, step, nullptr)) != MOORAGE_NEVER;) {
        }
}

}  // namespace changed_files_test
