// shapes.cpp - reads model shapes from a table with one shape per row.
#include <filesystem>

#include "core/base/text.h"
#include "core/validate/setting.h"

namespace moorage::core {

namespace {

status read_sizes(const csv_table &table, size_t row, model_shape &one) {
    status done = success();
    const auto read = [&](const char *column, auto &out, double max, double min = 0) {
        const auto value = table.number(row, column, 0, max, min);
        if (value) out = static_cast<std::remove_reference_t<decltype(out)>>(*value);
        if (done && !value) done = value.failure();
    };
    constexpr double count_max = 1 << 24, layers_max = 1 << 12, experts_max = 1 << 16;
    constexpr double bytes_max = 1e13, bits_min = 0.1;
    read("layers", one.layers, layers_max);
    read("moe_layers", one.moe_layers, layers_max);
    read("experts", one.experts, experts_max);
    read("top_k", one.top_k, experts_max);
    read("hidden", one.hidden, count_max);
    read("moe_intermediate", one.moe_intermediate, count_max);
    read("matrices", one.matrices, 3);
    read("vocabulary", one.vocabulary, count_max);
    read("kv_token_layer_bytes", one.kv_token_layer_bytes, bytes_max);
    read("bits_experts", one.expert_bits, 64, bits_min);
    read("bits_dense", one.dense_bits, 64, bits_min);
    read("bits_head", one.head_bits, 64, bits_min);
    read("expert_bytes", one.expert_bytes, bytes_max);
    read("dense_bytes_per_token", one.dense_bytes, bytes_max);
    read("embedding_bytes", one.non_expert_bytes, bytes_max);
    return done;
}

bool whole(const model_shape &one) {
    return !one.name.empty() && one.layers != 0 && one.moe_layers != 0 &&
           one.moe_layers <= one.layers && one.experts != 0 && one.top_k != 0 &&
           one.top_k <= one.experts && one.hidden != 0 && one.moe_intermediate != 0 &&
           one.matrices != 0 && one.vocabulary != 0 && one.expert_bytes != 0 && one.expert_bits > 0;
}

}  // namespace

result<std::vector<model_shape>> read_shapes(const csv_table &table,
                                             const std::filesystem::path &base) {
    std::vector<model_shape> all;
    for (size_t row = 0; row < table.rows(); ++row) {
        model_shape one;
        one.name = table.cell(row, "shape");
        if (const status done = read_sizes(table, row, one); !done) return done.failure();
        if (!whole(one))
            return error{format("{}: shape, layers, moe_layers, experts, top_k, hidden, "
                                "moe_intermediate, matrices, vocabulary, expert_bytes and "
                                "bits_experts are needed, none of them 0",
                                table.place(row)),
                         true};
        one.non_expert_bytes += one.dense_bytes;
        one.weight_bytes = one.expert_bits / 8;
        const std::string of(table.cell(row, "base"));
        if (const auto known = load_shape(of.empty() ? one.name : of, base)) {
            one.products = known->products;
            one.context_operations = known->context_operations;
        }
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace moorage::core
