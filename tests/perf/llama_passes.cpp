// llama_passes.cpp - the other half of tests/perf/beside_llama: the same passes by llama.cpp's
// library. That script compiles it, if it gets the library and its header.
//
//   llama_passes LIBRARIES FILE THREADS PROMPT TOKENS [SERVERS LAYERS | SERVERS PATTERN=SERVER...]
//   llama_passes LIBRARIES FILE THREADS PROMPT TOKENS gpu [PATTERN...]
//
// gpu: everything is on the GPU, except tensors whose names match a pattern; these are on the CPU.
// For tests/nodes/beside_llama_rpc, SERVERS are addresses of ggml-rpc-server, separated by commas.
// They hold the last LAYERS layers in equal shares (the output counts as one), or tensors whose
// names match a pattern, each set at the server of that number.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "llama_library.h"

namespace {

constexpr int warm = 8;  // tokens

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

using add_server = ggml_backend_reg_t (*)(const char *endpoint);

std::vector<ggml_backend_dev_t> servers_at(const char *addresses) {
    std::vector<ggml_backend_dev_t> devices;
    const ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    if (rpc == nullptr) return devices;
    const auto add = reinterpret_cast<add_server>(
        ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"));
    std::istringstream list(addresses);
    for (std::string address; std::getline(list, address, ',');) {
        const ggml_backend_reg_t server = add(address.c_str());
        if (server == nullptr) return {};
        devices.push_back(ggml_backend_reg_dev_get(server, 0));
    }
    return devices;
}

// The parts of the model that lie elsewhere. Pointers go into `words`.
struct split {
    llama_model_params params = llama_model_default_params();
    std::vector<ggml_backend_dev_t> servers;
    std::vector<std::string> patterns;
    std::vector<llama_model_tensor_buft_override> moved;
    bool read(int count, char **words) {
        if (std::string(words[0]) == "gpu") {
            params.n_gpu_layers = 999;
            patterns.assign(words + 1, words + count);
            moved.assign(patterns.size(), {nullptr, ggml_backend_cpu_buffer_type()});
            return point();
        }
        servers = servers_at(words[0]);
        if (servers.empty() || count < 2) return false;
        const size_t server_count = servers.size();
        for (int i = 1; i < count; ++i) {
            const std::string word = words[i];
            const size_t cut = word.rfind('=');
            if (cut == std::string::npos) {
                params.n_gpu_layers = std::atoi(words[i]);
                continue;
            }
            params.n_gpu_layers = 0;
            patterns.push_back(word.substr(0, cut));
            const size_t server = std::stoul(word.substr(cut + 1));
            if (server >= server_count) return false;
            moved.push_back({nullptr, ggml_backend_dev_buffer_type(servers[server])});
        }
        servers.push_back(nullptr);
        params.devices = servers.data();
        return point();
    }

private:
    bool point() {
        for (size_t i = 0; i < patterns.size(); ++i) moved[i].pattern = patterns[i].c_str();
        if (!moved.empty()) {
            moved.push_back({nullptr, nullptr});
            params.tensor_buft_overrides = moved.data();
        }
        return true;
    }
};

}  // namespace

int main(int count, char **arguments) {
    if (count < 6) return 2;
    open_llama_library(arguments[1]);
    const int threads = std::atoi(arguments[3]), prompt = std::atoi(arguments[4]),
              tokens = std::atoi(arguments[5]);
    split parts;
    if (count > 6 && !parts.read(count - 6, arguments + 6)) return 2;
    llama_model *model = llama_model_load_from_file(arguments[2], parts.params);
    if (model == nullptr) return 1;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(prompt + tokens + 64);
    params.n_batch = params.n_ubatch = static_cast<uint32_t>(prompt);
    params.n_threads = params.n_threads_batch = threads;
    llama_context *context = llama_init_from_model(model, params);
    if (context == nullptr) return 1;
    std::vector<llama_token> ids(static_cast<size_t>(prompt));
    const int words = std::min(32000, llama_vocab_n_tokens(llama_model_get_vocab(model)) - 1);
    for (int i = 0; i < prompt; ++i) ids[static_cast<size_t>(i)] = 1 + i * 7919 % words;
    const auto pass = [&] {
        llama_memory_clear(llama_get_memory(context), true);
        return llama_decode(context, llama_batch_get_one(ids.data(), prompt));
    };
    const auto step = [&](int i) {
        llama_token next = static_cast<llama_token>(1 + (int64_t{prompt} + i) * 104729 % words);
        return llama_decode(context, llama_batch_get_one(&next, 1));
    };
    // Once before, decoding too: pages of the file, kernels of a GPU.
    if (pass() != 0) return 1;
    for (int i = 0; i < warm; ++i)
        if (step(i) != 0) return 1;
    llama_synchronize(context);
    const clock_pair begin = now();
    if (pass() != 0) return 1;
    llama_synchronize(context);
    const clock_pair middle = now();
    for (int i = 0; i < tokens; ++i) {
        if (step(i) != 0) return 1;
        llama_synchronize(context);
    }
    const clock_pair end = now();
    std::printf("%.6f %.6f %.6f %.6f\n", middle.wall - begin.wall,
                middle.processor - begin.processor, end.wall - middle.wall,
                end.processor - middle.processor);
    return 0;
}
