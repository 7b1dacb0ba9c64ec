// quantised_test.cpp - goal: with float32 activations, quantised models give the results of float64
// arithmetic on the values of their weights. They cut texts as ggml's library does. Method: GGUF
// models and packed directories with references made apart from this program. Some are in
// tests/golden/quantised, more beside the project (../shared/data/quant, skipped if absent).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/execute/cpu/golden_check.h"
#include "core/execute/gpu/gpu_memory.h"
#include "core/model/tokenizer.h"
#include "tests/golden/golden_fixture.h"
#include "tests/sanitizers.h"
#include "tests/skip.h"
#include "tests/squared_error.h"

namespace quantised_test {

using namespace moorage::test;

namespace {

namespace fs = std::filesystem;

const fs::path bundled = fs::path(MOORAGE_SOURCE_DIR) / "tests/golden/quantised",
               beside = fs::path(MOORAGE_SHARED_DATA) / "quant";

// Root mean square of the difference, over the standard deviation of the reference.
double rms_error(std::span<const float> is, std::span<const float> expected) {
    REQUIRE(is.size() == expected.size());
    return std::sqrt(squared_error(is, expected));
}

// The files by which a model is opened.
std::vector<fs::path> models(const fs::path &folder) {
    std::vector<fs::path> paths;
    for (const auto &entry : fs::directory_iterator(folder / "models")) {
        const std::string name = entry.path().filename().string();
        const size_t part = name.find("-of-");
        const bool further = part != std::string::npos && !name.substr(0, part).ends_with("-00001");
        if (name.ends_with(".gguf") && !further) paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    return paths;
}

fs::path reference_of(fs::path model) {
    std::string stem = model.stem().string();
    if (const size_t part = stem.find("-00001-of-"); part != std::string::npos) stem.resize(part);
    return model.parent_path() / (stem + ".ref.safetensors");
}

std::vector<float> logits_of_prompt(const model &model, const std::vector<int32_t> &ids,
                                    arithmetic mode = arithmetic::exact) {
    thread_pool pool(2, mode);
    compute_limits limits;
    limits.tokens_max = limits.outputs_max = static_cast<uint32_t>(ids.size());
    limits.context_max = 64;
    const auto compute = compute_of(model, pool, limits);
    forward run(*compute, model);
    run(prompt_pass(ids, 0, 0, true));
    return copied(compute->logits());
}

void check_model(const fs::path &path) {
    CAPTURE(path.filename().string());
    const auto opened = open_or_fail(path);
    const golden_data golden = golden_of(*opened);
    const double error = rms_error(logits_of_prompt(*opened, golden.input_ids), golden.logits);
    MESSAGE(path.filename().string() << ": " << error);
    CHECK(error <= 2e-6);
    thread_pool pool(2);
    const auto report = check_golden(*opened, golden, pool);
    REQUIRE(report.ok());
    CHECK(report->greedy == golden.greedy);
}

template <class Value>
std::vector<Value> values_of(const fs::path &path, const std::string &name) {
    const auto mapped = mapped_file::open(reference_of(path));
    REQUIRE(mapped.ok());
    const auto file = parse_safetensors(mapped->bytes(), "reference");
    REQUIRE(file.ok());
    const tensor *found = file->find(name);
    REQUIRE(found != nullptr);
    std::vector<Value> values(found->elements());
    std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
    return values;
}

// The prompts that tests/perf/beside_llama draws.
std::vector<std::vector<int32_t>> drawn_prompts(size_t count, size_t length, uint32_t words) {
    uint64_t state = 1;
    std::vector<std::vector<int32_t>> prompts(count, std::vector<int32_t>(length));
    for (auto &prompt : prompts)
        for (int32_t &id : prompt) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            id = static_cast<int32_t>((state >> 33) % words);
        }
    return prompts;
}

// Most of the error comes from routers near their threshold, so a few prompts say little. The test
// takes a thousand. The library's error over the same prompts was recorded by `beside_llama
// --errors --record`. Exact arithmetic stands for float64; it is within 2e-6.
void check_fast_against_record(const model &model, size_t prompts, double library) {
    thread_pool fast_pool(2, arithmetic::fast), exact_pool(2);
    compute_limits limits;
    limits.tokens_max = limits.outputs_max = limits.context_max = 24;
    const auto exact = compute_of(model, exact_pool, limits),
               fast = compute_of(model, fast_pool, limits);
    forward run_exact(*exact, model), run_fast(*fast, model);
    double squares = 0;
    for (const auto &ids : drawn_prompts(prompts, 24, model.config().vocabulary)) {
        run_exact(prompt_pass(ids, 0, 0, true));
        run_fast(prompt_pass(ids, 0, 0, true));
        squares += squared_error(fast->logits(), exact->logits());
    }
    const double error = std::sqrt(squares / static_cast<double>(prompts));
    MESSAGE("fast " << error << ", library " << library << ": " << error / library);
    CHECK(error < library);
}

void check_fast_over_nine(const fs::path &path, const model &model, const golden_data &golden) {
    const size_t length = golden.input_ids.size();
    double squares = 0, theirs = 0;
    const double first =
        rms_error(logits_of_prompt(model, golden.input_ids, arithmetic::fast), golden.logits);
    const double library_first =
        rms_error(values_of<float>(path, "logits"), values_of<float>(path, "float64_logits"));
    squares += first * first;
    theirs += library_first * library_first;
    const std::vector<int32_t> further_ids = values_of<int32_t>(path, "more_ids");
    for (size_t begin = 0; begin < further_ids.size(); begin += length) {
        const std::vector<int32_t> ids(&further_ids[begin], &further_ids[begin] + length);
        const double error =
            rms_error(logits_of_prompt(model, ids, arithmetic::fast), logits_of_prompt(model, ids));
        squares += error * error;
    }
    for (const float error : values_of<float>(path, "more_library_rms_error"))
        theirs += double{error} * error;
    const auto prompts = static_cast<double>(further_ids.size() / length + 1);
    MESSAGE(path.filename().string() << ": fast " << std::sqrt(squares / prompts) << ", library "
                                     << std::sqrt(theirs / prompts) << ", first prompt " << first
                                     << " and " << library_first);
    CHECK(std::sqrt(squares) <= 1.05 * std::sqrt(theirs));
}

// Fast arithmetic must be as near to float64 as the library, whose activations have 8 bits too, and
// its text must be the same. The nine prompts of a file are used if no more are on record (of
// models that the library computes otherwise than their publisher). Then a twentieth more is
// allowed.
void check_fast(const fs::path &path) {
    CAPTURE(path.filename().string());
    const auto opened = open_or_fail(path);
    const golden_data golden = golden_of(*opened);
    const auto record = json::parse(std::ifstream(bundled / "library_errors.json"));
    const auto kept = record.find(path.filename().string());
    if (kept == record.end())
        check_fast_over_nine(path, *opened, golden);
    else if (!sanitized)
        check_fast_against_record(*opened, kept->at("prompts"), kept->at("error"));
    thread_pool pool(2, arithmetic::fast);
    const auto report = check_golden(*opened, golden, pool);
    REQUIRE(report.ok());
    CHECK(report->greedy == golden.greedy);
}

void check_texts(const fs::path &path) {
    CAPTURE(path.filename().string());
    const auto words = tokenizer::open_for_model(path);
    REQUIRE_MESSAGE(words.ok(), (words.ok() ? "" : words.failure().text));
    REQUIRE(*words != nullptr);
    const auto mapped = mapped_file::open(reference_of(path));
    REQUIRE(mapped.ok());
    const auto file = parse_safetensors(mapped->bytes(), "reference");
    REQUIRE(file.ok());
    uint32_t texts = 0;
    for (;; ++texts) {
        const tensor *text = file->find("text." + std::to_string(texts));
        const tensor *ids = file->find("text." + std::to_string(texts) + ".ids");
        if (text == nullptr || ids == nullptr) break;
        CAPTURE(texts);
        std::vector<int32_t> expected(ids->elements());
        std::memcpy(expected.data(), ids->bytes.data(), ids->bytes.size());
        const auto is = (*words)->encode(
            {reinterpret_cast<const char *>(text->bytes.data()), text->bytes.size()}, {});
        REQUIRE_MESSAGE(is.ok(), is.failure().text);
        CHECK(*is == expected);
    }
    CHECK(texts == 8);
}

}  // namespace

TEST_CASE("GGUF models compute what float64 makes of their weights") {
    for (const fs::path &path : models(bundled)) check_model(path);
}

TEST_CASE("fast arithmetic is no further from float64 than the library") {
    for (const fs::path &path : models(bundled)) check_fast(path);
}

TEST_CASE("packed directories compute what their publishers' weights mean") {
    for (const auto &entry : fs::directory_iterator(bundled / "published"))
        check_model(entry.path());
}

TEST_CASE("tokenizers inside GGUF files cut texts as the library does") {
    for (const fs::path &path : models(bundled)) check_texts(path);
}

TEST_CASE("a GPU takes every format, and refuses a layer of experts that differ in theirs") {
    const auto refusal = [](const model &model) {
        const auto checked = gpu::check_model(model, "cuda");
        return checked ? std::string() : checked.failure().text;
    };
    for (const fs::path &path : models(bundled)) CHECK(refusal(*open_or_fail(path)).empty());
    CHECK(refusal(*open_or_fail(bundled / "published/gptq-mixtral")).empty());
    // No file has such a layer, so it is made from a file's layers.
    struct changed : model {
        changed(const model &source, weight_type gate, weight_type up, weight_type down) {
            config_ = source.config();
            weights_ = source.weights();
            mlp_weights &expert = weights_.layers[1].experts[2];
            expert.gate.type = gate, expert.up.type = up, expert.down.type = down;
        }
    };
    const auto opened = open_or_fail(bundled / "models/mixtral-qkv-q4_1.gguf");
    using enum weight_type;
    CHECK(refusal(changed(*opened, q4_1, q4_1, q4_1)).empty());
    CHECK(refusal(changed(*opened, q4_1, q4_0, q4_1)) ==
          "executor cuda takes gate and up projections of one type; set executor to cpu");
    CHECK(refusal(changed(*opened, q4_1, q4_1, q5_1)) ==
          "executor cuda takes a layer's experts in the same types of weights, one has q4_1 and "
          "q5_1 where the first has q4_1 and q4_1; set executor to cpu");
}

TEST_CASE("more models in more formats") {
    if (!fs::exists(beside)) return skip(beside.string() + " is not here");
    for (const auto &entry : fs::directory_iterator(beside / "published"))
        check_model(entry.path());
    for (const fs::path &path : models(beside)) {
        check_model(path);
        check_fast(path);
        check_texts(path);
    }
}

}  // namespace quantised_test
