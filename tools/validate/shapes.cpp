// shapes.cpp - reads model shapes from a table with one shape per row.
#include <filesystem>

#include "core/base/text.h"
#include "tools/validate/setting.h"

namespace moorage::core {

namespace {

status read_sizes(const csv_table &table, size_t row, model_shape &shape) {
    status done = success();
    const auto read = [&](const char *column, auto &target, double max, double min = 0) {
        const auto value = table.number(row, column, 0, max, min);
        if (value) target = static_cast<std::remove_reference_t<decltype(target)>>(*value);
        if (done && !value) done = value.failure();
    };
    constexpr double count_max = 1 << 24, layers_max = 1 << 12, experts_max = 1 << 16;
    constexpr double bytes_max = 1e13, bits_min = 0.1;
    read("layers", shape.layers, layers_max);
    read("moe_layers", shape.moe_layers, layers_max);
    read("experts", shape.experts, experts_max);
    read("top_k", shape.top_k, experts_max);
    read("hidden", shape.hidden, count_max);
    read("moe_intermediate", shape.moe_intermediate, count_max);
    read("matrices", shape.matrices, 3);
    read("vocabulary", shape.vocabulary, count_max);
    read("kv_token_layer_bytes", shape.kv_token_layer_bytes, bytes_max);
    read("bits_experts", shape.expert_bits, 64, bits_min);
    read("bits_dense", shape.dense_bits, 64, bits_min);
    read("bits_head", shape.head_bits, 64, bits_min);
    read("expert_bytes", shape.expert_bytes, bytes_max);
    read("dense_bytes_per_token", shape.dense_bytes, bytes_max);
    read("embedding_bytes", shape.non_expert_bytes, bytes_max);
    return done;
}

bool is_complete(const model_shape &shape) {
    return !shape.name.empty() && shape.layers != 0 && shape.moe_layers != 0 &&
           shape.moe_layers <= shape.layers && shape.experts != 0 && shape.top_k != 0 &&
           shape.top_k <= shape.experts && shape.hidden != 0 && shape.moe_intermediate != 0 &&
           shape.matrices != 0 && shape.vocabulary != 0 && shape.expert_bytes != 0 &&
           shape.expert_bits > 0;
}

}  // namespace

result<std::vector<model_shape>> read_shapes(const csv_table &table,
                                             const std::filesystem::path &base) {
    std::vector<model_shape> shapes;
    for (size_t row = 0; row < table.rows(); ++row) {
        model_shape shape;
        shape.name = table.cell(row, "shape");
        if (const status done = read_sizes(table, row, shape); !done) return done.failure();
        if (!is_complete(shape))
            return error{format("{}: shape, layers, moe_layers, experts, top_k, hidden, "
                                "moe_intermediate, matrices, vocabulary, expert_bytes and "
                                "bits_experts are needed, none of them 0",
                                table.row_location(row)),
                         true};
        shape.non_expert_bytes += shape.dense_bytes;
        shape.weight_bytes = shape.expert_bits / 8;
        const std::string base_name(table.cell(row, "base"));
        if (const auto known = load_shape(base_name.empty() ? shape.name : base_name, base)) {
            shape.products = known->products;
            shape.context_operations = known->context_operations;
        }
        shapes.push_back(std::move(shape));
    }
    return shapes;
}

}  // namespace moorage::core
