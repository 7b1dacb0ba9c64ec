// tokenizer_perf.cpp - how fast text becomes ids and ids become text.
//
// Workload: the demo model's tokenizer on this project's own prose (README.md and CHANGELOG.md
// repeated to 4 MB), the same with a character beyond Latin in every piece (so that NFC has work),
// and a word of 100 kB. Rates are bytes of text by processor time of one thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/model/tokenizer.h"

namespace {

using namespace moorage::core;

const std::filesystem::path root = MOORAGE_SOURCE_DIR;

std::string repeated(const std::string &text, size_t bytes) {
    std::string result;
    result.reserve(bytes + text.size());
    while (!text.empty() && result.size() < bytes) result += text;
    return result;
}

std::string prose() {
    std::stringstream text;
    for (const char *name : {"README.md", "CHANGELOG.md"})
        text << std::ifstream(root / name).rdbuf();
    return text.str();
}

std::unique_ptr<tokenizer> demo(benchmark::State &state) {
    auto opened = tokenizer::open(root / "configs/demo/tokenizer.json");
    if (opened) return std::move(opened).value();
    state.SkipWithError(opened.failure().text.c_str());
    return nullptr;
}

void encode(benchmark::State &state, const std::string &text) {
    const auto demo_tokenizer = demo(state);
    if (!demo_tokenizer || text.empty()) return state.SkipWithError("nothing to encode");
    size_t ids = 0;
    for (auto _ : state) {
        const auto encoded = demo_tokenizer->encode(text, {});
        if (!encoded) return state.SkipWithError(encoded.failure().text.c_str());
        ids = encoded->size();
        benchmark::DoNotOptimize(ids);
    }
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
    state.counters["bytes_per_id"] =
        static_cast<double>(text.size()) / static_cast<double>(std::max<size_t>(ids, 1));
}

void encode_prose(benchmark::State &state) { encode(state, repeated(prose(), 4 << 20)); }
BENCHMARK(encode_prose)->Unit(benchmark::kMillisecond);

void encode_prose_nfc(benchmark::State &state) {
    encode(state, repeated(prose() + "\u4f60\u597d", 4 << 20));
}
BENCHMARK(encode_prose_nfc)->Unit(benchmark::kMillisecond);

void encode_long_word(benchmark::State &state) { encode(state, repeated("moorage", 100'000)); }
BENCHMARK(encode_long_word)->Unit(benchmark::kMillisecond);

void decode_prose(benchmark::State &state) {
    const auto demo_tokenizer = demo(state);
    const std::string text = repeated(prose(), 4 << 20);
    if (!demo_tokenizer || text.empty()) return state.SkipWithError("nothing to decode");
    const auto ids = demo_tokenizer->encode(text, {});
    if (!ids) return state.SkipWithError(ids.failure().text.c_str());
    for (auto _ : state) benchmark::DoNotOptimize(demo_tokenizer->decode(*ids, {}));
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
BENCHMARK(decode_prose)->Unit(benchmark::kMillisecond);

void open_demo(benchmark::State &state) {
    for (auto _ : state) benchmark::DoNotOptimize(demo(state));
}
BENCHMARK(open_demo)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
