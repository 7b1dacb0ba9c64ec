// plan_fuzz.cpp - fuzz target of plan files. Any bytes give an error of one line, or a plan. Its
// copies are in range, fit and cover all experts, and it is the same when written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "tools/placement/plan.h"
#include "tests/unit/small_scene.h"

using namespace moorage::core;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

void read(const scene &scene, std::string_view text) {
    const auto parsed = parse_plan(text, "fuzz", scene);
    if (!parsed) {
        require(!parsed.failure().text.empty());
        require(parsed.failure().text.find('\n') == std::string::npos);
        return;
    }
    plan again = *parsed;
    require(check_plan(scene, again).ok());
    const std::vector<uint64_t> used = device_used_bytes(scene, parsed->copies);
    for (size_t g = 0; g < used.size(); ++g) require(used[g] <= scene.cluster.device_bytes[g]);
    for (size_t i = 0; i < again.copies.size(); ++i) {
        require(again.copies[i].expert == parsed->copies[i].expert);
        require(again.copies[i].expert < scene.demand.experts());
        require(again.copies[i].device < scene.cluster.devices());
    }
    const std::string written =
        to_json(scene, again).dump(-1, ' ', false, json::error_handler_t::replace);
    const auto back = parse_plan(written, "fuzz", scene);
    require(back.ok() && back->copies.size() == again.copies.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const scene one_model = moorage::test::small_scene(),
                       two_models = moorage::test::two_model_scene();
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    read(one_model, text);
    read(two_models, text);
    return 0;
}
