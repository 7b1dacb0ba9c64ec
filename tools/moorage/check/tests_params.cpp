// tests_params.cpp - values at, beyond and far from the declared limits.
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/text.h"
#include "core/host/library.h"
#include "core/host/parameters.h"
#include "core/host/services.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;
using core::setting;

namespace {

// Values that the host must refuse for a parameter.
std::vector<core::setting_value> refused_values(const moorage_param &p) {
    std::vector<core::setting_value> values;
    if (p.type == MOORAGE_PARAM_INTEGER) {
        if (p.integer_min > std::numeric_limits<int64_t>::min())
            values.emplace_back(p.integer_min - 1);
        if (p.integer_max < std::numeric_limits<int64_t>::max())
            values.emplace_back(p.integer_max + 1);
        values.emplace_back(std::string("1"));
    } else if (p.type == MOORAGE_PARAM_REAL) {
        values.emplace_back(std::numeric_limits<double>::quiet_NaN());
        for (const double beyond :
             {std::nextafter(p.real_min, -HUGE_VAL), std::nextafter(p.real_max, HUGE_VAL)})
            if (beyond < p.real_min || beyond > p.real_max) values.emplace_back(beyond);
    } else if (p.type == MOORAGE_PARAM_FLAG) {
        values.emplace_back(int64_t{2});
    } else {
        values.emplace_back(int64_t{1});
        if (p.plugin_text_choices) values.emplace_back(std::string(p.plugin_text_choices) + "|");
    }
    return values;
}

core::setting_value draw_value(const moorage_param &p, dice &draw) {
    const uint32_t way = draw.below(4);
    switch (p.type) {
        case MOORAGE_PARAM_INTEGER: {
            if (way == 0) return p.integer_min;
            if (way == 1) return p.integer_max;
            if (way == 2) return p.integer_default;
            const uint64_t width =
                static_cast<uint64_t>(p.integer_max) - static_cast<uint64_t>(p.integer_min);
            const uint64_t offset = width == UINT64_MAX ? draw.word() : draw.word() % (width + 1);
            return static_cast<int64_t>(static_cast<uint64_t>(p.integer_min) + offset);
        }
        case MOORAGE_PARAM_REAL: {
            if (way == 0) return p.real_min;
            if (way == 1) return p.real_max;
            if (way == 2) return p.real_default;
            const double share = draw.unit();
            return p.real_min * (1 - share) + p.real_max * share;
        }
        case MOORAGE_PARAM_FLAG:
            return way % 2 == 0;
        default: {
            if (!p.plugin_text_choices) return std::string(way, 'x');
            const auto choices = core::split(p.plugin_text_choices, '|');
            return choices[draw.below(static_cast<uint32_t>(choices.size()))];
        }
    }
}

// Calls create without the host's checks. It may return any status, but it must return.
verdict create_directly(const test_input &input, world &test_world, const char *name,
                        std::vector<moorage_value> values, bool must_refuse) {
    core::service_host host(test_world.environment(), "policy under test");
    host.random = core::policy_stream(input.seed, input.policy_name);
    moorage_plugin *plugin = nullptr;
    std::optional<core::policy_call> running_call(
        std::in_place, core::owner_of(input.policy_name, "", input.file.string()),
        core::entry_point::create);
    const int32_t code = input.policy->module->create(
        name, &host.table, values.data(), static_cast<uint32_t>(values.size()), &plugin);
    running_call.reset();
    if (code == MOORAGE_OK) {
        if (plugin) plugin->destroy(plugin);
        return must_refuse
                   ? failed(format("create(\"{}\") with {} values succeeds", name, values.size()))
                   : passed();
    }
    if (plugin) return failed("create failed but wrote *out");
    if (host.last_error.empty()) return failed("create failed without a text; call set_error");
    return passed();
}

}  // namespace

verdict params_out_of_range(const test_input &input) {
    world test_world(first_world(input));
    const auto &declared = input.policy->params;
    for (const moorage_param &p : declared)
        for (const core::setting_value &value : refused_values(p))
            if (core::check_parameters("policy", declared, {setting{p.plugin_key, value, "check"}}))
                return failed(
                    format("the host accepts a value of {} beyond its declaration", p.plugin_key));
    if (core::check_parameters("policy", declared, {setting{"no_such_key_x", int64_t{1}, "check"}}))
        return failed("the host accepts an unknown key");
    const auto values = core::check_parameters("policy", declared, input.params);
    const auto typed = core::typed_values(declared, *values);
    auto too_few = typed, too_many = typed;
    if (!too_few.empty()) too_few.pop_back();
    too_many.push_back({sizeof(moorage_value), MOORAGE_PARAM_INTEGER, 0, 0, nullptr});
    if (auto v = create_directly(input, test_world, "no_such_policy", typed, true);
        v.result != outcome::passed)
        return v;
    if (auto v = create_directly(input, test_world, input.policy_name.c_str(), too_many, true);
        v.result != outcome::passed)
        return v;
    if (!typed.empty())
        if (auto v = create_directly(input, test_world, input.policy_name.c_str(), too_few, true);
            v.result != outcome::passed)
            return v;
    return passed();
}

verdict params_fuzz(const test_input &input) {
    if (input.policy->params.empty()) return skipped("it has no parameters");
    dice draw(input.seed * 2 + 5);
    world_options o = first_world(input);
    o.rounds = 4;
    // A plan is a search, and may take its time.
    const int times = input.policy->is("placement") ? 16 : 32;
    for (int i = 0; i < times; ++i) {
        world test_world(o);
        core::settings params = input.params;  // stay as they are
        std::string text;
        for (const moorage_param &p : input.policy->params) {
            if (std::ranges::find(input.params, p.plugin_key, &setting::key) != input.params.end())
                continue;
            params.push_back({p.plugin_key, draw_value(p, draw), "check"});
            std::visit(
                [&](const auto &v) {
                    text += format("{}{} = {}", text.empty() ? "" : ", ", p.plugin_key, v);
                },
                params.back().value);
        }
        auto instance = hosted_actor(*input.policy, params, test_world.environment());
        core::status activated =
            instance ? (*instance)->activate(test_world.limits) : core::status(instance.failure());
        if (!activated && activated.failure().text.ends_with("no text given"))
            return failed(format("refuses {} without a text; call set_error", text));
        if (activated) driver(**instance, test_world, {}).run();
    }
    return passed();
}

}  // namespace moorage::check
