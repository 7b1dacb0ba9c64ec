// kernels_test.cpp - goal: every kernel computes its definition, for all weight types, odd sizes
// and strides, and gives the same bits for any number of threads and any split of an expert.
// Method: slow references in double over random shapes, with outputs filled with NaN before, once
// with every vector instruction set of this machine.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_vector.h"
#include "tests/unit/random_weights.h"

namespace moorage::core::kernels_test {
namespace {

// Types with groups share their loops; other tests compare their readers with their definitions.
constexpr weight_type TYPES[] = {
    weight_type::f32,   weight_type::f16,     weight_type::bf16,
    weight_type::mxfp4, weight_type::q5_1,    weight_type::q6_k,
    weight_type::fp8,   weight_type::int4_64, weight_type::int4_ordered};

// Runs `body` with each instruction set.
template <class Body>
void with_each_target(Body &&body) {
    const std::vector<std::string> targets = vector_targets();
    REQUIRE(!targets.empty());
    for (const std::string &target : targets) {
        choose_vector_target(target);
        CAPTURE(target);
        CHECK(vector_target() == target);
        body();
    }
    choose_vector_target("");
    CHECK(vector_target() == targets.front());
}

// |got - want| within the error of float32 sums over terms of this total size.
bool close(float got, double want, double size) {
    return std::abs(got - want) <= 2e-6 * (size + 1e-3);  // false for NaN
}

uint32_t columns_for(std::mt19937_64 &random, weight_type type, uint32_t most) {
    const uint32_t columns = 1 + random() % most;
    const uint32_t block = format_of(type).block;
    return (columns + block - 1) / block * block;
}

void check_product(const random_matrix &weights, const float_rows &input, uint32_t tokens,
                   const std::vector<float> &bias, const float_rows &output) {
    uint32_t wrong = 0;
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t r = 0; r < weights.view().rows; ++r) {
            double sum = bias.empty() ? 0 : bias[r], size = std::abs(sum);
            for (uint32_t c = 0; c < weights.view().columns; ++c) {
                sum += weights.at(r, c) * input.at(t, c);
                size += std::abs(weights.at(r, c) * input.at(t, c));
            }
            wrong += !close(output.at(t, r), sum, size);
        }
    CHECK(wrong == 0);
}

TEST_CASE("products of random shapes") {
    std::mt19937_64 random(1);
    thread_pool one_thread(1), three_threads(3);
    with_each_target([&] {
        for (const weight_type type : TYPES)
            for (uint32_t round = 0; round < 24; ++round) {
                const uint32_t tokens = round < 8 ? round + 1 : 1 + random() % 70;
                const uint32_t columns = columns_for(random, type, round % 6 ? 90 : 700);
                // Two products with the same input and one with its own.
                random_matrix a(random, type, 1 + random() % 150, columns, random() % 9);
                random_matrix b(random, type, 1 + random() % 40, columns, 0);
                const uint32_t other_columns = columns_for(random, weight_type::bf16, 100);
                random_matrix c(random, weight_type::bf16, 1 + random() % 70, other_columns);
                float_rows shared(random, tokens, columns),
                    separate_input(random, tokens, other_columns);
                const auto bias = random_floats(random, b.view().rows);
                CAPTURE(name_of(type));
                CAPTURE(tokens);
                CAPTURE(columns);
                const auto run = [&](thread_pool &pool, float_rows &x, float_rows &y,
                                     float_rows &z) {
                    const product products[] = {{&a.view(), shared.view(), x.view(), {}},
                                                {&b.view(), shared.view(), y.view(), bias},
                                                {&c.view(), separate_input.view(), z.view(), {}}};
                    multiply(pool, tokens, products);
                };
                float_rows x(tokens, a.view().rows), y(tokens, b.view().rows),
                    z(tokens, c.view().rows);
                float_rows x3 = x, y3 = y, z3 = z;
                run(one_thread, x, y, z);
                check_product(a, shared, tokens, {}, x);
                check_product(b, shared, tokens, bias, y);
                check_product(c, separate_input, tokens, {}, z);
                run(three_threads, x3, y3, z3);
                CHECK((x.same_bits(x3) && y.same_bits(y3) && z.same_bits(z3)));
            }
    });
}

TEST_CASE("more products than one loop takes, none, and no tokens") {
    std::mt19937_64 random(2);
    thread_pool pool(2);
    random_matrix weights(random, weight_type::bf16, 5, 40);
    float_rows input(random, 9, 40);
    for (const uint32_t tokens : {1u, 9u}) {
        std::vector<float_rows> outputs(150, float_rows(tokens, 5));
        std::vector<product> products;
        for (float_rows &output : outputs)
            products.push_back({&weights.view(), input.view(), output.view(), {}});
        multiply(pool, tokens, products);
        for (const float_rows &output : outputs) check_product(weights, input, tokens, {}, output);
    }
    multiply(pool, 3, {});
    const product none{&weights.view(), {}, {}, {}};
    multiply(pool, 0, {&none, 1});
}

double activation_of(activation_kind kind, double limit, double gate, double up) {
    switch (kind) {
        case activation_kind::silu:
            return gate / (1 + std::exp(-gate)) * up;
        case activation_kind::gelu:
            return gate * 0.5 * std::erfc(-gate / std::sqrt(2.0)) * up;
        case activation_kind::gelu_tanh:
            return 0.5 * gate *
                   (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) *
                                  (gate + 0.044715 * gate * gate * gate))) *
                   up;
        case activation_kind::clamped_swiglu:
            break;
    }
    gate = std::min(gate, limit);
    up = std::min(std::max(up, -limit), limit);
    return (up + 1) * gate / (1 + std::exp(-1.702 * gate));
}

// An expert of random weights, and calls of any of its segments.
struct random_expert {
    uint32_t hidden, intermediate;
    random_matrix gate, up, down;
    std::vector<float> gate_bias, up_bias, down_bias;

    random_expert(std::mt19937_64 &random, weight_type type, uint32_t hidden_size,
                  uint32_t intermediate_size, bool bias)
        : hidden(hidden_size),
          intermediate(intermediate_size),
          gate(random, type, intermediate, hidden),
          up(random, type, intermediate, hidden),
          down(random, type, hidden, intermediate) {
        if (!bias) return;
        gate_bias = random_floats(random, intermediate);
        up_bias = random_floats(random, intermediate);
        down_bias = random_floats(random, hidden);
    }

    mlp_weights segment(uint32_t first, uint32_t count) const {
        mlp_weights part{gate.view(), up.view(), down.view(), gate_bias, up_bias, down_bias};
        for (matrix *rows : {&part.gate, &part.up}) {
            rows->data += first * rows->row_bytes;
            rows->scales = scales_at(*rows, first);
            rows->rows = count;
        }
        part.down.data += bytes_of_columns(part.down.type, first);
        if (part.down.scales) part.down.scales += scale_bytes_of(part.down.type, first);
        part.down.columns = count;
        if (!gate_bias.empty()) {
            part.gate_bias = part.gate_bias.subspan(first, count);
            part.up_bias = part.up_bias.subspan(first, count);
        }
        return part;
    }

    void check(const mlp_call &call, const float_rows &input, const float_rows &initial_output,
               const float_rows &output) const {
        uint32_t wrong = 0;
        std::vector<double> act(intermediate), act_size(intermediate);
        for (uint32_t t = 0; t < call.tokens; ++t) {
            const uint32_t row = call.gathered ? call.gathered[t] : t;
            for (uint32_t i = 0; i < intermediate; ++i) {
                double g = gate_bias.empty() ? 0 : gate_bias[i];
                double u = up_bias.empty() ? 0 : up_bias[i];
                double g_size = std::abs(g), u_size = std::abs(u);
                for (uint32_t c = 0; c < hidden; ++c) {
                    g += gate.at(i, c) * input.at(row, c);
                    u += up.at(i, c) * input.at(row, c);
                    g_size += std::abs(gate.at(i, c) * input.at(row, c));
                    u_size += std::abs(up.at(i, c) * input.at(row, c));
                }
                act[i] = activation_of(call.activation, call.limit, g, u);
                // Slopes of the activations are below 2.
                act_size[i] = 2 * (g_size * (1 + std::abs(u)) + u_size * (1 + std::abs(g)));
            }
            for (uint32_t r = 0; r < hidden; ++r) {
                double sum = down_bias.empty() ? 0 : down_bias[r];
                if (call.add) sum += initial_output.at(t, r);
                double size = std::abs(sum);
                for (uint32_t i = 0; i < intermediate; ++i) {
                    sum += down.at(r, i) * act[i];
                    size += std::abs(down.at(r, i)) * act_size[i];
                }
                wrong += !close(output.at(t, r), sum, size);
            }
        }
        CHECK(wrong == 0);
    }
};

constexpr activation_kind ACTIVATIONS[] = {activation_kind::silu, activation_kind::gelu,
                                           activation_kind::gelu_tanh,
                                           activation_kind::clamped_swiglu};

TEST_CASE("experts: gathered tokens, biases, adding, every activation") {
    std::mt19937_64 random(3);
    thread_pool one_thread(1), two_threads(2), three_threads(3);
    mlp_kernel alone(one_thread), pair(two_threads), trio(three_threads);
    with_each_target([&] {
        for (const weight_type type : TYPES)
            for (uint32_t round = 0; round < 16; ++round) {
                const uint32_t tokens = round < 6 ? round + 1 : 1 + random() % 70;
                const uint32_t hidden = columns_for(random, type, 200);
                const uint32_t intermediate = columns_for(random, type, round % 4 ? 100 : 400);
                const random_expert expert(random, type, hidden, intermediate, random() % 2);
                float_rows input(random, 80, hidden);
                std::vector<uint32_t> gathered(tokens);
                for (uint32_t &row : gathered) row = random() % 80;
                const mlp_weights whole = expert.segment(0, intermediate);
                const bool add = random() % 2;
                const float_rows initial_output =
                    add ? float_rows(random, tokens, hidden) : float_rows(tokens, hidden);
                float_rows a = initial_output, b = initial_output, c = initial_output;
                mlp_call call{&whole,
                              intermediate,
                              0,
                              intermediate,
                              ACTIVATIONS[round % 4],
                              1.5f,
                              tokens,
                              tokens <= 70 && round % 3 ? gathered.data() : nullptr,
                              input.view(),
                              a.view(),
                              add,
                              part_unit_of(expert.down.view())};
                CAPTURE(name_of(type));
                CAPTURE(tokens);
                CAPTURE(hidden);
                CAPTURE(intermediate);
                CAPTURE(round);
                alone(call);
                expert.check(call, input, initial_output, a);
                call.output = b.view();
                pair(call);
                call.output = c.view();
                trio(call);
                CHECK((a.same_bits(b) && a.same_bits(c)));
            }
    });
}

TEST_CASE("an expert in segments has the bits of the whole, however it is split") {
    std::mt19937_64 random(4);
    thread_pool one_thread(1), two_threads(2);
    mlp_kernel alone(one_thread), pair(two_threads);
    with_each_target([&] {
        for (const weight_type type : TYPES)
            for (uint32_t intermediate : {64u, 320u, 704u})
                for (const uint32_t tokens : {1u, 3u, 5u, 30u}) {
                    const uint32_t block = format_of(type).block;
                    const uint32_t hidden = (96 + block - 1) / block * block;
                    intermediate = (intermediate + block - 1) / block * block;
                    const random_expert expert(random, type, hidden, intermediate, true);
                    const uint32_t unit = part_unit_of(expert.down.view());
                    float_rows input(random, tokens, hidden);
                    const auto call = [&](const mlp_weights &weights, uint32_t first,
                                          uint32_t count, float_rows &output) {
                        return mlp_call{
                            &weights,   intermediate, first,   count,        activation_kind::silu,
                            0,          tokens,       nullptr, input.view(), output.view(),
                            first != 0, unit};
                    };
                    float_rows whole(tokens, hidden);
                    const mlp_weights full_expert = expert.segment(0, intermediate);
                    alone(call(full_expert, 0, intermediate, whole));
                    const expert_parts parts = parts_of(intermediate, unit);
                    // Every set of borders between parts.
                    const uint32_t borders = parts.count() - 1;
                    for (uint32_t set = 0; set < (1u << borders); ++set) {
                        float_rows split(tokens, hidden);
                        for (uint32_t first = 0; first < intermediate;) {
                            uint32_t part = first / parts.part;
                            while (part < borders && !(set >> part & 1)) ++part;
                            const uint32_t end = std::min((part + 1) * parts.part, intermediate);
                            const mlp_weights segment = expert.segment(first, end - first);
                            (set % 2 ? alone : pair)(call(segment, first, end - first, split));
                            first = end;
                        }
                        CHECK(whole.same_bits(split));
                    }
                }
    });
}

TEST_CASE("experts together have the bits of each alone") {
    std::mt19937_64 random(5);
    thread_pool two_threads(2), three_threads(3);
    mlp_kernel alone(two_threads), together(three_threads);
    const uint32_t hidden = 64, intermediate = 96, experts = 100;
    const random_expert expert(random, weight_type::bf16, hidden, intermediate, false);
    const mlp_weights whole = expert.segment(0, intermediate);
    float_rows input(random, 40, hidden);
    std::vector<float_rows> single, joint_outputs;
    std::vector<mlp_call> calls;
    for (uint32_t i = 0; i < experts; ++i) {
        const uint32_t tokens = i % 7 == 0 ? 0 : i % 5 == 0 ? 20 + i % 20 : 1 + i % 4;
        single.emplace_back(std::max(tokens, 1u), hidden);
        joint_outputs.emplace_back(std::max(tokens, 1u), hidden);
        calls.push_back({&whole,
                         intermediate,
                         0,
                         intermediate,
                         activation_kind::silu,
                         0,
                         tokens,
                         nullptr,
                         input.view(),
                         {},
                         false});
    }
    for (uint32_t i = 0; i < experts; ++i) {
        calls[i].output = single[i].view();
        alone(calls[i]);
        calls[i].output = joint_outputs[i].view();
    }
    together(calls);
    for (uint32_t i = 0; i < experts; ++i) CHECK(single[i].same_bits(joint_outputs[i]));
}

struct random_attention {
    uint32_t tokens, heads, kv_heads, head_dim, value_dim, context;
    bool latent;  // values are the front of the keys
    uint32_t streams;
    std::vector<float_rows> caches;
    std::vector<const float *> keys, values;
    std::vector<uint32_t> first_positions, positions;
    float_rows query;
    std::vector<float> sinks;
    attention_call call{};

    random_attention(std::mt19937_64 &random, uint32_t token_count, uint32_t context_size)
        : tokens(token_count),
          heads(0),
          kv_heads(1 + random() % 3),
          head_dim(1 + random() % 80),
          value_dim(1 + random() % 150),
          context(context_size),
          latent(random() % 4 == 0),
          streams(1 + random() % 3),
          query(1, 1) {
        static constexpr uint32_t GROUPS[] = {1, 2, 3, 8, 20, 130};
        heads = kv_heads * GROUPS[random() % 6];
        if (latent) value_dim = std::min(value_dim, head_dim), kv_heads = 1;
        if (latent) heads = 16;
        query = float_rows(random, tokens, heads * head_dim);
        for (uint32_t stream = 0; stream < 2 * streams; ++stream)
            caches.emplace_back(random, context, kv_heads * (stream % 2 ? value_dim : head_dim), 5);
        const bool window = random() % 2;
        uint32_t next[3] = {};
        for (uint32_t &begin : next) begin = random() % (context - tokens + 1);
        for (uint32_t t = 0; t < tokens; ++t) {
            const uint32_t stream = t * streams / tokens;
            keys.push_back(caches[2 * stream].view().data);
            values.push_back(latent ? keys.back() : caches[2 * stream + 1].view().data);
            positions.push_back(next[stream]++);
            first_positions.push_back(window && positions[t] > 20 ? positions[t] - 20 : 0);
        }
        if (random() % 2) sinks = random_floats(random, heads);
        call = {tokens,
                heads,
                kv_heads,
                head_dim,
                value_dim,
                0.3f,
                query.view(),
                {},
                keys.data(),
                values.data(),
                caches[0].view().stride,
                latent ? caches[0].view().stride : caches[1].view().stride,
                first_positions.data(),
                positions.data(),
                sinks};
    }

    void check(const float_rows &output) const {
        uint32_t wrong = 0;
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t head = 0; head < heads; ++head) {
                const size_t kv_head = head / (heads / kv_heads);
                std::vector<double> weights;
                double most = sinks.empty() ? -INFINITY : sinks[head];
                for (size_t p = first_positions[t]; p <= positions[t]; ++p) {
                    const float *key = keys[t] + p * call.key_stride + kv_head * head_dim;
                    double score = 0;
                    for (uint32_t i = 0; i < head_dim; ++i)
                        score += double{query.at(t, head * head_dim + i)} * key[i];
                    weights.push_back(score * call.scale);
                    most = std::max(most, weights.back());
                }
                double total = sinks.empty() ? 0 : std::exp(sinks[head] - most);
                for (double &weight : weights) total += weight = std::exp(weight - most);
                for (uint32_t i = 0; i < value_dim; ++i) {
                    double sum = 0;
                    for (size_t p = 0; p < weights.size(); ++p)
                        sum += weights[p] / total *
                               values[t][(first_positions[t] + p) * call.value_stride +
                                         kv_head * value_dim + i];
                    wrong += !(std::abs(output.at(t, head * value_dim + i) - sum) <= 3e-5);
                }
            }
        CHECK(wrong == 0);
    }
};

TEST_CASE("attention: grouped and latent heads, windows, sinks, streams of a batch") {
    std::mt19937_64 random(6);
    thread_pool one_thread(1), two_threads(2), three_threads(3);
    with_each_target([&] {
        for (uint32_t round = 0; round < 30; ++round) {
            const uint32_t tokens = round % 3 == 0 ? 1 : 1 + random() % 40;
            const uint32_t context = round % 5 == 0 ? 1100 : 40 + random() % 200;
            random_attention attention(random, tokens, context);
            CAPTURE(round);
            CAPTURE(tokens);
            CAPTURE(attention.heads);
            CAPTURE(attention.kv_heads);
            CAPTURE(attention.head_dim);
            CAPTURE(attention.value_dim);
            float_rows a(tokens, attention.heads * attention.value_dim), b = a, c = a;
            attention.call.output = a.view();
            attend(one_thread, attention.call);
            attention.check(a);
            attention.call.output = b.view();
            attend(two_threads, attention.call);
            attention.call.output = c.view();
            attend(three_threads, attention.call);
            CHECK((a.same_bits(b) && a.same_bits(c)));
        }
    });
}

TEST_CASE("attention with scores far apart") {
    thread_pool pool(1);
    std::vector<float> cache(300), from_value(300);
    for (uint32_t p = 0; p < 300; ++p) from_value[p] = static_cast<float>(p);
    // One key stands out by 200: its value is the answer, wherever it lies.
    for (const uint32_t tokens : {1u, 8u})
        for (const uint32_t best : {0u, 127u, 128u, 299u}) {
            std::fill(cache.begin(), cache.end(), -100.0f);
            cache[best] = 100;
            const std::vector<float> query(tokens, 1);
            std::vector<float> output(tokens, NAN);
            const std::vector<const float *> keys(tokens, cache.data()),
                values(tokens, from_value.data());
            const std::vector<uint32_t> first_positions(tokens, 0), positions(tokens, 299);
            attend(pool, {tokens,
                          1,
                          1,
                          1,
                          1,
                          1.0f,
                          {query.data(), 1},
                          {output.data(), 1},
                          keys.data(),
                          values.data(),
                          1,
                          1,
                          first_positions.data(),
                          positions.data(),
                          {}});
            for (const float got : output) CHECK(got == doctest::Approx(best));
        }
}

TEST_CASE("widening gives the exact value of every weight") {
    std::mt19937_64 random(7);
    with_each_target([&] {
        for (const weight_type type : TYPES)
            for (uint32_t round = 0; round < 8; ++round) {
                const uint32_t columns = columns_for(random, type, 130);
                random_matrix weights(random, type, 3, columns);
                std::vector<float> widened(columns + 1, NAN);
                for (uint32_t row = 0; row < 3; ++row) {
                    widen(weights.view(), row, widened.data());
                    uint32_t wrong = 0;
                    for (uint32_t c = 0; c < columns; ++c)
                        wrong += widened[c] != weights.at(row, c);
                    CHECK(wrong == 0);
                    CHECK(std::isnan(widened[columns]));
                }
            }
    });
}

TEST_CASE("every finite half widens to its value") {
    with_each_target([&] {
        std::vector<uint16_t> bits;
        for (uint32_t i = 0; i < 65536; ++i)
            if ((i >> 10 & 31) != 31) bits.push_back(static_cast<uint16_t>(i));
        const auto columns = static_cast<uint32_t>(bits.size());
        matrix halves;
        halves.data = reinterpret_cast<const std::byte *>(bits.data());
        halves.type = weight_type::f16;
        halves.rows = 1;
        halves.columns = columns;
        std::vector<float> values(columns);
        widen(halves, 0, values.data());
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < columns; ++i) wrong += values[i] != value_of_half(bits[i]);
        CHECK(wrong == 0);
    });
}

TEST_CASE("norms") {
    std::mt19937_64 random(9);
    with_each_target([&] {
        for (const norm_kind kind : {norm_kind::rms, norm_kind::layer})
            for (const uint32_t width : {1u, 7u, 64u, 100u, 2049u}) {
                float_rows input(random, 3, width), output(3, width);
                const auto weight = random_floats(random, width);
                const auto bias = random_floats(random, kind == norm_kind::layer ? width : 0);
                normalise(kind, {weight, bias}, 1e-5f, 3, width, input.view(), output.view());
                uint32_t wrong = 0;
                for (uint32_t t = 0; t < 3; ++t) {
                    double mean = 0, squares = 0;
                    for (uint32_t i = 0; i < width; ++i) mean += input.at(t, i) / double(width);
                    if (kind == norm_kind::rms) mean = 0;
                    for (uint32_t i = 0; i < width; ++i)
                        squares += (input.at(t, i) - mean) * (input.at(t, i) - mean);
                    const double scale = 1 / std::sqrt(squares / width + 1e-5);
                    for (uint32_t i = 0; i < width; ++i) {
                        const double want = (input.at(t, i) - mean) * scale * weight[i] +
                                            (bias.empty() ? 0 : bias[i]);
                        wrong += !(std::abs(output.at(t, i) - want) <= 2e-5);
                    }
                }
                CAPTURE(width);
                CHECK(wrong == 0);
            }
    });
}

}  // namespace
}  // namespace moorage::core::kernels_test
