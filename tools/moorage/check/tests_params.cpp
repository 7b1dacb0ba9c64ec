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
verdict create_directly(const subject &of, world &place, const char *name,
                        std::vector<moorage_value> values, bool must_refuse) {
    core::service_host host(place.environment(), "policy under test");
    host.random = core::policy_stream(of.seed, of.policy_name);
    moorage_plugin *out = nullptr;
    std::optional<core::policy_call> at_work(std::in_place,
                                             core::owner_of(of.policy_name, "", of.file.string()),
                                             core::entry_point::create);
    const int32_t code = of.policy->module->create(name, &host.table, values.data(),
                                                   static_cast<uint32_t>(values.size()), &out);
    at_work.reset();
    if (code == MOORAGE_OK) {
        if (out) out->destroy(out);
        return must_refuse
                   ? failed(format("create(\"{}\") with {} values succeeds", name, values.size()))
                   : passed();
    }
    if (out) return failed("create failed but wrote *out");
    if (host.last_error.empty()) return failed("create failed without a text; call set_error");
    return passed();
}

}  // namespace

verdict params_out_of_range(const subject &of) {
    world place(first_world(of));
    const auto &declared = of.policy->params;
    for (const moorage_param &p : declared)
        for (const core::setting_value &value : refused_values(p))
            if (core::check_parameters("policy", declared, {setting{p.plugin_key, value, "check"}}))
                return failed(
                    format("the host accepts a value of {} beyond its declaration", p.plugin_key));
    if (core::check_parameters("policy", declared, {setting{"no_such_key_x", int64_t{1}, "check"}}))
        return failed("the host accepts an unknown key");
    const auto values = core::check_parameters("policy", declared, of.params);
    const auto typed = core::typed_values(declared, *values);
    auto fewer = typed, more = typed;
    if (!fewer.empty()) fewer.pop_back();
    more.push_back({sizeof(moorage_value), MOORAGE_PARAM_INTEGER, 0, 0, nullptr});
    if (auto v = create_directly(of, place, "no_such_policy", typed, true);
        v.result != outcome::passed)
        return v;
    if (auto v = create_directly(of, place, of.policy_name.c_str(), more, true);
        v.result != outcome::passed)
        return v;
    if (!typed.empty())
        if (auto v = create_directly(of, place, of.policy_name.c_str(), fewer, true);
            v.result != outcome::passed)
            return v;
    return passed();
}

verdict params_fuzz(const subject &of) {
    if (of.policy->params.empty()) return skipped("it has no parameters");
    dice draw(of.seed * 2 + 5);
    world_options o = first_world(of);
    o.rounds = 4;
    // A plan is a search, and may take its time.
    const int times = of.policy->is("placement") ? 16 : 32;
    for (int i = 0; i < times; ++i) {
        world place(o);
        core::settings given = of.params;  // stay as they are
        std::string text;
        for (const moorage_param &p : of.policy->params) {
            if (std::ranges::find(of.params, p.plugin_key, &setting::key) != of.params.end())
                continue;
            given.push_back({p.plugin_key, draw_value(p, draw), "check"});
            std::visit(
                [&](const auto &v) {
                    text += format("{}{} = {}", text.empty() ? "" : ", ", p.plugin_key, v);
                },
                given.back().value);
        }
        auto made = hosted_actor(*of.policy, given, place.environment());
        core::status fine = made ? (*made)->activate(place.limits) : core::status(made.failure());
        if (!fine && fine.failure().text.ends_with("no text given"))
            return failed(format("refuses {} without a text; call set_error", text));
        if (fine) driver(**made, place, {}).run();
    }
    return passed();
}

}  // namespace moorage::check
