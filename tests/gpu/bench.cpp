// bench.cpp - decode on the GPU with random weights of published shapes: everything resident
// compared with the bandwidth bound, and offloaded compared with the bound at the measured hits.
//
//   bench [--shape NAME | --model FILE [--prompt N]] [--tokens N] [--cached N] [--cpu SHARE]
//         [--warm N] [--position P] [--profiled 1] [--drawn 1]
//
// --model: a file's model, with its own routing, after a prompt of N tokens (512), which is timed
// too. --cached: slots for experts (0: all). --cpu: the share of misses that the CPU computes.
// --warm: tokens before the timed ones. --position: of the first timed token, with so much context
// before it as if it had been computed. --profiled: measures no bounds, so that a profiler sees
// tokens alone. --drawn: draws a file's routing, too. The routing of a shape is drawn. Loads follow
// need, without prefetch. Without --shape, all shapes that fit run. The bound is the longer of the
// GPU's reads of its memory and the traffic over the link, as if both overlapped without a gap.
//
// Prints no time if tokens reached too few experts (expert_spread.h). It also prints none for slots
// for some of the experts if nothing was evicted or left to the CPU: that would be no offloading.
#include <cstdio>
#include <cstring>
#include <string>

#include "core/execute/cuda/cuda_executor.h"
#include "core/execute/cuda/cuda_measure.h"
#include "core/execute/cpu/forward.h"
#include "core/execute/executor_drive.h"
#include "tests/expert_spread.h"

namespace {

using namespace moorage::core;
using moorage::test::expert_spread;

struct shape {
    const char *name, *config;
};
constexpr shape shapes[] = {
    // Not a published model. For the rehearsal over a pretended GPU.
    {"tiny",
     R"({"model_type":"mixtral","hidden_size":128,"intermediate_size":128,
     "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
     "num_local_experts":8,"num_experts_per_tok":2,"vocab_size":512,"rms_norm_eps":1e-5,
     "rope_theta":1000000.0,"max_position_embeddings":8192,"hidden_act":"silu",
     "tie_word_embeddings":false,"torch_dtype":"bfloat16"})"},
    {"mixtral",
     R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,
     "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
     "num_local_experts":8,"num_experts_per_tok":2,"vocab_size":32000,"rms_norm_eps":1e-5,
     "rope_theta":1000000.0,"max_position_embeddings":32768,"hidden_act":"silu",
     "tie_word_embeddings":false,"torch_dtype":"bfloat16"})"},
    {"qwen15moe",
     R"({"model_type":"qwen2_moe","hidden_size":2048,"intermediate_size":5632,
     "num_hidden_layers":24,"num_attention_heads":16,"num_key_value_heads":16,"num_experts":60,
     "num_experts_per_tok":4,"moe_intermediate_size":1408,
     "shared_expert_intermediate_size":5632,"vocab_size":151936,"rms_norm_eps":1e-6,
     "rope_theta":1000000.0,"max_position_embeddings":8192,"hidden_act":"silu",
     "decoder_sparse_step":1,"mlp_only_layers":[],"norm_topk_prob":false,"qkv_bias":true,
     "tie_word_embeddings":false,"torch_dtype":"bfloat16"})"},
    {"deepseek_v2_lite",
     R"({"model_type":"deepseek_v2","hidden_size":2048,"intermediate_size":10944,
     "num_hidden_layers":27,"num_attention_heads":16,"num_key_value_heads":16,
     "n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,
     "moe_intermediate_size":1408,"first_k_dense_replace":1,"moe_layer_freq":1,
     "kv_lora_rank":512,"q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
     "v_head_dim":128,"n_group":1,"topk_group":1,"topk_method":"greedy","norm_topk_prob":false,
     "routed_scaling_factor":1.0,"scoring_func":"softmax","vocab_size":102400,
     "rms_norm_eps":1e-6,"rope_theta":10000,"max_position_embeddings":163840,
     "hidden_act":"silu","attention_bias":false,"tie_word_embeddings":false,
     "torch_dtype":"bfloat16"})"}};

struct request {
    std::string shape, file;
    uint32_t tokens = 64, cached = 0, warm = 0, position = 0, prompt = 512;
    double cpu_share = 0;
    bool profiled = false;
    bool random_routing = false;  // routing, of a file, too
};

pass decode_pass(uint32_t position) {
    pass tokens;
    pass_token token;
    token.token_id = static_cast<int32_t>(position * 37 % 1000);
    token.position = position;
    token.output = true;
    tokens.tokens.push_back(token);
    return tokens;
}

// Decodes so many tokens, one at a time. `position`: of the first one; afterwards that behind the
// last.
status decode(executor_drive &drive, uint32_t &position, uint32_t tokens) {
    for (uint32_t i = 0; i < tokens; ++i)
        if (const status done = drive.run(decode_pass(position++)); !done) return done;
    return success();
}

void print_result(const std::string &name, const model &source_model, const request &asked,
                  const executor_drive &drive, const expert_spread &spread,
                  const device_rates &rates, double seconds, const busy_ns &busy) {
    const model_sizes &sizes = source_model.sizes();
    const double tokens = asked.tokens;
    const auto layers = static_cast<double>(source_model.config().moe_layers().size());
    const double expert = static_cast<double>(sizes.expert_bytes);
    const double dense =
        static_cast<double>(sizes.total_bytes - sizes.experts_bytes - sizes.embedding_bytes);
    const double read_s =
        (dense + layers * source_model.config().top_k * expert) / rates.memory_bytes_per_s;
    const double copied_s =
        static_cast<double>(drive.misses) / tokens * expert / rates.h2d_bytes_per_s;
    const double bound_s = asked.cached == 0 ? read_s : std::max(read_s, copied_s);
    std::printf(
        "%-18s slots %-6u %8.3f ms a token, bound %8.3f ms (%s), %5.1f %% of it; hits %.3f,"
        " gpu busy %.2f ms, h2d %.2f ms, cpu %.2f ms, stall %.2f ms; %llu evicted, %s\n",
        name.c_str(), static_cast<uint32_t>(drive.places.rows_total() / drive.places.rows()),
        seconds / tokens * 1e3, bound_s * 1e3, copied_s > read_s ? "link" : "memory",
        bound_s / (seconds / tokens) * 100,
        static_cast<double>(drive.hits) /
            static_cast<double>(drive.hits + drive.misses + drive.on_cpu),
        static_cast<double>(busy.gpu) / tokens / 1e6, static_cast<double>(busy.h2d) / tokens / 1e6,
        static_cast<double>(busy.cpu) / tokens / 1e6,
        static_cast<double>(busy.stall) / tokens / 1e6,
        static_cast<unsigned long long>(drive.evicted), spread.text().c_str());
}

// Why a measured time would be misleading; empty if it is valid.
std::string refusal(const request &asked, const executor_drive &drive,
                    const expert_spread &spread) {
    if (const status sound = spread.check(); !sound) return sound.failure().text;
    if (asked.cached == 0 || drive.evicted + drive.on_cpu != 0) return {};
    return "no figure: nothing was evicted and nothing left to the CPU, so nothing is offloaded; "
           "lower --cached";
}

// Milliseconds of a prompt's pass. It times the second of two passes, since the first loads its
// data.
result<double> prompt_ms(executor_drive &drive, expert_spread &spread, uint32_t tokens) {
    std::vector<int32_t> ids(tokens);
    for (uint32_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>(1 + i * 7919 % 1000);
    const pass prompt = prompt_pass(ids, 0, 0, false);
    spread.forget();
    if (const status done = drive.run(prompt); !done) return done.failure();
    if (const status sound = spread.check(); !sound) return sound.failure();
    const auto begun = std::chrono::steady_clock::now();
    if (const status done = drive.run(prompt); !done) return done.failure();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() * 1e3;
}

std::string run(const std::string &name, const model &source_model, const request &asked,
                const device_rates &rates) {
    const bool from_file = !asked.file.empty();
    const auto pages = static_cast<uint32_t>(source_model.config().moe_layers().size()) *
                       source_model.config().experts;
    expert_spread spread(static_cast<uint32_t>(source_model.config().moe_layers().size()),
                         source_model.config().experts, source_model.config().top_k);
    drive_options drive_setup{.slots = asked.cached ? asked.cached : pages,
                              .cpu_share = asked.cpu_share,
                              .random_routing = !from_file || asked.random_routing,
                              .seed = 7};
    drive_setup.on_choice = [&](uint32_t layer, std::span<const uint32_t> chosen) {
        spread.add(layer, chosen);
    };
    executor_drive drive(source_model, drive_setup);
    gpu_executor_options options;
    options.source_model = &source_model;
    options.limits.context_max = 4096;
    if (from_file) options.limits.tokens_max = asked.prompt;
    const auto room = cuda_room_for_experts(options);
    if (!room) return room.failure().text;
    const uint64_t wanted_bytes = pages * source_model.sizes().expert_bytes;
    if (!from_file && asked.shape.empty() && *room < wanted_bytes) {
        std::printf("%-18s not run: %.1f GB of experts, room for %.1f\n", name.c_str(),
                    static_cast<double>(wanted_bytes) / 1e9, static_cast<double>(*room) / 1e9);
        return {};
    }
    options.places = &drive.places;
    options.transfers_max = drive.transfers_max();
    auto machine = make_cuda_executor(options);
    if (!machine) return machine.failure().text;
    drive.use(*machine->device_executor, *machine->results);
    // Runs until all experts that fit have been asked for once, and launches are recorded.
    uint32_t position = 0;
    if (from_file) {
        const auto took = prompt_ms(drive, spread, asked.prompt);
        if (!took) return took.failure().text;
        std::printf("%-18s prompt of %u tokens: %.2f ms; %s\n", name.c_str(), asked.prompt, *took,
                    spread.text().c_str());
        position = asked.prompt;
    }
    const uint32_t warm = asked.warm ? asked.warm : asked.cached || from_file ? 32 : 1200;
    if (asked.position > warm) position = asked.position - warm;
    if (const status done = decode(drive, position, warm); !done) return done.failure().text;
    drive.hits = drive.misses = drive.on_cpu = drive.evicted = 0;
    spread.forget();
    const busy_ns old_busy = machine->device_executor->busy();
    const auto begun = std::chrono::steady_clock::now();
    if (const status done = decode(drive, position, asked.tokens); !done)
        return done.failure().text;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    busy_ns busy = machine->device_executor->busy();
    busy.gpu -= old_busy.gpu, busy.h2d -= old_busy.h2d, busy.cpu -= old_busy.cpu;
    busy.stall -= old_busy.stall;
    const std::string refused = refusal(asked, drive, spread);
    if (refused.empty() && !asked.profiled)
        print_result(name, source_model, asked, drive, spread, rates, taken.count(), busy);
    return refused;
}

std::string run_shape(const shape &of_shape, const request &asked, const device_rates &rates) {
    auto config = parse_model_config(of_shape.config, of_shape.name);
    if (!config) return config.failure().text;
    // With few distinct experts host memory need not hold the model. The GPU's slots have full
    // size.
    auto shape_model = random_model(*config, {.seed = 1, .distinct_experts = 1});
    return shape_model ? run(of_shape.name, **shape_model, asked, rates)
                       : shape_model.failure().text;
}

std::string run_file(const request &asked, const device_rates &rates) {
    auto opened = open_model(asked.file);
    const std::string name = asked.file.substr(asked.file.rfind('/') + 1);
    return opened ? run(name, **opened, asked, rates) : opened.failure().text;
}

}  // namespace

int main(int count, char **arguments) {
    request asked;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string name = arguments[i], value = arguments[i + 1];
        if (name == "--shape") asked.shape = value;
        if (name == "--model") asked.file = value;
        if (name == "--prompt") asked.prompt = static_cast<uint32_t>(std::stoul(value));
        if (name == "--tokens") asked.tokens = static_cast<uint32_t>(std::stoul(value));
        if (name == "--cached") asked.cached = static_cast<uint32_t>(std::stoul(value));
        if (name == "--cpu") asked.cpu_share = std::stod(value);
        if (name == "--profiled") asked.profiled = value != "0";
        if (name == "--drawn") asked.random_routing = value != "0";
        if (name == "--warm") asked.warm = static_cast<uint32_t>(std::stoul(value));
        if (name == "--position") asked.position = static_cast<uint32_t>(std::stoul(value));
    }
    const auto rates =
        asked.profiled ? result<device_rates>(device_rates{}) : measure_device_rates(/*device=*/0);
    if (!rates) {
        std::printf("%s\n", rates.failure().text.c_str());
        return 1;
    }
    if (!asked.profiled)
        std::printf("%s: memory %.2f TB/s read, host to GPU %.1f GB/s\n",
                    rates.value().name.c_str(), rates.value().memory_bytes_per_s / 1e12,
                    rates.value().h2d_bytes_per_s / 1e9);
    bool good = true;
    for (const shape &candidate : shapes) {
        if (!asked.file.empty()) break;
        if (asked.shape.empty() ? &candidate == &shapes[0] : asked.shape != candidate.name)
            continue;
        const std::string text = run_shape(candidate, asked, rates.value());
        if (!text.empty()) std::printf("%s: %s\n", candidate.name, text.c_str());
        good = good && text.empty();
    }
    if (!asked.file.empty()) {
        const std::string text = run_file(asked, rates.value());
        if (!text.empty()) std::printf("%s\n", text.c_str());
        good = text.empty();
    }
    return good ? 0 : 1;
}
