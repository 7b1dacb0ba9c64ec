// gguf_extents_test.cpp - goal: a GGUF file can be read if it leaves out unneeded parts or has
// extra ones. A needed part is refused by name. Method: small files made byte by byte, with and
// without last dimensions of 1, lists of lists, types that nothing computes with.
#include <doctest/doctest.h>

#include <filesystem>

#include "core/model/gguf_config.h"
#include "core/model/gguf_ends.h"
#include "core/model/gguf_shape.h"
#include "core/model/model.h"
#include "tests/unit/gguf_files.h"
#include "tests/unit/model_files.h"

namespace gguf_extents_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

bool says(const std::string &text, std::string_view part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
}

std::string config_refusal(const gguf_maker &gguf) {
    const std::vector<std::byte> bytes = gguf.make();
    const auto files = gguf_files::parse(bytes, "a.gguf");
    REQUIRE_MESSAGE(files.ok(), files.failure().text);
    const auto config = read_gguf_config(*files);
    return config ? "" : config.failure().text;
}

gguf_maker small() {
    gguf_maker gguf;
    gguf.text("general.architecture", "llama").number("llama.block_count", 2);
    gguf.real("llama.rope.freq_base", 1e6F).flag("a.flag", true).numbers("a.list", {-1, 2});
    gguf.texts("a.texts", {"x", "yz"});
    gguf.floats("first", {8, 3}).floats("second", {5});
    return gguf;
}

}  // namespace

TEST_CASE("lists of lists are passed over, and what follows is read") {
    gguf_maker gguf = small();
    ++gguf.key_count;
    // [[1, 2], ["x"], [[-1]]]
    gguf.keys.text("b").put(uint32_t{9}).put(uint32_t{9}).put(uint64_t{3});
    gguf.keys.put(uint32_t{4}).put(uint64_t{2}).put(uint32_t{1}).put(uint32_t{2});
    gguf.keys.put(uint32_t{8}).put(uint64_t{1}).text("x");
    gguf.keys.put(uint32_t{9}).put(uint64_t{1}).put(uint32_t{5}).put(uint64_t{1}).put(int32_t{-1});
    gguf.number("c", 7);
    const std::vector<std::byte> bytes = gguf.make();
    const auto parsed = parse_gguf(bytes, "a.gguf");
    REQUIRE_MESSAGE(parsed.ok(), parsed.failure().text);
    CHECK(std::get<gguf_lists>(parsed->metadata.at("b")).count == 3);
    CHECK(gguf_count(parsed->metadata, "c") == 7);
}

TEST_CASE("missing dimensions are 1") {
    using shape = std::vector<uint64_t>;
    CHECK(is_same_shape(shape{1, 3, 8}, shape{3, 8}));
    CHECK(is_same_shape(shape{3, 8}, shape{1, 1, 3, 8}));
    CHECK(is_same_shape(shape{1, 1}, shape{}));
    CHECK_FALSE(is_same_shape(shape{3, 1, 8}, shape{3, 8}));
    CHECK_FALSE(is_same_shape(shape{8, 1}, shape{8}));
    CHECK_FALSE(is_same_shape(shape{2, 8}, shape{8}));
    gguf_maker gguf = small();
    gguf.floats("scalar", {});
    const std::vector<std::byte> bytes = gguf.make();
    const auto parsed = parse_gguf(bytes, "a.gguf");
    REQUIRE_MESSAGE(parsed.ok(), parsed.failure().text);
    CHECK(parsed->tensors[2].values() == 1);
    CHECK(parsed->tensors[0].extent(0) == 8);
    CHECK(parsed->tensors[0].extent(1) == 3);
    CHECK(parsed->tensors[0].extent(2) == 1);
}

namespace {

// A Mixtral of one layer, whose weights are zeros. `whole`: last dimensions of 1 are written.
gguf_maker tiny(uint64_t experts, bool whole) {
    gguf_maker gguf;
    gguf.text("general.architecture", "llama").number("llama.block_count", 1);
    gguf.number("llama.embedding_length", 8).number("llama.context_length", 32);
    gguf.number("llama.feed_forward_length", 4).number("llama.attention.head_count", 2);
    gguf.number("llama.attention.head_count_kv", 2);
    gguf.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf.number("llama.expert_count", static_cast<uint32_t>(experts));
    gguf.number("llama.expert_used_count", 1);
    const auto add = [&](const char *name, std::vector<uint64_t> shape) {
        while (!whole && shape.size() > 1 && shape.back() == 1) shape.pop_back();
        gguf.floats(name, shape);
    };
    add("token_embd.weight", {8, 16}), add("output.weight", {8, 16});
    add("output_norm.weight", {8});
    for (const char *name : {"attn_q", "attn_k", "attn_v", "attn_output"})
        add(format("blk.0.{}.weight", name).c_str(), {8, 8});
    add("blk.0.attn_norm.weight", {8}), add("blk.0.ffn_norm.weight", {8});
    add("blk.0.ffn_gate_inp.weight", {8, experts});
    add("blk.0.ffn_gate_exps.weight", {8, 4, experts});
    add("blk.0.ffn_up_exps.weight", {8, 4, experts});
    add("blk.0.ffn_down_exps.weight", {4, 8, experts});
    return gguf;
}

std::string opening(const gguf_maker &gguf) {
    const scratch_directory place;
    const std::filesystem::path file = place.path() / "m.gguf";
    write_file(file, gguf.make());
    const auto opened = open_model(file);
    return opened ? "" : opened.failure().text;
}

}  // namespace

TEST_CASE("one expert, whose dimension the file leaves out or not") {
    for (const bool whole : {true, false}) {
        CAPTURE(whole);
        const scratch_directory place;
        const std::filesystem::path file = place.path() / "m.gguf";
        write_file(file, tiny(1, whole).make());
        const auto opened = open_model(file);
        REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
        CHECK((*opened)->config().experts == 1);
        CHECK((*opened)->sizes().experts_bytes == 3 * 8 * 4 * 4);
        const auto shape = gguf_shape(file);
        REQUIRE_MESSAGE(shape.ok(), shape.failure().text);
        CHECK(shape->experts == 1);
        CHECK(shape->expert_bytes == 3 * 8 * 4 * 4);
        CHECK(shape->vocabulary == 16);
        // Query, key, value, output, gate, and three of experts.
        CHECK(shape->products == 8);
    }
}

TEST_CASE("types that nothing computes with matter where the tensor is needed") {
    CHECK(opening(tiny(2, true)).empty());
    const auto with_type = [](const std::string &name, uint32_t type) {
        gguf_maker gguf = tiny(2, true);
        for (auto &tensor : gguf.tensors)
            if (tensor.name == name) tensor.type = type;
        return gguf;
    };
    // 26: I32, of four bytes as the float32 that was there; 99: of no version of ggml.
    CHECK(says(opening(with_type("blk.0.attn_q.weight", 26)),
               "tensor blk.0.attn_q.weight is of type 26 (I32); supported are BF16"));
    CHECK(says(opening(with_type("blk.0.attn_q.weight", 99)), "is of type 99; supported are BF16"));
    for (const uint32_t type : {26u, 99u, 4u}) {
        gguf_maker further = tiny(2, true);
        further.floats("mtp.extra", {4});
        further.tensors.back().type = type;
        CHECK(opening(further).empty());
    }
    gguf_maker turned = tiny(2, true);
    turned.floats("rope_freqs.weight", {2});
    turned.tensors.back().type = 26;
    CHECK(says(opening(turned), "tensor rope_freqs.weight is of type 26 (I32)"));
}

TEST_CASE("dense models are called so") {
    gguf_maker dense;
    dense.text("general.architecture", "llama").number("llama.block_count", 1);
    dense.number("llama.embedding_length", 8).number("llama.context_length", 32);
    dense.number("llama.feed_forward_length", 4).number("llama.attention.head_count", 2);
    dense.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    dense.floats("token_embd.weight", {8, 16});
    CHECK(says(config_refusal(dense), "llama.expert_count is 0 or missing: a dense model"));
    gguf_maker gemma;
    gemma.text("general.architecture", "gemma3").floats("token_embd.weight", {8, 16});
    CHECK(says(config_refusal(gemma), "general.architecture is gemma3, a dense model"));
}

TEST_CASE("ends of texts that control tokens tell by their names") {
    const auto ends = [](std::vector<std::string> tokens, std::vector<int32_t> kinds,
                         uint32_t vocabulary = 100) {
        gguf_maker gguf;
        gguf.texts("tokenizer.ggml.tokens", tokens).numbers("tokenizer.ggml.token_type", kinds);
        const std::vector<std::byte> bytes = gguf.floats("first", {8, 3}).make();
        const auto parsed = parse_gguf(bytes, "a.gguf");
        REQUIRE_MESSAGE(parsed.ok(), parsed.failure().text);
        return named_ends_of(parsed->metadata, vocabulary);
    };
    using ids = std::vector<int32_t>;
    CHECK(ends({"a", "<|im_end|>", "<|eot_id|>", "<|im_start|>"}, {1, 3, 4, 3}) == ids{1, 2});
    // Nobody writes such a name, so it ends a text although it has the kind of an ordinary word.
    CHECK(ends({"<|im_end|>", "</s>", "<end_of_turn>"}, {1, 2, 6}) == ids{0});
    CHECK(ends({"a", "b", "<|eot_id|>"}, {1, 1, 3}, 2).empty());
    CHECK(ends({"<|end|>", "<|return|>", "<|call|>"}, {3, 3, 3}) == ids{1, 2});
    CHECK(ends({"<|end|>", "<|user|>x"}, {3, 3}) == ids{0});
    // No kinds, or not one for each token: nothing is known.
    CHECK(ends({"<|im_end|>", "a"}, {3}).empty());

    // The extents of a file: beside those that its keys name, each once.
    const std::filesystem::path demo =
        std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo-q4_0.gguf";
    const auto opened = open_model(demo);
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    CHECK((*opened)->generation().end_ids == ids{0});
    CHECK((*opened)->generation().named_end_ids.empty());
    const scratch_directory place;
    const std::filesystem::path path = place.path() / "a.gguf";
    const std::string key = "tokenizer.ggml.eos_token_id";
    write_file(path, with_value(read_file(demo), key, 5));
    const auto changed = open_model(path);
    REQUIRE_MESSAGE(changed.ok(), changed.failure().text);
    CHECK((*changed)->generation().end_ids == ids{5});
    CHECK((*changed)->generation().named_end_ids == ids{0});  // <|endoftext|>
}

}  // namespace gguf_extents_test
