// pretended_prediction_test.cpp - goal: the GPU predicts the next layer's scores from the resident
// experts as the CPU does (prediction_test explains it), and leaves no trace. Method: golden models
// over the pretended GPU with few slots and the CPU's help, in several orders. Compare with the
// executor of the CPU. With every expert resident a prediction equals the next layer's scores to
// the bit. Also the program's own run of the demo.
#include <cstring>

#include "core/pipeline/run.h"
#include "tests/gpu/pretended_fixture.h"

namespace pretended_prediction_test {

using namespace moorage::test;

namespace {

using values = std::vector<float>;
struct outcome {
    std::vector<values> router, predicted;  // as they came; predicted[i] is for router[i]
    std::vector<uint64_t> elsewhere;        // experts not there so far, at each gate
    values logits;
};

outcome run(const opened_golden &golden, uint32_t slots, double cpu_share, bool predict,
            bool on_cpu) {
    outcome result;
    golden_machine machine;
    drive_options drive_setup;
    drive_setup.slots = slots;
    drive_setup.cpu_share = cpu_share;
    drive_setup.predict = predict;
    drive_setup.seed = 11;
    values ahead;
    const executor_drive *driven = nullptr;
    const auto keep = [](std::span<const float> source) {
        return values(source.begin(), source.end());
    };
    drive_setup.on_scores = [&](event_kind kind, uint32_t) {
        if (kind == event_kind::prediction) ahead = keep(machine.results->next_router_logits());
        if (kind != event_kind::gate) return;
        result.router.push_back(keep(machine.results->router_logits()));
        result.predicted.push_back(std::exchange(ahead, {}));
        result.elsewhere.push_back(driven->misses + driven->on_cpu);
    };
    executor_drive drive(*golden.source_model, drive_setup);
    driven = &drive;
    gpu_executor_options options;
    options.source_model = golden.source_model.get();
    options.places = &drive.places;
    options.limits = golden_limits(golden.data);
    options.limits.predict = true;
    options.transfers_max = drive.transfers_max();
    options.threads = 1;
    options.exact = true;
    auto created = make_golden_machine(options, on_cpu);
    REQUIRE_MESSAGE(created.ok(), (created ? "" : created.failure().text));
    machine = std::move(*created);
    CHECK(machine.device_executor->predicts());
    drive.use(*machine.device_executor, *machine.results);
    const std::span ids(golden.data.input_ids);
    for (uint32_t position = 0; position < 17; position += position == 0 ? 12 : 1) {
        const status done = drive.run(
            prompt_pass(ids.subspan(position, position == 0 ? 12 : 1), 0, position, false));
        REQUIRE(done.ok());
    }
    result.logits = keep(machine.results->logits());
    return result;
}

void check(const std::string &name) {
    CAPTURE(name);
    const opened_golden golden(name);
    const uint32_t experts = golden.source_model->config().experts;
    const auto pages =
        static_cast<uint32_t>(golden.source_model->config().moe_layers().size()) * experts;
    for (const pretended::order stream_order : {pretended::order::lazy, pretended::order::drawn}) {
        const outcome reference = run(golden, experts, 0.5, true, true);
        pretended::begin({.stream_order = stream_order});
        const outcome is = run(golden, experts, 0.5, true, false);
        const outcome plain = run(golden, experts, 0.5, false, false);
        uint32_t predictions = 0;
        for (size_t i = 0; i < is.router.size(); ++i) {
            CAPTURE(i);
            CHECK(relative_error(is.router[i], reference.router[i]) <= golden_error_max);
            CHECK(is.predicted[i].size() == reference.predicted[i].size());
            if (is.predicted[i].empty()) continue;
            ++predictions;
            CHECK(relative_error(is.predicted[i], reference.predicted[i]) <= golden_error_max);
            CHECK(is.router[i] == plain.router[i]);
        }
        CHECK(is.logits == plain.logits);
        CHECK(predictions == 6 * (pages / experts - 1));
    }
    // If every expert was resident, the prediction equals the later scores.
    pretended::begin({.stream_order = pretended::order::eager});
    const outcome resident = run(golden, pages, 0, true, false);
    uint32_t whole = 0;
    for (size_t i = 1; i < resident.router.size(); ++i) {
        if (resident.predicted[i].empty() || resident.elsewhere[i] != resident.elsewhere[i - 1])
            continue;
        ++whole;
        CAPTURE(i);
        CHECK(resident.predicted[i] == resident.router[i]);
    }
    CHECK(whole > 0);
}

}  // namespace

TEST_CASE("predictions are the CPU's, and change no result") {
    for (const char *name : {"mixtral", "qwen2_moe", "deepseek_v3", "phimoe", "gpt_oss"})
        check(name);
}

TEST_CASE("a run that has room for every expert predicts what it will choose") {
    run_resources shared;
    REQUIRE(shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
    run_config config;
    config.file = "test.toml";
    config.executor = "cuda";
    config.profile = "host";
    config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
    config.prompts = {"The president said that"};
    config.max_tokens = 12;
    config.prefill = 0;
    config.experts = 8 * 24;
    config.buffer_experts = 4;
    config.threads = 1;
    config.prefetch.plugin = "smoe";
    for (const bool resident : {true, false}) {
        CAPTURE(resident);
        pretended::begin({.stream_order = pretended::order::eager});
        config.prefetch.params = {{"from_resident", resident, "test"}};
        const auto report = moorage::core::run(config, shared, {});
        REQUIRE_MESSAGE(report.ok(), (report ? "" : report.failure().text));
        uint64_t predicted = 0, right = 0;
        for (size_t layer = 1; layer < report->layers.size(); ++layer) {
            predicted += report->layers[layer].predicted;
            right += report->layers[layer].predicted_right;
        }
        REQUIRE(predicted > 200);
        // It begins with none there, so the first predictions are of fewer.
        const double share = static_cast<double>(right) / static_cast<double>(predicted);
        CHECK(resident == (share > 0.98));
        for (const std::string &warning : report->warnings)
            CHECK(warning.find("does not predict") == std::string::npos);
    }
}

}  // namespace pretended_prediction_test
