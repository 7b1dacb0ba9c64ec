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
#include "core/convert/convert.h"
#include "core/convert/gguf_writer.h"
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
void mix(const fs::path &big, const fs::path &small, const fs::path &out) {
    const gguf_files first = opened(big), second = opened(small);
    gguf_keys keys;
    for (const gguf_key &key : first.keys()) keys.copy(key);
    std::vector<const gguf_tensor *> from;
    std::vector<target_tensor> targets;
    uint32_t taken = 0;
    for (const gguf_tensor &tensor : first.tensors()) {
        const bool expert = tensor.name.find("_exps.weight") != std::string::npos;
        from.push_back(expert ? second.find(tensor.name) : &tensor);
        REQUIRE(from.back() != nullptr);
        taken += from.back()->type != tensor.type;
        targets.push_back({tensor.name, tensor.shape, from.back()->type, {}});
    }
    CHECK(taken > 0);
    const gguf_layout layout = lay_out(keys, targets);
    std::string bytes = layout.header;
    bytes.resize(layout.bytes);
    for (size_t i = 0; i < from.size(); ++i)
        std::memcpy(bytes.data() + layout.offsets[i], from[i]->bytes.data(), from[i]->bytes.size());
    std::ofstream(out, std::ios::binary) << bytes;
}

// The three files, made once.
struct files {
    toy::folder folder;
    fs::path big = folder / "demo-q8_0.gguf", small = folder / "demo-q4_0.gguf",
             mixed = folder / "mixed.gguf";
    files() {
        thread_pool pool(2);
        const fs::path demo = fs::path(MOORAGE_SOURCE_DIR) / "configs/demo";
        for (const auto &[out, format] : {std::pair{big, "q8_0"}, std::pair{small, "q4_0"}}) {
            const auto done = convert_model({demo, out, format}, pool);
            REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.failure().text));
        }
        mix(big, small, mixed);
    }
};
const files &made() {
    static const files all;
    return all;
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
        config.small = made().small.string();
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
    const std::vector<std::string> expected = bench(made().big).run_it().text.texts;
    CHECK(expected != bench(made().mixed).run_it().text.texts);  // or the test shows nothing
    for (const char *executor : executors_here)
        for (const char *dispatch : {"load_all", "cost", "overlap"}) {
            CAPTURE(executor);
            CAPTURE(dispatch);
            bench on(made().big);
            on.take_both(1, 1);
            on.config.executor = executor;
            on.config.dispatch.plugin = dispatch;
            on.config.prefetch.plugin = "next_gate";
            const run_report report = on.run_it();
            CHECK(report.text.texts == expected);
            CHECK(report.versions[1].computed == 0);
            CHECK(report.experts.substituted == 0);
        }
}

TEST_CASE("the second version alone: the bytes of a file with its experts") {
    const run_report expected = bench(made().mixed).run_it();
    for (const char *executor : executors_here)
        for (const double split : {1.0, 0.5}) {
            CAPTURE(executor);
            CAPTURE(split);
            bench on(made().big);
            on.take_both(-1, 1);
            on.config.executor = executor;
            on.config.split = split;
            on.config.transport.plugin = split == 1 ? "direct" : "chunked";
            const run_report report = on.run_it();
            CHECK(report.text.texts == expected.text.texts);
            CHECK(report.versions[0].computed == 0);
            CHECK(report.versions[1].computed > 500);
            CHECK(report.versions[1].loaded_bytes == report.bytes.h2d);
            CHECK(report.routing.small == report.routing.choices);
        }
}

TEST_CASE("what a version costs in likelihood, and that exact requests pay nothing") {
    bench first(made().big), mixed(made().mixed);
    first.score();
    mixed.score();
    const double own = first.run_it().text.nll, small = mixed.run_it().text.nll;
    CHECK(own != small);
    bench on(made().big);
    on.score();
    on.take_both(-1, 1);
    const run_report all = on.run_it();
    CHECK(all.text.nll == small);
    REQUIRE(all.text.own_nll.has_value());
    CHECK(*all.text.own_nll == own);
    on.take_both(0.6, 1);
    const run_report some = on.run_it();
    CHECK(some.versions[1].computed > 0);
    CHECK(some.versions[0].computed > 0);
    CHECK(some.text.nll != own);
    CHECK(some.text.nll != small);
    CHECK(to_json(some)["versions"][1]["name"] == "demo-q4_0.gguf");
    // Windows are requests.
    for (uint64_t request = 0; request < 64; ++request) on.config.exact_requests.push_back(request);
    const run_report exact = on.run_it();
    CHECK(exact.text.nll == own);
    CHECK(exact.routing.held_exact > 0);
    CHECK(exact.versions[1].computed == 0);
}

TEST_CASE("an exact request beside others has its own text") {
    const std::vector<std::string> expected = bench(made().big).run_it().text.texts;
    bench on(made().big);
    on.take_both(-1, 1);
    on.config.exact_requests = {1};
    const run_report report = on.run_it();
    CHECK(report.text.texts[1] == expected[1]);
    CHECK(report.versions[0].computed > 0);
    CHECK(report.versions[1].computed > 0);
}

TEST_CASE("a second version whose matrices are of several formats") {
    thread_pool pool(2);
    const fs::path nested = made().folder / "demo-q4_k_m.gguf";
    const auto done = convert_model({made().big, nested, "q4_k_m"}, pool);
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.failure().text));
    const fs::path together = made().folder / "mixed-q4_k_m.gguf";
    mix(made().big, nested, together);
    const std::vector<std::string> expected = bench(together).run_it().text.texts;
    bench on(made().big);
    on.take_both(-1, 1);
    on.config.small = nested.string();
    CHECK(on.run_it().text.texts == expected);
}

TEST_CASE("what is no smaller version of a model is refused in words") {
    const auto refused = [](bench &on, const char *what) {
        const auto done = run(on.config, on.shared, {});
        REQUIRE_FALSE(done.ok());
        CAPTURE(done.failure().text);
        CHECK(done.failure().text.find(what) != std::string::npos);
    };
    bench larger(made().small);
    larger.config.small = made().big.string();
    refused(larger, "[source] small names the smaller version");
    bench other(made().big);
    const fs::path quantised = fs::path(MOORAGE_SOURCE_DIR) / "tests/golden/quantised/models";
    other.config.small = (quantised / "mixtral-qkv-q4_1.gguf").string();
    refused(other, "it is no version of");
    bench absent(made().big);
    absent.config.small = (made().folder / "nothing.gguf").string();
    refused(absent, "nothing.gguf");
}

}  // namespace model_versions_test
