// measure_kernels.cpp - times the kernels alone: products, experts, attention, empty loops.
#include <cstring>
#include <vector>

#include "core/execute/float_buffer.h"
#include "core/execute/cpu/kernels.h"
#include "core/execute/measure_models.h"
#include "core/execute/cpu/measure_parts.h"
#include "core/execute/measure_timing.h"

namespace moorage::core {

namespace {

// Every byte the same: a small number in any of the types, none of them subnormal.
constexpr int filler = 0x3c, filler_scale = 0x7c;

// Bytes enough for the largest matrix, shared by all.
class weight_block {
public:
    explicit weight_block(uint64_t bytes) : values_(bytes), scales_(bytes / 16) {
        std::memset(values_.data(), filler, values_.size());
        std::memset(scales_.data(), filler_scale, scales_.size());
    }
    matrix make_matrix(weight_type type, uint32_t rows, uint32_t columns) const {
        return packed_matrix(type, rows, columns, values_.data(), scales_.data());
    }
    // The same block cut into many matrices.
    matrix make_part(uint32_t rows, uint32_t columns, uint64_t index) const {
        matrix part = make_matrix(usual_weights, rows, columns);
        part.data += index * bytes_of(part);
        return part;
    }

private:
    std::vector<std::byte> values_, scales_;
};

product_speed measure_product(thread_pool &pool, double budget_s, const matrix &weights,
                              uint32_t tokens) {
    std::vector<float> input(size_t{weights.columns} * tokens, 0.01f);
    std::vector<float> output(size_t{weights.rows} * tokens);
    const product operands{
        &weights, {input.data(), weights.columns}, {output.data(), weights.rows}};
    const double seconds = typical_seconds(budget_s, [&] {
        multiply(pool, tokens, {&operands, 1});
    });
    return {
        weights.type, weights.rows, weights.columns, tokens, static_cast<double>(bytes_of(weights)),
        seconds};
}

mlp_call call_of(const mlp_weights &weights, uint32_t tokens, std::span<float> input,
                 std::span<float> output) {
    mlp_call call{};
    call.weights = &weights;
    call.intermediate = call.count = weights.gate.rows;
    call.activation = activation_kind::silu;
    call.tokens = tokens;
    call.input = {input.data(), weights.gate.columns};
    call.output = {output.data(), weights.gate.columns};
    return call;
}

double bytes_of_expert(const mlp_weights &expert) {
    return static_cast<double>(bytes_of(expert.gate) + bytes_of(expert.up) + bytes_of(expert.down));
}

}  // namespace

void measure_products(thread_pool &pool, double budget_s, measured_machine &machine) {
    constexpr uint64_t block_bytes = uint64_t{4096} * 14336 * 4;
    const weight_block block(block_bytes);
    constexpr uint32_t shapes[][2] = {
        {256, 256}, {1024, 1024}, {4096, 1024}, {4096, 4096}, {14336, 4096}};
    for (const auto &[rows, columns] : shapes)
        machine.products.push_back(
            measure_product(pool, budget_s, block.make_matrix(usual_weights, rows, columns), 1));
    // For formats in groups, other kernels are measured.
    for (const weight_format &format : weight_formats)
        if (format.type != usual_weights && !in_groups(format.type))
            machine.products.push_back(
                measure_product(pool, budget_s, block.make_matrix(format.type, 4096, 4096), 1));
    for (const uint32_t tokens : {4u, 16u, 64u, 256u})
        machine.products.push_back(
            measure_product(pool, budget_s, block.make_matrix(usual_weights, 1024, 1024), tokens));

    // Matrices one after the other, repeatedly. A matrix that has left the cache when its turn
    // comes again has to come from further away.
    constexpr uint32_t rows = 512, columns = 1024;
    std::vector<float> input(columns, 0.01f), output(rows);
    for (uint64_t count = 1; count * rows * columns * 2 <= block_bytes; count *= 2) {
        const double seconds = typical_seconds(budget_s, [&] {
            for (uint64_t i = 0; i < count; ++i) {
                const matrix weights = block.make_part(rows, columns, i);
                const product operands{&weights, {input.data(), columns}, {output.data(), rows}};
                multiply(pool, 1, {&operands, 1});
            }
        });
        machine.working_sets.push_back({static_cast<double>(count * rows * columns * 2), seconds});
    }
}

status measure_experts(thread_pool &pool, double budget_s, measured_machine &machine) {
    mlp_kernel kernel(pool);
    std::vector<timed_sample> expert_slopes;
    std::vector<double> loops;
    for (const uint32_t hidden : {64u, 128u, 256u, 512u}) {
        const probe_shape shape{1, hidden, hidden, 64, 8, 64};
        const auto model = probe_model(shape);
        if (!model) return model.failure();
        const std::vector<mlp_weights> &experts = (*model)->weights().layers[0].experts;
        std::vector<float> input(hidden, 0.01f), output(size_t{hidden} * 8);
        std::vector<timed_sample> by_count;
        for (const uint32_t count : {1u, 2u, 4u, 8u}) {
            size_t next = 0;
            std::vector<mlp_call> calls(count);
            by_count.push_back({static_cast<double>(count), typical_seconds(budget_s, [&] {
                                    for (uint32_t i = 0; i < count; ++i)
                                        calls[i] =
                                            call_of(experts[next++ % experts.size()], 1, input,
                                                    std::span(output).subspan(size_t{i} * hidden));
                                    kernel(calls);
                                })});
        }
        const line_fit line = fit_line(by_count);
        loops.push_back(line.constant);
        expert_slopes.push_back({bytes_of_expert(experts[0]), std::max(line.slope, 1e-9)});
    }
    machine.experts_seconds = median(loops);
    machine.expert_seconds = fit_line(expert_slopes).constant;

    const auto model = probe_model({1, 1024, 512, 4, 2, 64});
    if (!model) return model.failure();
    const mlp_weights &expert = (*model)->weights().layers[0].experts[0];
    machine.expert_bytes = bytes_of_expert(expert);
    machine.expert_operations = machine.expert_bytes;  // two for each weight of two bytes
    std::vector<float> input(size_t{256} * 1024, 0.01f), output(size_t{256} * 1024);
    for (const uint32_t tokens : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u}) {
        const mlp_call call = call_of(expert, tokens, input, output);
        machine.expert_tokens.push_back(
            {static_cast<double>(tokens), typical_seconds(budget_s, [&] { kernel(call); })});
    }
    return success();
}

void measure_attention(thread_pool &pool, double budget_s, measured_machine &machine) {
    constexpr uint32_t heads = 16, kv_heads = 4, head_dim = 64, longest = 4096;
    constexpr uint32_t width = kv_heads * head_dim;
    std::vector<float> keys(size_t{longest} * width, 0.01f), values(keys);
    std::vector<float> query(heads * head_dim, 0.01f), output(query);
    const float *key_cache = keys.data(), *value_cache = values.data();
    const uint32_t first = 0;
    for (uint32_t positions = 64; positions <= longest; positions *= 2) {
        const uint32_t last = positions - 1;
        attention_call call{};
        call.tokens = 1;
        call.heads = heads;
        call.kv_heads = kv_heads;
        call.head_dim = call.value_dim = head_dim;
        call.scale = 0.125f;
        call.query = {query.data(), query.size()};
        call.output = {output.data(), output.size()};
        call.keys = &key_cache;
        call.values = &value_cache;
        call.key_stride = call.value_stride = width;
        call.first_positions = &first;
        call.positions = &last;
        machine.contexts.push_back({static_cast<double>(positions),
                                    typical_seconds(budget_s, [&] { attend(pool, call); })});
    }
    machine.context_bytes = 2.0 * 2 * width;
}

void measure_loop(thread_pool &pool, double budget_s, measured_machine &machine) {
    std::vector<float> sink(pool.threads() * size_t{16});
    machine.loop_seconds = typical_seconds(budget_s, [&] {
        pool.parallel_for(pool.threads(), [&](uint32_t item) { sink[item * 16] += 1; });
    });
}

}  // namespace moorage::core
