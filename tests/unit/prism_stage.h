// prism_stage.h - placement policy prism at work, for tests of plan changes.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "core/host/registry.h"
#include "tools/placement/placement_stage.h"

namespace moorage::test {

// `policies` is empty and outlives the result.
inline std::unique_ptr<core::placement_stage> prism_stage(core::registry &policies,
                                                          const core::scene &scene) {
    const std::filesystem::path paths[] = {std::filesystem::path(MOORAGE_BINARY_DIR) /
                                           "plugins/placement/prism.so"};
    REQUIRE(policies.scan(paths).ok());
    auto opened = core::placement_stage::open({"prism", "test.toml:1", {}}, policies, scene, 1);
    REQUIRE(opened.ok());
    return std::move(*opened);
}

}  // namespace moorage::test
