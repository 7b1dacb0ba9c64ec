// Goal: the sizes of a model are those of the tensors that its GGUF header lists, whatever formats
// and architecture, without its weights. Method: headers made in memory, every expected number
// worked out in its comment; headers that break one rule each.
#include "core/model/gguf_shape.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <unistd.h>

#include <doctest/doctest.h>

#include "core/base/text.h"
#include "core/config/profile_file.h"
#include "core/config/shape_writer.h"
#include "gguf_files.h"

namespace gguf_shape_test {

using namespace moorage::core;
using moorage::test::gguf_maker;

namespace {

namespace fs = std::filesystem;

enum type : uint32_t { f32 = 0, q4_0 = 2, q8_0 = 8, q6_k = 14, iq3_s = 21, iq4_xs = 23 };

void add(gguf_maker &gguf, const std::string &name, const std::vector<uint64_t> &shape,
         uint32_t type) {
    gguf.tensors.push_back({name, shape, type, 0, 0});
}

// Two layers, the first with linear attention, and one that predicts a further token; four experts
// of 512 x 256.
gguf_maker hybrid() {
    gguf_maker gguf;
    gguf.text("general.architecture", "tomorrow")
        .number("tomorrow.block_count", 3)
        .number("tomorrow.nextn_predict_layers", 1)
        .number("tomorrow.embedding_length", 256)
        .number("tomorrow.expert_count", 4)
        .number("tomorrow.expert_used_count", 2)
        .number("tomorrow.attention.head_count", 4)
        .numbers("tomorrow.attention.head_count_kv", {0, 2, 2})
        .number("tomorrow.attention.key_length", 64)
        .number("tomorrow.attention.value_length", 64)
        .number("tomorrow.ssm.inner_size", 256)
        .number("tomorrow.ssm.state_size", 64);
    add(gguf, "token_embd.weight", {256, 1000}, q4_0);
    add(gguf, "output.weight", {256, 1000}, q6_k);
    add(gguf, "output_norm.weight", {256}, f32);
    add(gguf, "blk.0.attn_qkv.weight", {256, 768}, q8_0);
    add(gguf, "blk.0.ssm_conv1d.weight", {4, 768}, f32);
    add(gguf, "blk.0.ssm_out.weight", {256, 256}, q8_0);
    add(gguf, "blk.0.ssm_a", {2}, f32);
    add(gguf, "blk.1.attn_q.weight", {256, 512}, q8_0);
    add(gguf, "blk.1.attn_k.weight", {256, 128}, q8_0);
    add(gguf, "blk.1.attn_v.weight", {256, 128}, q8_0);
    add(gguf, "blk.1.attn_output.weight", {512, 256}, q8_0);
    for (const char *layer : {"blk.0.", "blk.1."}) {
        const auto name = [&](const char *rest) { return std::string(layer) + rest; };
        add(gguf, name("attn_norm.weight"), {256}, f32);
        add(gguf, name("ffn_gate_inp.weight"), {256, 4}, f32);
        add(gguf, name("ffn_gate_exps.weight"), {256, 512, 4}, iq3_s);
        add(gguf, name("ffn_up_exps.weight"), {256, 512, 4}, iq3_s);
    }
    add(gguf, "blk.0.ffn_down_exps.weight", {512, 256, 4}, q6_k);
    add(gguf, "blk.1.ffn_down_exps.weight", {512, 256, 4}, iq4_xs);
    add(gguf, "blk.2.attn_q.weight", {256, 512}, f32);
    add(gguf, "blk.2.nextn.eh_proj.weight", {512, 256}, f32);
    return gguf;
}

class passing_file {
public:
    explicit passing_file(const gguf_maker &gguf)
        : path(fs::temp_directory_path() / format("moorage-shape-{}.gguf", ::getpid())) {
        const std::vector<std::byte> bytes = gguf.make();
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    }
    ~passing_file() { fs::remove(path); }
    const fs::path path;
};

result<model_shape> shape_of_file(const gguf_maker &gguf) {
    const passing_file file(gguf);
    return gguf_shape(file.path);
}

}  // namespace

TEST_CASE("the parts of a model with linear attention, from a header without weights") {
    const auto shape = shape_of_file(hybrid());
    REQUIRE_MESSAGE(shape.ok(), (shape ? "" : shape.failure().text));
    CHECK(shape->layers == 2);
    CHECK(shape->moe_layers == 2);
    CHECK(shape->experts == 4);
    CHECK(shape->top_k == 2);
    CHECK(shape->hidden == 256);
    CHECK(shape->moe_intermediate == 512);
    CHECK(shape->matrices == 3);
    CHECK(shape->vocabulary == 1000);
    // 524,288 values a stack of four: IQ3_S 110 bytes for 256, 225,280; Q6_K 210, 430,080; IQ4_XS
    // 136, 278,528. Layers 880,640 and 729,088, eight experts: 201,216 bytes, 12,877,824 bits for
    // 3,145,728 weights.
    CHECK(shape->expert_bytes == 201'216);
    CHECK(shape->expert_bits == doctest::Approx(4.09375));
    // Q4_0 has 18 bytes for 32 values, Q6_K 210 for 256.
    CHECK(shape->embedding_bits == doctest::Approx(4.5));
    CHECK(shape->head_bits == doctest::Approx(6.5625));
    // Q8_0 has 34 bytes for 32. Norms 3 x 1,024; layer 0: 208,896 + 12,288 + 69,632 + 8 + 4,096;
    // layer 1: 2 x 139,264 + 2 x 34,816 + 4,096. Head 210,000, embedding 144,000.
    constexpr uint64_t dense = 3'072 + 294'920 + 352'256;
    CHECK(shape->dense_bytes == dense + 210'000);
    CHECK(shape->non_expert_bytes == dense + 210'000 + 144'000);
    CHECK(shape->dense_bits == doctest::Approx(8.0 * dense / 595'714));
    // 7 and 8 matrices, those of all experts as one: 7.5.
    CHECK(shape->products == 8);
    // The second layer alone looks back: 2 heads of 64 + 64 values of two bytes, over two layers;
    // 4 heads, two operations for each.
    CHECK(shape->kv_token_layer_bytes == 256);
    CHECK(shape->context_operations == doctest::Approx(512));
    // 256 x 64 values, and three columns of 768 rows: 18,688 of four bytes, over two layers.
    CHECK(shape->state_layer_bytes == 37'376);
    const auto again = parse_shape(to_toml(*shape, "[G] test", "[G] test"), "again.toml");
    REQUIRE_MESSAGE(again.ok(), (again ? "" : again.failure().text));
    CHECK(again->shape.state_layer_bytes == 37'376);
    CHECK(again->shape.expert_bits == doctest::Approx(4.09375));
}

TEST_CASE("latent attention, a tied head, and experts of two matrices, one file each") {
    gguf_maker gguf;
    gguf.text("general.architecture", "small")
        .number("small.block_count", 1)
        .number("small.embedding_length", 32)
        .number("small.expert_count", 2)
        .number("small.expert_used_count", 1)
        .number("small.attention.head_count", 4)
        .number("small.attention.kv_lora_rank", 16)
        .number("small.rope.dimension_count", 8);
    add(gguf, "token_embd.weight", {32, 10}, f32);
    add(gguf, "blk.0.attn_kv_a_mqa.weight", {32, 24}, f32);
    for (const char *name : {"ffn_up.0.weight", "ffn_up.1.weight"})
        add(gguf, std::string("blk.0.") + name, {32, 64}, f32);
    for (const char *name : {"ffn_down.0.weight", "ffn_down.1.weight"})
        add(gguf, std::string("blk.0.") + name, {64, 32}, f32);
    const auto shape = shape_of_file(gguf);
    REQUIRE_MESSAGE(shape.ok(), (shape ? "" : shape.failure().text));
    CHECK(shape->matrices == 2);
    CHECK(shape->expert_bytes == 2 * 32 * 64 * 4);
    CHECK(shape->products == 3);
    CHECK(shape->dense_bytes == shape->non_expert_bytes);
    CHECK(shape->head_bits == doctest::Approx(32));
    CHECK(shape->kv_token_layer_bytes == 2 * (16 + 8));
    CHECK(shape->context_operations == doctest::Approx(2 * 4 * (2 * 16 + 8)));
    CHECK(shape->state_layer_bytes == 0);
}

TEST_CASE("headers that say too little or too much are refused by name") {
    struct bad_file {
        std::function<void(gguf_maker &)> change;
        const char *says;
    };
    const auto tensor = [](gguf_maker &m, const char *name) -> gguf_maker::tensor & {
        for (auto &entry : m.tensors)
            if (entry.name == name) return entry;
        FAIL("no tensor " << name);
        return m.tensors[0];
    };
    const bad_file examples[] = {
        {[&](gguf_maker &m) {
             tensor(m, "blk.0.ffn_up_exps.weight").shape = {256, 512, 3};
         },
         "is of 3 experts"},
        {[&](gguf_maker &m) {
             tensor(m, "blk.1.ffn_down_exps.weight").shape = {768, 256, 4};
         },
         "experts of 768 rows, others have 512"},
        {[&](gguf_maker &m) {
             tensor(m, "blk.1.ffn_up_exps.weight").shape = {512, 512, 4};
         },
         "matrices; 2 or 3 are needed"},
        {[&](gguf_maker &m) { tensor(m, "token_embd.weight").name = "embed"; },
         "token_embd.weight is missing"},
        {[&](gguf_maker &m) {
             tensor(m, "token_embd.weight").shape = {512, 1000};
         },
         "token_embd.weight has 512000 values"},
        {[&](gguf_maker &m) { tensor(m, "blk.2.attn_q.weight").name = "blk.x.attn_q.weight"; },
         "no number of a layer"},
        {[&](gguf_maker &m) { tensor(m, "blk.0.ffn_up_exps.weight").type = 4; }, "Q4_2"},
        {[&](gguf_maker &m) {
             tensor(m, "blk.0.ssm_a").shape = {1ull << 40, 1ull << 40};
         },
         "is of no tensor that fits a file"},
    };
    for (const bad_file &example : examples) {
        CAPTURE(example.says);
        gguf_maker gguf = hybrid();
        example.change(gguf);
        const auto refused = shape_of_file(gguf);
        REQUIRE_FALSE(refused.ok());
        CHECK_MESSAGE(refused.failure().text.find(example.says) != std::string::npos,
                      refused.failure().text);
    }
    gguf_maker bare;
    bare.text("general.architecture", "bare").number("bare.block_count", 5'000);
    CHECK(shape_of_file(bare).failure().text.find("1 to 4096") != std::string::npos);
}

}  // namespace gguf_shape_test
