// Goal: a GPU's times are measured right, and its profile reproduces them. Method: the pretended
// GPU takes its time by known rates. The fit must find them, also after the profile has been
// written and read. The CPU beside it is real, so its figures need only exist.
#include <cmath>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "core/config/hardware.h"
#include "core/config/profile_writer.h"
#include "core/execute/gpu/arithmetic/product.h"
#include "core/execute/cuda/cuda_measure.h"
#include "tests/gpu/pretended/pretended.h"

using namespace moorage::core;

namespace {

// Launch, copies each way, memory, cache, keys and values, matrix units.
const pretended_rates planted{.launch_s = 2.5e-6,
                              .h2d_s = 8e-6,
                              .d2h_s = 6e-6,
                              .h2d_bytes_per_s = 25e9,
                              .d2h_bytes_per_s = 20e9,
                              .memory_bytes_per_s = 1e12,
                              .cache_bytes = 32 << 20,
                              .cache_bytes_per_s = 3e12,
                              .context_bytes_per_s = 400e9,
                              .operations_per_s = 100e12};

cuda_measure_options options() {
    cuda_measure_options measure_options;
    measure_options.common.seconds = 0.01;
    measure_options.common.threads = 2;
    measure_options.common.expert_bytes = 40'000'000;
    measure_options.block_bytes = 128 << 20;
    measure_options.context_max = 4096;
    measure_options.now = pretended_now;
    return measure_options;
}

const measured_machine &machine() {
    static const result<measured_machine> measured = [] {
        pretend_time(planted);
        return measure_cuda(options());
    }();
    REQUIRE_MESSAGE(measured.ok(), (measured ? "" : measured.failure().text));
    return *measured;
}

const product_speed &product(weight_type type, uint32_t rows, uint32_t tokens) {
    for (const product_speed &speed : machine().products)
        if (speed.type == type && speed.rows == rows && speed.tokens == tokens) return speed;
    FAIL("no product of " << rows << " rows and " << tokens << " tokens");
    return machine().products[0];
}

}  // namespace

TEST_CASE("the link's rates and constants each way are the planted ones") {
    const line_fit to_device_fit = fit_line(machine().to_device),
                   to_host_fit = fit_line(machine().to_host);
    CHECK(to_device_fit.constant == doctest::Approx(8e-6));
    CHECK(1 / to_device_fit.slope == doctest::Approx(25e9));
    CHECK(to_host_fit.constant == doctest::Approx(6e-6));
    CHECK(1 / to_host_fit.slope == doctest::Approx(20e9));
    CHECK(machine().to_device.front().amount == 4096);
    CHECK(machine().to_device.back().amount == 64 << 20);
}

TEST_CASE("launches and the hand-over of a result are told apart") {
    CHECK(machine().loop_seconds == doctest::Approx(2.5e-6));
    // The copy of 256 bytes.
    CHECK(machine().sync_seconds == doctest::Approx(6e-6 + 256 / 20e9));
}

TEST_CASE("memory, cache and matrix units have their rates") {
    CHECK(machine().read_bytes_per_s == doctest::Approx(1e12));
    CHECK(machine().operations_per_s == doctest::Approx(100e12).epsilon(0.01));
    CHECK(machine().expert_memory_bytes_per_s == doctest::Approx(1e12).epsilon(0.1));
    // A launch and the weights. Weights beyond the cache's size come from memory.
    CHECK(product(weight_type::bf16, 4096, 1).seconds ==
          doctest::Approx(2.5e-6 + 4096.0 * 4096 * 2 / 3e12));
    CHECK(product(weight_type::f32, 4096, 1).seconds ==
          doctest::Approx(2.5e-6 + 4096.0 * 4096 * 4 / 1e12));
    CHECK(product(weight_type::bf16, 14336, 1).seconds ==
          doctest::Approx(2.5e-6 + 14336.0 * 4096 * 2 / 1e12));
    // Halving the inputs and the library's two products.
    CHECK(product(weight_type::bf16, 4096, 256).seconds ==
          doctest::Approx(3 * 2.5e-6 + 2 * 2.0 * 4096 * 4096 * 256 / 100e12));
}

TEST_CASE("attention by length, experts by tokens") {
    const line_fit past = fit_line(machine().contexts);
    CHECK(machine().context_bytes / past.slope == doctest::Approx(400e9).epsilon(0.01));
    CHECK(machine().contexts.back().amount == 4096);
    const std::vector<timed_sample> &tokens = machine().expert_tokens;
    REQUIRE(tokens.size() == 6);
    // 17 MB: two launches. From 256 on the matrix units take longer than the weights.
    const double expert_bytes = 3.0 * 2048 * 1408 * 2;
    CHECK(machine().expert_bytes == expert_bytes);
    const double step = tokens[5].seconds - tokens[4].seconds;
    CHECK(machine().expert_operations * 256 / step == doctest::Approx(100e12).epsilon(0.001));
}

TEST_CASE("constants are those of launches and copies") {
    // Two launches with the products as arguments, for any number of experts.
    CHECK(machine().experts_seconds == doctest::Approx(2 * 2.5e-6).epsilon(0.01));
    CHECK(machine().expert_seconds < 2e-9);
    // Norm, head, and the logits' copy.
    CHECK(machine().pass_seconds == doctest::Approx(2 * 2.5e-6 + 6e-6).epsilon(0.01));
    // A whole number of launches. The last one tells the host the router's scores.
    const double launches = machine().layer_seconds / 2.5e-6;
    CHECK(launches == doctest::Approx(std::round(launches)).epsilon(0.02));
    CHECK(launches > 5);
    CHECK(launches < 12);
}

TEST_CASE("the host beside the GPU is measured too") {
    CHECK(machine().executor == "cuda");
    CHECK_FALSE(machine().is_host);
    CHECK(machine().threads == 2);
    CHECK(machine().host_bytes > 0);
    CHECK(machine().host_read_bytes_per_s > 1e8);
    CHECK(machine().cpu_expert_bytes_per_s > 1e8);
    CHECK(machine().cpu_operations_per_s > 1e8);
    CHECK(machine().cpu_expert_seconds >= 0);
    // An expert of four, in four sizes; the profile's figures are the line through them.
    const std::vector<timed_sample> &on_cpu = machine().cpu_experts;
    REQUIRE(on_cpu.size() == 4);
    for (size_t i = 0; i < on_cpu.size(); ++i) {
        CHECK(on_cpu[i].amount == 6.0 * 2048 * (176 << i));
        CHECK(on_cpu[i].seconds > 0);
    }
    const line_fit line = fit_line(on_cpu);
    CHECK(machine().cpu_expert_seconds == line.constant);
    if (line.slope > 0) CHECK(machine().cpu_expert_bytes_per_s == 1 / line.slope);
    CHECK(machine().together_bytes_per_s > 0);
}

TEST_CASE("the profile that is written gives back what was planted") {
    const measured_profile measured = profile_of(machine());
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / "moorage-measured-gpu.toml";
    std::ofstream(file) << to_toml(measured.profile, measured.sources, measured.notes);
    const auto read = load_hardware({file.string(), "", "", {}});
    std::filesystem::remove(file);
    REQUIRE_MESSAGE(read.ok(), (read ? "" : read.failure().text));
    const hardware_profile &is = *read;
    const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-3); };
    CHECK(is.device.name == "pretended GPU");
    CHECK_FALSE(is.device.is_host);
    CHECK(is.device.compute_share == 1);
    CHECK(is.device.memory_bytes == uint64_t{1} << 33);
    CHECK(is.device.memory_bytes_per_s == near(1e12));
    CHECK(is.device.memory_efficiency > 0.9);
    CHECK(is.device.flops_per_s == doctest::Approx(100e12).epsilon(0.01));
    CHECK(is.device.flops_efficiency > 0.95);
    CHECK(is.device.launch_ns == 2500);
    CHECK(is.device.sync_ns == 6013);
    CHECK(is.device.expert_kernels == 0);
    CHECK(is.device.context_bytes_per_s == doctest::Approx(400e9).epsilon(0.01));
    CHECK(is.device.cache_bytes == 32 << 20);
    CHECK(is.device.cache_bytes_per_s == near(3e12));
    CHECK(is.link.h2d_bytes_per_s == near(25e9));
    CHECK(is.link.d2h_bytes_per_s == near(20e9));
    CHECK(is.link.issue_ns == 8000);
    CHECK(is.node.memory_bytes_per_s >= is.link.h2d_bytes_per_s * 0.999);
    // All costs of a layer that occur once: its own constant and that of its experts.
    CHECK(is.device.layer_ns + is.device.attention_kernels * is.device.launch_ns ==
          doctest::Approx((machine().layer_seconds + machine().experts_seconds) * 1e9)
              .epsilon(0.001));
}
