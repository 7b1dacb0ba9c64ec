// stored_packed_test.cpp - goal: packed matrices of a directory are found by their tensors, and
// faults of those are named. Method: a golden model with one matrix packed by hand, then with each
// of its tensors wrong. Values are compared with codes and scales written here.
#include <doctest/doctest.h>

#include "core/model/model.h"
#include "core/model/weight_values.h"
#include "tests/unit/model_files.h"

namespace stored_packed_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

const std::string stem = "model.layers.2.mlp.experts.7.up_proj";

std::unique_ptr<model> open_valid(const std::filesystem::path &directory) {
    auto opened_model = open_model(directory);
    REQUIRE_MESSAGE(opened_model.ok(), opened_model.failure().text);
    return std::move(*opened_model);
}
std::string refusal(const std::filesystem::path &directory) {
    const auto opened_model = open_model(directory);
    return opened_model ? "" : opened_model.failure().text;
}
bool holds(const std::string &text, std::string_view part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("8-bit floats with scales of blocks") {
    const scratch_directory place(golden_directory("deepseek_v3"));
    place.edit_config(
        {{"quantization_config", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}}});
    raw_file good = place.read_weights();
    std::vector<uint8_t> codes(24 * 48);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 120);
    good[stem + ".weight"] = {stem + ".weight", "F8_E4M3", "[24, 48]", raw<uint8_t>(codes)};
    const std::string scales = stem + ".weight_scale_inv";
    const auto write_edited = [&](auto edit) {
        raw_file file = good;
        edit(file);
        place.write_weights(file);
    };
    for (const bool half : {false, true}) {
        write_edited([&](raw_file &file) {
            file[scales] = half ? raw_tensor{scales, "BF16", "[1, 1]", raw<uint16_t>({0x4020})}
                                : raw_tensor{scales, "F32", "[1, 1]", raw<float>({2.5F})};
        });
        const auto model = open_valid(place.path());
        const matrix &up = model->weights().layers[2].experts[7].up;
        // 48 columns are no whole groups: such rows are kept as floats.
        CHECK(up.type == weight_type::f32);
        for (uint32_t row = 0; row < 24; ++row)
            for (uint32_t column = 0; column < 48; ++column)
                CHECK(weight_at(up, row, column) == 2.5F * float_of_e4m3(codes[row * 48 + column]));
        CHECK(model->weights().layers[2].experts[6].up.type == weight_type::bf16);
    }
    write_edited([](raw_file &) {});
    CHECK(holds(refusal(place.path()), scales + " of shape [1, 1] is missing"));
    write_edited([&](raw_file &file) {
        file[scales] = {scales, "I16", "[1, 1]", raw<uint16_t>({1})};
    });
    CHECK(holds(refusal(place.path()), "is of type I16; F32, BF16 or F16 are needed"));
}

TEST_CASE("what is wrong with four-bit tensors is named") {
    const scratch_directory place(golden_directory("deepseek_v3"));
    place.edit_config(
        {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 16}}}});
    raw_file good = place.read_weights();
    good.remove(stem + ".weight");
    const std::string codes = stem + ".qweight", zeros = stem + ".qzeros",
                      factors = stem + ".scales", order = stem + ".g_idx";
    good[codes] = {codes, "I32", "[6, 24]", raw<uint32_t>(std::vector<uint32_t>(144))};
    good[zeros] = {zeros, "I32", "[3, 3]", raw<uint32_t>(std::vector<uint32_t>(9))};
    good[factors] = {factors, "F32", "[3, 24]", raw<float>(std::vector<float>(72, 1))};
    const auto text = [&](auto edit) {
        raw_file file = good;
        edit(file);
        place.write_weights(file);
        return refusal(place.path());
    };
    CHECK(holds(text([](raw_file &) {}), stem + " has rows of 48 four-bit values"));
    CHECK(holds(text([&](raw_file &file) { file.remove(zeros); }), zeros));
    CHECK(holds(text([&](raw_file &file) { file[codes].dtype = "F32"; }),
                "is of type F32; I32 is needed"));
    CHECK(holds(text([&](raw_file &file) {
                    file[order] = {order, "I32", "[48]", raw<int32_t>(std::vector<int32_t>(48, 3))};
                }),
                order + " holds 3 at 0; the matrix has 3 groups"));
    CHECK(
        holds(text([&](raw_file &file) {
                  file[order] = {order, "I32", "[48]", raw<int32_t>(std::vector<int32_t>(48, -1))};
              }),
              order + " holds -1 at 0"));
    CHECK(holds(text([&](raw_file &file) { file[factors].shape = "[24, 3]"; }),
                "has the shape [24, 3]; config.json makes it [3, 24]"));
}

TEST_CASE("an order of columns that is announced has to be there, unless it is that of one group") {
    const scratch_directory place(golden_directory("deepseek_v3"));
    raw_file file = place.read_weights();
    file.remove(stem + ".weight");
    const std::string codes = stem + ".qweight", zeros = stem + ".qzeros",
                      factors = stem + ".scales";
    file[codes] = {codes, "I32", "[6, 24]", raw<uint32_t>(std::vector<uint32_t>(144))};
    const auto text = [&](int32_t group, uint32_t groups) {
        place.edit_config(
            {{"quantization_config",
              {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group}, {"desc_act", true}}}});
        file[zeros] = {zeros, "I32", shape_text(std::vector<uint64_t>{groups, 3}),
                       raw<uint32_t>(std::vector<uint32_t>(groups * 3))};
        file[factors] = {factors, "F32", shape_text(std::vector<uint64_t>{groups, 24}),
                         raw<float>(std::vector<float>(groups * 24, 1))};
        place.write_weights(file);
        return refusal(place.path());
    };
    CHECK(holds(text(16, 3), stem + ".g_idx of shape [48] is missing"));
    CHECK(holds(text(-1, 1), stem + " has rows of 48 four-bit values"));
}

TEST_CASE("compressed-tensors: zero points and an order that are announced have to be there") {
    const scratch_directory place(golden_directory("deepseek_v3"));
    raw_file file = place.read_weights();
    file.remove(stem + ".weight");
    const std::string codes = stem + ".weight_packed", factors = stem + ".weight_scale";
    file[codes] = {codes, "I32", "[24, 6]", raw<uint32_t>(std::vector<uint32_t>(144))};
    file[factors] = {factors, "F32", "[24, 3]", raw<float>(std::vector<float>(72, 1))};
    place.write_weights(file);
    const auto text = [&](const char *key, const json &value) {
        json weights = {{"num_bits", 4}, {"group_size", 16}};
        weights[key] = value;
        place.edit_config({{"quantization_config",
                            {{"quant_method", "compressed-tensors"},
                             {"format", "pack-quantized"},
                             {"config_groups", {{"group_0", {{"weights", weights}}}}}}}});
        return refusal(place.path());
    };
    const std::string order_missing = stem + ".weight_g_idx of shape [48] is missing",
                      opened_else = stem + " has rows of 48 four-bit values";
    CHECK(holds(text("symmetric", false), stem + ".weight_zero_point of shape [3, 3] is missing"));
    CHECK(holds(text("symmetric", true), opened_else));
    for (const json &order : {json("group"), json("dynamic"), json(true)})
        CHECK(holds(text("actorder", order), order_missing));
    for (const json &order : {json("weight"), json("static"), json(false), json()})
        CHECK(holds(text("actorder", order), opened_else));
    CHECK(holds(text("actorder", "random"), "actorder is random; group and weight are supported"));
}

}  // namespace stored_packed_test
