// gguf_test.cpp - goal: GGUF headers are read as they are written. Any fault is refused in words
// before anything of the file is used. Method: small files made byte by byte, each with one fault;
// a right one cut at every byte; split models with parts missing or mixed up.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "core/model/gguf_config.h"
#include "core/model/gguf_reader.h"
#include "core/model/gguf_tokenizer.h"
#include "core/model/model.h"
#include "tests/unit/gguf_files.h"
#include "tests/unit/model_files.h"

namespace gguf_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

// A model of two layers with a tied head.
const std::filesystem::path small_model = std::filesystem::path(MOORAGE_SOURCE_DIR) /
                                          "tests/golden/quantised/models/qwen3moe-tied-iq4_nl.gguf";

std::string refusal(const std::vector<std::byte> &bytes) {
    const auto parsed = parse_gguf(bytes, "a.gguf");
    return parsed ? "" : parsed.failure().text;
}

gguf_maker small() {
    gguf_maker gguf;
    gguf.text("general.architecture", "llama").number("llama.block_count", 2);
    gguf.real("llama.rope.freq_base", 1e6F).flag("a.flag", true).numbers("a.list", {-1, 2});
    gguf.texts("a.texts", {"x", "yz"});
    gguf.floats("first", {8, 3}).floats("second", {5});
    return gguf;
}

// The keys of a Mixtral of two layers and tensors enough for its configuration.
gguf_maker mixtral() {
    gguf_maker gguf;
    gguf.text("general.architecture", "llama").number("llama.block_count", 2);
    gguf.number("llama.embedding_length", 64).number("llama.context_length", 128);
    gguf.number("llama.feed_forward_length", 32).number("llama.attention.head_count", 4);
    gguf.number("llama.attention.head_count_kv", 2);
    gguf.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf.number("llama.expert_count", 4).number("llama.expert_used_count", 2);
    gguf.floats("token_embd.weight", {64, 20}).floats("blk.0.ffn_down_exps.weight", {32, 64, 4});
    return gguf;
}

std::string config_refusal(const gguf_maker &gguf) {
    const std::vector<std::byte> bytes = gguf.make();
    const auto files = gguf_files::parse(bytes, "a.gguf");
    REQUIRE_MESSAGE(files.ok(), files.failure().text);
    const auto config = read_gguf_config(*files);
    return config ? "" : config.failure().text;
}

std::string words_refusal(const gguf_maker &gguf) {
    const std::vector<std::byte> bytes = gguf.make();
    const auto files = gguf_files::parse(bytes, "a.gguf");
    REQUIRE_MESSAGE(files.ok(), files.failure().text);
    const auto words = open_gguf_tokenizer(*files);
    return words ? "" : words.failure().text;
}

bool says(const std::string &text, std::string_view part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a header is read as it is written") {
    const std::vector<std::byte> bytes = small().make();
    const auto parsed = parse_gguf(bytes, "a.gguf");
    REQUIRE_MESSAGE(parsed.ok(), parsed.failure().text);
    const gguf_metadata &keys = parsed->metadata;
    CHECK(gguf_text(keys, "general.architecture") == "llama");
    CHECK(gguf_count(keys, "llama.block_count") == 2);
    CHECK(gguf_number(keys, "llama.rope.freq_base") == 1e6);
    CHECK(std::get<bool>(keys.at("a.flag")));
    CHECK_FALSE(gguf_count(keys, "a.flag"));
    CHECK_FALSE(gguf_text(keys, "nothing"));
    const auto &list = std::get<gguf_numbers>(keys.at("a.list"));
    CHECK((list.count == 2 && list.at(0) == -1 && list.at(1) == 2));
    CHECK(std::get<gguf_texts>(keys.at("a.texts"))[1] == "yz");
    REQUIRE(parsed->tensors.size() == 2);
    CHECK(parsed->tensors[0].shape == std::vector<uint64_t>{3, 8});
    CHECK(parsed->tensors[0].bytes.size() == 96);
    CHECK(parsed->tensors[1].bytes.data() - parsed->tensors[0].bytes.data() == 96);
    CHECK(parsed->data_offset % 32 == 0);
    gguf_maker old = small();
    old.version = 2;
    CHECK(refusal(old.make()).empty());
}

TEST_CASE("a file cut anywhere is refused in one line") {
    const std::vector<std::byte> whole = small().make();
    for (size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        const std::string text = refusal({whole.begin(), whole.begin() + length});
        // Bytes behind the last tensor are not missed.
        if (length >= whole.size() - 12) continue;
        REQUIRE_FALSE(text.empty());
        CHECK(text.find('\n') == std::string::npos);
        CHECK(text.starts_with("a.gguf: "));
    }
}

TEST_CASE("wrong headers are refused by what is wrong") {
    using change = std::function<void(gguf_maker &)>;
    const std::pair<change, const char *> wrong[] = {
        {[](gguf_maker &m) { m.version = 1; }, "GGUF version 1; 2 and 3 are supported"},
        {[](gguf_maker &m) { m.version = 0x03000000; }, "highest byte first"},
        {[](gguf_maker &m) { m.number("a.flag", 1); }, "a.flag is there twice"},
        {[](gguf_maker &m) { ++m.key_count; }, "a.gguf: "},
        {[](gguf_maker &m) { m.key_count = 1ull << 60; }, "the number of keys is"},
        {[](gguf_maker &m) { m.number("general.alignment", 48); }, "general.alignment is 48"},
        {[](gguf_maker &m) { m.number("general.alignment", 0); }, "general.alignment is 0"},
        {[](gguf_maker &m) { m.tensors[0].type = 16; }, "no whole blocks of IQ2_XXS"},
        {[](gguf_maker &m) { m.tensors[1].offset += 4; }, "is no multiple of the alignment, 32"},
        {[](gguf_maker &m) { m.tensors[1].offset = 0; }, "tensors first and second share bytes"},
        {[](gguf_maker &m) { m.tensors[1].offset = 1 << 20; }, "reach beyond the"},
        {[](gguf_maker &m) { m.tensors[1].offset = ~31ull; }, "reach beyond the"},
        {[](gguf_maker &m) { m.tensors[1].shape = {0}; }, "is of no tensor that fits a file"},
        {[](gguf_maker &m) {
             m.tensors[1].shape = {1ull << 40, 1ull << 40};
         },
         "fits a file"},
        {[](gguf_maker &m) {
             m.tensors[1].shape = {1, 1, 1, 1, 1};
         },
         "has 5 dimensions"},
        {[](gguf_maker &m) { m.tensors[0].type = 2; },
         "rows of 8 values are no whole blocks of q4_0"},
        {[](gguf_maker &m) {
             ++m.key_count;
             m.keys.text("b").put(uint32_t{9}).put(uint32_t{13}).put(uint64_t{0});
         },
         "elements of type 13, which does not exist"},
        {[](gguf_maker &m) {
             ++m.key_count;
             m.keys.text("b").put(uint32_t{9});
             for (int depth = 0; depth < 17; ++depth) m.keys.put(uint32_t{9}).put(uint64_t{1});
             m.keys.put(uint32_t{4}).put(uint64_t{0});
         },
         "lists lie in lists 17 deep; 16 is the limit"},
        {[](gguf_maker &m) {
             ++m.key_count;
             m.keys.text("b").put(uint32_t{9}).put(uint32_t{9}).put(uint64_t{1} << 60);
         },
         "the number of elements of b is"},
        {[](gguf_maker &m) {
             ++m.key_count;
             m.keys.text("b").put(uint32_t{13});
         },
         "b is of type 13, which does not exist"},
        {[](gguf_maker &m) {
             ++m.key_count;
             m.keys.text("b").put(uint32_t{9}).put(uint32_t{4}).put(uint64_t{1} << 62);
         },
         "the number of elements of b is"}};
    for (const auto &[change, text] : wrong) {
        const std::string said = text;
        CAPTURE(said);
        gguf_maker gguf = small();
        change(gguf);
        CHECK(says(refusal(gguf.make()), text));
    }
    std::vector<std::byte> not_gguf = small().make();
    not_gguf[0] = std::byte{'x'};
    CHECK(says(refusal(not_gguf), "does not begin with GGUF"));
    gguf_maker twice = small();
    twice.floats("first", {4});
    const std::vector<std::byte> bytes = twice.make();
    const auto files = gguf_files::parse(bytes, "a.gguf");
    REQUIRE_FALSE(files.ok());
    CHECK(files.failure().text == "a.gguf: tensor first is there twice");
}

TEST_CASE("metadata is a configuration") {
    const std::vector<std::byte> bytes = mixtral().make();
    const auto files = gguf_files::parse(bytes, "a.gguf");
    REQUIRE(files.ok());
    const auto config = read_gguf_config(*files);
    REQUIRE_MESSAGE(config.ok(), config.failure().text);
    CHECK(config->architecture == "mixtral");
    CHECK(config->layers == 2);
    CHECK(config->moe_intermediate == 32);
    CHECK(config->vocabulary == 20);
    CHECK(config->attention.head_dim == 16);
    CHECK(config->attention.kv_heads == 2);
    CHECK(config->rope.interleaved);
    CHECK(config->rope.dimensions == 16);
    CHECK(config->rope.theta == 10000);
    CHECK(config->tied_embedding);
    CHECK(config->router.normalise);
}

TEST_CASE("what metadata asks for and nothing computes is refused") {
    const std::pair<std::function<void(gguf_maker &)>, const char *> wrong[] = {
        {[](gguf_maker &m) { m.real("llama.attn_logit_softcapping", 30); },
         "llama.attn_logit_softcapping is 30; soft-capped logits are not supported"},
        {[](gguf_maker &m) { m.real("llama.attention.scale", 1); },
         "llama.attention.scale is 1; 0.25 is supported for llama"},
        {[](gguf_maker &m) { m.real("llama.embedding_scale", 8); },
         "llama.embedding_scale is 8; the"},
        {[](gguf_maker &m) { m.real("llama.residual_scale", 2); },
         "llama.residual_scale is 2; the"},
        {[](gguf_maker &m) { m.real("llama.logit_scale", 8); }, "llama.logit_scale is 8; the"},
        {[](gguf_maker &m) { m.real("llama.expert_weights_scale", 2.5F); },
         "llama.expert_weights_scale is 2.5; the architecture has no use for it"},
        {[](gguf_maker &m) { m.number("llama.expert_group_count", 4); },
         "llama.expert_group_count is 4; the"},
        {[](gguf_maker &m) { m.number("llama.leading_dense_block_count", 1); },
         "llama.leading_dense_block_count is 1; the"},
        {[](gguf_maker &m) { m.flag("llama.attention.causal", false); },
         "llama.attention.causal is false; only attention to what was before is supported"},
        {[](gguf_maker &m) { m.flag("llama.use_parallel_residual", true); },
         "llama.use_parallel_residual is true; layers"},
        {[](gguf_maker &m) {
             m.numbers("llama.rope.dimension_sections", {4, 4, 0});
         },
         "llama.rope.dimension_sections holds different numbers"},
        {[](gguf_maker &m) { m.number("llama.rope.scaling.type", 1); },
         "llama.rope.scaling.type is of type u32; a text is needed"},
        {[](gguf_maker &m) { m.real("llama.rope.scaling.attn_factor", 0.5F); },
         "llama.rope.scaling.attn_factor is 0.5; only yarn and factors in tensors"},
        {[](gguf_maker &m) { m.real("llama.rope.scaling.yarn_attn_factor", 2); },
         "llama.rope.scaling.yarn_attn_factor is 2; rope.scaling.attn_factor is supported"},
        {[](gguf_maker &m) { m.real("llama.rope.scaling.yarn_ext_factor", 1); },
         "llama.rope.scaling.yarn_ext_factor is 1; with linear 0 is supported"},
        {[](gguf_maker &m) {
             m.text("llama.rope.scaling.type", "yarn").floats("rope_freqs.weight", {8});
         },
         "llama.rope.scaling.type is yarn, beside factors in tensors"},
        {[](gguf_maker &m) { m.number("llama.expert_gating_func", 2); },
         "llama.expert_gating_func is 2; for llama 1 (softmax) is supported"},
        {[](gguf_maker &m) { m.number("llama.expert_feed_forward_length", 48); },
         "llama.expert_feed_forward_length is 48, but experts have 32 rows"},
        {[](gguf_maker &m) { m.number("llama.attention.value_length", 8); },
         "llama.attention.value_length is 8, and attention.key_length 16"},
        {[](gguf_maker &m) { m.text("llama.rope.scaling.type", "su"); },
         "llama.rope.scaling.type is su"},
        {[](gguf_maker &m) { m.number("llama.nextn_predict_layers", 2); }, "is 2 of 2 layers"},
        {[](gguf_maker &m) {
             m.floats("blk.0.ffn_up_shexp.weight", {64, 32});
         },
         "shared experts are not supported for llama"}};
    for (const auto &[change, text] : wrong) {
        const std::string said = text;
        CAPTURE(said);
        gguf_maker gguf = mixtral();
        change(gguf);
        CHECK(says(config_refusal(gguf), text));
    }
    gguf_maker bert;
    bert.text("general.architecture", "bert");
    CHECK(says(config_refusal(bert),
               "general.architecture is bert, a dense model, whose layers have no experts; "
               "supported are llama, qwen2moe"));
    CHECK(says(config_refusal({}), "general.architecture is missing"));
    gguf_maker dense;
    dense.text("general.architecture", "llama").number("llama.block_count", 1);
    CHECK(says(config_refusal(dense), "llama.embedding_length is missing"));
}

TEST_CASE("windows and parts of texts that nothing has a use for") {
    const auto qwen = [](uint32_t window) {
        gguf_maker further;
        further.number("qwen3moe.attention.sliding_window", window);
        const std::string file = with_keys(read_file(small_model), further);
        const auto *data = reinterpret_cast<const std::byte *>(file.data());
        const auto files = gguf_files::parse({data, file.size()}, "a.gguf");
        REQUIRE_MESSAGE(files.ok(), files.failure().text);
        const auto config = read_gguf_config(*files);
        return config ? "" : config.failure().text;
    };
    CHECK(says(qwen(4), "attention.sliding_window is 4; the architecture has no use for it"));
    for (const uint32_t nothing : {0u, 1u << 20}) CHECK(qwen(nothing) == "");
}

TEST_CASE("values that change nothing are accepted") {
    gguf_maker gguf = mixtral();
    gguf.real("llama.attn_logit_softcapping", 0).real("llama.attention.scale", 0.25F);
    gguf.real("llama.embedding_scale", 1).real("llama.residual_scale", 0);
    gguf.real("llama.logit_scale", 1).real("llama.expert_weights_scale", 1);
    gguf.number("llama.expert_group_count", 1).number("llama.leading_dense_block_count", 0);
    gguf.flag("llama.attention.causal", true).flag("llama.use_parallel_residual", false);
    gguf.numbers("llama.rope.dimension_sections", {0, 0}).real("llama.rope.scale_linear", 1);
    gguf.real("llama.rope.scaling.attn_factor", 1).real("llama.rope.scaling.yarn_attn_factor", 1);
    gguf.real("llama.rope.scaling.yarn_ext_factor", -1).flag("llama.rope.scaling.finetuned", true);
    CHECK(config_refusal(gguf) == "");
}

TEST_CASE("rotations are scaled as llama.cpp does where no type is said") {
    const auto rope = [](auto change) {
        gguf_maker gguf = mixtral();
        change(gguf);
        const std::vector<std::byte> bytes = gguf.make();
        const auto files = gguf_files::parse(bytes, "a.gguf");
        REQUIRE(files.ok());
        const auto config = read_gguf_config(*files);
        REQUIRE_MESSAGE(config.ok(), config.failure().text);
        return config->rope;
    };
    const std::string prefix = "llama.rope.";
    for (const char *key : {"scaling.factor", "scale_linear"}) {
        const rope_config config = rope([&](gguf_maker &m) { m.real(prefix + key, 4); });
        CHECK(config.kind == rope_kind::linear);
        CHECK(config.factor == 4);
    }
    for (const float none : {0.0F, 1.0F})
        CHECK(rope([&](gguf_maker &m) { m.real(prefix + "scaling.factor", none); }).kind ==
              rope_kind::plain);
    CHECK(rope([&](gguf_maker &m) {
              m.real(prefix + "scaling.factor", 4).text(prefix + "scaling.type", "none");
          }).kind == rope_kind::plain);
    // Frequencies are divided by the factor of all and by each pair's own.
    const rope_config factors = rope([&](gguf_maker &m) {
        m.real(prefix + "scaling.factor", 4).real(prefix + "scaling.attn_factor", 1.5F);
        m.data_bytes = 0, m.tensors.clear();
        m.floats("rope_freqs.weight", {8}, {1, 2, 3, 4, 5, 6, 7, 8});
        m.floats("token_embd.weight", {64, 20}).floats("blk.0.ffn_down_exps.weight", {32, 64, 4});
    });
    CHECK(factors.kind == rope_kind::longrope);
    CHECK(factors.long_factor == std::vector<double>{4, 8, 12, 16, 20, 24, 28, 32});
    CHECK(factors.short_factor == factors.long_factor);
    CHECK(factors.attention_factor == 1.5);
}

TEST_CASE("layers behind those that are counted are refused, unless they predict further tokens") {
    const scratch_directory place;
    const std::filesystem::path path = place.path() / "a.gguf";
    const auto text = [&](const std::string &bytes) {
        write_file(path, bytes);
        const auto opened = open_model(path);
        return opened ? "layers " + std::to_string((*opened)->config().layers)
                      : opened.failure().text;
    };
    const std::string whole = read_file(small_model),
                      cut = with_value(whole, "qwen3moe.block_count", 1);
    CHECK(text(whole) == "layers 2");
    CHECK(says(text(cut), "tensor blk.1."));
    CHECK(says(text(cut), "is of layer 1; layers 0 to 0 are counted (by block_count)"));
    gguf_maker further;
    further.number("qwen3moe.nextn_predict_layers", 1);
    std::string with_further = with_keys(whole, further);
    CHECK(
        says(text(with_further), "layer 1 has no tensor blk.1.nextn.*, so it is an ordinary one"));
    const std::string ordinary = "blk.1.attn_norm.weight", predicts = "blk.1.nextn.eh_project";
    REQUIRE(ordinary.size() == predicts.size());
    with_further.replace(with_further.find(ordinary), ordinary.size(), predicts);
    CHECK(text(with_further) == "layers 1");
}

TEST_CASE("a key of another type is refused, not taken for absent") {
    gguf_maker gguf;
    gguf.number("a.number", 7).real("a.real", 7).flag("a.flag", true).text("a.text", "7");
    gguf.numbers("a.same", {3, 3}).numbers("a.differ", {3, 4}).reals("a.reals", {3});
    gguf.numbers("a.below", {-1}).real("a.nan", std::nanf("")).number("a.none", 0xffffffff);
    const std::vector<std::byte> bytes = gguf.make();
    const auto files = gguf_files::parse(bytes, "a.gguf");
    REQUIRE(files.ok());
    const auto text = [&](auto read) {
        gguf_reader reader(*files, "a.");
        read(reader);
        return reader.failed() ? reader.failure().text : "";
    };
    CHECK(text([](auto &reader) {
              CHECK(reader.number("real") == 7);
              CHECK(reader.count("number") == 7);
              CHECK(reader.count("same") == 3);
              CHECK(reader.flag("flag") == true);
              CHECK(reader.text("text") == "7");
              CHECK(reader.id("number", 8) == 7);
              CHECK_FALSE(reader.id("none", 8));
              CHECK_FALSE(reader.id("below", 8));
              for (const char *absent : {"number2", ""}) CHECK_FALSE(reader.number(absent));
          }) == "");
    const std::pair<std::function<void(gguf_reader &)>, const char *> wrong[] = {
        {[](auto &reader) { reader.flag("number"); },
         "a.number is of type u32; a truth value is needed"},
        {[](auto &reader) { reader.text("flag"); }, "a.flag is of type bool; a text is needed"},
        {[](auto &reader) { reader.number("text"); }, "a.text is of type text; a number is needed"},
        {[](auto &reader) { reader.count("real"); },
         "a.real is of type f32; a whole number is needed"},
        {[](auto &reader) { reader.count("reals"); }, "a.reals is of type array; a whole number"},
        {[](auto &reader) { reader.count("below"); },
         "a.below is -1; a whole number from 0 is needed"},
        {[](auto &reader) { reader.number("nan"); }, "a.nan is nan; a finite number is needed"},
        {[](auto &reader) { reader.count("differ"); }, "a.differ holds different numbers"},
        {[](auto &reader) { reader.id("number", 7); }, "a.number is 7; the model has 7 tokens"},
        {[](auto &reader) { reader.id("real", 9); },
         "a.real is of type f32; a whole number is needed"}};
    for (const auto &[read, said] : wrong) CHECK(says(text(read), said));
}

TEST_CASE("ids, flags and names of a tokenizer are read as they are or refused") {
    gguf_maker gguf;
    gguf.text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>"});
    gguf.numbers("tokenizer.ggml.token_type", {1, 1, 1, 3}).texts("tokenizer.ggml.merges", {"a b"});
    const std::string prefix = "tokenizer.ggml.";
    CHECK(says(words_refusal(gguf_maker(gguf).number(prefix + "pre", 1)),
               "pre is of type u32; a text"));
    gguf.text(prefix + "pre", "qwen2");
    CHECK(says(words_refusal(gguf_maker(gguf).number(prefix + "add_bos_token", 1)),
               "add_bos_token is of type u32; a truth value"));
    CHECK(says(words_refusal(gguf_maker(gguf).flag(prefix + "add_bos_token", true)),
               "bos_token_id is no token, and add_bos_token asks for it"));
    CHECK(says(words_refusal(gguf_maker(gguf)
                                 .flag(prefix + "add_eos_token", true)
                                 .number(prefix + "eos_token_id", 4)),
               "eos_token_id is 4; the model has 4 tokens"));
    CHECK(says(words_refusal(gguf_maker().number(prefix + "model", 1)), "model is of type u32"));

    const scratch_directory place;
    const std::filesystem::path path = place.path() / "a.gguf";
    const std::string whole = read_file(small_model), end = prefix + "eos_token_id";
    const auto ends = [&](const std::string &bytes) {
        write_file(path, bytes);
        const auto opened = open_model(path);
        return opened ? std::to_string((*opened)->generation().end_ids.size())
                      : opened.failure().text;
    };
    CHECK(ends(with_value(whole, end, 0xffffffff)) == "0");
    CHECK(ends(with_keys(whole, gguf_maker().number(prefix + "eom_token_id", 8))) == "2");
    CHECK(says(ends(with_value(whole, end, 7, /*f32*/ 6)), "eos_token_id is of type f32; a whole"));
    CHECK(says(ends(with_value(whole, end, 100'000)), "eos_token_id is 100000; the model has"));
}

TEST_CASE("byte-level tokenizers, whose cuts have a name") {
    const std::vector<std::string> tokens = {"a",  "b", "\u0120", "\u0120a",
                                             "ab", "1", "<end>",  "<s>"};
    const auto gguf_with = [&](const char *pre) {
        gguf_maker gguf;
        gguf.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", tokens);
        gguf.numbers("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 3, 3});
        gguf.texts("tokenizer.ggml.merges", {"\u0120 a", "a b"}).text("tokenizer.ggml.pre", pre);
        gguf.number("tokenizer.ggml.bos_token_id", 7);
        return gguf;
    };
    const auto ids = [&](const gguf_maker &gguf, std::string_view text) {
        const std::vector<std::byte> bytes = gguf.make();
        const auto files = gguf_files::parse(bytes, "a.gguf");
        const auto words = open_gguf_tokenizer(*files);
        REQUIRE_MESSAGE(words.ok(), words.failure().text);
        const auto found = (*words)->encode(text, {});
        REQUIRE_MESSAGE(found.ok(), found.failure().text);
        CHECK((*words)->decode(*found, {.skip_special = true}) == "ab ab11");
        return *found;
    };
    CHECK(ids(gguf_with("qwen2"), "ab ab11<end>") == std::vector<int32_t>{4, 3, 1, 5, 5, 6});
    // llama-bpe begins texts with <s>, unless the file says otherwise.
    CHECK(ids(gguf_with("llama-bpe"), "ab ab11") == std::vector<int32_t>{7, 4, 3, 1, 5, 5});
    CHECK(ids(gguf_with("llama-bpe").flag("tokenizer.ggml.add_bos_token", false), "ab ab11") ==
          std::vector<int32_t>{4, 3, 1, 5, 5});
    CHECK(says(words_refusal(gguf_with("klingon")),
               "tokenizer.ggml.pre is klingon; supported are a.x-4.0, chatglm-bpe"));
    gguf_maker bare;
    bare.text("tokenizer.ggml.model", "gpt2");
    CHECK(says(words_refusal(bare), "tokenizer.ggml.tokens is missing"));
    gguf_maker rwkv;
    rwkv.text("tokenizer.ggml.model", "rwkv");
    CHECK(says(words_refusal(rwkv), "tokenizer.ggml.model is rwkv; gpt2, llama, t5"));
}

TEST_CASE("tokenizers that merge by scores") {
    // The higher score merges first, of equal ones the left; d is no token alone, yet merges.
    gguf_maker gguf;
    gguf.text("tokenizer.ggml.model", "llama");
    gguf.texts("tokenizer.ggml.tokens",
               {"<unk>", "<s>", "\u2581", "a", "b", "c", "ab", "bc", "cd", "<0x64>", "aa"});
    gguf.reals("tokenizer.ggml.scores", {0, 0, -9, -9, -9, -9, -2, -1, -3, 0, -4});
    gguf.numbers("tokenizer.ggml.token_type", {2, 3, 1, 1, 1, 1, 1, 1, 1, 6, 1});
    gguf.number("tokenizer.ggml.bos_token_id", 1).number("tokenizer.ggml.unknown_token_id", 0);
    const std::vector<std::byte> bytes = gguf.make();
    const auto files = gguf_files::parse(bytes, "a.gguf");
    const auto words = open_gguf_tokenizer(*files);
    REQUIRE_MESSAGE(words.ok(), words.failure().text);
    const tokenizer &tokenizer = **words;
    const auto ids = [&](std::string_view text) { return *tokenizer.encode(text, {}); };
    CHECK(ids("abc") == std::vector<int32_t>{1, 2, 3, 7});
    CHECK(ids("aaa") == std::vector<int32_t>{1, 2, 10, 3});
    CHECK(ids("acd") == std::vector<int32_t>{1, 2, 3, 8});
    CHECK(ids("d") == std::vector<int32_t>{1, 2, 9});
    CHECK(ids("z") == std::vector<int32_t>{1, 2, 0});
    CHECK(ids("a<s>a") == std::vector<int32_t>{1, 2, 3, 1, 2, 3});  // a space after a special one
    CHECK(tokenizer.size() == 11);
    CHECK(tokenizer.id_of("d") == -1);
    CHECK(tokenizer.token_of(11).empty());
    CHECK(tokenizer.decode(std::vector<int32_t>{2, 3, 8, 9}, {}) == "acdd");
    gguf_maker odd = gguf;
    odd.reals("tokenizer.ggml.scores2", {});
    gguf_maker few;
    few.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a", "b"});
    few.reals("tokenizer.ggml.scores", {0});
    CHECK(says(words_refusal(few), "tokenizer.ggml.scores is missing, or no list"));
}

TEST_CASE("tokenizers of a unigram model") {
    // The spelling with the best sum wins: ab + c is -3, a + bc -4, abc -5. Unknown characters cost
    // ten more than the least score. Together they are one token.
    gguf_maker gguf;
    gguf.text("tokenizer.ggml.model", "t5");
    gguf.texts("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", "\u2581", "a", "b", "c", "ab",
                                         "bc", "abc", "\u2581a", "<x>"});
    gguf.reals("tokenizer.ggml.scores", {0, 0, 0, -2, -3, -3, -1, -2, -1, -5, -4, 0});
    gguf.numbers("tokenizer.ggml.token_type", {3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 4});
    gguf.number("tokenizer.ggml.eos_token_id", 1).number("tokenizer.ggml.unknown_token_id", 2);
    const auto ids = [](const gguf_maker &input_gguf, std::string_view text) {
        const std::vector<std::byte> bytes = input_gguf.make();
        const auto files = gguf_files::parse(bytes, "a.gguf");
        const auto words = open_gguf_tokenizer(*files);
        REQUIRE_MESSAGE(words.ok(), words.failure().text);
        return *(*words)->encode(text, {});
    };
    CHECK(ids(gguf, "abc") == std::vector<int32_t>{7, 6, 1});
    CHECK(ids(gguf, "zzab") == std::vector<int32_t>{2, 7, 1});
    CHECK(ids(gguf, "a b") == std::vector<int32_t>{4, 3, 5, 1});
    CHECK(ids(gguf, "<x>c") == std::vector<int32_t>{11, 6, 1});
    // If there are tokens of bytes, an unknown character is its bytes (z is 0x7A, e with an acute
    // C3 A9). It stays unknown if a token for one of its bytes is missing (y).
    gguf_maker of_bytes;
    of_bytes.text("tokenizer.ggml.model", "t5");
    of_bytes.texts("tokenizer.ggml.tokens",
                   {"<pad>", "</s>", "<unk>", "a", "<0x7A>", "<0xC3>", "<0xa9>", "<0x7>"});
    of_bytes.reals("tokenizer.ggml.scores", {0, 0, 0, -1, 0, 0, 0, 0});
    of_bytes.numbers("tokenizer.ggml.token_type", {3, 3, 2, 1, 6, 6, 6, 6});
    of_bytes.number("tokenizer.ggml.eos_token_id", 1).number("tokenizer.ggml.unknown_token_id", 2);
    CHECK(ids(of_bytes, "az\u00e9a") == std::vector<int32_t>{3, 4, 5, 6, 3, 1});
    CHECK(ids(of_bytes, "yyzz") == std::vector<int32_t>{2, 4, 4, 1});
    gguf_maker merged = gguf;
    merged.flag("tokenizer.ggml.add_space_prefix", true);
    merged.flag("tokenizer.ggml.remove_extra_whitespaces", true);
    merged.flag("tokenizer.ggml.add_eos_token", false);
    CHECK(ids(merged, "  c   c ") == std::vector<int32_t>{3, 6, 3, 6});
    CHECK(ids(merged, "a") == std::vector<int32_t>{10});
    // A double array of one entry: "B" becomes "ab". The root's children lie from 256 on.
    std::vector<uint32_t> words(1024, 0);
    words[0] = 256u << 10;                          // offset 256
    words[256 ^ 'B'] = (1u << 10) | 1u << 8 | 'B';  // ends a word; its value lies beside it
    words[(256 ^ 'B') ^ 1] = 1u << 31 | 0u;
    gguf_maker mapped = gguf;
    ++mapped.key_count;
    mapped.keys.text("tokenizer.ggml.precompiled_charsmap").put(uint32_t{9}).put(uint32_t{0});
    mapped.keys.put(uint64_t{4 + 4096 + 3}).put(uint32_t{4096});
    for (const uint32_t word : words) mapped.keys.put(word);
    for (const char letter : {'a', 'b', '\0'}) mapped.keys.put(letter);
    CHECK(ids(mapped, "Bc") == std::vector<int32_t>{7, 6, 1});
    gguf_maker cut = gguf;
    ++cut.key_count;
    cut.keys.text("tokenizer.ggml.precompiled_charsmap").put(uint32_t{9}).put(uint32_t{0});
    cut.keys.put(uint64_t{5}).put(uint32_t{4096}).put(uint8_t{0});
    CHECK(says(words_refusal(cut), "precompiled_charsmap has 5 bytes, of which 4096"));
}

TEST_CASE("a split model is opened by its first part") {
    const scratch_directory place;
    const auto part = [](uint32_t number, uint32_t count) {
        gguf_maker gguf = number == 0 ? mixtral() : gguf_maker();
        gguf.number("split.no", number).number("split.count", count);
        if (number != 0) gguf.floats("further." + std::to_string(number), {4});
        return gguf.make();
    };
    const auto write = [&](const char *name, const std::vector<std::byte> &bytes) {
        write_file(place.path() / name, bytes);
    };
    const std::filesystem::path first = place.path() / "m-00001-of-00003.gguf";
    write("m-00001-of-00003.gguf", part(0, 3));
    write("m-00002-of-00003.gguf", part(1, 3));
    const auto text = [&](const std::filesystem::path &path) {
        const auto opened = gguf_files::open(path);
        return opened ? "" : opened.failure().text;
    };
    CHECK(says(text(first), "m-00003-of-00003.gguf"));
    write("m-00003-of-00003.gguf", part(2, 3));
    const auto opened = gguf_files::open(first);
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    CHECK(opened->file_count() == 3);
    CHECK(opened->find("further.2") != nullptr);
    CHECK(
        says(text(place.path() / "m-00002-of-00003.gguf"), "is part 2 of 3; name the first part"));
    write("m-00003-of-00003.gguf", part(1, 3));
    CHECK(says(text(first), "does not say that it is part 3 of 3"));
    write("other.gguf", part(0, 3));
    CHECK(says(text(place.path() / "other.gguf"), "does not end in -00001-of-00003.gguf"));
}

}  // namespace gguf_test
