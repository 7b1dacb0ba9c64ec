// replay_fixture.h - small traces and the policies for the tests of core/cache.
#pragma once

#include <unistd.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/cache/replay.h"
#include "core/source/trace_write.h"

namespace moorage::test {

struct shape {
    uint32_t layers = 1, experts = 1, top_k = 1;
};

// A trace of the given choices [token, layer, rank], through a file that is removed afterwards.
inline core::trace make_trace(core::trace_data data) {
    static int number = 0;
    data.tokens = data.chosen.size() / (data.layers * data.top_k);
    if (data.request_offsets.empty()) data.request_offsets = {0, data.tokens};
    const auto file =
        std::filesystem::temp_directory_path() / ("moorage-replay-" + std::to_string(getpid()) +
                                                  "-" + std::to_string(number++) + ".safetensors");
    const core::status written = core::write_trace(data, file);
    REQUIRE_MESSAGE(written.ok(), (written ? "" : written.failure().text));
    auto opened = core::trace::open(file);
    std::filesystem::remove(file);
    REQUIRE_MESSAGE(opened.ok(), (opened ? "" : opened.failure().text));
    return std::move(*opened);
}

inline core::trace_data trace_of_choices(shape dimensions, std::vector<uint16_t> experts) {
    core::trace_data data;
    data.layers = dimensions.layers, data.experts = dimensions.experts,
    data.top_k = dimensions.top_k;
    data.chosen = std::move(experts);
    return data;
}

// Random choices. Small experts are likelier, and half the tokens repeat the one before.
inline core::trace_data random_choices(shape dimensions, uint64_t tokens, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint16_t> experts;
    const size_t row = size_t{dimensions.layers} * dimensions.top_k;
    for (uint64_t token = 0; token < tokens; ++token) {
        if (token > 0 && random() % 2 == 0) {
            experts.insert(experts.end(), experts.end() - row, experts.end());
            continue;
        }
        for (uint32_t layer = 0; layer < dimensions.layers; ++layer) {
            std::vector<uint16_t> order(dimensions.experts);
            std::iota(order.begin(), order.end(), uint16_t{0});
            for (uint32_t rank = 0; rank < dimensions.top_k; ++rank) {
                const auto left = static_cast<uint32_t>(order.size());
                const auto index =
                    static_cast<ptrdiff_t>(std::min(random() % left, random() % left));
                experts.push_back(order[static_cast<size_t>(index)]);
                order.erase(order.begin() + index);
            }
        }
    }
    return trace_of_choices(dimensions, std::move(experts));
}

// The bundled policies and those of tests/unit/policies.
inline core::registry &policies() {
    static core::registry registry = [] {
        core::set_log_level(core::log_level::off);  // faults are on purpose here
        core::registry loaded;
        const std::filesystem::path build = MOORAGE_BINARY_DIR;
        const std::filesystem::path paths[] = {build / "plugins", build / "tests" / "policies"};
        REQUIRE(loaded.scan(paths).ok());
        return loaded;
    }();
    return registry;
}

inline const core::policy *cache_policy(std::string_view name) {
    const auto found = policies().find(name, "cache");
    REQUIRE_MESSAGE(found.ok(), (found ? "" : found.failure().text));
    return *found;
}

inline core::replay_job job_of(std::string_view policy, uint32_t slots,
                               core::order requests = core::order::token,
                               core::sharing pools = core::sharing::shared) {
    core::replay_job job;
    job.cache_policy = cache_policy(policy);
    job.slots = slots;
    job.requests = requests;
    job.pools = pools;
    return job;
}

inline core::setting set(std::string key, core::setting_value value) {
    return {std::move(key), std::move(value), "test"};
}

// The counts of a job that must succeed.
inline core::replay_result count_replay(const core::trace &source, const core::replay_job &job) {
    const core::future coming(source, job.tokens);
    auto result = core::replay(source, &coming, job);
    REQUIRE_MESSAGE(result.ok(), (result ? "" : result.failure().text));
    return *result;
}

}  // namespace moorage::test
