// plan_fuzz.cpp - fuzz target of plan files. Any bytes give an error of one line, or a plan. Its
// copies are in range, fit and cover all experts, and it is the same when written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/placement/plan.h"
#include "tests/unit/small_scene.h"

using namespace moorage::core;

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

void read(const scene &of, std::string_view text) {
    const auto made = parse_plan(text, "fuzz", of);
    if (!made) {
        require(!made.failure().text.empty());
        require(made.failure().text.find('\n') == std::string::npos);
        return;
    }
    plan again = *made;
    require(check_plan(of, again).ok());
    const std::vector<uint64_t> used = device_used_bytes(of, made->copies);
    for (size_t g = 0; g < used.size(); ++g) require(used[g] <= of.cluster.device_bytes[g]);
    for (size_t i = 0; i < again.copies.size(); ++i) {
        require(again.copies[i].expert == made->copies[i].expert);
        require(again.copies[i].expert < of.demand.experts());
        require(again.copies[i].device < of.cluster.devices());
    }
    const std::string written =
        to_json(of, again).dump(-1, ' ', false, json::error_handler_t::replace);
    const auto back = parse_plan(written, "fuzz", of);
    require(back.ok() && back->copies.size() == again.copies.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const scene one = moorage::test::small_scene(), two = moorage::test::two_model_scene();
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    read(one, text);
    read(two, text);
    return 0;
}
