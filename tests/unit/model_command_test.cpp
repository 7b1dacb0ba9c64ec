// model_command_test.cpp - goal: `moorage model info` describes a directory and shows what fits.
// Method: the program on the demo and a golden model. Its figures are compared with counts by hand,
// its text with 80 columns, its exit codes with the contract.
#include <doctest/doctest.h>

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/profile_file.h"
#include "core/config/shape_writer.h"
#include "core/execute/cpu/kv_cache.h"
#include "core/model/model.h"
#include "core/report/figures.h"
#include "tests/unit/model_files.h"

namespace model_command_test {

using namespace moorage::core;

namespace {

struct outcome {
    int code = -1;
    std::string output;  // standard output, and with it the errors
};

outcome program(const std::string &arguments) {
    const std::string line =
        std::string(MOORAGE_BINARY_DIR) + "/bin/moorage " + arguments + " 2>&1";
    std::FILE *pipe = popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    outcome result;
    char buffer[4096];
    for (size_t count; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        result.output.append(buffer, count);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
    return result;
}

outcome info(const std::string &arguments) { return program("model info " + arguments); }

const std::string demo = std::string(MOORAGE_SOURCE_DIR) + "/configs/demo";

}  // namespace

TEST_CASE("figures of the demo, and what fits beside it") {
    const outcome result = info(demo + " --json - --context 512 --profile rtx_4060_ti_16gb");
    REQUIRE(result.code == 0);
    const json figures = parse_json(result.output);
    CHECK(figures["architecture"] == "qwen2_moe");
    CHECK(figures["layers"] == 8);
    CHECK(figures["experts"] == 24);
    CHECK(figures["top_k"] == 4);
    CHECK(figures["type"] == "bf16");
    CHECK(figures["files"] == 2);
    // Gate, up and down of 64 x 192 at 2 bytes; 8 layers of 24.
    const uint64_t expert = 3 * 64 * 192 * 2;
    CHECK(figures["bytes"]["expert"] == expert);
    CHECK(figures["bytes"]["experts"] == 8 * 24 * expert);
    CHECK(figures["bytes"]["embedding"] == 4096 * 192 * 2);
    CHECK(figures["bytes"]["head"] == 0);
    // Key and value of 2 heads of 32 in 8 layers: of executor cpu at 4 bytes, of a GPU's at 2.
    CHECK(figures["executor"] == "cpu");
    CHECK(figures["token"]["kv_bytes"] == 2 * 2 * 32 * 4 * 8);
    CHECK(figures["kv_bytes"] == 512 * 2 * 2 * 32 * 4 * 8);
    CHECK(figures["fits"][0]["kv_bytes"] == 512 * 2 * 2 * 32 * 2 * 8);
    CHECK(figures["token"]["expert_bytes"] == 8 * 4 * expert);
    REQUIRE(figures["fits"].size() == 1);
    CHECK(figures["fits"][0]["experts"] == 8 * 24);
    CHECK(figures["fits"][0]["share"] == 1);
    uint64_t sum = 0;
    for (const auto &[key, value] : figures["bytes"].items())
        if (key != "total" && key != "expert") sum += value.get<uint64_t>();
    CHECK(sum == figures["bytes"]["total"]);
}

TEST_CASE("the KV cache is counted as the executor keeps it") {
    // gpt_oss: 2 of 4 layers see only 8 tokens, and every layer keeps all of them; key and value of
    // 2 heads of 16.
    const std::string golden = moorage::test::golden_directory("gpt_oss").string();
    const uint64_t values = 4 * 100 * 2 * 2 * 16;
    const std::string arguments =
        golden + " --json - --context 100 --profile host --profile rtx_4090";
    for (const auto &[name, value_bytes] :
         {std::pair(std::string("cpu"), 4u), {"cuda", 2u}, {"emulator", 2u}}) {
        const std::string executor = name;
        CAPTURE(executor);
        const outcome result = info(arguments + " --executor " + executor);
        REQUIRE(result.code == 0);
        const json figures = parse_json(result.output);
        CHECK(figures["kv_bytes"] == values * value_bytes);
        // On a machine its own executor runs, whichever was asked of.
        CHECK(figures["fits"][0]["kv_bytes"] == values * 4);
        CHECK(figures["fits"][1]["kv_bytes"] == values * 2);
    }
    // The counted bytes are those that the executor takes.
    const auto opened = open_model(golden);
    REQUIRE(opened);
    CHECK(kv_cache::bytes_wanted((*opened)->config(), {1, 100}) == values * 4);
}

TEST_CASE("text of 80 columns, exit codes of the contract") {
    const outcome text = info(demo);
    CHECK(text.code == 0);
    for (const std::string &line : split(text.output, '\n')) CHECK(columns_of(line) <= 80);
    CHECK(text.output.find("rtx_4090") != std::string::npos);
    CHECK(text.output.find("  host        a usual computer as in hw_profiles/device/host.toml") !=
          std::string::npos);
    CHECK(info(demo + " --context 1024").output.find("is cut to") == std::string::npos);
    const outcome cut = info(demo + " --context 100000 --profile rtx_4090");
    CHECK(cut.output.find("--context 100,000 is cut to the model's 1,024 positions") !=
          std::string::npos);
    CHECK(cut.output.find("hw_profiles") == std::string::npos);
    CHECK(info(demo + "/none").code == 1);
    CHECK(info("").code == 2);
    CHECK(info(demo + " --profile rtx_9999").code == 2);
    CHECK(info(demo + " --context 0").code == 2);
}

#if !defined(MOORAGE_HAS_CUDA)
TEST_CASE("what needs a GPU says which build has it, and writes nothing") {
    const std::string golden = std::string(MOORAGE_SOURCE_DIR) + "/tests/golden/olmoe";
    for (const std::string &line : {"model check " + golden + " --executor cuda",
                                    std::string("profile measure --executor cuda --out -")}) {
        const outcome result = program(line);
        CHECK(result.code == 1);
        CHECK(result.output.find("-DMOORAGE_CUDA=ON") != std::string::npos);
        CHECK(result.output.find("[device]") == std::string::npos);
    }
}
#endif

TEST_CASE("a directory's shape is a file that loads again, with bits of each part") {
    const outcome result = program("model shape " + demo);
    REQUIRE(result.code == 0);
    const auto parsed = parse_shape(result.output, "demo.toml");
    REQUIRE_MESSAGE(parsed.ok(), (parsed ? "" : parsed.failure().text));
    const model_shape &shape = parsed->shape;
    const auto bundled = load_shape("demo", "");
    REQUIRE(bundled.ok());
    CHECK(shape.layers == bundled->layers);
    CHECK(shape.expert_bytes == bundled->expert_bytes);
    CHECK(shape.non_expert_bytes == bundled->non_expert_bytes);
    CHECK(shape.dense_bytes == bundled->dense_bytes);
    CHECK(shape.kv_token_layer_bytes == bundled->kv_token_layer_bytes);
    // All of it is bf16; a tied embedding is the head.
    for (const double bits :
         {shape.expert_bits, shape.dense_bits, shape.head_bits, shape.embedding_bits})
        CHECK(bits == doctest::Approx(16));
    CHECK(shape.products == 11);  // four of attention, the gate, three of experts and of the shared
    CHECK(program("model shape /nonexistent").code != 0);
}

TEST_CASE("every bundled shape is the same after it was written") {
    for (const std::string &name : known_shapes()) {
        CAPTURE(name);
        const auto shape = load_shape(name, "");
        REQUIRE(shape.ok());
        const auto again = parse_shape(to_toml(*shape, "[G] test", "[G] test"), name);
        REQUIRE_MESSAGE(again.ok(), (again ? "" : again.failure().text));
        CHECK(again->shape.expert_bytes == shape->expert_bytes);
        CHECK(again->shape.weight_bytes == shape->weight_bytes);
        CHECK(again->shape.dense_bits == shape->dense_bits);
        CHECK(again->shape.head_bits == shape->head_bits);
        CHECK(again->shape.products == shape->products);
        CHECK(again->shape.context_operations == shape->context_operations);
    }
}

TEST_CASE("a model is written as another file, and its bytes are those of its format") {
    const moorage::test::scratch_directory place;
    const std::string output_file = (place.path() / "out.gguf").string();
    const std::string json_file = (place.path() / "figures.json").string();
    const outcome done = program("model convert " + demo + " --format q8_0 --out " + output_file +
                                 " --json " + json_file);
    REQUIRE_MESSAGE(done.code == 0, done.output);
    // The demo's tokenizer composes characters, and none of its added tokens takes spaces.
    CHECK(done.output.find("tokenizer.json: texts are normalised") != std::string::npos);
    CHECK(done.output.find("added tokens") == std::string::npos);
    const json figures = parse_json(moorage::test::read_file(json_file));
    // Eight layers: queries and outputs of 192 x 192, keys and values of 64, shared experts of 128
    // rows, 24 experts of 64; the embedding, and once more as the head. 34 bytes for 32 values.
    const uint64_t layer = 192 * (2 * 192 + 2 * 64 + 3 * 128 + 24 * 3 * 64);
    CHECK(figures["formats"]["q8_0"]["bytes"] == (8 * layer + 2 * 4096 * 192) / 32 * 34);
    CHECK(figures["replaced"] == 0);
    CHECK(std::filesystem::file_size(output_file) > figures["bytes"].get<uint64_t>());
    CHECK(info(output_file).code == 0);

    const outcome wrong = program("model convert " + demo + " --format q9 --out " + output_file);
    CHECK(wrong.code == 2);
    CHECK(wrong.output.find("format q9: a GGUF file can have f32, f16,") != std::string::npos);
    CHECK(program("model convert " + demo + " --out " + output_file).code == 2);
    CHECK(program("model convert /no/such --format f16 --out " + output_file).code == 1);
}

TEST_CASE("added tokens that take the spaces beside them are warned of by name") {
    const moorage::test::scratch_directory source(demo), place;
    const std::filesystem::path words = source.path() / "tokenizer.json";
    const auto warned = [&](const char *key) {
        json edited = parse_json(moorage::test::read_file(words));
        for (const char *flag : {"lstrip", "rstrip", "single_word"})
            edited["added_tokens"][0][flag] = std::string_view(flag) == key;
        moorage::test::write_file(words, edited.dump());
        const outcome done = program("model convert " + source.path().string() +
                                     " --format q8_0 --out " + (place.path() / "o.gguf").string());
        CHECK_MESSAGE(done.code == 0, done.output);
        return done.output.find("beside 1 of its added tokens, <|endoftext|> for example") !=
               std::string::npos;
    };
    for (const char *key : {"lstrip", "rstrip", "single_word"}) CHECK(warned(key));
    CHECK_FALSE(warned("none"));
}

TEST_CASE("a check that meets a weight that is no number names it") {
    using namespace moorage::test;
    const scratch_directory place(golden_directory("qwen3_moe"));
    std::filesystem::copy_file(golden_directory("qwen3_moe") / "golden.safetensors",
                               place.path() / "golden.safetensors");
    raw_file weights = place.read_weights();
    auto &bytes = weights["lm_head.weight"].bytes;
    bytes[6] = std::byte{0xc0}, bytes[7] = std::byte{0x7f};
    place.write_weights(weights);
    for (const char *options : {"", " --json -"}) {
        const outcome done = program("model check " + place.path().string() + options);
        CHECK(done.code == 1);
        CAPTURE(done.output);
        CHECK(done.output.find("the error of logits is no finite number") != std::string::npos);
        CHECK(done.output.find("lm_head.weight holds nan at [0, 3]") != std::string::npos);
    }
}

TEST_CASE("a file is told from a directory by what it is, not by its name") {
    using namespace moorage::test;
    namespace fs = std::filesystem;
    const scratch_directory place;
    const fs::path models = fs::path(MOORAGE_SOURCE_DIR) / "tests/golden/quantised/models";
    fs::copy(golden_directory("qwen3_moe"), place.path() / "directory.gguf");
    fs::copy_file(models / "qwen3moe-tied-iq4_nl.gguf", place.path() / "v1.5");
    fs::copy_file(models / "qwen3moe-tied-iq4_nl.ref.safetensors",
                  place.path() / "v1.5.ref.safetensors");
    for (const char *name : {"directory.gguf", "v1.5"}) {
        const outcome done = program("model check " + (place.path() / name).string());
        CHECK_MESSAGE(done.code == 0, done.output);
    }
}

}  // namespace model_command_test
