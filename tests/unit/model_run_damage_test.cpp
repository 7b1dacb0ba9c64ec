// model_run_damage_test.cpp - goal: with any damage to one file of a model directory, a run ends in
// figures or in one line that names a file, and never crashes. Method: small models with a
// tokenizer and windows of ids, one file damaged at random in each round. Then the whole way of a
// program: model, tokenizer, requests, run, text. The seed of a failing round is shown.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/pipeline/run.h"
#include "tests/unit/model_files.h"
#include "tests/unit/tokenizer_files.h"

namespace model_run_damage_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

namespace fs = std::filesystem;

constexpr int rounds_per_model = 40;

// Every value of the tree, with those inside lists and objects.
void collect_values(json &value, std::vector<json *> &values) {
    if (value.is_structured())
        for (json &inner : value) collect_values(inner, values);
    values.push_back(&value);
}

// Near misses of the right value: other numbers first, as they are the hardest to notice.
json odd_value(const json &old, const json &other_value, random_stream &random) {
    if (old.is_number() && random.below(2) == 0) {
        const double value = old.get<double>();
        const json numbers[] = {
            value * 2, value + 1,      value - 1, value / 2, -value, 0, old.get<int64_t>() * 2,
            1e300,     4'000'000'000u, 7};
        return numbers[random.below(std::size(numbers))];
    }
    const json values[] = {
        nullptr,        -1,         0,          1, 1e30, 0.5, "", "x", true, json::array(),
        json::object(), 1ull << 40, other_value};
    return values[random.below(std::size(values))];
}

std::string damaged_json(const std::string &content, random_stream &random) {
    json root = json_or_discarded(content);
    std::vector<json *> values;
    collect_values(root, values);
    json &victim = *values[random.below(values.size())];
    const json other_value = *values[random.below(values.size())];
    victim = odd_value(victim, other_value, random);
    return root.dump();
}

std::string damaged_bytes(std::string content, random_stream &random) {
    const size_t head = std::min<size_t>(content.size(), 1500);
    const size_t limit = random.below(2) == 0 ? head : content.size();
    const size_t offset = random.below(limit);
    switch (random.below(4)) {
        case 0:
            content.resize(offset);
            break;
        case 1: {
            const size_t source_offset = random.below(content.size());
            content.insert(offset, content.substr(source_offset, random.below(64)));
            break;
        }
        case 2:  // numbers that are none, all over a stretch of weights
            for (size_t i = offset; i < std::min(offset + 400, content.size()); ++i)
                content[i] = '\xff';
            break;
        default:
            for (uint64_t i = random.below(5) + 1; i-- > 0;)
                content[random.below(limit)] ^= static_cast<char>(1 << random.below(8));
    }
    return content;
}

void damage(const fs::path &file, random_stream &random) {
    const std::string content = read_file(file);
    const uint64_t kind = random.below(12);
    if (kind == 0)
        fs::remove(file);
    else if (kind == 1)
        write_file(file, std::string());
    else if (kind < 9 && file.extension() == ".json")
        write_file(file, damaged_json(content, random));
    else
        write_file(file, damaged_bytes(content, random));
}

// The model's files, a tokenizer of bytes (of which the first 160 are in its vocabulary), windows.
struct prepared : scratch_directory {
    explicit prepared(const std::string &name) : scratch_directory(golden_directory(name)) {
        write_file(path() / "tokenizer.json",
                   split_file({R"(\p{L}+|\s+|.)"}, {{"q", "u"}, {"t", "h"}}).dump());
        write_file(path() / "windows.json",
                   std::string(R"({"a": {"windows": [[1, 2, 3, 4], [9, 8, 7]]}, "b": ["abc d"]})"));
    }
};

run_config config_of(const fs::path &place, random_stream &random) {
    run_config config;
    config.file = "test.toml";
    config.model = place;
    config.executor = random.below(3) == 0 ? "emulator" : "cpu";
    config.profile = config.executor == "cpu" ? "host" : "rtx_4090";
    config.prefill = static_cast<uint32_t>(random.below(6));
    config.batch = static_cast<uint32_t>(1 + random.below(2));
    config.max_tokens = 5;
    config.threads = 1;
    if (random.below(2) == 0)
        config.text = place / "windows.json";
    else
        config.prompts = {"abc abd", "x"};
    if (random.below(3) != 0) config.experts = static_cast<uint32_t>(1 + random.below(20));
    if (random.below(2) == 0) config.split = 0.5;
    if (random.below(2) == 0) config.prefetch.plugin = "next_gate";
    if (random.below(3) == 0) config.dispatch.plugin = "cost";
    return config;
}

// One run; whether it was refused.
bool refused(const run_config &config) {
    run_resources shared;
    REQUIRE(shared.scan(std::vector{fs::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
    const auto done = run(config, shared, {});
    if (!done) {
        const std::string &text = done.failure().text;
        CAPTURE(text);
        CHECK_FALSE(text.empty());
        CHECK(text.find('\n') == std::string::npos);
        return true;
    }
    CHECK(done->tokens > 0);
    if (config.text.empty()) {
        CHECK(done->text.texts.size() == 2);
        CHECK(done->text.written <= 10);
    } else {
        CHECK(done->text.scored > 0);
    }
    const expert_counts &experts = done->experts;
    CHECK(experts.requested == experts.hits + experts.partial_hits + experts.misses);
    CHECK_FALSE(to_json(*done).dump(-1, ' ', false, json::error_handler_t::replace).empty());
    CHECK_FALSE(to_text(*done).empty());
    return false;
}

}  // namespace

TEST_CASE("undamaged directories run") {
    for (const char *name : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2_lite",
                             "deepseek_v3", "phimoe", "granitemoe", "gpt_oss", "glm4_moe"}) {
        CAPTURE(name);
        const prepared place(name);
        for (uint64_t round = 0; round < 4; ++round) {
            random_stream random(1, round);
            CHECK_FALSE(refused(config_of(place.path(), random)));
        }
    }
}

TEST_CASE("one damaged file: figures or a line, never a crash") {
    set_log_level(log_level::off);
    uint64_t seed = 10;
    for (const char *name : {"mixtral", "qwen2_moe", "deepseek_v2_lite", "deepseek_v3", "gpt_oss",
                             "phimoe", "granitemoe"}) {
        CAPTURE(name);
        const prepared place(name);
        std::vector<fs::path> files;
        for (const auto &file : fs::directory_iterator(place.path())) files.push_back(file.path());
        std::ranges::sort(files);
        ++seed;
        int noticed = 0;
        for (uint64_t round = 0; round < rounds_per_model; ++round) {
            random_stream random(seed, round);
            const fs::path victim = files[random.below(files.size())];
            const std::string content = read_file(victim);
            CAPTURE(seed);
            CAPTURE(round);
            CAPTURE(victim.string());
            damage(victim, random);
            noticed += refused(config_of(place.path(), random));
            write_file(victim, content);
        }
        CHECK(noticed > rounds_per_model / 8);
        CHECK(noticed < rounds_per_model);
    }
    set_log_level(log_level::warning);
}

}  // namespace model_run_damage_test
