// pretended_fixture.h - golden models over the pretended GPU, whole or some passes of them.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <vector>

#include "core/execute/cpu/forward.h"
#include "tests/gpu/golden_machine.h"
#include "tests/gpu/pretended/pretended.h"

namespace moorage::test {

using namespace moorage::core;

struct opened_golden {
    std::unique_ptr<model> source_model;
    golden_data data;
    explicit opened_golden(const std::string &name) {
        const auto folder = std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden" / name;
        auto opened = open_model(folder);
        REQUIRE_MESSAGE(opened.ok(), (opened ? "" : opened.failure().text));
        source_model = std::move(*opened);
        auto read = read_golden(folder, source_model->config());
        REQUIRE_MESSAGE(read.ok(), (read ? "" : read.failure().text));
        data = std::move(*read);
    }
};

// Why a golden model's results over the GPU differ from the reference; empty if they do not.
inline std::string find_difference(const opened_golden &golden, const golden_layout &layout) {
    gpu_executor_options options;
    options.threads = 2;
    options.exact = true;
    options.patience_s = 5;
    const golden_outcome is =
        run_golden(*golden.source_model, golden.data, layout.drive_setup, options, false);
    if (!is.failure.empty()) return is.failure;
    if (is.error > golden_error_max || is.greedy_equal != golden.data.greedy.size())
        return "error " + std::to_string(is.error) + ", greedy " + std::to_string(is.greedy_equal);
    return "";
}

struct short_outcome {
    std::string failure;
    std::vector<float> logits;  // of the last pass
};

// A prompt of twelve tokens, then four tokens one by one. The last two replay recordings. There is
// little room, and the CPU and the library's products take part.
inline short_outcome run_shortly(const opened_golden &golden) {
    drive_options drive_setup;
    drive_setup.slots = golden.source_model->config().experts / 2 + 1;
    drive_setup.cpu_share = 0.5;
    drive_setup.seed = 7;
    executor_drive drive(*golden.source_model, drive_setup);
    gpu_executor_options options;
    options.source_model = golden.source_model.get();
    options.places = &drive.places;
    options.limits = golden_limits(golden.data);
    options.transfers_max = drive.transfers_max();
    options.threads = 1;
    options.patience_s = 5;
    auto machine = make_golden_machine(options, false);
    if (!machine) return {machine.failure().text, {}};
    drive.use(*machine->device_executor, *machine->results);
    const std::span ids(golden.data.input_ids);
    for (uint32_t position = 0; position < 16; position += position == 0 ? 12 : 1) {
        const pass tokens =
            prompt_pass(ids.subspan(position, position == 0 ? 12 : 1), 0, position, false);
        if (const status done = drive.run(tokens); !done) return {done.failure().text, {}};
    }
    const std::span<const float> logits = machine->results->logits();
    return {"", {logits.begin(), logits.end()}};
}

}  // namespace moorage::test
