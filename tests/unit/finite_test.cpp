// finite_test.cpp - goal: a value that is not a finite number ends a run with its cause, or has no
// part in its figures. Method: ten small models. In each, every tensor in turn gets one value, or
// one in each row, that is nan or infinite. A run of the poisoned model either fails with a text
// that names the tensor, or gives the bits of the whole model, since nothing read the value.
// Routers that give infinite weights. Searches for such values are compared with a plain loop.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/finite.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/model/golden.h"
#include "core/pipeline/run.h"
#include "core/report/odd_figure.h"
#include "tests/unit/model_files.h"

namespace finite_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

namespace fs = std::filesystem;

constexpr const char *models[] = {"deepseek_v2_lite", "deepseek_v3", "glm4_moe", "gpt_oss",
                                  "granitemoe",       "mixtral",     "olmoe",    "phimoe",
                                  "qwen2_moe",        "qwen3_moe"};

// The text, scored token by token: everything of the model is at work.
result<run_report> figures_of(const fs::path &model, const fs::path &windows) {
    run_resources shared;
    const std::vector paths{fs::path(MOORAGE_BINARY_DIR) / "plugins"};
    REQUIRE(shared.scan(paths).ok());
    run_config config;
    config.file = "test.toml";
    config.model = model;
    config.executor = "cpu";
    config.profile = "host";
    config.threads = 1;
    config.prefill = 5;
    config.text = windows;
    return run(config, shared, {});
}

uint64_t element_bytes(const raw_tensor &tensor) {
    return tensor.dtype == "F32" ? 4 : tensor.dtype == "U8" ? 1 : 2;
}

// One value of every `stride`, in the tensor's own type.
void poison(raw_tensor &tensor, size_t stride, double value) {
    const uint64_t size = element_bytes(tensor);
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    for (size_t index = 0; index * size < tensor.bytes.size(); index += stride) {
        uint32_t stored = size == 4 ? bits : size == 1 ? 255 : bits >> 16;
        if (tensor.dtype == "F16")
            stored = (bits >> 16 & 0x8000u) | (std::isnan(value) ? 0x7e00u : 0x7c00u);
        std::memcpy(tensor.bytes.data() + index * size, &stored, size);
    }
}

// Whether the run failed.
bool check_poisoned(const std::string &name, const raw_tensor &tensor, const fs::path &model,
                    double nll, const fs::path &windows) {
    const auto done = figures_of(model, windows);
    CAPTURE(name);
    CAPTURE(tensor.name);
    if (done) {
        CHECK(std::bit_cast<uint64_t>(done->text.nll) == std::bit_cast<uint64_t>(nll));
        return false;
    }
    const std::string &text = done.failure().text;
    CAPTURE(text);
    CHECK(text.find("tensor " + tensor.name + " holds ") != std::string::npos);
    // A fault found when the file is opened belongs to no token.
    const bool opened = text.starts_with((model / "model.safetensors").string() + ": tensor ");
    CHECK(opened != (text.find(" of request 0: ") != std::string::npos));
    CHECK(text.find('\n') == std::string::npos);
    return true;
}

}  // namespace

TEST_CASE("a weight that is no finite number ends the run with its name, or is never read") {
    set_log_level(log_level::off);
    const double values[] = {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()};
    uint32_t failed_all = 0;
    for (const char *name : models) {
        const scratch_directory place(golden_directory(name));
        const fs::path windows = place.path() / "windows.json";
        write_file(windows, std::string("[[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]"));
        const auto whole = figures_of(place.path(), windows);
        REQUIRE_MESSAGE(whole.ok(), whole.failure().text);
        const raw_file file = place.read_weights();
        size_t number = 0;
        for (const raw_tensor &tensor : file.tensors) {
            if (tensor.dtype == "U8" && !tensor.name.ends_with("_scales")) continue;
            raw_file poisoned = file;
            raw_tensor &victim = poisoned[tensor.name];
            // Every 16th: each row and block has some; then the first value alone.
            poison(victim, number % 4 == 3 ? victim.bytes.size() : 16, values[number % 3]);
            ++number;
            place.write_weights(poisoned);
            failed_all +=
                check_poisoned(name, tensor, place.path(), whole->text.nll, windows) ? 1 : 0;
        }
    }
    CHECK(failed_all > 100);
}

namespace {

result<run_report> routed_by(const std::string &policy, on_fault action) {
    run_resources shared;
    const fs::path binaries = MOORAGE_BINARY_DIR;
    const std::vector paths{binaries / "plugins", binaries / "tests/policies/substitute.so"};
    REQUIRE(shared.scan(paths).ok());
    run_config config;
    config.file = "test.toml";
    config.model = golden_directory("mixtral");
    config.executor = "cpu";
    config.profile = "host";
    config.threads = 1;
    config.fault_action = action;
    const scratch_directory place;
    config.text = place.path() / "windows.json";
    write_file(config.text, std::string("[[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]"));
    config.router.plugin = policy;
    return run(config, shared, {});
}

}  // namespace

TEST_CASE("a router that gives infinite weights is named, and replaced where that is asked for") {
    const auto refused = routed_by("infinite", on_fault::abort);
    REQUIRE_FALSE(refused.ok());
    CAPTURE(refused.failure().text);
    CHECK(refused.failure().text.find("infinite") != std::string::npos);
    CHECK(refused.failure().text.find("layer 0: the weight of expert ") != std::string::npos);
    CHECK(refused.failure().text.find(" is inf; it must be finite") != std::string::npos);
    const auto replaced = routed_by("infinite", on_fault::replace);
    REQUIRE_MESSAGE(replaced.ok(), replaced.failure().text);
    CHECK(std::isfinite(replaced->text.nll));
}

TEST_CASE("a router whose finite weights drive the model out of range is named") {
    const auto refused = routed_by("huge", on_fault::abort);
    REQUIRE_FALSE(refused.ok());
    CAPTURE(refused.failure().text);
    CHECK(refused.failure().text.find("every weight is finite") != std::string::npos);
    CHECK(refused.failure().text.find("router policy huge") != std::string::npos);
    CHECK(refused.failure().text.find("token 0 of request 0: ") != std::string::npos);
}

TEST_CASE("the first odd value is the first of a plain search, in every type") {
    random_stream random(3, 0);
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
        const uint64_t size = bytes_of(type);
        for (uint64_t round = 0; round < 200; ++round) {
            const uint64_t count = 1 + random.below(40'000);
            std::vector<std::byte> bytes(count * size, std::byte{0x3c});
            for (uint64_t wrong = random.below(3); wrong-- > 0;) {
                std::byte *element = bytes.data() + random.below(count) * size;
                element[size - 1] = random.below(2) == 0 ? std::byte{0x7f} : std::byte{0xff};
                element[size - 2] = std::byte{0xc0};
            }
            const tensor checked{"t", type, {count}, bytes};
            const uint64_t begin = random.below(count + 1);
            uint64_t plain = begin;
            while (plain < count && std::isfinite(value_at(checked, plain))) ++plain;
            CHECK(first_non_finite(checked, begin, count) == plain);
            CHECK(non_finite_text(checked).empty() ==
                  (first_non_finite(checked, 0, count) == count));
        }
    }
    const tensor empty_tensor{"deep", dtype::bf16, {2, 3, 4}, {}};
    std::vector<std::byte> bytes(2 * 24);
    bytes[2 * 17] = std::byte{0x80}, bytes[2 * 17 + 1] = std::byte{0xff};
    tensor deep = empty_tensor;
    deep.bytes = bytes;
    CHECK(non_finite_text(deep) == "tensor deep holds -inf at [1, 1, 1]");
}

TEST_CASE("a figure that is no finite number is found wherever it stands") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    CHECK(odd_figure({{"a", 1.5}, {"b", nullptr}, {"c", {1, 2.5, "nan"}}, {"d", json::object()}})
              .empty());
    CHECK(odd_figure({{"a", nan}}) == "a");
    CHECK(odd_figure({{"a", {{"b", {1.0, 2.0, -inf}}}}, {"c", nan}}) == "a.b.2");
}

}  // namespace finite_test
