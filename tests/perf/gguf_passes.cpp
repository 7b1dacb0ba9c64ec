// gguf_passes.cpp - GGUF files of random weights in Qwen1.5-MoE's sizes, and passes through them:
// moorage's half of tests/perf/beside_llama.
//
//   gguf_passes write FILE RECIPE [LAYERS]     bf16, q8_0, q4_0, q4_k_m, q6_k or mxfp4; 2 layers
//   gguf_passes run FILE ARITHMETIC THREADS PROMPT TOKENS
//                            exact, fast, or fast-vectors: without matrix registers
//   gguf_passes words FILE
//   gguf_passes errors FILE PROMPTS LENGTH TOKENS LOGITS
//
// run prints one line: seconds and processor seconds of a prompt of PROMPT tokens, and the same of
// TOKENS further ones. Then the bytes of weights read for each of those, and the machine's present
// read rate of memory in bytes per second. Last the fewest distinct experts that a layer had of the
// prompt and of the further tokens. It refuses routers that do not spread (expert_spread.h). words
// prints the size of the vocabulary. errors reads prompts of LENGTH ids from a file. It prints how
// far fast arithmetic and the logits of llama_logits are from exact arithmetic (as
// tests/golden/quantised_test does). It counts the prompts after which the TOKENS likeliest tokens
// of either are those of exact arithmetic, and those after which they are the same in both. It also
// prints by how much, at most, a token that differs from exact arithmetic's is less likely in it.
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
#include <string>
#include <vector>

#include "core/execute/cpu/forward.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/machine_speed.h"
#include "core/model/model.h"
#include "core/source/sampler.h"
#include "tests/expert_spread.h"
#include "tests/random_gguf.h"
#include "tests/squared_error.h"

namespace {

using namespace moorage::core;

struct clock_pair {
    double wall, processor;
};
clock_pair now() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval &time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    const auto wall = std::chrono::steady_clock::now().time_since_epoch();
    return {std::chrono::duration<double>(wall).count(),
            seconds(used.ru_utime) + seconds(used.ru_stime)};
}

double bytes_of_token(const model &source_model) {
    double bytes = static_cast<double>(bytes_of(source_model.weights().head));
    for (const layer_weights &layer : source_model.weights().layers)
        each_matrix(
            layer, [&](const matrix &weights) { bytes += static_cast<double>(bytes_of(weights)); });
    for (const layer_weights &layer : source_model.weights().layers)
        for (size_t i = source_model.config().top_k; i < layer.experts.size(); ++i)
            each_matrix(layer.experts[i], [&](const matrix &weights) {
                bytes -= static_cast<double>(bytes_of(weights));
            });
    return bytes;
}

int run(char **arguments) {
    const auto opened = open_model(arguments[0]);
    if (!opened) return std::fprintf(stderr, "%s\n", opened.failure().text.c_str()), 1;
    const model &source_model = **opened;
    const std::string mode = arguments[1];
    thread_pool pool(static_cast<uint32_t>(std::atoi(arguments[2])),
                     mode == "exact" ? arithmetic::exact : arithmetic::fast);
    use_matrix_registers(mode != "fast-vectors");
    const auto prompt = static_cast<uint32_t>(std::atoi(arguments[3]));
    const auto count = static_cast<uint32_t>(std::atoi(arguments[4]));
    compute_limits limits;
    limits.tokens_max = prompt;
    limits.context_max = prompt + count + 1;
    auto compute = cpu_model::create(source_model, pool, limits);
    if (!compute) return std::fprintf(stderr, "%s\n", compute.failure().text.c_str()), 1;
    forward pass(**compute, source_model);
    const uint32_t layers = static_cast<uint32_t>(source_model.config().moe_layers().size());
    moorage::test::expert_spread spread(layers, source_model.config().experts,
                                        source_model.config().top_k);
    pass.watch(
        [&](uint32_t layer, std::span<const uint32_t> chosen) { spread.add(layer, chosen); });
    std::vector<int32_t> ids(prompt);
    for (uint32_t i = 0; i < prompt; ++i) ids[i] = static_cast<int32_t>(1 + i * 7919 % 32000);
    // Once before, so that every page of the file is there.
    pass(prompt_pass(ids, 0, 0, false));
    const uint32_t of_prompt = spread.least();
    if (const status sound = spread.check(); !sound)
        return std::fprintf(stderr, "%s\n", sound.failure().text.c_str()), 1;
    const clock_pair begin = now();
    pass(prompt_pass(ids, 0, 0, false));
    const clock_pair middle = now();
    spread.forget();
    for (uint32_t i = 0; i < count; ++i) {
        const int32_t next[] = {static_cast<int32_t>(1 + (prompt + i) * 104729 % 32000)};
        pass(prompt_pass(next, 0, prompt + i, false));
    }
    const clock_pair end = now();
    if (const status sound = spread.check(); !sound)
        return std::fprintf(stderr, "%s\n", sound.failure().text.c_str()), 1;
    const double read = measure_read_bandwidth(pool, 0.5);
    std::printf("%.6f %.6f %.6f %.6f %.0f %.0f %u %u\n", middle.wall - begin.wall,
                middle.processor - begin.processor, end.wall - middle.wall,
                end.processor - middle.processor, bytes_of_token(source_model), read, of_prompt,
                spread.least());
    return 0;
}

// One arithmetic over a model, for one text at a time.
class reading {
public:
    static result<reading> create(const model &model, arithmetic arithmetic_mode,
                                  const compute_limits &limits) {
        reading result;
        result.pool_ = std::make_unique<thread_pool>(2, arithmetic_mode);
        auto compute = cpu_model::create(model, *result.pool_, limits);
        if (!compute) return compute.failure();
        result.compute_ = std::move(*compute);
        result.pass_ = std::make_unique<forward>(*result.compute_, model);
        return result;
    }
    std::span<const float> logits_of(const std::vector<int32_t> &prompt) {
        (*pass_)(prompt_pass(prompt, 0, 0, true));
        return compute_->logits();
    }
    // After the prompt that was read last; `rows`, where not null, gets the logits of each.
    std::vector<int32_t> generate_greedy(uint32_t position, uint32_t count, uint32_t vocabulary,
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
bool read_all(std::ifstream &source, std::vector<Value> &target) {
    return bool(source.read(reinterpret_cast<char *>(target.data()),
                            static_cast<std::streamsize>(target.size() * sizeof(Value))));
}

int print_vocabulary(char **arguments) {
    const auto opened = open_model(arguments[0]);
    if (!opened) return std::fprintf(stderr, "%s\n", opened.failure().text.c_str()), 1;
    std::printf("%u\n", (*opened)->config().vocabulary);
    return 0;
}

// How texts keep to that of exact arithmetic.
struct kept_texts {
    uint32_t same = 0;
    // For tokens that differ from those of exact arithmetic: the largest loss of likelihood in it,
    // in standard deviations of the logits.
    double largest_gap = 0;
    void add(const std::vector<int32_t> &text, const std::vector<int32_t> &exact,
             std::span<const float> rows) {
        const auto position =
            static_cast<size_t>(std::ranges::mismatch(text, exact).in1 - text.begin());
        if (position == text.size()) return void(++same);
        const std::span row =
            rows.subspan(position * (rows.size() / text.size()), rows.size() / text.size());
        const double mean = std::accumulate(row.begin(), row.end(), 0.0) / row.size();
        double squares = 0;
        for (const float logit : row) squares += (logit - mean) * (logit - mean);
        const double gap =
            row[static_cast<size_t>(exact[position])] - row[static_cast<size_t>(text[position])];
        largest_gap = std::max(largest_gap, gap / std::sqrt(squares / row.size()));
    }
};

int errors(char **arguments) {
    const auto opened = open_model(arguments[0]);
    if (!opened) return std::fprintf(stderr, "%s\n", opened.failure().text.c_str()), 1;
    const model &source_model = **opened;
    std::ifstream prompts(arguments[1], std::ios::binary), file(arguments[4], std::ios::binary);
    const auto length = static_cast<uint32_t>(std::atoi(arguments[2]));
    const auto tokens = static_cast<uint32_t>(std::atoi(arguments[3]));
    const uint32_t vocabulary_of = source_model.config().vocabulary;
    compute_limits limits;
    limits.tokens_max = limits.outputs_max = length;
    limits.context_max = length + tokens;
    auto exact = reading::create(source_model, arithmetic::exact, limits),
         fast = reading::create(source_model, arithmetic::fast, limits);
    if (!exact || !fast) return std::fprintf(stderr, "%s has no room\n", arguments[0]), 1;
    std::vector<int32_t> ids(length);
    std::vector<float> theirs(size_t{length} * vocabulary_of);
    std::vector<int32_t> text(tokens);
    double engine = 0, library = 0;
    kept_texts own_texts, library_texts;
    uint32_t alike = 0, count = 0;
    for (; read_all(prompts, ids); ++count) {
        if (!read_all(file, theirs) || !read_all(file, text))
            return std::fprintf(stderr, "%s: too short\n", arguments[4]), 1;
        const std::span reference = exact->logits_of(ids);
        engine += moorage::test::squared_error(fast->logits_of(ids), reference);
        library += moorage::test::squared_error(theirs, reference);
        std::vector<float> rows;
        const auto expected = exact->generate_greedy(length, tokens, vocabulary_of, &rows);
        const auto kept = fast->generate_greedy(length, tokens, vocabulary_of);
        own_texts.add(kept, expected, rows);
        library_texts.add(text, expected, rows);
        alike += kept == text;
    }
    std::printf("%.6f %.6f %u %u %u %.6f %.6f\n", std::sqrt(engine / count),
                std::sqrt(library / count), own_texts.same, library_texts.same, alike,
                own_texts.largest_gap, library_texts.largest_gap);
    return 0;
}

}  // namespace

int main(int count, char **arguments) {
    const std::string command = count > 1 ? arguments[1] : "";
    const auto *recipe = count > 3 ? moorage::test::find_recipe(arguments[3]) : nullptr;
    if (command == "write" && recipe && (count == 4 || count == 5)) {
        moorage::test::random_gguf_sizes sizes;
        if (count == 5) sizes.layers = static_cast<uint32_t>(std::atoi(arguments[4]));
        return moorage::test::random_gguf(*recipe, sizes).write(arguments[2]) ? 0 : 1;
    }
    if (command == "run" && count == 7) return run(arguments + 2);
    if (command == "words" && count == 3) return print_vocabulary(arguments + 2);
    if (command == "errors" && count == 7) return errors(arguments + 2);
    std::fprintf(stderr,
                 "gguf_passes write FILE RECIPE [LAYERS]\n"
                 "gguf_passes run FILE exact|fast|fast-vectors THREADS PROMPT TOKENS\n"
                 "gguf_passes words FILE\n"
                 "gguf_passes errors FILE PROMPTS LENGTH TOKENS LOGITS\n");
    return 2;
}
