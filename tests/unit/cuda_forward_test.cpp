// cuda_forward_test.cpp - goal: the launches of the CUDA executor give the reference's results, for
// every architecture. Method: the same launches, block by block on the CPU, over the golden models.
// Whole and split experts must agree to the bit.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "core/model/golden.h"
#include "core/model/routing.h"
#include "tests/skip.h"
#include "tests/unit/emulated_device.h"

namespace cuda_forward_test {

namespace {

using namespace moorage::core;
using gpu::expert_in_slot;

// A model whose device is the CPU.
class emulated_run {
public:
    emulated_run(const model &model, const gpu::forward_limits &limits, uint32_t top)
        : model_(model), limits_(limits), top_(top), rule_(model.config()) {
        gpu::memory_plan counted, counted_pinned;
        gpu::weights_loader(device, counted).load(model.weights());
        lay_out(model.config(), limits, counted, counted_pinned);
        // Poisoned, so that unwritten values show.
        memory_.assign(counted.bytes() / 4 + 128, __builtin_nanf(""));
        pinned_.assign(counted_pinned.bytes() / 4 + 128, __builtin_nanf(""));
        gpu::memory_plan device_plan(aligned(memory_)), pinned_plan(aligned(pinned_));
        weights_ = gpu::weights_loader(device, device_plan).load(model.weights());
        buffers_ = lay_out(model.config(), limits, device_plan, pinned_plan);
        CHECK(device_plan.bytes() == counted.bytes());
        CHECK(pinned_plan.bytes() == counted_pinned.bytes());
        compute_ = std::make_unique<gpu::forward<gpu::emulated_device>>(device, model, weights_,
                                                                        buffers_, limits);
    }

    void run(const pass &tokens) {
        const model_config &config = model_.config();
        const uint32_t k = config.top_k, experts = config.experts;
        const std::vector<uint32_t> layers = config.moe_layers();
        compute_->begin(tokens);
        std::vector<uint32_t> chosen(tokens.tokens.size() * k);
        std::vector<float> weights(chosen.size());
        for (uint32_t layer = 0; layer < layers.size(); ++layer) {
            compute_->run_attention(layer);
            compute_->run_shared(layer);
            for (size_t t = 0; t < tokens.tokens.size(); ++t)
                rule_.choose(compute_->router(layer).subspan(t * experts, experts),
                             model_.weights().layers[layers[layer]].correction_bias,
                             {chosen.data() + t * k, k}, {weights.data() + t * k, k});
            compute_->route(chosen, weights);
            run_experts(layer, layers[layer]);
        }
        compute_->run_head();
    }
    std::span<const float> logits() const {
        return {buffers_.pinned_logits, size_t{compute_->outputs()} * model_.config().vocabulary};
    }

    gpu::emulated_device device;

private:
    static std::byte *aligned(std::vector<float> &memory) {
        const auto address = reinterpret_cast<uintptr_t>(memory.data());
        return reinterpret_cast<std::byte *>((address + 255) / 256 * 256);
    }

    void run_experts(uint32_t layer, uint32_t model_layer) {
        const uint32_t rows = model_.config().moe_intermediate;
        images_.clear();
        for (const bool bottom : {false, true}) {
            const uint32_t first = bottom ? top_ : 0, count = bottom ? rows - top_ : top_;
            if (count == 0) continue;
            std::vector<expert_in_slot> batch;
            for (uint32_t e = 0; e < model_.config().experts; ++e) {
                if (compute_->assignment_count(e) == 0) continue;
                const segment_image image(model_.weights().layers[model_layer].experts[e], first,
                                          count);
                images_.emplace_back(image.bytes() / 4 + 128);
                std::byte *slot = aligned(images_.back());
                image.copy(0, image.bytes(), slot);
                batch.push_back({e, first, count, slot});
            }
            compute_->run_experts(layer, batch);
        }
    }

    const model &model_;
    gpu::forward_limits limits_;
    uint32_t top_;
    routing_rule rule_;
    std::vector<float> memory_, pinned_;
    std::vector<std::vector<float>> images_;
    gpu::device_weights weights_;
    gpu::forward_buffers buffers_;
    std::unique_ptr<gpu::forward<gpu::emulated_device>> compute_;
};

pass pass_of(std::span<const int32_t> ids, uint32_t position, bool all_outputs) {
    pass pass;
    for (uint32_t i = 0; i < ids.size(); ++i) {
        pass_token token;
        token.token_id = ids[i];
        token.position = position + i;
        token.output = all_outputs || i + 1 == ids.size();
        pass.tokens.push_back(token);
    }
    return pass;
}

constexpr const char *architectures[] = {
    "mixtral",     "qwen2_moe", "qwen3_moe",  "olmoe",   "deepseek_v2_lite",
    "deepseek_v3", "phimoe",    "granitemoe", "gpt_oss", "glm4_moe"};
constexpr const char *quantised[] = {
    "quantised/models/deepseek2-q4_0.gguf", "quantised/models/gpt-oss-mxfp4.gguf",
    "quantised/models/mixtral-qkv-q4_1.gguf", "quantised/models/qwen3moe-tied-iq4_nl.gguf",
    "quantised/published/gptq-mixtral"};

// A golden model on the emulated device, its experts whole or split on a part's border.
struct golden_run {
    std::unique_ptr<model> opened;
    golden_data golden;
    emulated_run run;

    golden_run(const std::string &name, bool split, bool half_cache = false)
        : opened(open(name)),
          golden(std::move(*read_golden(opened->directory(), opened->config()))),
          run(*opened, limits_of(golden, half_cache),
              top_rows(opened->config().moe_intermediate, split ? 0.5 : 1,
                       opened->config().part_unit)) {}

    // A path, or a name in tests/golden.
    static std::unique_ptr<model> open(const std::string &name) {
        auto opened = open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden" / name);
        REQUIRE_MESSAGE(opened.ok(), (opened ? "" : opened.failure().text));
        return std::move(*opened);
    }
    static gpu::forward_limits limits_of(const golden_data &golden, bool half_cache) {
        const auto count = static_cast<uint32_t>(golden.input_ids.size());
        return {count, 2, 2 * count, count, true, !half_cache};
    }
};

}  // namespace

TEST_CASE("the launches of the CUDA executor reproduce every golden model in one pass") {
    for (const std::string name : architectures) {
        CAPTURE(name);
        golden_run emulated(name, false);
        emulated.run.run(pass_of(emulated.golden.input_ids, 0, true));
        CHECK(relative_error(emulated.run.logits(), emulated.golden.logits) <= 2e-3);
    }
}

TEST_CASE("they do so a few tokens at a time, then one by one") {
    for (const std::string name : architectures) {
        CAPTURE(name);
        golden_run emulated(name, false);
        const uint32_t vocabulary = emulated.opened->config().vocabulary;
        const auto count = static_cast<uint32_t>(emulated.golden.input_ids.size());
        for (uint32_t position = 0; position < count;) {
            const uint32_t step = position == 0 ? 5 : position == 5 ? 8 : 1;
            emulated.run.run(pass_of(std::span(emulated.golden.input_ids).subspan(position, step),
                                     position, false));
            position += step;
            CAPTURE(position);
            const auto expected =
                std::span(emulated.golden.logits).subspan((position - 1) * vocabulary, vocabulary);
            CHECK(relative_error(emulated.run.logits(), expected) <= 2e-3);
        }
    }
}

namespace {

constexpr uint32_t usual_shared_bytes = 98u << 10;

// All of the prompt at once, then in passes of few tokens.
void check_quantised(const std::string &name, uint32_t shared_bytes = usual_shared_bytes) {
    CAPTURE(name);
    golden_run emulated(name, false);
    emulated.run.device.shared_bytes = shared_bytes;
    const std::span ids(emulated.golden.input_ids);
    const uint32_t vocabulary = emulated.opened->config().vocabulary;
    const auto count = static_cast<uint32_t>(ids.size());
    emulated.run.run(pass_of(ids, 0, true));
    const double at_once = relative_error(emulated.run.logits(), emulated.golden.logits);
    double by_few = 0;
    for (uint32_t position = 0, step = 7; position < count; position += step, step = 1) {
        emulated.run.run(pass_of(ids.subspan(position, step), position, true));
        const auto expected =
            std::span(emulated.golden.logits).subspan(position * vocabulary, step * vocabulary);
        by_few = std::max(by_few, relative_error(emulated.run.logits(), expected));
    }
    CHECK(at_once <= 1e-4);
    CHECK(by_few <= 1e-5);
}

}  // namespace

TEST_CASE("quantised models compute what float64 makes of their weights") {
    for (const std::string name : quantised) check_quantised(name);
}

TEST_CASE("rows that are too long for a block's memory are read where they lie") {
    for (const uint32_t shared_bytes : {0u, 1500u})
        for (const std::string name : quantised) check_quantised(name, shared_bytes);
}

TEST_CASE("more quantised models") {
    const std::filesystem::path beside = std::filesystem::path(MOORAGE_SHARED_DATA) / "quant";
    if (!std::filesystem::exists(beside))
        return moorage::test::skip(beside.string() + " is not here");
    for (const char *folder : {"models", "published"})
        for (const auto &entry : std::filesystem::directory_iterator(beside / folder)) {
            const std::string name = entry.path().string();
            if (!name.ends_with(".safetensors") && !name.ends_with("-00002-of-00002.gguf"))
                check_quantised(name);
        }
}

TEST_CASE("split experts give the bits of whole ones, with one token and with many") {
    const auto check = [](const std::string &name, uint32_t shared_bytes) {
        CAPTURE(name);
        golden_run whole(name, false), split(name, true);
        whole.run.device.shared_bytes = split.run.device.shared_bytes = shared_bytes;
        const std::span ids(whole.golden.input_ids);
        const auto run_both = [&](uint32_t first, uint32_t count) {
            const pass tokens = pass_of(ids.subspan(first, count), first, true);
            whole.run.run(tokens);
            split.run.run(tokens);
            const auto is = split.run.logits(), expected = whole.run.logits();
            REQUIRE(is.size() == expected.size());
            CHECK(std::memcmp(is.data(), expected.data(), is.size_bytes()) == 0);
        };
        run_both(0, 20);
        run_both(20, 3);
        run_both(23, 1);
    };
    for (const std::string name : {"mixtral", "deepseek_v3", "gpt_oss", "qwen2_moe", quantised[0],
                                   quantised[1], quantised[2], quantised[3]})
        check(name, usual_shared_bytes);
    // Eight rows of `down`, 64 columns of q4_0, take 512 bytes; halves of them 384.
    check(quantised[0], 400);
}

TEST_CASE("caches in half precision stay near where no choice of experts turns on it") {
    for (const std::string name : {"mixtral", "deepseek_v2_lite", "olmoe", "glm4_moe"}) {
        CAPTURE(name);
        golden_run emulated(name, false, true);
        emulated.run.run(pass_of(emulated.golden.input_ids, 0, true));
        CHECK(relative_error(emulated.run.logits(), emulated.golden.logits) <= 5e-3);
    }
}

TEST_CASE("recorded launches compute what launches one by one do, whatever the token") {
    for (const std::string name : {"mixtral", "deepseek_v3", "gpt_oss"}) {
        CAPTURE(name);
        golden_run recorded(name, false), plain(name, false);
        plain.run.device.offer_recording = false;
        const std::span ids(plain.golden.input_ids);
        for (uint32_t position = 0; position < ids.size(); ++position) {
            CAPTURE(position);
            const pass tokens = pass_of(ids.subspan(position, 1), position, true);
            recorded.run.run(tokens);
            plain.run.run(tokens);
            const auto is = recorded.run.logits(), expected = plain.run.logits();
            CHECK(std::memcmp(is.data(), expected.data(), expected.size_bytes()) == 0);
        }
        CHECK(recorded.run.device.replays > 0);
        CHECK(plain.run.device.replays == 0);
    }
}

TEST_CASE("streams of one pass do not see each other") {
    for (const std::string name : {"mixtral", "deepseek_v2_lite", "gpt_oss"}) {
        CAPTURE(name);
        golden_run emulated(name, false);
        const std::span ids(emulated.golden.input_ids);
        const uint32_t vocabulary = emulated.opened->config().vocabulary;
        // Stream 1 gets the reference's text, four tokens behind another text in stream 0.
        pass first_stream = pass_of(ids.subspan(3, 4), 0, false);
        emulated.run.run(first_stream);
        for (uint32_t position = 0; position + 4 < ids.size(); ++position) {
            CAPTURE(position);
            pass both_streams = pass_of(ids.subspan((7 * position) % 20, 1), position + 4, false);
            both_streams.tokens.push_back(
                pass_of(ids.subspan(position, 1), position, true).tokens[0]);
            both_streams.tokens[1].stream = 1;
            if (position % 2 == 1) std::swap(both_streams.tokens[0], both_streams.tokens[1]);
            emulated.run.run(both_streams);
            const auto stream_logits =
                emulated.run.logits().subspan((position % 2 == 1 ? 0 : 1) * vocabulary, vocabulary);
            const auto expected =
                std::span(emulated.golden.logits).subspan(position * vocabulary, vocabulary);
            CHECK(relative_error(stream_logits, expected) <= 2e-3);
        }
    }
}

}  // namespace cuda_forward_test
