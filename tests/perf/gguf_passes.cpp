// gguf_passes.cpp - GGUF files of random weights in Qwen1.5-MoE's sizes, and passes through them:
// one half of what tests/perf/beside_llama compares.
//
//   gguf_passes write FILE RECIPE [LAYERS]     bf16, q8_0, q4_0, q4_k_m, q6_k or mxfp4; 2 layers
//   gguf_passes run FILE ARITHMETIC THREADS PROMPT TOKENS
//                            exact, fast, or fast-vectors: without matrix registers
//   gguf_passes words FILE
//   gguf_passes errors FILE PROMPTS LENGTH TOKENS LOGITS
//
// run prints one line: seconds and processor seconds of a prompt of PROMPT tokens, the same of
// TOKENS further ones, bytes of weights read for each of those, bytes per second that this machine
// reads memory at just then. words prints how many the vocabulary has. errors reads prompts of
// LENGTH ids from a file and prints how far fast arithmetic and the logits that llama_logits wrote
// are from exact arithmetic (as tests/golden/quantised_test does), after how many of the prompts
// the TOKENS likeliest tokens of either are those of exact arithmetic, after how many they are the
// same in both, and by how much, at most, a token that parts from exact arithmetic's is less likely
// in it.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/execute/cpu/forward.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/machine_speed.h"
#include "core/model/model.h"
#include "core/source/sampler.h"
#include "tests/squared_error.h"
#include "tests/unit/gguf_files.h"

namespace {

using namespace moorage::core;

constexpr uint32_t hidden = 2048, heads = 16, experts = 60, top_k = 4, intermediate = 1408,
                   shared = 5632, vocabulary = 32768;

struct recipe {
    const char *name;
    weight_type most, output;
    // Of rows whose length blocks of 256 do not divide: of the first layer and of the others.
    weight_type odd_first, odd;
};
constexpr recipe recipes[] = {
    {"bf16", weight_type::bf16, weight_type::bf16, weight_type::bf16, weight_type::bf16},
    {"q8_0", weight_type::q8_0, weight_type::q8_0, weight_type::q8_0, weight_type::q8_0},
    {"q4_0", weight_type::q4_0, weight_type::q6_k, weight_type::q4_0, weight_type::q4_0},
    {"q4_k_m", weight_type::q4_k, weight_type::q6_k, weight_type::q8_0, weight_type::q5_0},
    {"q6_k", weight_type::q6_k, weight_type::q6_k, weight_type::q8_0, weight_type::q8_0},
    {"mxfp4", weight_type::mxfp4_gguf, weight_type::q8_0, weight_type::mxfp4_gguf,
     weight_type::mxfp4_gguf},
};

// Random codes under scales that keep values near 1 / sqrt(columns).
class writer {
public:
    writer(const recipe &of, const std::string &path, uint32_t layers)
        : of_(of), layers_(layers), out_(path, std::ios::binary) {}
    bool operator()() {
        keys();
        walk([&](const std::string &name, const std::vector<uint64_t> &shape, weight_type type) {
            uint64_t rows = 1;
            for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
            const uint64_t bytes = rows * bytes_of_columns(type, static_cast<uint32_t>(shape[0]));
            made_.tensors.push_back(
                {name, shape, format_of(type).gguf_id, made_.data_bytes, bytes});
            made_.data_bytes += (bytes + 31) / 32 * 32;
        });
        const uint64_t data = std::exchange(made_.data_bytes, 0);
        const std::vector<std::byte> head = made_.make();
        made_.data_bytes = data;
        out_.write(reinterpret_cast<const char *>(head.data()),
                   static_cast<std::streamsize>(head.size()));
        walk([&](const std::string &, const std::vector<uint64_t> &shape, weight_type type) {
            uint64_t rows = 1;
            for (size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
            tensor(type, rows, static_cast<uint32_t>(shape[0]));
        });
        return bool(out_);
    }

private:
    void keys() {
        const std::string own = "qwen2moe.";
        made_.text("general.architecture", "qwen2moe");
        made_.number("general.quantization_version", 2).number(own + "context_length", 4096);
        made_.number(own + "embedding_length", hidden).number(own + "block_count", layers_);
        made_.number(own + "vocab_size", vocabulary).number(own + "feed_forward_length", shared);
        made_.number(own + "attention.head_count", heads);
        made_.number(own + "attention.head_count_kv", heads);
        made_.real(own + "attention.layer_norm_rms_epsilon", 1e-6F);
        made_.real(own + "rope.freq_base", 1e6F);
        made_.number(own + "expert_count", experts).number(own + "expert_used_count", top_k);
        made_.number(own + "expert_feed_forward_length", intermediate);
        made_.number(own + "expert_shared_feed_forward_length", shared);
        made_.text("tokenizer.ggml.model", "none");
    }
    template <class Body>
    void walk(Body &&body) const {
        const weight_type f32 = weight_type::f32;
        body("token_embd.weight", {hidden, vocabulary}, of_.most);
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            const std::string at = "blk." + std::to_string(layer) + ".";
            const weight_type odd = layer == 0 ? of_.odd_first : of_.odd;
            body(at + "attn_norm.weight", {hidden}, f32);
            for (const char *one : {"q", "k", "v"}) {
                body(at + "attn_" + one + ".weight", {hidden, hidden}, of_.most);
                body(at + "attn_" + one + ".bias", {hidden}, f32);
            }
            body(at + "attn_output.weight", {hidden, hidden}, of_.most);
            body(at + "ffn_norm.weight", {hidden}, f32);
            body(at + "ffn_gate_inp.weight", {hidden, experts}, f32);
            body(at + "ffn_gate_exps.weight", {hidden, intermediate, experts}, of_.most);
            body(at + "ffn_up_exps.weight", {hidden, intermediate, experts}, of_.most);
            body(at + "ffn_down_exps.weight", {intermediate, hidden, experts}, odd);
            body(at + "ffn_gate_shexp.weight", {hidden, shared}, of_.most);
            body(at + "ffn_up_shexp.weight", {hidden, shared}, of_.most);
            body(at + "ffn_down_shexp.weight", {shared, hidden}, of_.most);
            body(at + "ffn_gate_inp_shexp.weight", {hidden}, f32);
        }
        body("output_norm.weight", {hidden}, f32);
        body("output.weight", {hidden, vocabulary}, of_.output);
    }
    void tensor(weight_type type, uint64_t rows, uint32_t columns) {
        const uint64_t bytes = rows * bytes_of_columns(type, columns);
        const weight_format &format = format_of(type);
        std::vector<std::byte> some(uint64_t{format.bytes} << 16);
        for (size_t i = 0; i < some.size(); i += 8) {
            const uint64_t noise = random_();
            std::memcpy(&some[i], &noise, 8);
        }
        for (size_t at = 0; at < some.size(); at += format.bytes) scale(type, &some[at], columns);
        for (uint64_t at = 0; at < bytes; at += some.size())
            out_.write(reinterpret_cast<const char *>(some.data()),
                       static_cast<std::streamsize>(std::min<uint64_t>(some.size(), bytes - at)));
        const std::vector<char> rest((32 - bytes % 32) % 32);
        out_.write(rest.data(), static_cast<std::streamsize>(rest.size()));
    }
    void scale(weight_type type, std::byte *block, uint32_t columns) {
        const auto put = [&](size_t at, uint16_t half) { std::memcpy(block + at, &half, 2); };
        const double size = 1 / std::sqrt(columns);
        const auto small = [&](double by) {
            // A binary16 number: 2^e, e of size * by.
            return static_cast<uint16_t>((15 + std::lround(std::log2(size * by))) << 10);
        };
        switch (type) {
            case weight_type::f32: {
                const float value = 1;
                std::memcpy(block, &value, 4);
                if (columns == hidden) {
                    const auto noise =
                        static_cast<float>(static_cast<int32_t>(random_()) * 0x1p-31);
                    const float one = 1 + noise / 4;
                    std::memcpy(block, &one, 4);
                }
                break;
            }
            case weight_type::bf16: {
                uint16_t word;
                std::memcpy(&word, block, 2);
                put(0, static_cast<uint16_t>((word & 0x807f) | (121 << 7)));
                break;
            }
            case weight_type::q8_0:
                put(0, small(1.0 / 64));
                break;
            case weight_type::q4_0:
                put(0, small(1.0 / 4));
                break;
            case weight_type::q5_0:
                put(0, small(1.0 / 8));
                break;
            case weight_type::q4_k:
                put(0, small(1.0 / 128));
                put(2, small(1.0 / 32));
                break;
            case weight_type::q6_k:
                put(208, small(1.0 / 1024));
                break;
            case weight_type::mxfp4_gguf:
                block[0] = std::byte{120};
                break;
            default:
                break;
        }
    }

    const recipe &of_;
    const uint32_t layers_;
    std::ofstream out_;
    moorage::test::gguf_maker made_;
    std::mt19937_64 random_{7};
};

struct clock_pair {
    double wall, processor;
};
clock_pair now() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval &of) {
        return static_cast<double>(of.tv_sec) + 1e-6 * static_cast<double>(of.tv_usec);
    };
    const auto wall = std::chrono::steady_clock::now().time_since_epoch();
    return {std::chrono::duration<double>(wall).count(),
            seconds(used.ru_utime) + seconds(used.ru_stime)};
}

double bytes_of_token(const model &of) {
    double bytes = static_cast<double>(bytes_of(of.weights().head));
    for (const layer_weights &layer : of.weights().layers)
        each_matrix(layer, [&](const matrix &one) { bytes += static_cast<double>(bytes_of(one)); });
    for (const layer_weights &layer : of.weights().layers)
        for (size_t i = of.config().top_k; i < layer.experts.size(); ++i)
            each_matrix(layer.experts[i],
                        [&](const matrix &one) { bytes -= static_cast<double>(bytes_of(one)); });
    return bytes;
}

int run(char **given) {
    const auto opened = open_model(given[0]);
    if (!opened) return std::fprintf(stderr, "%s\n", opened.failure().text.c_str()), 1;
    const model &of = **opened;
    const std::string mode = given[1];
    thread_pool pool(static_cast<uint32_t>(std::atoi(given[2])),
                     mode == "exact" ? arithmetic::exact : arithmetic::fast);
    use_matrix_registers(mode != "fast-vectors");
    const auto prompt = static_cast<uint32_t>(std::atoi(given[3]));
    const auto count = static_cast<uint32_t>(std::atoi(given[4]));
    cpu_model_limits limits;
    limits.tokens_max = prompt;
    limits.context_max = prompt + count + 1;
    auto compute = cpu_model::create(of, pool, limits);
    if (!compute) return std::fprintf(stderr, "%s\n", compute.failure().text.c_str()), 1;
    forward pass(**compute, of);
    std::vector<int32_t> ids(prompt);
    for (uint32_t i = 0; i < prompt; ++i) ids[i] = static_cast<int32_t>(1 + i * 7919 % 32000);
    // Once before, so that every page of the file is there.
    pass(prompt_pass(ids, 0, 0, false));
    const clock_pair begin = now();
    pass(prompt_pass(ids, 0, 0, false));
    const clock_pair middle = now();
    for (uint32_t i = 0; i < count; ++i) {
        const int32_t next[] = {static_cast<int32_t>(1 + (prompt + i) * 104729 % 32000)};
        pass(prompt_pass(next, 0, prompt + i, false));
    }
    const clock_pair end = now();
    const double read = measure_read_bandwidth(pool, 0.5);
    std::printf("%.6f %.6f %.6f %.6f %.0f %.0f\n", middle.wall - begin.wall,
                middle.processor - begin.processor, end.wall - middle.wall,
                end.processor - middle.processor, bytes_of_token(of), read);
    return 0;
}

// One arithmetic over a model, for one text at a time.
class reading {
public:
    static result<reading> of(const model &model, arithmetic how, const cpu_model_limits &limits) {
        reading made;
        made.pool_ = std::make_unique<thread_pool>(2, how);
        auto compute = cpu_model::create(model, *made.pool_, limits);
        if (!compute) return compute.failure();
        made.compute_ = std::move(*compute);
        made.pass_ = std::make_unique<forward>(*made.compute_, model);
        return made;
    }
    std::span<const float> logits_of(const std::vector<int32_t> &prompt) {
        (*pass_)(prompt_pass(prompt, 0, 0, true));
        return compute_->logits();
    }
    // After the prompt that was read last; `rows`, where not null, gets the logits of each.
    std::vector<int32_t> likeliest(uint32_t position, uint32_t count, uint32_t vocabulary,
                                   std::vector<float> *rows = nullptr) {
        std::vector<int32_t> ids;
        while (ids.size() < count) {
            const std::span row = compute_->logits().last(vocabulary);
            if (rows) rows->insert(rows->end(), row.begin(), row.end());
            ids.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
            (*pass_)(prompt_pass(std::span(ids).last(1), 0, position++, true));
        }
        return ids;
    }

private:
    std::unique_ptr<thread_pool> pool_;
    std::unique_ptr<cpu_model> compute_;
    std::unique_ptr<forward> pass_;
};

template <class Value>
bool read_all(std::ifstream &from, std::vector<Value> &to) {
    return bool(from.read(reinterpret_cast<char *>(to.data()),
                          static_cast<std::streamsize>(to.size() * sizeof(Value))));
}

int words(char **given) {
    const auto opened = open_model(given[0]);
    if (!opened) return std::fprintf(stderr, "%s\n", opened.failure().text.c_str()), 1;
    std::printf("%u\n", (*opened)->config().vocabulary);
    return 0;
}

// How texts keep to that of exact arithmetic.
struct kept_texts {
    uint32_t same = 0;
    // Where others part from it: by how much their token is less likely there in exact arithmetic,
    // in standard deviations of the logits; the most.
    double parted_by_max = 0;
    void add(const std::vector<int32_t> &text, const std::vector<int32_t> &exact,
             std::span<const float> rows) {
        const auto at = static_cast<size_t>(std::ranges::mismatch(text, exact).in1 - text.begin());
        if (at == text.size()) return void(++same);
        const std::span row =
            rows.subspan(at * (rows.size() / text.size()), rows.size() / text.size());
        const double mean = std::accumulate(row.begin(), row.end(), 0.0) / row.size();
        double squares = 0;
        for (const float one : row) squares += (one - mean) * (one - mean);
        const double gap = row[static_cast<size_t>(exact[at])] - row[static_cast<size_t>(text[at])];
        parted_by_max = std::max(parted_by_max, gap / std::sqrt(squares / row.size()));
    }
};

int errors(char **given) {
    const auto opened = open_model(given[0]);
    if (!opened) return std::fprintf(stderr, "%s\n", opened.failure().text.c_str()), 1;
    const model &of = **opened;
    std::ifstream prompts(given[1], std::ios::binary), file(given[4], std::ios::binary);
    const auto length = static_cast<uint32_t>(std::atoi(given[2]));
    const auto tokens = static_cast<uint32_t>(std::atoi(given[3]));
    const uint32_t vocabulary_of = of.config().vocabulary;
    cpu_model_limits limits;
    limits.tokens_max = limits.outputs_max = length;
    limits.context_max = length + tokens;
    auto exact = reading::of(of, arithmetic::exact, limits),
         fast = reading::of(of, arithmetic::fast, limits);
    if (!exact || !fast) return std::fprintf(stderr, "%s has no room\n", given[0]), 1;
    std::vector<int32_t> ids(length);
    std::vector<float> theirs(size_t{length} * vocabulary_of);
    std::vector<int32_t> text(tokens);
    double own = 0, library = 0;
    kept_texts own_texts, library_texts;
    uint32_t alike = 0, count = 0;
    for (; read_all(prompts, ids); ++count) {
        if (!read_all(file, theirs) || !read_all(file, text))
            return std::fprintf(stderr, "%s: too short\n", given[4]), 1;
        const std::span reference = exact->logits_of(ids);
        own += moorage::test::squared_error(fast->logits_of(ids), reference);
        library += moorage::test::squared_error(theirs, reference);
        std::vector<float> rows;
        const auto expected = exact->likeliest(length, tokens, vocabulary_of, &rows);
        const auto kept = fast->likeliest(length, tokens, vocabulary_of);
        own_texts.add(kept, expected, rows);
        library_texts.add(text, expected, rows);
        alike += kept == text;
    }
    std::printf("%.6f %.6f %u %u %u %.6f %.6f\n", std::sqrt(own / count),
                std::sqrt(library / count), own_texts.same, library_texts.same, alike,
                own_texts.parted_by_max, library_texts.parted_by_max);
    return 0;
}

}  // namespace

int main(int count, char **given) {
    const std::string what = count > 1 ? given[1] : "";
    if (what == "write" && (count == 4 || count == 5))
        for (const recipe &one : recipes)
            if (std::string(given[3]) == one.name) {
                const int layers = count == 5 ? std::atoi(given[4]) : 2;
                return writer(one, given[2], static_cast<uint32_t>(layers))() ? 0 : 1;
            }
    if (what == "run" && count == 7) return run(given + 2);
    if (what == "words" && count == 3) return words(given + 2);
    if (what == "errors" && count == 7) return errors(given + 2);
    std::fprintf(stderr,
                 "gguf_passes write FILE RECIPE [LAYERS]\n"
                 "gguf_passes run FILE exact|fast|fast-vectors THREADS PROMPT TOKENS\n"
                 "gguf_passes words FILE\n"
                 "gguf_passes errors FILE PROMPTS LENGTH TOKENS LOGITS\n");
    return 2;
}
