// golden_fixture.h - opens the golden models and runs passes through them, for the tests here.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/execute/cpu/forward.h"
#include "core/model/golden.h"
#include "core/model/model.h"

namespace moorage::test {

using namespace moorage::core;

inline const std::vector<std::string> &golden_names() {
    static const std::vector<std::string> names = {
        "deepseek_v2_lite", "deepseek_v3", "glm4_moe", "gpt_oss",   "granitemoe",
        "mixtral",          "olmoe",       "phimoe",   "qwen2_moe", "qwen3_moe"};
    return names;
}

inline std::filesystem::path golden_path(const std::string &name) {
    return std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden" / name;
}

inline std::unique_ptr<model> open_or_fail(const std::filesystem::path &path) {
    auto opened = open_model(path);
    REQUIRE_MESSAGE(opened.ok(), (opened.ok() ? "" : opened.failure().text));
    return std::move(*opened);
}

inline golden_data golden_of(const model &model) {
    auto read = read_golden(model.directory(), model.config());
    REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.failure().text));
    return std::move(*read);
}

inline std::unique_ptr<cpu_model> compute_of(const model &model, thread_pool &pool,
                                             const compute_limits &limits) {
    auto created = cpu_model::create(model, pool, limits);
    REQUIRE_MESSAGE(created.ok(), (created.ok() ? "" : created.failure().text));
    return std::move(*created);
}

inline std::vector<float> copied(std::span<const float> values) {
    return {values.begin(), values.end()};
}

}  // namespace moorage::test
