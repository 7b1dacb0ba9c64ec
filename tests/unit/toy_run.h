// toy_run.h - a whole run on the toy machine (toy_machine.h): the configuration, its files, a
// trace.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/pipeline/run.h"
#include "core/source/trace_write.h"
#include "tests/unit/toy_machine.h"

namespace moorage::test {

// `config` names the toy machine's files and the trace. All else has its default, and the test may
// set it.
struct toy_run {
    toy::folder folder;
    core::run_resources shared;
    core::run_config config;

    // Opens the policies of these folders and libraries of the build.
    explicit toy_run(const std::vector<std::filesystem::path> &places = {"plugins"}) {
        for (const std::filesystem::path &place : places)
            REQUIRE(
                shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / place}).ok());
        config.file = folder / "run.toml";
        config.profile = (folder / "device.toml").string();
        config.link = (folder / "link.toml").string();
        config.node = (folder / "node.toml").string();
        config.shape = (folder / "shape.toml").string();
        config.trace = folder / "trace.safetensors";
    }

    // Writes the trace, and a model of its shape.
    void write(const core::trace_data &data) {
        toy::write_files(folder, data.layers, data.experts, data.top_k);
        REQUIRE(core::write_trace(data, config.trace).ok());
    }
    // Puts another value in a file of the machine.
    void change(const std::string &file, const std::string &old_text, const std::string &new_text) {
        std::ifstream input(folder / file);
        std::string text((std::istreambuf_iterator<char>(input)), {});
        const size_t position = text.find(old_text);
        REQUIRE(position != std::string::npos);
        folder.write(file, text.replace(position, old_text.size(), new_text));
    }
    core::run_report run_it(const core::run_options &options = {}) {
        auto done = core::run(config, shared, options);
        if (!done) FAIL(done.failure().text);
        return std::move(done).value();
    }
};

}  // namespace moorage::test
