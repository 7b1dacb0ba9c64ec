// random_gguf.h - GGUF files of random weights, in Qwen1.5-MoE's sizes or smaller ones, for
// benchmarks. Sizes and formats are those of a true file, and its routers spread over all experts
// (expert_spread.h).
//
//   if (!random_gguf(*find_recipe("q4_k_m"), {.layers = 2}).write(path)) ...
//
// Weights are normal numbers with mean zero, quantised as `moorage model convert` does. Each row is
// cut from a stock of blocks at a place of its own. Rows of routers are drawn number by number. A
// token's row of the embedding is as large as the sum that the layers add to it, so that routers
// see a difference between tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/convert/quantise.h"
#include "core/model/weights.h"
#include "tests/unit/gguf_files.h"

namespace moorage::test {

struct gguf_recipe {
    const char *name;
    core::weight_type most, output;
    // Types of rows whose length is no multiple of 256: in the first layer and in the others.
    core::weight_type odd_first, odd;
};
inline constexpr gguf_recipe gguf_recipes[] = {
    {"bf16", core::weight_type::bf16, core::weight_type::bf16, core::weight_type::bf16,
     core::weight_type::bf16},
    {"q8_0", core::weight_type::q8_0, core::weight_type::q8_0, core::weight_type::q8_0,
     core::weight_type::q8_0},
    {"q4_0", core::weight_type::q4_0, core::weight_type::q6_k, core::weight_type::q4_0,
     core::weight_type::q4_0},
    {"q4_k_m", core::weight_type::q4_k, core::weight_type::q6_k, core::weight_type::q8_0,
     core::weight_type::q5_0},
    {"q6_k", core::weight_type::q6_k, core::weight_type::q6_k, core::weight_type::q8_0,
     core::weight_type::q8_0},
    {"mxfp4", core::weight_type::mxfp4_gguf, core::weight_type::q8_0, core::weight_type::mxfp4_gguf,
     core::weight_type::mxfp4_gguf},
};
inline const gguf_recipe *find_recipe(std::string_view name) {
    for (const gguf_recipe &recipe : gguf_recipes)
        if (name == recipe.name) return &recipe;
    return nullptr;
}

struct random_gguf_sizes {
    uint32_t layers = 2, hidden = 2048, heads = 16, experts = 60, top_k = 4, intermediate = 1408,
             shared = 5632, vocabulary = 32768;
};

class random_gguf {
public:
    random_gguf(const gguf_recipe &recipe, const random_gguf_sizes &sizes)
        : recipe_(recipe), sizes_(sizes) {}

    bool write(const std::string &path) {
        std::vector<char> buffer(1u << 20);  // rows are short
        std::ofstream stream;
        stream.rdbuf()->pubsetbuf(buffer.data(), static_cast<std::streamsize>(buffer.size()));
        stream.open(path, std::ios::binary);
        gguf_maker maker;
        put_keys(maker);
        each_tensor([&](const std::string &name, const std::vector<uint64_t> &shape,
                        core::weight_type type) {
            const uint64_t bytes =
                rows_of(shape) * bytes_of_columns(type, static_cast<uint32_t>(shape[0]));
            maker.tensors.push_back(
                {name, shape, core::format_of(type).gguf_id, maker.data_bytes, bytes});
            maker.data_bytes += (bytes + 31) / 32 * 32;
        });
        const uint64_t data_bytes = std::exchange(maker.data_bytes, 0);
        const std::vector<std::byte> head = maker.make();
        maker.data_bytes = data_bytes;
        put(stream, head);
        each_tensor([&](const std::string &name, const std::vector<uint64_t> &shape,
                        core::weight_type type) { put_tensor(stream, name, shape, type); });
        return bool(stream.flush());
    }

private:
    // Numbers of a stock. Rows are cut from it.
    static constexpr uint32_t stock_values = 1u << 20;

    static uint64_t rows_of(const std::vector<uint64_t> &shape) {
        uint64_t rows = 1;
        for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
        return rows;
    }
    static void put(std::ofstream &stream, std::span<const std::byte> bytes) {
        stream.write(reinterpret_cast<const char *>(bytes.data()),
                     static_cast<std::streamsize>(bytes.size()));
    }
    void put_keys(gguf_maker &maker) const {
        const std::string prefix = "qwen2moe.";
        maker.text("general.architecture", "qwen2moe");
        maker.number("general.quantization_version", 2).number(prefix + "context_length", 4096);
        maker.number(prefix + "embedding_length", sizes_.hidden);
        maker.number(prefix + "block_count", sizes_.layers);
        maker.number(prefix + "vocab_size", sizes_.vocabulary);
        maker.number(prefix + "feed_forward_length", sizes_.shared);
        maker.number(prefix + "attention.head_count", sizes_.heads);
        maker.number(prefix + "attention.head_count_kv", sizes_.heads);
        maker.real(prefix + "attention.layer_norm_rms_epsilon", 1e-6F);
        maker.real(prefix + "rope.freq_base", 1e6F);
        maker.number(prefix + "expert_count", sizes_.experts);
        maker.number(prefix + "expert_used_count", sizes_.top_k);
        maker.number(prefix + "expert_feed_forward_length", sizes_.intermediate);
        maker.number(prefix + "expert_shared_feed_forward_length", sizes_.shared);
        maker.text("tokenizer.ggml.model", "none");
    }
    template <class Body>
    void each_tensor(Body &&body) const {
        const core::weight_type f32 = core::weight_type::f32;
        const uint32_t hidden = sizes_.hidden, inner = sizes_.intermediate;
        body("token_embd.weight", {hidden, sizes_.vocabulary}, recipe_.most);
        for (uint32_t layer = 0; layer < sizes_.layers; ++layer) {
            const std::string prefix = "blk." + std::to_string(layer) + ".";
            const core::weight_type odd = layer == 0 ? recipe_.odd_first : recipe_.odd;
            body(prefix + "attn_norm.weight", {hidden}, f32);
            for (const char *part : {"q", "k", "v"}) {
                body(prefix + "attn_" + part + ".weight", {hidden, hidden}, recipe_.most);
                body(prefix + "attn_" + part + ".bias", {hidden}, f32);
            }
            body(prefix + "attn_output.weight", {hidden, hidden}, recipe_.most);
            body(prefix + "ffn_norm.weight", {hidden}, f32);
            body(prefix + "ffn_gate_inp.weight", {hidden, sizes_.experts}, f32);
            body(prefix + "ffn_gate_exps.weight", {hidden, inner, sizes_.experts}, recipe_.most);
            body(prefix + "ffn_up_exps.weight", {hidden, inner, sizes_.experts}, recipe_.most);
            body(prefix + "ffn_down_exps.weight", {inner, hidden, sizes_.experts}, odd);
            body(prefix + "ffn_gate_shexp.weight", {hidden, sizes_.shared}, recipe_.most);
            body(prefix + "ffn_up_shexp.weight", {hidden, sizes_.shared}, recipe_.most);
            body(prefix + "ffn_down_shexp.weight", {sizes_.shared, hidden}, recipe_.most);
            body(prefix + "ffn_gate_inp_shexp.weight", {hidden}, f32);
        }
        body("output_norm.weight", {hidden}, f32);
        body("output.weight", {hidden, sizes_.vocabulary}, recipe_.output);
    }
    void put_tensor(std::ofstream &stream, const std::string &name,
                    const std::vector<uint64_t> &shape, core::weight_type type) {
        const auto columns = static_cast<uint32_t>(shape[0]);
        const uint64_t rows = rows_of(shape), row_bytes = bytes_of_columns(type, columns);
        // Values near 1 / sqrt(columns) keep products of normalised inputs near 1.
        const double size = name == "token_embd.weight" ? 1 : 1 / std::sqrt(columns);
        if (type == core::weight_type::f32) {
            const bool norm = name.ends_with("norm.weight");
            const double spread = norm ? 0.1 : name.ends_with(".bias") ? 0.02 : size;
            std::vector<float> row(columns);
            for (uint64_t done = 0; done < rows; ++done) {
                for (float &value : row)
                    value = static_cast<float>((norm ? 1 : 0) + spread * normal_(random_));
                put(stream, std::as_bytes(std::span(row)));
            }
        } else {
            const std::vector<std::byte> &stock = stock_of(type, size);
            const uint64_t block_bytes = core::format_of(type).bytes;
            const uint64_t places = (stock.size() - row_bytes) / block_bytes + 1;
            for (uint64_t done = 0; done < rows; ++done)
                put(stream, std::span(stock).subspan(random_() % places * block_bytes, row_bytes));
        }
        const std::vector<std::byte> rest((32 - rows * row_bytes % 32) % 32);
        put(stream, rest);
    }
    const std::vector<std::byte> &stock_of(core::weight_type type, double size) {
        std::vector<std::byte> &stock = stocks_[{type, size}];
        if (!stock.empty()) return stock;
        std::vector<float> values(stock_values);
        for (float &value : values) value = static_cast<float>(size * normal_(random_));
        stock.resize(bytes_of_columns(type, stock_values));
        core::quantise_row(type, values, stock);
        return stock;
    }

    const gguf_recipe &recipe_;
    const random_gguf_sizes sizes_;
    std::mt19937_64 random_{7};
    std::normal_distribution<double> normal_{0, 1};
    std::map<std::pair<core::weight_type, double>, std::vector<std::byte>> stocks_;
};

}  // namespace moorage::test
