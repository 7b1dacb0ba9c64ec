// llama_passes.cpp - the other half of tests/perf/beside_llama: the same passes by llama.cpp's
// library. That script compiles it, where it is given the library and its header.
//
//   llama_passes LIBRARIES FILE THREADS PROMPT TOKENS
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

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

}  // namespace

int main(int count, char **given) {
    if (count != 6) return 2;
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    ggml_backend_load_all_from_path(given[1]);
    llama_backend_init();
    const int threads = std::atoi(given[3]), prompt = std::atoi(given[4]),
              tokens = std::atoi(given[5]);
    llama_model *model = llama_model_load_from_file(given[2], llama_model_default_params());
    if (model == nullptr) return 1;
    llama_context_params how = llama_context_default_params();
    how.n_ctx = static_cast<uint32_t>(prompt + tokens + 64);
    how.n_batch = how.n_ubatch = static_cast<uint32_t>(prompt);
    how.n_threads = how.n_threads_batch = threads;
    llama_context *context = llama_init_from_model(model, how);
    if (context == nullptr) return 1;
    std::vector<llama_token> ids(static_cast<size_t>(prompt));
    for (int i = 0; i < prompt; ++i) ids[static_cast<size_t>(i)] = 1 + i * 7919 % 32000;
    const auto pass = [&] {
        llama_memory_clear(llama_get_memory(context), true);
        return llama_decode(context, llama_batch_get_one(ids.data(), prompt));
    };
    if (pass() != 0) return 1;
    const clock_pair begin = now();
    if (pass() != 0) return 1;
    const clock_pair middle = now();
    for (int i = 0; i < tokens; ++i) {
        llama_token next = static_cast<llama_token>(1 + (int64_t{prompt} + i) * 104729 % 32000);
        if (llama_decode(context, llama_batch_get_one(&next, 1)) != 0) return 1;
    }
    const clock_pair end = now();
    std::printf("%.6f %.6f %.6f %.6f\n", middle.wall - begin.wall,
                middle.processor - begin.processor, end.wall - middle.wall,
                end.processor - middle.processor);
    return 0;
}
