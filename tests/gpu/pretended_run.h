// pretended_run.h - whole runs of golden models on the executor of the GPU, with little host
// memory.
#pragma once

#include "core/pipeline/run.h"
#include "tests/gpu/pretended_fixture.h"

namespace moorage::test {

struct pretended_run {
    run_resources shared;
    run_config config;
    std::vector<model_request> requests{{{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, 0, 1},
                                        {{8, 8, 4, 17, 11, 2, 9}, 0, 1}};

    // The GPU has room for an eighth of the experts.
    explicit pretended_run(const std::string &model) {
        const std::filesystem::path plugins = std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins";
        REQUIRE(shared.scan(std::vector{plugins}).ok());
        config.file = "pretended_run";
        config.executor = "cuda";
        config.profile = "host";
        config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden" / model;
        config.threads = 1;
        config.cache.plugin = "lru";
        config.experts = pages() / 8;
    }
    uint32_t pages() {
        const model_config &opened_config =
            (*shared.open_model(config.model))->loaded_model->config();
        return static_cast<uint32_t>(opened_config.moe_layers().size()) * opened_config.experts;
    }
    // A quarter of the experts is in host memory, the others on disk.
    void read_disk() {
        config.host_experts = pages() / 4;
        config.disk = "nvme_gen4";
    }
    result<run_report> operator()() { return run(config, shared, {.requests = &requests}); }
};

}  // namespace moorage::test
