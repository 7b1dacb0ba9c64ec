// model_shards_test.cpp - goal: a directory is read if no needed tensor is missing or ambiguous.
// Otherwise the error describes the directory. Method: a golden model written in shards, with
// indices that promise too much or too little, without an index, with tensors of types and keys of
// config.json that nothing reads, compared with the original model.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/model/model.h"
#include "core/model/segment.h"
#include "tests/unit/model_files.h"

namespace model_shards_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

std::unique_ptr<model> open_valid(const std::filesystem::path &directory) {
    auto opened_model = open_model(directory);
    INFO((opened_model.ok() ? std::string() : opened_model.failure().text));
    REQUIRE(opened_model.ok());
    return std::move(opened_model).value();
}

std::string refusal(const std::filesystem::path &directory) {
    const auto opened_model = open_model(directory);
    REQUIRE_FALSE(opened_model.ok());
    return opened_model.failure().text;
}

bool holds(const std::string &text, const std::string &part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
}

std::vector<std::byte> image_of(const mlp_weights &expert) {
    const segment_image image(expert, 0, expert.gate.rows);
    std::vector<std::byte> bytes(image.bytes());
    image.copy(0, image.bytes(), bytes.data());
    return bytes;
}

void check_same_experts(const model &first_model, const model &second_model) {
    const auto left = experts_of(first_model), right = experts_of(second_model);
    REQUIRE(left.size() == right.size());
    for (size_t expert = 0; expert < left.size(); ++expert)
        CHECK(image_of(*left[expert]) == image_of(*right[expert]));
}

// The weights in so many shards, and their index, which is not written.
json split_in_shards(const scratch_directory &place, size_t parts) {
    const raw_file whole = place.read_weights();
    json index = {{"metadata", json::object()}, {"weight_map", json::object()}};
    for (size_t part = 0; part < parts; ++part) {
        const std::string name = format("model-{:05}-of-{:05}.safetensors", part + 1, parts);
        raw_file shard;
        for (size_t i = part; i < whole.tensors.size(); i += parts) {
            shard.tensors.push_back(whole.tensors[i]);
            index["weight_map"][whole.tensors[i].name] = name;
        }
        write_file(place.path() / name, shard.build());
    }
    std::filesystem::remove(place.path() / "model.safetensors");
    return index;
}

}  // namespace

TEST_CASE("numbered shards without an index are read where all are there") {
    const scratch_directory place(golden_directory("qwen2_moe"));
    const auto whole = open_valid(golden_directory("qwen2_moe"));
    split_in_shards(place, 3);
    const auto sharded = open_valid(place.path());
    CHECK(sharded->file_count() == 3);
    CHECK(sharded->sizes().total_bytes == whole->sizes().total_bytes);
    check_same_experts(*whole, *sharded);
    // A tensor in two of them: nothing says which counts.
    const std::filesystem::path second = place.path() / "model-00002-of-00003.safetensors";
    const std::string kept = read_file(second);
    std::filesystem::copy_file(place.path() / "model-00001-of-00003.safetensors", second,
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(holds(refusal(place.path()), "00001-of-00003.safetensors, too, and there is no model."));
    write_file(second, kept);
    std::filesystem::remove(place.path() / "model-00003-of-00003.safetensors");
    CHECK(holds(refusal(place.path()), "holds 2 of 3 shards, among them model-00001-of-00003.saf"));
    CHECK(holds(refusal(place.path()), "number 00003 is missing"));
}

TEST_CASE("a directory without weights says what lies there") {
    const scratch_directory place;
    const auto refusal_beside = [&](const char *name) {
        write_file(place.path() / name, std::string("x"));
        return refusal(place.path());
    };
    const std::string nothing = refusal(place.path());
    CHECK(holds(nothing, "holds neither model.safetensors nor model.safetensors.index.json"));
    CHECK(holds(nothing, "nor other weights"));
    CHECK(holds(refusal_beside("pytorch_model.bin"),
                "it holds pytorch_model.bin, which have to be conv"));
    CHECK(holds(refusal_beside("weights.safetensors"),
                "it holds weights.safetensors, and the weights are"));
    CHECK(holds(refusal_beside("qwen.gguf"),
                "holds qwen.gguf; name the file: " + (place.path() / "qwen.gguf").string()));
    // Numbers that no shard has.
    for (const char *name : {"model-00000-of-00002.safetensors", "model-00003-of-00002.safetensors",
                             "model-1-of-2.safetensors", "-00001-of-00002.safetensor"})
        CHECK(holds(refusal_beside(name), "holds qwen.gguf"));
    CHECK(holds(refusal_beside("model-00002-of-00002.safetensors"), "holds 1 of 2 shards"));
}

TEST_CASE("an index may promise what nothing needs, and leave out what is there") {
    const scratch_directory place(golden_directory("qwen2_moe"));
    const auto whole = open_valid(golden_directory("qwen2_moe"));
    const json index = split_in_shards(place, 3);
    const std::filesystem::path file = place.path() / "model.safetensors.index.json";
    const auto error_after = [&](auto edit) {
        json edited = index;
        edit(edited["weight_map"]);
        write_file(file, edited.dump());
        const auto opened_model = open_model(place.path());
        if (opened_model.ok()) check_same_experts(*whole, **opened_model);
        return opened_model.ok() ? std::string() : opened_model.failure().text;
    };
    const std::string norm = "model.norm.weight";
    const std::string third = "model-00003-of-00003.safetensors";
    CHECK(error_after([](json &) {}).empty());
    CHECK(error_after([&](json &map) { map["mtp.fc.weight"] = third; }).empty());
    CHECK(error_after([&](json &map) { map["mtp.fc.weight"] = "mtp.safetensors"; }).empty());
    CHECK(error_after([&](json &map) { map.erase(norm); }).empty());
    // A needed tensor must be in the file that the index names, even if another file has it.
    const std::string other_file =
        index["weight_map"][norm] == third ? "model-00001-of-00003.safetensors" : third;
    CHECK(holds(error_after([&](json &map) { map[norm] = other_file; }),
                norm + " is placed in " + other_file + ", which does not hold it"));
    CHECK(holds(error_after([&](json &map) { map[norm] = "no.safetensors"; }),
                norm + " is placed in no.safetensors, which is not in this directory"));
    // Biases that a part looks for without needing them: not to be taken for absent.
    const std::string bias = "model.layers.1.self_attn.q_proj.bias";
    REQUIRE(index["weight_map"].contains(bias));
    CHECK(holds(error_after([&](json &map) { map[bias] = "no.safetensors"; }),
                bias + " is placed in"));
    // Left out and in two files.
    const std::filesystem::path first = place.path() / "model-00001-of-00003.safetensors";
    std::filesystem::copy_file(first, place.path() / "a.safetensors");
    const auto replace_entry = [&](json &map) {
        std::string shared;
        for (const auto &[tensor, name] : index["weight_map"].items())
            if (name == first.filename().string()) shared = tensor;
        map.erase(shared);
        map["further"] = "a.safetensors";
    };
    CHECK(holds(error_after(replace_entry), "and in another file, and the index names neither"));
}

TEST_CASE("types of the format that nothing computes with matter where they are needed") {
    const scratch_directory place(golden_directory("qwen2_moe"));
    const raw_file good = place.read_weights();
    const std::tuple<const char *, const char *, size_t> further[] = {
        {"F8_E8M0", "[4]", 4}, {"F4", "[3, 2]", 3},       {"F6_E2M3", "[4]", 3},
        {"F6_E3M2", "[8]", 6}, {"F8_E4M3FNUZ", "[2]", 2}, {"F8_E5M2FNUZ", "[2]", 2},
        {"C64", "[2, 1]", 16}, {"F4", "[0]", 0}};
    for (const auto &[name, shape, bytes] : further) {
        const std::string type = name;
        CAPTURE(type);
        raw_file file = good;
        file["x.scale"] = {"x.scale", type, shape, std::vector<std::byte>(bytes)};
        place.write_weights(file);
        CHECK(open_valid(place.path())->sizes().unused_bytes == bytes);
    }
    raw_file half = good;
    half["x.scale"] = {"x.scale", "F4", "[3]", std::vector<std::byte>(2)};
    place.write_weights(half);
    CHECK(holds(refusal(place.path()), "shape [3] of F4 has 12 bits, no whole bytes"));
    raw_file short_one = good;
    short_one["x.scale"] = {"x.scale", "F6_E2M3", "[4]", std::vector<std::byte>(4)};
    place.write_weights(short_one);
    CHECK(holds(refusal(place.path()), "shape [4] of F6_E2M3 takes 3 bytes"));
    raw_file needed = good;
    raw_tensor &norm = needed["model.norm.weight"];
    norm.dtype = "F8_E8M0";
    norm.shape = format("[{}]", norm.bytes.size());
    place.write_weights(needed);
    CHECK(holds(refusal(place.path()), "model.norm.weight has the shape"));
    raw_tensor &kept = needed["model.norm.weight"];
    kept.bytes.resize(kept.bytes.size() / 2);
    kept.shape = format("[{}]", kept.bytes.size());
    place.write_weights(needed);
    CHECK(holds(refusal(place.path()), "is of type F8_E8M0; BF16"));
}

TEST_CASE("Infinity and NaN in keys that nothing reads") {
    const scratch_directory place(golden_directory("qwen2_moe"));
    const std::string text = read_file(place.path() / "config.json");
    const auto error_with_key = [&](const std::string &key) {
        std::string edited = text;
        edited.insert(edited.find('{') + 1, key + ",");
        write_file(place.path() / "config.json", edited);
        const auto opened_model = open_model(place.path());
        return opened_model.ok() ? std::string() : opened_model.failure().text;
    };
    CHECK(error_with_key("\"time_step_limit\": [0.0, Infinity]").empty());
    CHECK(error_with_key("\"a\": NaN, \"b\": {\"c\": -Infinity}, \"d\": \"x Infinity \\\" NaN\"")
              .empty());
    for (const auto &[old_text, new_text, said] :
         {std::tuple("\"hidden_size\": 48", "\"hidden_size\": Infinity",
                     "hidden_size is \"Infinity\"; a whole number"),
          std::tuple("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": NaN",
                     "rms_norm_eps is \"NaN\"; a number")}) {
        std::string edited = text;
        REQUIRE(holds(edited, old_text));
        edited.replace(edited.find(old_text), std::string(old_text).size(), new_text);
        write_file(place.path() / "config.json", edited);
        CHECK(holds(refusal(place.path()), said));
    }
    // A mistake is told with its place and reason.
    const std::string slip = error_with_key("\"a\": Inf");
    CHECK(holds(slip, "config.json: not valid JSON: parse error at line 1, column"));
    CHECK(holds(slip, "invalid literal"));
    const std::string late = error_with_key("\"" + std::string(500, 'k') + "\" 1");
    CHECK(holds(late, "expected ':'"));
    CHECK(late.size() < 600);
}

TEST_CASE("a pointer of Git LFS is told from the file") {
    const scratch_directory place(golden_directory("mixtral"));
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4995584424\n";
    write_file(place.path() / "model.safetensors", pointer);
    CHECK(holds(refusal(place.path()),
                "model.safetensors: is a pointer of Git LFS to 4995584424 "
                "bytes that are not here; git lfs pull fetches them"));
    write_file(place.path() / "x.gguf", pointer);
    CHECK(holds(refusal(place.path() / "x.gguf"), "x.gguf: is a pointer of Git LFS"));
}

}  // namespace model_shards_test
