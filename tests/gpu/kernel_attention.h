// kernel_attention.h - checks of attention and its surroundings: norms, rotation, caches.
#pragma once

#include "core/execute/gpu/arithmetic/attend.h"
#include "core/execute/gpu/arithmetic/heads.h"
#include "core/execute/gpu/arithmetic/tokens.h"
#include "tests/gpu/kernel_bench.h"

namespace moorage::core::gpu {

struct attention_case {
    std::string name;
    uint32_t heads, kv_heads, head_dim, value_dim;  // value_dim < head_dim: values in keys
    uint32_t window;
    bool sinks;
    uint32_t splits;
    // [tile] -> stream, first position, tokens.
    std::vector<std::array<uint32_t, 3>> tiles;
    bool values_in_keys() const { return value_dim < head_dim; }
};

// One (token, head) by its definition, in double.
template <class Cache>
void attend_reference(const attention_case &test_case, const float *query,
                      const std::vector<Cache> &keys, const std::vector<Cache> &values,
                      uint64_t stream_first, uint32_t position, uint32_t kv_head, double scale,
                      const float *sink, double *output) {
    const uint64_t key_stride = uint64_t{test_case.kv_heads} * test_case.head_dim;
    const uint64_t value_stride = test_case.values_in_keys()
                                      ? key_stride
                                      : uint64_t{test_case.kv_heads} * test_case.value_dim;
    const std::vector<Cache> &value_source = test_case.values_in_keys() ? keys : values;
    const uint32_t begin =
        test_case.window && position + 1 > test_case.window ? position + 1 - test_case.window : 0;
    std::vector<double> scores;
    for (uint32_t p = begin; p <= position; ++p) {
        double sum = 0;
        for (uint32_t d = 0; d < test_case.head_dim; ++d)
            sum += query[d] *
                   cached<Cache>::to_float(
                       &keys[(stream_first + p) * key_stride + kv_head * test_case.head_dim + d]);
        scores.push_back(sum * scale);
    }
    double top = sink ? *sink : -INFINITY, total = 0;
    for (const double score : scores) top = std::max(top, score);
    for (const double score : scores) total += std::exp(score - top);
    if (sink) total += std::exp(*sink - top);
    std::fill(output, output + test_case.value_dim, 0.0);
    for (uint32_t p = begin; p <= position; ++p)
        for (uint32_t v = 0; v < test_case.value_dim; ++v)
            output[v] += std::exp(scores[p - begin] - top) / total *
                         cached<Cache>::to_float(&value_source[(stream_first + p) * value_stride +
                                                               kv_head * test_case.value_dim + v]);
}

template <class Cache, uint32_t rows_max, uint32_t vectors, class Bench>
void check_attention(Bench &bench, const attention_case &test_case) {
    const uint32_t context = 160, stream_count = 2;
    attend_shape shape{};
    shape.heads = test_case.heads, shape.kv_heads = test_case.kv_heads;
    shape.head_dim = test_case.head_dim, shape.value_dim = test_case.value_dim;
    shape.key_stride = test_case.kv_heads * test_case.head_dim;
    shape.value_stride = test_case.kv_heads * test_case.value_dim;
    shape.context = context, shape.window = test_case.window, shape.splits = test_case.splits;
    shape.heads_at_once = std::min(shape.group(), rows_max);
    shape.scale = 0.3f, shape.values_in_keys = test_case.values_in_keys();
    std::vector<Cache> keys(uint64_t{stream_count} * context * shape.key_stride);
    std::vector<Cache> values(uint64_t{stream_count} * context * shape.value_stride);
    for (std::vector<Cache> *cache : {&keys, &values})
        for (Cache &value : *cache)
            value = cached<Cache>::from_float(static_cast<float>(bench.uniform(-1, 1)));
    std::vector<uint32_t> streams, positions;
    std::vector<attend_tile> tiles;
    for (const auto &[stream, first, count] : test_case.tiles) {
        tiles.push_back({static_cast<uint32_t>(streams.size()), count});
        for (uint32_t i = 0; i < count; ++i) {
            streams.push_back(stream);
            positions.push_back(first + i);
        }
    }
    const auto tokens = static_cast<uint32_t>(streams.size());
    const std::vector<float> query = bench.floats(tokens * test_case.heads * test_case.head_dim);
    const std::vector<float> sinks = bench.floats(test_case.heads, 2);
    attend_kernel<Cache, rows_max, vectors> kernel{};
    kernel.shape = shape;
    kernel.tiles = bench.put(tiles);
    kernel.streams = bench.put(streams), kernel.positions = bench.put(positions);
    kernel.query = bench.put(query);
    kernel.keys = bench.put(keys), kernel.values = bench.put(values);
    kernel.sinks = test_case.sinks ? bench.put(sinks) : nullptr;
    const uint64_t count = uint64_t{tokens} * test_case.heads * test_case.value_dim;
    kernel.output = bench.template poisoned<float>(count);
    kernel.partial =
        bench.template poisoned<float>(tokens * test_case.heads * test_case.splits * 2);
    kernel.partial_values = bench.template poisoned<float>(count * test_case.splits);
    bench.device().launch(kernel, static_cast<uint32_t>(tiles.size()),
                          test_case.kv_heads * shape.head_blocks(), test_case.splits,
                          kernel.shared_bytes_of(shape));
    if (test_case.splits > 1)
        bench.device().launch(
            merge_kernel{test_case.heads, test_case.value_dim, test_case.splits, kernel.sinks,
                         kernel.partial, kernel.partial_values, kernel.output},
            test_case.heads, tokens, merge_kernel::blocks_of(test_case.value_dim),
            merge_kernel::shared_bytes_of(test_case.splits));
    std::vector<double> expected(count);
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t h = 0; h < test_case.heads; ++h) {
            const uint64_t query_index = uint64_t{t} * test_case.heads + h;
            attend_reference(test_case, &query[query_index * test_case.head_dim], keys, values,
                             uint64_t{streams[t]} * context, positions[t], h / shape.group(), 0.3f,
                             test_case.sinks ? &sinks[h] : nullptr,
                             &expected[query_index * test_case.value_dim]);
        }
    bench.expect("attention " + test_case.name + (sizeof(Cache) == 2 ? " half" : " float"),
                 bench.get(kernel.output, count), expected, 1e-5);
}

// A head's vector with norm, clip and rotation, in double.
struct head_reference {
    bool interleaved, norm;
    float clip;
    uint32_t dim, pairs;
    const std::vector<float> &cosines, &sines;

    std::vector<double> rotate_head(const float *source, const std::vector<float> &weights,
                                    uint32_t t) const {
        double squares = 0;
        for (uint32_t c = 0; c < dim; ++c) squares += double{source[c]} * source[c];
        const double factor = norm ? 1 / std::sqrt(squares / dim + 1e-5) : 1;
        std::vector<double> result(dim);
        for (uint32_t c = 0; c < dim; ++c) {
            result[c] = source[c] * factor * (norm ? weights[c] : 1.0f);
            if (clip > 0) result[c] = std::clamp<double>(result[c], -clip, clip);
        }
        for (uint32_t i = 0; i < pairs; ++i) {
            const uint32_t a = interleaved ? 2 * i : i, b = interleaved ? a + 1 : i + pairs;
            const double x = result[a], y = result[b];
            result[a] = x * cosines[t * pairs + i] - y * sines[t * pairs + i];
            result[b] = y * cosines[t * pairs + i] + x * sines[t * pairs + i];
        }
        return result;
    }
};

// Queries are changed in place, keys and values go into the caches. Compared with norm and rotation
// in double.
template <class Cache, class Bench>
void check_heads(Bench &bench, bool interleaved, bool norm, float clip) {
    const uint32_t heads = 6, kv_heads = 2, dim = 20, pairs = 7, context = 9, tokens = 3;
    const std::vector<uint32_t> streams{0, 1, 1}, positions{8, 2, 3};
    std::vector<float> cosines, sines;
    for (uint32_t i = 0; i < tokens * pairs; ++i) {
        const double angle = bench.uniform(-3, 3);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
    }
    const std::vector<float> query = bench.floats(tokens * heads * dim, 2);
    const std::vector<float> key = bench.floats(tokens * kv_heads * dim, 2), value = key;
    const std::vector<float> norms[] = {bench.floats(dim), bench.floats(dim)};
    heads_kernel<Cache> kernel{};
    kernel.tokens = {
        bench.put(streams), bench.put(positions), bench.put(cosines), bench.put(sines), pairs,
        interleaved};
    kernel.query = bench.put(query), kernel.key = bench.put(key), kernel.value = bench.put(value);
    kernel.keys = bench.template poisoned<Cache>(2 * context * kv_heads * dim);
    kernel.values = bench.template poisoned<Cache>(2 * context * kv_heads * dim);
    kernel.heads = heads, kernel.kv_heads = kv_heads, kernel.head_dim = dim;
    kernel.context = context, kernel.epsilon = 1e-5f, kernel.clip = clip;
    if (norm) kernel.query_norm = bench.put(norms[0]), kernel.key_norm = bench.put(norms[1]);
    bench.device().launch(kernel, ceil_div(heads + 2 * kv_heads, kernel.threads / lanes), tokens, 1,
                          0);
    const head_reference plain{interleaved, norm, clip, dim, pairs, cosines, sines};
    const auto queries = bench.get(kernel.query, query.size());
    const auto keys = bench.get(kernel.keys, 2 * context * kv_heads * dim);
    const auto values = bench.get(kernel.values, 2 * context * kv_heads * dim);
    std::vector<float> is, kept;
    std::vector<double> expected, expected_kept;
    for (uint32_t t = 0; t < tokens; ++t) {
        for (uint32_t h = 0; h < heads; ++h)
            for (const double entry : plain.rotate_head(&query[(t * heads + h) * dim], norms[0], t))
                expected.push_back(entry);
        for (uint32_t h = 0; h < kv_heads; ++h) {
            const std::vector<double> turned_key =
                plain.rotate_head(&key[(t * kv_heads + h) * dim], norms[1], t);
            for (uint32_t c = 0; c < dim; ++c) {
                const uint32_t index =
                    ((streams[t] * context + positions[t]) * kv_heads + h) * dim + c;
                kept.push_back(cached<Cache>::to_float(&keys[index]));
                expected_kept.push_back(turned_key[c]);
                kept.push_back(cached<Cache>::to_float(&values[index]));
                const double whole = value[(t * kv_heads + h) * dim + c];
                expected_kept.push_back(clip > 0 ? std::clamp<double>(whole, -clip, clip) : whole);
            }
        }
    }
    const std::string kind = std::string(interleaved ? " interleaved" : "") + (norm ? " norm" : "");
    bench.expect("query heads" + kind, queries, expected, 1e-6);
    bench.expect("keys and values" + kind, kept, expected_kept, sizeof(Cache) == 2 ? 1e-3 : 1e-6);
}

// Latent attention: the compressed vector goes into its cache, queries into its space.
template <class Bench>
void check_latent(Bench &bench, uint32_t rank) {
    const uint32_t heads = 3, nope = 10, values = 6, pairs = 4, context = 5;
    const std::vector<uint32_t> streams{1}, positions{4};
    const std::vector<float> cosines = bench.floats(pairs), sines = bench.floats(pairs);
    const token_table tokens{bench.put(streams),
                             bench.put(positions),
                             bench.put(cosines),
                             bench.put(sines),
                             pairs,
                             true};
    const uint32_t width = rank + 2 * pairs;
    const std::vector<float> input = bench.floats(width), norm = bench.floats(rank);
    float *cache = bench.template poisoned<float>(2 * context * width);
    bench.device().launch(latent_kernel<float>{tokens, bench.put(input), bench.put(norm), 1e-6f,
                                               rank, context, cache},
                          1, 1, 1, 0);
    double squares = 0;
    for (uint32_t c = 0; c < rank; ++c) squares += double{input[c]} * input[c];
    std::vector<double> expected;
    for (uint32_t c = 0; c < rank; ++c)
        expected.push_back(input[c] / std::sqrt(squares / rank + 1e-6) * norm[c]);
    const auto turn = [&](const float *x) {
        for (uint32_t i = 0; i < pairs; ++i) {
            expected.push_back(double{x[2 * i]} * cosines[i] - double{x[2 * i + 1]} * sines[i]);
            expected.push_back(double{x[2 * i + 1]} * cosines[i] + double{x[2 * i]} * sines[i]);
        }
    };
    turn(&input[rank]);
    bench.expect("latent cache", bench.get(cache + (context + 4) * width, width), expected, 1e-6);

    const random_matrix kv_b = bench.make_matrix(weight_type::bf16, heads * (nope + values), rank);
    const std::vector<float> query = bench.floats(heads * (nope + 2 * pairs));
    float *output = bench.template poisoned<float>(heads * width);
    bench.device().launch(absorb_kernel<weight_type::bf16>{tokens, bench.put(query), kv_b.shape,
                                                           heads, nope, values, output},
                          heads, 1, absorb_kernel<weight_type::bf16>::slices,
                          absorb_kernel<weight_type::bf16>::shared_bytes);
    expected.clear();
    for (uint32_t h = 0; h < heads; ++h) {
        const float *head_query = &query[h * (nope + 2 * pairs)];
        for (uint32_t c = 0; c < rank; ++c) {
            double sum = 0;
            for (uint32_t d = 0; d < nope; ++d)
                sum += head_query[d] * kv_b.at(h * (nope + values) + d, c);
            expected.push_back(sum);
        }
        turn(head_query + nope);
    }
    bench.expect("absorbed queries", bench.get(output, expected.size()), expected, 1e-6);
}

// The sum of experts and shared expert, then a norm, for chosen rows.
template <class Bench>
void check_combine(Bench &bench, bool layer_norm, bool gate) {
    const uint32_t width = 301, tokens = 4, ranks = 3;
    const std::vector<float> state = bench.floats(tokens * width);
    const std::vector<float> experts = bench.floats(tokens * ranks * width);
    const std::vector<float> weights = bench.floats(tokens * ranks), gates = bench.floats(tokens);
    const std::vector<float> shared = bench.floats(tokens * width), norm = bench.floats(width),
                             bias = bench.floats(width);
    std::vector<uint32_t> places(tokens * ranks);
    for (uint32_t i = 0; i < places.size(); ++i)
        places[i] = static_cast<uint32_t>(places.size()) - 1 - i;
    const std::vector<uint32_t> rows{2, 0, 3};
    combine_kernel kernel{};
    kernel.width = width;
    kernel.state = bench.put(state);
    kernel.experts = bench.put(experts), kernel.places = bench.put(places);
    kernel.weights = bench.put(weights), kernel.ranks = ranks;
    kernel.shared = bench.put(shared), kernel.gate = gate ? bench.put(gates) : nullptr;
    kernel.multiplier = 0.8f, kernel.epsilon = 1e-5f, kernel.layer_norm = layer_norm;
    kernel.norm_weight = bench.put(norm), kernel.norm_bias = layer_norm ? bench.put(bias) : nullptr;
    kernel.rows = bench.put(rows);
    kernel.output = bench.template poisoned<float>(rows.size() * width);
    bench.device().launch(kernel, static_cast<uint32_t>(rows.size()), 1, 1, 0);
    std::vector<double> expected;
    for (const uint32_t t : rows) {
        std::vector<double> sums(width);
        double mean = 0, squares = 0;
        for (uint32_t c = 0; c < width; ++c) {
            double add = shared[t * width + c] * (gate ? 1 / (1 + std::exp(-gates[t])) : 1.0);
            for (uint32_t k = 0; k < ranks; ++k)
                add += double{weights[t * ranks + k]} * experts[places[t * ranks + k] * width + c];
            sums[c] = state[t * width + c] + double{0.8f} * add;
            mean += sums[c] / width;
        }
        if (!layer_norm) mean = 0;
        for (const double sum : sums) squares += (sum - mean) * (sum - mean) / width;
        for (uint32_t c = 0; c < width; ++c)
            expected.push_back((sums[c] - mean) / std::sqrt(squares + 1e-5) * norm[c] +
                               (layer_norm ? bias[c] : 0.0f));
    }
    bench.expect(std::string("combine") + (layer_norm ? " layer norm" : "") + (gate ? " gate" : ""),
                 bench.get(kernel.output, expected.size()), expected, 1e-5);
}

template <class Bench>
void check_words(Bench &bench) {
    words_kernel kernel{};
    kernel.count = 301;
    for (uint32_t i = 0; i < words_kernel::words_max; ++i) kernel.words[i] = bench.below(1u << 31);
    kernel.output = bench.template poisoned<uint32_t>(302);
    bench.device().launch(kernel, 1, 1, 1, 0);
    std::vector<uint32_t> expected(kernel.words, kernel.words + 301);
    expected.push_back(UINT32_MAX);
    bench.results.push_back(
        {"a table as an argument", bench.get(kernel.output, 302) == expected ? 0.0 : 1.0, 0});
}

// The kernel tells the host two lists of floats, and a count of its messages.
template <class Bench>
void check_tell(Bench &bench) {
    const std::vector<float> first = bench.floats(700), second = bench.floats(700);
    const float *const sources[] = {bench.put(first), bench.put(second)};
    float *const targets[] = {bench.template poisoned<float>(700),
                              bench.template poisoned<float>(700)};
    uint32_t *const number = bench.put(std::vector<uint32_t>{6});
    uint32_t *const word = bench.put(std::vector<uint32_t>{6});
    bench.device().launch(
        tell_kernel{{{sources[0], targets[0]}, {sources[1], nullptr}}, 700, number, word}, 1, 1, 1,
        0);
    bench.device().launch(
        tell_kernel{{{sources[0], nullptr}, {sources[1], targets[1]}}, 700, number, word}, 1, 1, 1,
        0);
    const bool same = bench.get(targets[0], 700) == first && bench.get(targets[1], 700) == second;
    const bool counted = bench.get(word, 1)[0] == 8 && bench.get(number, 1)[0] == 8;
    bench.results.push_back({"scores told to the host", same && counted ? 0.0 : 1.0, 0});
}

template <class Bench>
void check_attentions(Bench &bench) {
    check_words(bench);
    check_tell(bench);
    const attention_case decode{"decode", 8, 2, 24, 24, 0, false, 1, {{0, 70, 1}, {1, 0, 1}}};
    check_attention<uint16_t, 4, 1>(bench, decode);
    check_attention<float, 16, 1>(bench, decode);
    const attention_case split{"splits", 8, 2, 64, 64, 0, true, 3, {{1, 159, 1}, {0, 3, 1}}};
    check_attention<uint16_t, 4, 1>(bench, split);
    check_attention<float, 8, 1>(bench, split);
    check_attention<uint16_t, 1, 1>(
        bench, {"heads of their own", 3, 3, 16, 16, 0, false, 2, {{0, 99, 1}}});
    check_attention<uint16_t, 16, 1>(
        bench, {"prompt", 8, 2, 128, 128, 0, false, 1, {{0, 60, 4}, {0, 64, 4}, {0, 68, 3}}});
    check_attention<uint16_t, 16, 1>(
        bench, {"window", 4, 2, 20, 20, 33, true, 2, {{1, 30, 8}, {1, 38, 8}, {0, 150, 1}}});
    check_attention<uint16_t, 16, 4>(
        bench, {"latent", 20, 1, 200, 136, 0, false, 2, {{0, 100, 1}, {1, 5, 1}}});
    check_attention<float, 4, 4>(bench, {"latent", 6, 1, 200, 136, 0, false, 1, {{0, 77, 1}}});
    for (const bool interleaved : {false, true})
        for (const bool norm : {false, true}) {
            check_heads<float>(bench, interleaved, norm, 0);
            check_heads<uint16_t>(bench, interleaved, norm, 0.7f);
        }
    check_latent(bench, 24);
    check_latent(bench, 20);   // rows that are no whole vectors
    check_latent(bench, 512);  // several rows at a time
    for (const bool layer_norm : {false, true})
        for (const bool gate : {false, true}) check_combine(bench, layer_norm, gate);
}

}  // namespace moorage::core::gpu
