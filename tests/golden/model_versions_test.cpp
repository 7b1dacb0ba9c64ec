// model_versions_test.cpp - goal: a model whose experts are in two files computes with both. With
// the first version alone it gives the bytes of the first file. With the second alone it gives
// those of a file with the first one's other weights and the second one's experts. Method: convert
// the demo model to Q8_0 and Q4_0. Put the third file together tensor by tensor, and run it as any
// model.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/json.h"
#include "tools/convert/convert.h"
#include "tools/convert/gguf_writer.h"
#include "core/pipeline/run.h"
#include "tests/unit/toy_machine.h"

namespace model_versions_test {

using namespace moorage::core;

namespace {

namespace fs = std::filesystem;

gguf_files opened(const fs::path &path) {
    auto files = gguf_files::open(path);
    REQUIRE_MESSAGE(files.ok(), (files.ok() ? "" : files.failure().text));
    return std::move(*files);
}

// The header and all tensors of `big`, except the stacked experts, which come from `small`.
void mix(const fs::path &big, const fs::path &small, const fs::path &output) {
    const gguf_files first = opened(big), second = opened(small);
    gguf_keys keys;
    for (const gguf_key &key : first.keys()) keys.copy(key);
    std::vector<const gguf_tensor *> sources;
    std::vector<target_tensor> targets;
    uint32_t taken = 0;
    for (const gguf_tensor &tensor : first.tensors()) {
        const bool expert = tensor.name.find("_exps.weight") != std::string::npos;
        sources.push_back(expert ? second.find(tensor.name) : &tensor);
        REQUIRE(sources.back() != nullptr);
        taken += sources.back()->type != tensor.type;
        targets.push_back({tensor.name, tensor.shape, sources.back()->type, {}});
    }
    CHECK(taken > 0);
    const gguf_layout layout = lay_out(keys, targets);
    std::string bytes = layout.header;
    bytes.resize(layout.bytes);
    for (size_t i = 0; i < sources.size(); ++i)
        std::memcpy(bytes.data() + layout.offsets[i], sources[i]->bytes.data(),
                    sources[i]->bytes.size());
    std::ofstream(output, std::ios::binary) << bytes;
}

// The three files, made once.
struct files {
    toy::folder folder;
    fs::path big = folder / "demo-q8_0.gguf", small = folder / "demo-q4_0.gguf",
             mixed = folder / "mixed.gguf";
    files() {
        thread_pool pool(2);
        const fs::path demo = fs::path(MOORAGE_SOURCE_DIR) / "configs/demo";
        for (const auto &[output, format] : {std::pair{big, "q8_0"}, std::pair{small, "q4_0"}}) {
            const auto done = convert_model({demo, output, format}, pool);
            REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.failure().text));
        }
        mix(big, small, mixed);
    }
};
const files &demo_files() {
    static const files converted;
    return converted;
}

struct bench {
    run_resources shared;
    run_config config;

    explicit bench(const fs::path &model) {
        REQUIRE(shared.scan(std::vector{fs::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
        config.file = "test.toml";
        config.executor = "cpu";
        config.profile = "host";
        config.model = model;
        config.prompts = {"The president said that", "def main(", "Il y avait"};
        config.max_tokens = 16;
        config.prefill = 512;
        config.threads = 2;
    }
    // With few slots, so that experts come and go.
    void take_both(double t1, double t2) {
        config.small = demo_files().small.string();
        config.router = {"hobbit", "test", {{"t1", t1, "test"}, {"t2", t2, "test"}}};
        config.cache.plugin = "lru";
        config.experts = 24;
    }
    void score() {
        config.prompts.clear();
        config.text = fs::path(MOORAGE_SOURCE_DIR) / "tests/README.md";
        config.window = 64;
        config.tokens = 200;
        config.prefill = 0;
    }
    run_report run_it() {
        run_options options;
        options.own_routing = true;
        auto done = run(config, shared, options);
        if (!done) FAIL(done.failure().text);
        return std::move(done).value();
    }
};

constexpr const char *executors_here[] = {"cpu", "emulator"};

}  // namespace

TEST_CASE("the first version alone: the bytes of the first file") {
    const std::vector<std::string> expected = bench(demo_files().big).run_it().text.texts;
    CHECK(expected != bench(demo_files().mixed).run_it().text.texts);  // or the test shows nothing
    for (const char *executor : executors_here)
        for (const char *dispatch : {"load_all", "cost", "overlap"}) {
            CAPTURE(executor);
            CAPTURE(dispatch);
            bench fixture(demo_files().big);
            fixture.take_both(1, 1);
            fixture.config.executor = executor;
            fixture.config.dispatch.plugin = dispatch;
            fixture.config.prefetch.plugin = "next_gate";
            const run_report report = fixture.run_it();
            CHECK(report.text.texts == expected);
            CHECK(report.versions[1].computed == 0);
            CHECK(report.experts.substituted == 0);
        }
}

TEST_CASE("the second version alone: the bytes of a file with its experts") {
    const run_report expected = bench(demo_files().mixed).run_it();
    for (const char *executor : executors_here)
        for (const double split : {1.0, 0.5}) {
            CAPTURE(executor);
            CAPTURE(split);
            bench fixture(demo_files().big);
            fixture.take_both(-1, 1);
            fixture.config.executor = executor;
            fixture.config.split = split;
            fixture.config.transport.plugin = split == 1 ? "direct" : "chunked";
            const run_report report = fixture.run_it();
            CHECK(report.text.texts == expected.text.texts);
            CHECK(report.versions[0].computed == 0);
            CHECK(report.versions[1].computed > 500);
            CHECK(report.versions[1].loaded_bytes == report.bytes.h2d);
            CHECK(report.routing.small == report.routing.choices);
        }
}

TEST_CASE("what a version costs in likelihood, and that exact requests pay nothing") {
    bench first(demo_files().big), mixed(demo_files().mixed);
    first.score();
    mixed.score();
    const double big_nll = first.run_it().text.nll, small_nll = mixed.run_it().text.nll;
    CHECK(big_nll != small_nll);
    bench fixture(demo_files().big);
    fixture.score();
    fixture.take_both(-1, 1);
    const run_report second_only = fixture.run_it();
    CHECK(second_only.text.nll == small_nll);
    REQUIRE(second_only.text.own_nll.has_value());
    CHECK(*second_only.text.own_nll == big_nll);
    fixture.take_both(0.6, 1);
    const run_report both_versions = fixture.run_it();
    CHECK(both_versions.versions[1].computed > 0);
    CHECK(both_versions.versions[0].computed > 0);
    CHECK(both_versions.text.nll != big_nll);
    CHECK(both_versions.text.nll != small_nll);
    CHECK(to_json(both_versions)["versions"][1]["name"] == "demo-q4_0.gguf");
    // Windows are requests.
    for (uint64_t request = 0; request < 64; ++request)
        fixture.config.exact_requests.push_back(request);
    const run_report exact = fixture.run_it();
    CHECK(exact.text.nll == big_nll);
    CHECK(exact.routing.held_exact > 0);
    CHECK(exact.versions[1].computed == 0);
}

TEST_CASE("an exact request beside others has its own text") {
    const std::vector<std::string> expected = bench(demo_files().big).run_it().text.texts;
    bench fixture(demo_files().big);
    fixture.take_both(-1, 1);
    fixture.config.exact_requests = {1};
    const run_report report = fixture.run_it();
    CHECK(report.text.texts[1] == expected[1]);
    CHECK(report.versions[0].computed > 0);
    CHECK(report.versions[1].computed > 0);
}

TEST_CASE("a second version whose matrices are of several formats") {
    thread_pool pool(2);
    const fs::path nested = demo_files().folder / "demo-q4_k_m.gguf";
    const auto done = convert_model({demo_files().big, nested, "q4_k_m"}, pool);
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.failure().text));
    const fs::path together = demo_files().folder / "mixed-q4_k_m.gguf";
    mix(demo_files().big, nested, together);
    const std::vector<std::string> expected = bench(together).run_it().text.texts;
    bench fixture(demo_files().big);
    fixture.take_both(-1, 1);
    fixture.config.small = nested.string();
    CHECK(fixture.run_it().text.texts == expected);
}

TEST_CASE("what is no smaller version of a model is refused in words") {
    const auto refused = [](bench &fixture, const char *part) {
        const auto done = run(fixture.config, fixture.shared, {});
        REQUIRE_FALSE(done.ok());
        CAPTURE(done.failure().text);
        CHECK(done.failure().text.find(part) != std::string::npos);
    };
    bench larger(demo_files().small);
    larger.config.small = demo_files().big.string();
    refused(larger, "[source] small names the smaller version");
    bench stranger(demo_files().big);
    const fs::path quantised = fs::path(MOORAGE_SOURCE_DIR) / "tests/golden/quantised/models";
    stranger.config.small = (quantised / "mixtral-qkv-q4_1.gguf").string();
    refused(stranger, "it is no version of");
    bench absent(demo_files().big);
    absent.config.small = (demo_files().folder / "nothing.gguf").string();
    refused(absent, "nothing.gguf");
}

}  // namespace model_versions_test
