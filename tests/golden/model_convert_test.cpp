// model_convert_test.cpp - goal: a model written as another kind of file is the same model. Method:
// convert all golden directories to GGUF and back, compare every weight, and compare the file's
// results with the references. Requantise GGUF files and compare row by row with the quantiser and
// the source. Convert packed directories to floats. Compare mixtures with the types in files of
// ggml's library (beside the project, skipped if absent). Conversions that are impossible must be
// refused in words.
#include <algorithm>
#include <cstring>

#include "core/base/text.h"
#include "tools/convert/convert.h"
#include "tools/convert/quantise.h"
#include "tools/convert/recipe.h"
#include "core/execute/cpu/golden_check.h"
#include "core/model/gguf_config.h"
#include "core/model/named_parts.h"
#include "core/model/tokenizer.h"
#include "core/model/weight_values.h"
#include "tests/golden/golden_fixture.h"
#include "tests/skip.h"
#include "tests/unit/gguf_files.h"
#include "tests/unit/model_files.h"

namespace model_convert_test {

using namespace moorage::test;

namespace {

namespace fs = std::filesystem;
const fs::path quantised = fs::path(MOORAGE_SOURCE_DIR) / "tests/golden/quantised",
               demo = fs::path(MOORAGE_SOURCE_DIR) / "configs/demo",
               beside = fs::path(MOORAGE_SHARED_DATA) / "quant/models";

convert_report converted(const fs::path &input, const fs::path &output, const char *format,
                         uint32_t threads = 2, bool pure = false) {
    thread_pool pool(threads);
    const auto done = convert_model({input, output, format, pure}, pool);
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? "" : done.failure().text));
    return *done;
}

std::string refusal(const fs::path &input, const fs::path &output, const char *format) {
    thread_pool pool(1);
    const auto done = convert_model({input, output, format}, pool);
    return done ? std::string() : done.failure().text;
}

bool says(const std::string &text, std::string_view part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
}

uint64_t unequal(const matrix &is, const matrix &wanted) {
    if (is.rows != wanted.rows || is.columns != wanted.columns) return UINT64_MAX;
    uint64_t apart = 0;
    for (uint32_t row = 0; row < is.rows; ++row)
        for (uint32_t i = 0; i < is.columns; ++i)
            apart += weight_at(is, row, i) != weight_at(wanted, row, i);
    return apart;
}

// Compares every weight of both, by the publisher's names.
void check_equal(const model &is, const std::vector<named_part> &parts, const model &wanted,
                 const std::vector<named_part> &wanted_parts) {
    REQUIRE(parts.size() == wanted_parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
        CAPTURE(parts[i].name);
        CHECK(parts[i].name == wanted_parts[i].name);
        if (parts[i].kind == part_kind::matrix)
            CHECK(unequal(parts[i].weights, wanted_parts[i].weights) == 0);
        CHECK(std::ranges::equal(parts[i].values, wanted_parts[i].values));
    }
    for (uint32_t layer = 0; layer < is.config().layers; ++layer) {
        const layer_weights &a = is.weights().layers[layer], &b = wanted.weights().layers[layer];
        CAPTURE(layer);
        if (a.attention.kv_b) CHECK(unequal(a.attention.kv_b, b.attention.kv_b) == 0);
        REQUIRE(a.experts.size() == b.experts.size());
        for (size_t expert = 0; expert < a.experts.size(); ++expert) {
            CHECK(unequal(a.experts[expert].gate, b.experts[expert].gate) == 0);
            CHECK(unequal(a.experts[expert].up, b.experts[expert].up) == 0);
            CHECK(unequal(a.experts[expert].down, b.experts[expert].down) == 0);
            CHECK(std::ranges::equal(a.experts[expert].up_bias, b.experts[expert].up_bias));
            CHECK(std::ranges::equal(a.experts[expert].down_bias, b.experts[expert].down_bias));
        }
    }
}

// SentencePiece's BPE as a tokenizer.json: a piece for each score, with all its halves.
json scored_tokenizer() {
    const std::string mark = "\u2581";
    json words = json::object(), merges = json::array();
    const auto add = [&](const std::string &word) { words[word] = words.size(); };
    for (const char *word : {"<unk>", "<s>", "</s>"}) add(word);
    add(mark);
    for (const char letter : std::string_view("abcdefghijklmnopqrstuvwxyzHABDP0123456789.,[]<>/"))
        add(std::string(1, letter));
    const std::vector<std::string> pieces = {"he", mark + "t", mark + "the", "in",
                                             "an", mark + "a", mark + "an",  mark + "and",
                                             "ll", "ell",      "er"};
    for (const std::string &piece : pieces) add(piece);
    for (const std::string &piece : pieces)
        for (size_t cut = 1; cut < piece.size(); ++cut)
            if (words.contains(piece.substr(0, cut)) && words.contains(piece.substr(cut)))
                merges.push_back({piece.substr(0, cut), piece.substr(cut)});
    const auto special = [](int id, const char *text) {
        return json{{"id", id}, {"content", text}, {"special", true}, {"normalized", false}};
    };
    return {{"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
            {"normalizer",
             {{"type", "Sequence"},
              {"normalizers",
               {{{"type", "Prepend"}, {"prepend", mark}},
                {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}}}}}},
            {"post_processor",
             {{"type", "TemplateProcessing"},
              {"single",
               {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
              {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
            {"decoder",
             {{"type", "Sequence"},
              {"decoders",
               {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}},
                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
            {"model",
             {{"type", "BPE"},
              {"unk_token", "<unk>"},
              {"fuse_unk", true},
              {"byte_fallback", true},
              {"vocab", words},
              {"merges", merges}}}};
}

}  // namespace

TEST_CASE("every architecture goes to GGUF and comes back as it was") {
    thread_pool pool(2);
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        const scratch_directory place;
        const fs::path file = place.path() / "made.gguf", back = place.path() / "back";
        converted(golden_path(name), file, "bf16");
        std::vector<named_part> parts, wanted_parts;
        const auto opened = open_or_fail(file);
        const golden_data golden = golden_of(*open_or_fail(golden_path(name)));
        const auto report = check_golden(*opened, golden, pool);
        REQUIRE(report.ok());
        CHECK(report->logits_error <= 2e-5);
        CHECK(report->greedy == golden.greedy);
        CHECK(opened->sizes().unused.empty());

        converted(file, back, "bf16");
        const auto again = open_model(back, parts),
                   source = open_model(golden_path(name), wanted_parts);
        REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.failure().text));
        check_equal(**again, parts, **source, wanted_parts);
        CHECK((*again)->sizes().unused.empty());
        CHECK((*again)->generation().end_ids == (*source)->generation().end_ids);
    }
}

TEST_CASE("requantised rows are the quantiser's, and do not depend on threads") {
    const scratch_directory place;
    for (const char *name : {"mixtral-qkv-q4_1", "qwen3moe-tied-iq4_nl", "gpt-oss-mxfp4"})
        for (const char *format : {"f16", "q8_0", "q4_0", "q5_0", "q4_1", "q5_1", "q4_k_m",
                                   "q5_k_s", "q6_k", "iq4_nl", "mxfp4"}) {
            CAPTURE(name);
            CAPTURE(format);
            const fs::path input = quantised / "models" / (std::string(name) + ".gguf");
            const fs::path output = place.path() / "out.gguf",
                           second_output = place.path() / "other.gguf";
            converted(input, output, format, 1);
            converted(input, second_output, format, 3);
            CHECK(read_file(output) == read_file(second_output));
            const auto source = gguf_files::open(input), requantised = gguf_files::open(output);
            REQUIRE(requantised.ok());
            REQUIRE(requantised->tensors().size() == source->tensors().size());
            CHECK(open_or_fail(output)->config().experts == open_or_fail(input)->config().experts);
            uint64_t wrong = 0;
            for (const gguf_tensor &tensor : requantised->tensors()) {
                const gguf_tensor *original = source->find(tensor.name);
                REQUIRE(original != nullptr);
                REQUIRE(original->shape == tensor.shape);
                if (tensor.type == original->type) {
                    wrong += !std::ranges::equal(tensor.bytes, original->bytes);
                    continue;
                }
                const auto columns = static_cast<uint32_t>(tensor.shape.back());
                const auto rows = static_cast<uint32_t>(tensor.values() / columns);
                const matrix source_matrix =
                    packed_matrix(original->type, rows, columns, original->bytes.data());
                std::vector<float> row(columns);
                std::vector<std::byte> bytes(bytes_of_columns(tensor.type, columns));
                for (uint32_t i = 0; i < rows; ++i) {
                    read_row(source_matrix, i, row);
                    quantise_row(tensor.type, row, bytes);
                    wrong += std::memcmp(bytes.data(), tensor.bytes.data() + i * bytes.size(),
                                         bytes.size()) != 0;
                }
            }
            CHECK(wrong == 0);
        }
}

TEST_CASE("packed directories become floats and GGUF files") {
    thread_pool pool(2);
    for (const auto &entry : fs::directory_iterator(quantised / "published")) {
        CAPTURE(entry.path().string());
        const scratch_directory place;
        const golden_data golden = golden_of(*open_or_fail(entry.path()));
        for (const char *output : {"made.gguf", "made"}) {
            converted(entry.path(), place.path() / output, "f32");
            const auto report = check_golden(*open_or_fail(place.path() / output), golden, pool);
            REQUIRE(report.ok());
            CHECK(report->logits_error <= 2e-5);
            CHECK(report->greedy == golden.greedy);
        }
    }
}

TEST_CASE("fp8 directories hold the nearest values of each block") {
    const scratch_directory place;
    converted(demo, place.path() / "fp8", "fp8");
    std::vector<named_part> parts, wanted;
    const auto fp8_model = open_model(place.path() / "fp8", parts),
               source = open_model(demo, wanted);
    REQUIRE_MESSAGE(fp8_model.ok(), (fp8_model.ok() ? "" : fp8_model.failure().text));
    uint32_t eights = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        const matrix &is = parts[i].weights, &was = wanted[i].weights;
        if (parts[i].kind != part_kind::matrix || is.type != weight_type::fp8) continue;
        ++eights;
        double worst = 0;
        for (uint32_t row = 0; row < is.rows; ++row)
            for (uint32_t column = 0; column < is.columns; ++column) {
                float scale;
                std::memcpy(&scale, scales_at(is, row) + column / 128 * 4, 4);
                // Half a step: 2^-4 of the value, or of the least normal number.
                const double value = weight_at(was, row, column);
                const double step = std::max(std::abs(value) / 16, scale * 0x1p-10);
                worst = std::max(worst, std::abs(weight_at(is, row, column) - value) / step);
            }
        CHECK(worst <= 1.0001);
    }
    CHECK(eights > 0);
}

TEST_CASE("the demo's tokenizer is found under a name of GGUF") {
    const scratch_directory place;
    const fs::path file = place.path() / "demo.gguf", back = place.path() / "back";
    const convert_report report = converted(demo, file, "q4_0", /*threads=*/2, /*pure=*/true);
    CHECK(report.bytes < 6'000'000);
    CHECK(report.formats.size() == 2);  // with f32
    // The bundled file is made so.
    CHECK(read_file(file) == read_file(demo.parent_path() / "demo-q4_0.gguf"));
    converted(file, back, "bf16");
    const auto original = tokenizer::open_for_model(demo),
               from_gguf = tokenizer::open_for_model(file), again = tokenizer::open_for_model(back);
    REQUIRE_MESSAGE(from_gguf.ok(), (from_gguf.ok() ? "" : from_gguf.failure().text));
    REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.failure().text));
    for (const char *text : {"It was the best of times, it was the worst of times",
                             "x == 12345;\n\n", "<|endoftext|>Not the end"}) {
        const auto ids = (*original)->encode(text, {});
        CHECK(*(*from_gguf)->encode(text, {}) == *ids);
        CHECK(*(*again)->encode(text, {}) == *ids);
        CHECK((*from_gguf)->decode(*ids, {}) == (*original)->decode(*ids, {}));
    }
    CHECK(open_or_fail(file)->generation().end_ids == open_or_fail(demo)->generation().end_ids);
}

TEST_CASE("tokenizers that merge by scores go to GGUF and come back") {
    const scratch_directory source(golden_path("mixtral")), place;
    write_file(source.path() / "tokenizer.json", scored_tokenizer().dump());
    const fs::path file = place.path() / "made.gguf", back = place.path() / "back";
    converted(source.path(), file, "bf16");
    converted(file, back, "bf16");
    const auto original = tokenizer::open_for_model(source.path()),
               from_gguf = tokenizer::open_for_model(file), again = tokenizer::open_for_model(back);
    REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.failure().text));
    for (const char *text : {"the bell and the hell in another", "  ", "</s>the"}) {
        const auto ids = (*original)->encode(text, {});
        CHECK(ids->front() == 1);
        CHECK(*(*from_gguf)->encode(text, {}) == *ids);
        CHECK(*(*again)->encode(text, {}) == *ids);
    }
    // A piece that no merge makes; by scores its halves would merge all the same.
    json lacking = scored_tokenizer();
    lacking["model"]["merges"].erase(0);
    write_file(source.path() / "tokenizer.json", lacking.dump());
    CHECK(says(refusal(source.path(), file, "bf16"), "cuts texts otherwise"));
}

TEST_CASE("every token that ends a text is written, or the model refused") {
    const scratch_directory source(golden_path("qwen3_moe")), place;
    const fs::path file = place.path() / "made.gguf";
    const auto ends = [&](const json &ids) {
        source.edit_config({{"eos_token_id", ids}});
        const std::string text = refusal(source.path(), file, "bf16");
        return text.empty()
                   ? fmt::format("{}", fmt::join(open_or_fail(file)->generation().end_ids, " "))
                   : text;
    };
    std::filesystem::remove(source.path() / "generation_config.json");
    CHECK(ends(json::array({0, 11, 12})) == "0 11 12");
    CHECK(ends(7) == "7");
    CHECK(ends(json()).empty());
    CHECK(says(ends(json::array({0, 11, 12, 13})),
               "cannot say it: eos_token_id is [0, 11, 12, 13] and would be [0, 11, 12]"));
}

TEST_CASE("mixtures are those of ggml's library") {
    if (!fs::exists(beside)) return skip(beside.string() + " is not here");
    const std::pair<const char *, const char *> files[] = {{"mixtral-q4_k_m", "q4_k_m"},
                                                           {"deepseek2-q4_k_m", "q4_k_m"},
                                                           {"qwen2moe-q4_k_m", "q4_k_m"},
                                                           {"mixtral-q2_k", "q2_k"},
                                                           {"qwen3moe-q3_k_m", "q3_k_m"}};
    for (const auto &file : files) {
        const std::string name = file.first, format = file.second;
        CAPTURE(name);
        const auto opened = gguf_files::open(beside / (name + ".gguf"));
        REQUIRE(opened.ok());
        const auto config = read_gguf_config(*opened);
        REQUIRE(config.ok());
        const uint32_t keys =
            config->attention.kind == attention_kind::latent ? 1 : config->attention.kv_heads;
        const recipe_model traits{config->layers, config->experts, config->attention.heads / keys,
                                  config->tied_embedding};
        for (const gguf_tensor &tensor : opened->tensors()) {
            CAPTURE(tensor.name);
            CHECK(name_of(
                      choose_type(*find_recipe(format), traits, tensor.name, tensor.shape).type) ==
                  std::string_view(name_of(tensor.type)));
        }
    }
}

TEST_CASE("mixtures by role, worked out for a Mixtral of 32 layers and 8 experts") {
    const recipe_model traits{.layers = 32, .experts = 8, .queries_of_key = 4, .is_tied = false};
    const auto type = [&](const char *mix, const char *name, uint64_t columns = 4096) {
        return std::string(
            name_of(choose_type(*find_recipe(mix), traits, name, {8, columns}).type));
    };
    CHECK(type("q4_k_m", "output.weight") == "q6_k");
    CHECK(type("q4_k_m", "token_embd.weight") == "q4_k");
    CHECK(type("q4_k_m", "blk.0.attn_v.weight") == "q8_0");
    CHECK(type("q4_k_m", "blk.9.attn_k.weight") == "q8_0");
    CHECK(type("q4_k_m", "blk.9.attn_output.weight") == "q5_k");
    CHECK(type("q5_k_m", "blk.9.attn_output.weight") == "q5_k");
    // The first four layers, the last four, and among the others those whose distance from 4 is 2
    // mod 3.
    CHECK(type("q4_k_m", "blk.3.ffn_down_exps.weight") == "q6_k");
    CHECK(type("q4_k_m", "blk.4.ffn_down_exps.weight") == "q4_k");
    CHECK(type("q4_k_m", "blk.6.ffn_down_exps.weight") == "q6_k");
    CHECK(type("q4_k_m", "blk.28.ffn_down_exps.weight") == "q6_k");
    CHECK(type("q4_k_m", "blk.28.ffn_up_exps.weight") == "q4_k");
    CHECK(type("q4_k_m", "blk.0.ffn_gate_inp.weight") == "f32");
    CHECK(type("q4_k_m", "blk.0.attn_norm.weight") == "f32");
    // Rows whose length is no multiple of 256.
    CHECK(type("q4_k_m", "blk.4.ffn_down_exps.weight", 1408) == "q5_0");
    CHECK(type("q4_k_m", "blk.6.ffn_down_exps.weight", 1408) == "q8_0");
    CHECK(type("q4_k_m", "blk.4.ffn_down_exps.weight", 40) == "f16");
    // Names that no model has.
    CHECK(type("q4_k_m", "blk.7") == "f32");
    CHECK(type("q4_k_m", "blk.7.weight") == "q4_k");
    CHECK(type("q4_k_m", "blk.weight") == "q4_k");
    CHECK(type("mxfp4", "blk.4.attn_q.weight") == "q8_0");
    CHECK(type("q8_0", "output.weight") == "q8_0");
    CHECK(type("q4_0", "output.weight") == "q6_k");
    CHECK(type("q4_0", "output.weight", 192) == "q8_0");
}

TEST_CASE("what cannot be said is refused, and leaves nothing behind") {
    const scratch_directory place;
    const fs::path output = place.path() / "out.gguf";
    const auto refusal_of = [&](const char *golden, const json &changes) {
        const scratch_directory source(golden_path(golden));
        source.edit_config(changes);
        return refusal(source.path(), output, "bf16");
    };
    CHECK(says(refusal_of("qwen2_moe", {{"norm_topk_prob", true}}),
               "norm_topk_prob is 1 and would be 0"));
    CHECK(says(refusal_of("qwen3_moe", {{"norm_topk_prob", false}}),
               "norm_topk_prob is 0 and would be 1"));
    CHECK(says(refusal_of("olmoe", {{"clip_qkv", 3.0}}), "clip_qkv is 3 and would be 0"));
    CHECK(says(refusal_of("olmoe", {{"norm_topk_prob", true}}), "norm_topk_prob"));
    CHECK(says(refusal_of("qwen3_moe",
                          {{"original_max_position_embeddings", 64},
                           {"rope_parameters",
                            {{"rope_type", "dynamic"}, {"rope_theta", 1e4}, {"factor", 4.0}}}}),
               "rotations would be of other frequencies"));
    CHECK(says(refusal_of("deepseek_v3", {{"rope_interleave", false}}), "rope_interleave"));
    CHECK(says(
        refusal(golden_path("qwen3_moe"), output, "q4_0"),
        "blk.0.ffn_gate_exps.weight has rows of 48 values, which are no whole blocks of q4_0"));
    CHECK(says(refusal(golden_path("qwen3_moe"), output, "q4_k_n"), "did you mean q4_k_"));
    CHECK(says(refusal(golden_path("qwen3_moe"), place.path() / "dir", "q8_0"),
               "a directory can have bf16, f16, f32, fp8"));
    CHECK(says(refusal(golden_path("granitemoe"), place.path() / "dir", "fp8"), "in one tensor"));
    CHECK(says(refusal(place.path() / "nothing", output, "bf16"), "nothing"));
    CHECK(fs::is_empty(place.path()));
    write_file(place.path() / "there", "x");
    CHECK(says(refusal(golden_path("qwen3_moe"), place.path(), "bf16"),
               "is there; name a directory"));

    // A weight that is NaN, found while rows are written.
    const scratch_directory source(golden_path("qwen3_moe"));
    auto weights = source.read_weights();
    for (auto &tensor : weights.tensors)
        if (tensor.name.find("layers.1.mlp.experts") != std::string::npos)
            tensor.bytes[6] = std::byte{0xc0}, tensor.bytes[7] = std::byte{0x7f};
    source.write_weights(weights);
    for (const char *format : {"f16", "bf16"})  // also where rows stay as they are
        CHECK(says(refusal(source.path(), output, format), "holds nan in row 0 at 3"));
    CHECK_FALSE(fs::exists(output));
}

TEST_CASE("no file of the source is written over, whatever its name") {
    const scratch_directory place;
    const fs::path first = place.path() / "m-00001-of-00002.gguf",
                   second = place.path() / "m-00002-of-00002.gguf",
                   link = place.path() / "link.gguf";
    const auto part = [](uint32_t number) {
        gguf_maker keys;
        keys.number("split.no", number).number("split.count", 2);
        return keys;
    };
    write_file(first,
               with_keys(read_file(quantised / "models/qwen3moe-tied-iq4_nl.gguf"), part(0)));
    write_file(second, part(1).floats("v.further", {4}).make());
    fs::create_hard_link(second, link);
    const std::string original_bytes = read_file(second);
    for (const fs::path &output : {first, second, link}) {
        CAPTURE(output.string());
        CHECK(says(refusal(first, output, "q4_0"),
                   output.string() + ": is what is read; name another"));
    }
    CHECK(read_file(second) == original_bytes);
    converted(first, place.path() / "other.gguf", "q4_0");
}

TEST_CASE("a GGUF file that does not open as a model is not written again") {
    const scratch_directory place;
    const fs::path input = place.path() / "in.gguf", output = place.path() / "out.gguf";
    std::string file = read_file(quantised / "models/qwen3moe-tied-iq4_nl.gguf");
    const std::string name = "blk.1.attn_q.weight";
    write_file(input, file.replace(file.find(name), name.size(), "blk.1.attn_x.weight"));
    for (const char *format : {"q8_0", "iq4_nl"})
        CHECK(says(refusal(input, output, format), "tensor " + name));
    CHECK_FALSE(fs::exists(output));
}

}  // namespace model_convert_test
