// model_test.cpp - goal: a model directory opens to the weights of its files. Any fault is an error
// that names file and tensor. Method: golden models compared with their tensors read by name and
// position in plain loops; the same weights in other layouts (fused, MXFP4, shards, other types)
// written here; edits that must be refused; a large sparse file for memory use.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/half.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/model/model.h"
#include "core/model/segment.h"
#include "tests/skip.h"
#include "tests/unit/model_files.h"

namespace model_test {

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
    return text.find(part) != std::string::npos;
}

float bf16_at(const std::byte *bytes, uint64_t index) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * index, 2);
    return std::bit_cast<float>(uint32_t{bits} << 16);
}

float value_at(const matrix &weights, uint32_t row, uint32_t column) {
    const std::byte *begin = weights.data + row * weights.row_bytes;
    if (weights.type == weight_type::bf16) return bf16_at(begin, column);
    if (weights.type == weight_type::f32) {
        float value;
        std::memcpy(&value, begin + 4 * column, 4);
        return value;
    }
    uint16_t bits;
    std::memcpy(&bits, begin + 2 * column, 2);
    return float_of_half(bits);
}

// The matrix against a tensor whose element (r, c) is at begin + r * row_step + c * column_step.
void check_matrix(const matrix &loaded, const raw_tensor &stored, uint64_t begin, uint64_t row_step,
                  uint64_t column_step) {
    size_t wrong = 0;
    for (uint32_t row = 0; row < loaded.rows; ++row)
        for (uint32_t column = 0; column < loaded.columns; ++column)
            wrong += value_at(loaded, row, column) !=
                     bf16_at(stored.bytes.data(), begin + row * row_step + column * column_step);
    CAPTURE(stored.name);
    CHECK(wrong == 0);
}
void check_matrix(const matrix &loaded, const raw_tensor &stored) {
    REQUIRE(stored.bytes.size() == uint64_t{loaded.rows} * loaded.columns * 2);
    check_matrix(loaded, stored, 0, loaded.columns, 1);
}

void check_vector(std::span<const float> loaded, const raw_tensor &stored) {
    REQUIRE(loaded.size() * 2 == stored.bytes.size());
    size_t wrong = 0;
    for (size_t i = 0; i < loaded.size(); ++i)
        wrong += loaded[i] != bf16_at(stored.bytes.data(), i);
    CAPTURE(stored.name);
    CHECK(wrong == 0);
}

std::vector<std::byte> image_of(const mlp_weights &expert) {
    const segment_image image(expert, 0, expert.gate.rows);
    std::vector<std::byte> bytes(image.bytes());
    image.copy(0, image.bytes(), bytes.data());
    return bytes;
}

void check_same_experts(const model &a, const model &b) {
    REQUIRE(a.weights().layers.size() == b.weights().layers.size());
    for (size_t layer = 0; layer < a.weights().layers.size(); ++layer) {
        const auto &left = a.weights().layers[layer].experts,
                   &right = b.weights().layers[layer].experts;
        REQUIRE(left.size() == right.size());
        for (size_t expert = 0; expert < left.size(); ++expert)
            CHECK(image_of(left[expert]) == image_of(right[expert]));
    }
}

// `tensors` one behind the other as one, of shape [count, rows, columns].
raw_tensor stack_tensors(const std::string &name, const std::string &shape,
                         const std::vector<const raw_tensor *> &tensors) {
    raw_tensor joined{name, "BF16", shape, {}};
    for (const raw_tensor *tensor : tensors)
        joined.bytes.insert(joined.bytes.end(), tensor->bytes.begin(), tensor->bytes.end());
    return joined;
}

}  // namespace

TEST_CASE("golden models: every kind of tensor is where its name says") {
    const scratch_directory grouped(golden_directory("qwen2_moe"));
    raw_file file = grouped.read_weights();
    const auto qwen = open_valid(grouped.path());
    const model_weights &w = qwen->weights();
    check_matrix(w.embedding, file["model.embed_tokens.weight"]);
    check_matrix(w.head, file["lm_head.weight"]);
    check_vector(w.final_norm.weight, file["model.norm.weight"]);
    const layer_weights &layer = w.layers[2];
    const std::string prefix = "model.layers.2.";
    check_vector(layer.attention_norm.weight, file[prefix + "input_layernorm.weight"]);
    check_vector(layer.mlp_norm.weight, file[prefix + "post_attention_layernorm.weight"]);
    check_matrix(layer.attention.query, file[prefix + "self_attn.q_proj.weight"]);
    check_matrix(layer.attention.key, file[prefix + "self_attn.k_proj.weight"]);
    check_matrix(layer.attention.value, file[prefix + "self_attn.v_proj.weight"]);
    check_matrix(layer.attention.output, file[prefix + "self_attn.o_proj.weight"]);
    check_vector(layer.attention.query_bias, file[prefix + "self_attn.q_proj.bias"]);
    check_vector(layer.attention.value_bias, file[prefix + "self_attn.v_proj.bias"]);
    CHECK(layer.attention.output_bias.empty());
    check_matrix(layer.router, file[prefix + "mlp.gate.weight"]);
    check_matrix(layer.shared.down, file[prefix + "mlp.shared_expert.down_proj.weight"]);
    check_matrix(layer.shared_gate, file[prefix + "mlp.shared_expert_gate.weight"]);
    for (const uint32_t expert : {0u, 11u}) {
        const std::string name = prefix + "mlp.experts." + std::to_string(expert);
        check_matrix(layer.experts[expert].gate, file[name + ".gate_proj.weight"]);
        check_matrix(layer.experts[expert].up, file[name + ".up_proj.weight"]);
        check_matrix(layer.experts[expert].down, file[name + ".down_proj.weight"]);
    }

    const scratch_directory latent(golden_directory("deepseek_v3"));
    raw_file second = latent.read_weights();
    const auto deepseek = open_valid(latent.path());
    const layer_weights &dense = deepseek->weights().layers[0],
                        &moe = deepseek->weights().layers[1];
    const std::string a = "model.layers.0.self_attn.";
    check_matrix(dense.attention.query_a, second[a + "q_a_proj.weight"]);
    check_vector(dense.attention.query_a_norm, second[a + "q_a_layernorm.weight"]);
    check_matrix(dense.attention.query_b, second[a + "q_b_proj.weight"]);
    check_matrix(dense.attention.kv_a, second[a + "kv_a_proj_with_mqa.weight"]);
    check_vector(dense.attention.kv_a_norm, second[a + "kv_a_layernorm.weight"]);
    check_matrix(dense.attention.kv_b, second[a + "kv_b_proj.weight"]);
    check_matrix(dense.dense.gate, second["model.layers.0.mlp.gate_proj.weight"]);
    CHECK(dense.experts.empty());
    check_vector(moe.correction_bias, second["model.layers.1.mlp.gate.e_score_correction_bias"]);
    CHECK_FALSE(moe.dense.gate);

    const scratch_directory blocks(golden_directory("mixtral"));
    raw_file third = blocks.read_weights();
    const auto mixtral = open_valid(blocks.path());
    const mlp_weights &expert = mixtral->weights().layers[1].experts[5];
    const std::string name = "model.layers.1.block_sparse_moe.experts.5.";
    check_matrix(expert.gate, third[name + "w1.weight"]);
    check_matrix(expert.down, third[name + "w2.weight"]);
    check_matrix(expert.up, third[name + "w3.weight"]);
}

TEST_CASE("gpt_oss in bf16: gate and up in turn, inputs x outputs, turned round") {
    const scratch_directory place(golden_directory("gpt_oss"));
    raw_file file = place.read_weights();
    const auto model = open_valid(place.path());
    const uint64_t inner = 64, hidden = 64;
    const std::string prefix = "model.layers.3.mlp.experts.";
    const raw_tensor gate_up = file[prefix + "gate_up_proj"], down = file[prefix + "down_proj"],
                     gate_up_bias = file[prefix + "gate_up_proj_bias"],
                     down_bias = file[prefix + "down_proj_bias"];
    const layer_weights &layer = model->weights().layers[3];
    for (uint32_t expert = 0; expert < 8; ++expert) {
        const mlp_weights &expert_weights = layer.experts[expert];
        const uint64_t begin = expert * hidden * 2 * inner;
        check_matrix(expert_weights.gate, gate_up, begin, 2, 2 * inner);
        check_matrix(expert_weights.up, gate_up, begin + 1, 2, 2 * inner);
        check_matrix(expert_weights.down, down, expert * inner * hidden, 1, hidden);
        for (uint64_t row = 0; row < inner; ++row) {
            const uint64_t gate_index = expert * 2 * inner + 2 * row;
            REQUIRE(expert_weights.gate_bias[row] ==
                    bf16_at(gate_up_bias.bytes.data(), gate_index));
            REQUIRE(expert_weights.up_bias[row] ==
                    bf16_at(gate_up_bias.bytes.data(), gate_index + 1));
            REQUIRE(expert_weights.down_bias[row] ==
                    bf16_at(down_bias.bytes.data(), expert * hidden + row));
        }
    }
    check_vector(layer.attention.sinks, file["model.layers.3.self_attn.sinks"]);
    check_vector(layer.router_bias, file["model.layers.3.mlp.router.bias"]);
}

TEST_CASE("granitemoe: gate before up in one tensor") {
    const scratch_directory place(golden_directory("granitemoe"));
    raw_file file = place.read_weights();
    const auto model = open_valid(place.path());
    const std::string prefix = "model.layers.1.block_sparse_moe.";
    const raw_tensor input_linear = file[prefix + "input_linear.weight"],
                     output_linear = file[prefix + "output_linear.weight"];
    const uint64_t inner = 32, hidden = 48;
    for (uint32_t expert = 0; expert < 12; ++expert) {
        const mlp_weights &expert_weights = model->weights().layers[1].experts[expert];
        check_matrix(expert_weights.gate, input_linear, expert * 2 * inner * hidden, hidden, 1);
        check_matrix(expert_weights.up, input_linear, (expert * 2 * inner + inner) * hidden, hidden,
                     1);
        check_matrix(expert_weights.down, output_linear, expert * hidden * inner, inner, 1);
    }
}

TEST_CASE("fused experts of other families are the separate ones") {
    const scratch_directory place(golden_directory("qwen3_moe"));
    const auto separate = open_valid(golden_directory("qwen3_moe"));
    raw_file file = place.read_weights();
    for (int layer = 0; layer < 3; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
        std::vector<const raw_tensor *> gate_up, down;
        raw_file copy = file;
        for (int expert = 0; expert < 16; ++expert) {
            const std::string name = prefix + std::to_string(expert);
            for (const char *part : {".gate_proj.weight", ".up_proj.weight"})
                gate_up.push_back(&copy[name + part]);
            down.push_back(&copy[name + ".down_proj.weight"]);
        }
        std::erase_if(file.tensors,
                      [&](const raw_tensor &tensor) { return tensor.name.starts_with(prefix); });
        file.tensors.push_back(stack_tensors(prefix + "gate_up_proj", "[16, 48, 48]", gate_up));
        file.tensors.push_back(stack_tensors(prefix + "down_proj", "[16, 48, 24]", down));
    }
    place.write_weights(file);
    const auto fused = open_valid(place.path());
    check_same_experts(*separate, *fused);
    CHECK(fused->sizes().experts_bytes == separate->sizes().experts_bytes);
    CHECK(fused->sizes().parameters == separate->sizes().parameters);
}

TEST_CASE("gpt_oss in MXFP4: blocks and scales in place, gate and up in turn") {
    const scratch_directory place(golden_directory("gpt_oss"));
    raw_file file = place.read_weights();
    random_stream random(7, 7);
    for (int layer = 0; layer < 4; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
        for (const char *name : {"gate_up_proj", "down_proj"}) {
            file.remove(prefix + name);
            const std::string rows = name[0] == 'g' ? "128" : "64";
            const size_t count = 8 * (name[0] == 'g' ? 128 : 64) * 2;
            for (const bool scales : {false, true}) {
                raw_tensor packed{prefix + name + (scales ? "_scales" : "_blocks"),
                                  "U8",
                                  "[8, " + rows + ", 2" + (scales ? "]" : ", 16]"),
                                  {}};
                packed.bytes.resize(scales ? count : 16 * count);
                for (std::byte &byte : packed.bytes) byte = static_cast<std::byte>(random.next());
                file.tensors.push_back(packed);
            }
        }
    }
    place.write_weights(file);
    place.edit_config({{"quantization_config", {{"quant_method", "mxfp4"}}}});
    const auto model = open_valid(place.path());
    const std::string prefix = "model.layers.2.mlp.experts.";
    const raw_tensor blocks = file[prefix + "gate_up_proj_blocks"],
                     scales = file[prefix + "gate_up_proj_scales"],
                     down = file[prefix + "down_proj_blocks"];
    for (uint32_t expert = 0; expert < 8; ++expert) {
        const mlp_weights &expert_weights = model->weights().layers[2].experts[expert];
        REQUIRE(expert_weights.gate.type == weight_type::mxfp4);
        for (uint32_t row = 0; row < 64; ++row) {
            const uint64_t stored = expert * 128 + 2 * row;
            const auto same = [](const std::byte *a, const std::byte *b, size_t count) {
                return std::memcmp(a, b, count) == 0;
            };
            REQUIRE(same(expert_weights.gate.data + row * expert_weights.gate.row_bytes,
                         blocks.bytes.data() + stored * 32, 32));
            REQUIRE(same(expert_weights.up.data + row * expert_weights.up.row_bytes,
                         blocks.bytes.data() + (stored + 1) * 32, 32));
            REQUIRE(same(expert_weights.gate.scales + row * expert_weights.gate.scale_row_bytes,
                         scales.bytes.data() + stored * 2, 2));
            REQUIRE(same(expert_weights.up.scales + row * expert_weights.up.scale_row_bytes,
                         scales.bytes.data() + (stored + 1) * 2, 2));
            REQUIRE(same(expert_weights.down.data + row * expert_weights.down.row_bytes,
                         down.bytes.data() + (expert * 64 + row) * 32, 32));
        }
    }
    // 3 matrices of 64 x 64, half a byte a value and a scale for 32.
    CHECK(model->sizes().expert_bytes == 3 * 64 * (32 + 2));
    CHECK(model->sizes().parameters == open_valid(golden_directory("gpt_oss"))->sizes().parameters);
}

TEST_CASE("other types, and bytes that are not aligned to them") {
    const scratch_directory place(golden_directory("olmoe"));
    raw_file file = place.read_weights();
    raw_tensor &query = file["model.layers.1.self_attn.q_proj.weight"];
    const raw_tensor original = query;
    std::vector<float> wide(original.bytes.size() / 2);
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = bf16_at(original.bytes.data(), i);
    query.dtype = "F32";
    query.bytes = raw(wide);
    raw_tensor &norm = file["model.norm.weight"];
    const raw_tensor norm_before = norm;
    std::vector<uint16_t> halves;
    for (size_t i = 0; i < norm.bytes.size() / 2; ++i)
        halves.push_back(half_of_float(bf16_at(norm.bytes.data(), i)));
    norm.dtype = "F16";
    norm.bytes = raw(halves);
    // One byte before all others moves every tensor to odd places.
    file.tensors.insert(file.tensors.begin(), raw_tensor{"extra", "U8", "[1]", {std::byte{1}}});
    std::string header = file.header();
    while (header.size() % 8 != 0) header += ' ';
    write_file(place.path() / "model.safetensors", file.build(header));
    const auto model = open_valid(place.path());
    const matrix &read = model->weights().layers[1].attention.query;
    CHECK(read.type == weight_type::f32);
    CHECK(reinterpret_cast<uintptr_t>(read.data) % 4 == 0);
    check_matrix(read, original);
    check_matrix(model->weights().embedding, file["model.embed_tokens.weight"]);
    for (size_t i = 0; i < halves.size(); ++i)
        REQUIRE(model->weights().final_norm.weight[i] == float_of_half(halves[i]));
    CHECK(model->sizes().unused_bytes == 1);
    CHECK(model->sizes().unused == std::vector<std::string>{"extra"});
}

TEST_CASE("the demo: two shards, a tied embedding, sizes as its shape file has them") {
    const auto demo = open_valid(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    CHECK(demo->file_count() == 2);
    CHECK(demo->tensor_count() == 690);
    CHECK(demo->weights().head.data == demo->weights().embedding.data);
    const model_sizes &sizes = demo->sizes();
    CHECK(sizes.head_bytes == 0);
    CHECK(sizes.unused_bytes == 0);
    CHECK(sizes.total_bytes == sizes.experts_bytes + sizes.shared_bytes + sizes.attention_bytes +
                                   sizes.dense_bytes + sizes.router_bytes + sizes.embedding_bytes);
    CHECK(sizes.parameters * 2 == sizes.total_bytes);
    CHECK(sizes.expert_bytes == 3 * 192 * 64 * 2);
    CHECK(demo->generation().end_ids == std::vector<int32_t>{0});
    CHECK(demo->generation().begin_id == -1);

    const model_shape computed = shape_of(*demo, "demo"), listed = load_shape("demo", ".").value();
    CHECK(computed.layers == listed.layers);
    CHECK(computed.moe_layers == listed.moe_layers);
    CHECK(computed.experts == listed.experts);
    CHECK(computed.top_k == listed.top_k);
    CHECK(computed.expert_bytes == listed.expert_bytes);
    CHECK(computed.non_expert_bytes == listed.non_expert_bytes);
    CHECK(computed.dense_bytes == listed.dense_bytes);
    CHECK(computed.kv_token_layer_bytes == listed.kv_token_layer_bytes);
    CHECK(computed.weight_bytes == listed.weight_bytes);
    CHECK(computed.vocabulary == listed.vocabulary);
}

TEST_CASE("what is wrong is named: tensors") {
    const scratch_directory place(golden_directory("deepseek_v3"));
    const raw_file good = place.read_weights();
    const std::string victim = "model.layers.2.mlp.experts.7.up_proj.weight";
    const auto error_after = [&](auto edit) {
        raw_file file = good;
        edit(file);
        place.write_weights(file);
        return refusal(place.path());
    };
    const std::string missing = error_after([&](raw_file &file) { file.remove(victim); });
    CHECK(holds(missing, victim + " of shape [24, 48] is missing"));
    CHECK(holds(missing, "model.safetensors"));
    const std::string shape = error_after([&](raw_file &file) { file[victim].shape = "[48, 24]"; });
    CHECK(holds(shape, victim + " has the shape [48, 24]; config.json makes it [24, 48]"));
    const std::string type = error_after([&](raw_file &file) { file[victim].dtype = "I16"; });
    CHECK(holds(type, victim + " is of type I16"));
    const std::string vector =
        error_after([&](raw_file &file) { file["model.norm.weight"].shape = "[24, 2]"; });
    CHECK(holds(vector, "model.norm.weight has the shape [24, 2]"));

    // Matrices of an expert may be of several types.
    raw_file mixed = good;
    mixed[victim].dtype = "F16";
    place.write_weights(mixed);
    const auto mixed_model = open_valid(place.path());
    CHECK(mixed_model->weights().layers[2].experts[7].up.type == weight_type::f16);
    CHECK(mixed_model->weights().layers[2].experts[7].gate.type == weight_type::bf16);

    // Weights for further tokens, and extra ones of older files, are no error.
    raw_file file = good;
    file["model.layers.3.eh_proj.weight"] = {"model.layers.3.eh_proj.weight", "U8", "[3]",
                                             raw<uint8_t>({1, 2, 3})};
    place.write_weights(file);
    CHECK(open_valid(place.path())->sizes().unused_bytes == 3);
    // The model has three layers and one for further tokens, so these are two too many.
    place.edit_config({{"num_nextn_predict_layers", nullptr}});
    CHECK(holds(refusal(place.path()),
                "tensor model.layers.3.eh_proj.weight is of layer 3; "
                "layers 0 to 2 are counted (by num_hidden_layers"));
    place.edit_config({{"num_hidden_layers", 2}, {"num_nextn_predict_layers", 1}});
    CHECK(holds(refusal(place.path()), "is of layer 3; layers 0 to 2 are counted"));
    place.edit_config({{"num_hidden_layers", 2}, {"num_nextn_predict_layers", 2}});
    CHECK(open_valid(place.path())->config().layers == 2);
    place.edit_config({{"num_hidden_layers", 3}});

    std::string cut = read_file(golden_directory("deepseek_v3") / "model.safetensors");
    cut.resize(cut.size() - 100);
    write_file(place.path() / "model.safetensors", cut);
    const std::string truncated = refusal(place.path());
    CHECK(holds(truncated, "model.safetensors: tensor "));
    CHECK(holds(truncated, "truncated"));
}

TEST_CASE("what is wrong is named: files") {
    const std::filesystem::path demo = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
    const scratch_directory place(demo);
    const auto index = place.path() / "model.safetensors.index.json";
    const std::string first = "model-00001-of-00002.safetensors";
    const auto error_with_mapping = [&](const char *tensor, const json &file) {
        json edited = parse_json(read_file(demo / "model.safetensors.index.json"));
        edited["weight_map"][tensor] = file;
        write_file(index, edited.dump());
        return refusal(place.path());
    };
    for (const json &outside : {json("../../etc/passwd"), json("/etc/passwd"), json(".."), json(""),
                                json(3), json("sub/file.safetensors")}) {
        const std::string text = error_with_mapping("model.norm.weight", outside);
        CHECK(holds(text, "model.norm.weight"));
        CHECK(holds(text, "index.json"));
    }
    CHECK(holds(error_with_mapping("model.norm.weight", "none.safetensors"), "none.safetensors"));
    const std::string norm_file = parse_json(
        read_file(demo / "model.safetensors.index.json"))["weight_map"]["model.norm.weight"];
    CHECK(holds(error_with_mapping("model.norm.weight",
                                   norm_file == first ? "model-00002-of-00002.safetensors" : first),
                "model.norm.weight is placed in"));

    write_file(index, std::string("{}"));
    CHECK(holds(refusal(place.path()), "weight_map"));
    std::filesystem::remove(index);
    // Without its index a directory is read by the numbers of its shards.
    CHECK(open_valid(place.path())->file_count() == 2);
    CHECK(holds(refusal(place.path() / "none"), "no such directory"));

    const scratch_directory mixtral(golden_directory("mixtral"));
    write_file(mixtral.path() / "generation_config.json", std::string("{\"eos_token_id\": 160}"));
    CHECK(holds(refusal(mixtral.path()), "eos_token_id is 160"));
    write_file(mixtral.path() / "generation_config.json",
               std::string("{\"eos_token_id\": [3, 5], \"bos_token_id\": 1, \"do_sample\": true, "
                           "\"temperature\": 0.5, \"top_p\": 0.9, \"top_k\": 40}"));
    const generation_config generation = open_valid(mixtral.path())->generation();
    CHECK(generation.end_ids == std::vector<int32_t>{3, 5});
    CHECK(generation.begin_id == 1);
    CHECK(generation.sample);
    CHECK(generation.temperature == 0.5);
    CHECK(generation.top_p == 0.9);
    CHECK(generation.top_k == 40);
    write_file(mixtral.path() / "generation_config.json", std::string("{\"top_k\": -1}"));
    CHECK(open_valid(mixtral.path())->generation().top_k == 0);
    write_file(mixtral.path() / "generation_config.json", std::string("{\"top_k\": -2}"));
    CHECK(holds(refusal(mixtral.path()), "top_k is -2; a whole number from 0"));
    std::filesystem::remove(mixtral.path() / "generation_config.json");
    CHECK(open_valid(mixtral.path())->generation().end_ids == std::vector<int32_t>{0});
    std::filesystem::remove(mixtral.path() / "config.json");
    CHECK(holds(refusal(mixtral.path()), "config.json"));
}

TEST_CASE("random models: sizes of the published shape, the same for the same seed") {
    const auto config = config_of_shape("qwen1_5_moe_a2_7b", ".");
    REQUIRE(config.ok());
    model_config small = *config;
    small.layers = 2;
    small.moe = {1, 1};
    small.vocabulary = 1000;
    random_model_options options{.seed = 5, .distinct_experts = 3, .bytes_max = UINT64_MAX};
    const auto generated = random_model(small, options), again = random_model(small, options);
    REQUIRE(generated.ok());
    REQUIRE(again.ok());
    const model &generated_model = **generated;
    check_same_experts(generated_model, **again);
    const auto &experts = generated_model.weights().layers[1].experts;
    CHECK(experts[0].gate.data != experts[1].gate.data);
    CHECK(experts[59].gate.data == experts[59 % 3].gate.data);
    CHECK(image_of(experts[0]) != image_of(experts[1]));
    CHECK(image_of(generated_model.weights().layers[0].experts[0]) != image_of(experts[0]));
    // Near each other: an expert is one stretch of memory.
    CHECK(experts[0].up.data - experts[0].gate.data == 1408 * 2048 * 2);
    CHECK(experts[1].gate.data - experts[0].gate.data == 3 * 1408 * 2048 * 2);
    double sum = 0, squares = 0;
    for (uint32_t row = 0; row < 1408; ++row)
        for (uint32_t column = 0; column < 2048; ++column) {
            const double value = value_at(experts[0].gate, row, column);
            sum += value, squares += value * value;
        }
    const double count = 1408.0 * 2048;
    CHECK(std::abs(sum / count) < 1e-3);
    // Sums over 2048 inputs of size 1 have a size of about 1.
    CHECK(std::sqrt(squares / count * 2048) > 0.5);
    CHECK(std::sqrt(squares / count * 2048) < 2);
    const auto other_seed = random_model(small, {.seed = 6, .distinct_experts = 1});
    REQUIRE(other_seed.ok());
    CHECK(image_of((*other_seed)->weights().layers[0].experts[0]) !=
          image_of(generated_model.weights().layers[0].experts[0]));

    options.bytes_max = 1'000'000;
    const auto refused = random_model(small, options);
    REQUIRE_FALSE(refused.ok());
    CHECK(holds(refused.failure().text, "1.00 MB"));
}

TEST_CASE("random models of every architecture hold the tensors of their golden") {
    for (const char *name : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2_lite",
                             "deepseek_v3", "phimoe", "granitemoe", "gpt_oss", "glm4_moe"}) {
        CAPTURE(name);
        const auto golden = open_valid(golden_directory(name));
        const auto generated = random_model(golden->config(), {});
        REQUIRE(generated.ok());
        const model_sizes &a = golden->sizes(), &b = (*generated)->sizes();
        CHECK(a.total_bytes == b.total_bytes);
        CHECK(a.experts_bytes == b.experts_bytes);
        CHECK(a.attention_bytes == b.attention_bytes);
        CHECK(a.router_bytes == b.router_bytes);
        CHECK(a.shared_bytes == b.shared_bytes);
        CHECK(a.parameters == b.parameters);
    }
}

// Resident bytes of this process, from /proc.
uint64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    uint64_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST_CASE("opening 10 GB of weights takes little memory") {
    // 3 layers of Mixtral-8x7B and a part of its vocabulary, as a file with a hole for data.
    const scratch_directory place(golden_directory("mixtral"));
    place.edit_config({{"hidden_size", 4096},
                       {"intermediate_size", 14336},
                       {"num_attention_heads", 32},
                       {"num_key_value_heads", 8},
                       {"vocab_size", 32000}});
    const uint64_t hidden = 4096, inner = 14336, keys = 1024, vocabulary = 32000;
    std::string header = "{";
    uint64_t end = 0;
    const auto add = [&](const std::string &name, const std::string &shape, uint64_t elements) {
        const std::string range = std::to_string(end) + "," + std::to_string(end + 2 * elements);
        header += (header.size() == 1 ? "\"" : ",\"") + name + R"(":{"dtype":"BF16","shape":)" +
                  shape + R"(,"data_offsets":[)" + range + "]}";
        end += 2 * elements;
    };
    const auto matrix_of = [&](const std::string &name, uint64_t rows, uint64_t columns) {
        const std::string shape = "[" + std::to_string(rows) + "," + std::to_string(columns) + "]";
        add(name + ".weight", shape, rows * columns);
    };
    matrix_of("model.embed_tokens", vocabulary, hidden);
    matrix_of("lm_head", vocabulary, hidden);
    add("model.norm.weight", "[4096]", hidden);
    for (int layer = 0; layer < 3; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        add(prefix + "input_layernorm.weight", "[4096]", hidden);
        add(prefix + "post_attention_layernorm.weight", "[4096]", hidden);
        matrix_of(prefix + "self_attn.q_proj", hidden, hidden);
        matrix_of(prefix + "self_attn.k_proj", keys, hidden);
        matrix_of(prefix + "self_attn.v_proj", keys, hidden);
        matrix_of(prefix + "self_attn.o_proj", hidden, hidden);
        matrix_of(prefix + "block_sparse_moe.gate", 8, hidden);
        for (int expert = 0; expert < 8; ++expert) {
            const std::string name =
                prefix + "block_sparse_moe.experts." + std::to_string(expert) + ".";
            matrix_of(name + "w1", inner, hidden);
            matrix_of(name + "w2", hidden, inner);
            matrix_of(name + "w3", inner, hidden);
        }
    }
    add("filler", "[" + std::to_string((10'000'000'000 - end) / 2) + "]",
        (10'000'000'000 - end) / 2);
    header += "}";
    while (header.size() % 8 != 0) header += ' ';
    const auto file = place.path() / "model.safetensors";
    std::string start(8, '\0');
    const uint64_t length = header.size();
    std::memcpy(start.data(), &length, 8);
    write_file(file, start + header);
    std::error_code code;
    std::filesystem::resize_file(file, 8 + length + end, code);
    if (code) return moorage::test::skip("no file of 10 GB here: " + code.message());
    const uint64_t bytes_before = resident_bytes();
    const auto model = open_valid(place.path());
    CHECK(model->sizes().total_bytes == 10'000'000'000);
    CHECK(model->sizes().expert_bytes == 3 * hidden * inner * 2);
    CHECK(resident_bytes() < bytes_before + 50'000'000);
}

}  // namespace model_test
