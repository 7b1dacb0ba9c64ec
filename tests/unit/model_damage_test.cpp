// model_damage_test.cpp - goal: no damage to the files of a model directory crashes the reader.
// Method: copies of golden models (one file, or two shards behind an index), damaged at random in
// one file: bytes flipped, the end cut off, a stretch taken from elsewhere, the file emptied,
// removed or replaced by a directory, values of JSON swapped or replaced. Either opening fails with
// a text of one line, or every weight can be read. The seed of a failing case is shown.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/model/model.h"
#include "core/model/segment.h"
#include "tests/unit/model_files.h"

namespace model_damage_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

namespace fs = std::filesystem;

constexpr int damages_per_model = 120;

// Splits model.safetensors into two shards with an index.
void shard(const scratch_directory &place) {
    const raw_file whole = place.read_weights();
    raw_file parts[2];
    json index = {{"metadata", json::object()}, {"weight_map", json::object()}};
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
        parts[i % 2].tensors.push_back(whole.tensors[i]);
        index["weight_map"][whole.tensors[i].name] = i % 2 == 0 ? "a.safetensors" : "b.safetensors";
    }
    write_file(place.path() / "a.safetensors", parts[0].build());
    write_file(place.path() / "b.safetensors", parts[1].build());
    write_file(place.path() / "model.safetensors.index.json", index.dump());
    fs::remove(place.path() / "model.safetensors");
}

json odd_value(random_stream &random, const json &other_value) {
    const json values[] = {nullptr,
                           -1,
                           0,
                           1,
                           3,
                           1e30,
                           0.5,
                           "x",
                           true,
                           json::array(),
                           json::object(),
                           1ull << 40,
                           json::array({1, "y"}),
                           "../x",
                           other_value};
    return values[random.below(std::size(values))];
}

// Every value of the tree, those inside objects and lists too.
void collect_values(json &value, std::vector<json *> &values) {
    if (value.is_structured())
        for (json &inner : value) collect_values(inner, values);
    values.push_back(&value);
}

std::string damaged_json(const std::string &content, random_stream &random) {
    json root = json_or_discarded(content);
    std::vector<json *> values;
    collect_values(root, values);
    json &first = *values[random.below(values.size())];
    const json other_value = *values[random.below(values.size())];
    first = odd_value(random, other_value);
    return root.dump();
}

// Headers are short and their bytes matter most.
size_t random_offset(const std::string &content, random_stream &random) {
    const size_t limit =
        random.below(2) == 0 ? std::min<size_t>(content.size(), 2000) : content.size();
    return random.below(limit);
}

std::string damaged_bytes(std::string content, random_stream &random) {
    if (content.empty()) return "x";
    switch (random.below(4)) {
        case 0:
            for (uint64_t i = random.below(8) + 1; i-- > 0;)
                content[random_offset(content, random)] ^= static_cast<char>(1 << random.below(8));
            break;
        case 1:
            content.resize(random_offset(content, random));
            break;
        case 2: {  // a stretch from elsewhere, over the old bytes
            const size_t source_offset = random_offset(content, random),
                         target_offset = random_offset(content, random);
            const size_t count = std::min(random.below(300) + 1,
                                          content.size() - std::max(source_offset, target_offset));
            std::memmove(content.data() + target_offset, content.data() + source_offset, count);
            break;
        }
        default: {  // the same, moving the later bytes
            const size_t source_offset = random_offset(content, random);
            const std::string moved = content.substr(source_offset, random.below(300));
            content.insert(random_offset(content, random), moved);
            break;
        }
    }
    return content;
}

void damage(const fs::path &file, random_stream &random) {
    const std::string content = read_file(file);
    const uint64_t kind = random.below(16);
    if (kind == 0) {
        fs::remove(file);
    } else if (kind == 1) {
        write_file(file, std::string());
    } else if (kind == 2) {
        fs::remove(file);
        fs::create_directory(file);
    } else if (kind < 10 && file.extension() == ".json") {
        write_file(file, damaged_json(content, random));
    } else {
        write_file(file, damaged_bytes(content, random));
    }
}

// Touches every byte that a kernel could.
uint64_t read_all(const model_weights &weights) {
    uint64_t sum = 0;
    const auto read = [&](const matrix &values) {
        for (uint32_t row = 0; values && row < values.rows; ++row)
            for (uint64_t byte_index = 0;
                 byte_index < bytes_of_columns(values.type, values.columns); ++byte_index)
                sum += static_cast<uint64_t>(values.data[row * values.row_bytes + byte_index]);
    };
    read(weights.embedding);
    read(weights.head);
    for (const layer_weights &layer : weights.layers) {
        const attention_weights &a = layer.attention;
        for (const matrix *part : {&a.query, &a.key, &a.value, &a.output, &a.query_a, &a.query_b,
                                   &a.kv_a, &a.kv_b, &layer.router, &layer.shared_gate})
            read(*part);
        for (const mlp_weights *mlp : {&layer.dense, &layer.shared})
            for (const matrix *part : {&mlp->gate, &mlp->up, &mlp->down}) read(*part);
        for (const mlp_weights &expert : layer.experts) {
            const segment_image image(expert, 0, expert.gate.rows);
            std::vector<std::byte> bytes(image.bytes());
            image.copy(0, bytes.size(), bytes.data());
            for (const std::byte byte : bytes) sum += static_cast<uint64_t>(byte);
        }
    }
    return sum;
}

// How many of the damages were noticed.
int damage_often(const scratch_directory &place, uint64_t seed) {
    set_log_level(log_level::off);  // damaged names make tensors that nothing reads
    std::vector<fs::path> files;
    for (const auto &file : fs::directory_iterator(place.path())) files.push_back(file.path());
    std::ranges::sort(files);
    int noticed = 0;
    for (int round = 0; round < damages_per_model; ++round) {
        random_stream random(seed, static_cast<uint64_t>(round));
        const fs::path &victim = files[random.below(files.size())];
        const std::string content = read_file(victim);
        CAPTURE(seed);
        CAPTURE(round);
        CAPTURE(victim.string());
        damage(victim, random);
        const auto opened = open_model(place.path());
        if (opened.ok()) {
            volatile uint64_t sum = read_all((*opened)->weights());
            (void)sum;
        } else {
            ++noticed;
            CHECK_FALSE(opened.failure().text.empty());
            CHECK(opened.failure().text.find('\n') == std::string::npos);
        }
        fs::remove_all(victim);
        write_file(victim, content);
    }
    set_log_level(log_level::warning);
    return noticed;
}

}  // namespace

TEST_CASE("damaged directories fail with a text or open, and never crash") {
    uint64_t seed = 1;
    for (const char *name : {"qwen2_moe", "gpt_oss", "deepseek_v3", "granitemoe"}) {
        CAPTURE(name);
        const scratch_directory place(golden_directory(name));
        const int noticed = damage_often(place, seed++);
        // Most damages to headers are; bytes of weights may hold anything.
        CHECK(noticed > damages_per_model / 4);
        CHECK(noticed < damages_per_model);
        CHECK(open_model(place.path()).ok());
    }
}

TEST_CASE("damaged shards and indices, too") {
    const scratch_directory place(golden_directory("mixtral"));
    shard(place);
    REQUIRE(open_model(place.path()).ok());
    CHECK(damage_often(place, 77) > damages_per_model / 4);
    CHECK(open_model(place.path()).ok());
}

}  // namespace model_damage_test
