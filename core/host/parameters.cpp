// parameters.cpp - reports unknown keys, wrong types and values out of range with place and remedy.
#include "core/host/parameters.h"

#include <algorithm>
#include <cmath>

#include "core/base/quantity.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

const char *name_of(const setting_value &value) {
    static constexpr const char *names[] = {"flag", "integer", "real", "text"};
    return names[value.index()];
}

// The number of a text such as "4 MiB" for chunk_bytes. The parameter's name gives the unit.
result<setting_value> without_unit(const moorage_param &p, const setting_value &value) {
    const std::string *text = std::get_if<std::string>(&value);
    const quantity_unit unit = unit_of_name(p.plugin_key);
    const bool is_number = p.type == MOORAGE_PARAM_INTEGER || p.type == MOORAGE_PARAM_REAL;
    if (!text || !is_number || unit == quantity_unit::none) return value;
    const auto number = parse_quantity(*text, unit);
    if (!number) return error{format("= \"{}\": {}", *text, number.failure().text), true};
    if (p.type == MOORAGE_PARAM_REAL) return setting_value(*number);
    const double whole = std::round(*number);
    // Values above 2^63 are out of every range.
    if (!(std::abs(whole) < 0x1p63)) return error{format("= \"{}\" is too large", *text), true};
    return setting_value(static_cast<int64_t>(whole));
}

// The value in the declared type, or an error that says what is wrong with it.
result<setting_value> converted(const moorage_param &p, const setting_value &written) {
    const auto number = without_unit(p, written);
    if (!number) return number;
    const setting_value &plain = *number;
    const auto wrong_type = [&] {
        return error{format("is of type {}, expected {}", name_of(plain), type_name(p.type))};
    };
    switch (p.type) {
        case MOORAGE_PARAM_FLAG:
            if (!std::holds_alternative<bool>(plain)) return wrong_type();
            return plain;
        case MOORAGE_PARAM_INTEGER: {
            const int64_t *value = std::get_if<int64_t>(&plain);
            if (!value) return wrong_type();
            if (*value >= p.integer_min && *value <= p.integer_max) return plain;
            return error{format("= {} is out of range; allowed: {} .. {}", *value, p.integer_min,
                                p.integer_max)};
        }
        case MOORAGE_PARAM_REAL: {
            double value = 0;
            if (const int64_t *integer = std::get_if<int64_t>(&plain))
                value = static_cast<double>(*integer);
            else if (const double *real = std::get_if<double>(&plain))
                value = *real;
            else
                return wrong_type();
            if (value >= p.real_min && value <= p.real_max)
                return setting_value(value);  // false for NaN
            return error{
                format("= {} is out of range; allowed: {} .. {}", value, p.real_min, p.real_max)};
        }
        default: {
            const std::string *value = std::get_if<std::string>(&plain);
            if (!value) return wrong_type();
            if (value->find('\0') != std::string::npos)
                return error{"holds a zero byte; remove it"};
            if (!p.plugin_text_choices) return plain;
            const auto choices = split(p.plugin_text_choices, '|');
            if (std::find(choices.begin(), choices.end(), *value) != choices.end()) return plain;
            return error{format("= \"{}\" is none of its choices: {}{}", *value,
                                fmt::join(choices, ", "), did_you_mean(*value, choices))};
        }
    }
}

std::string unknown_key(const std::string &owner, std::span<const moorage_param> declared,
                        const setting &wrong) {
    std::vector<std::string> keys;
    for (const moorage_param &p : declared) keys.emplace_back(p.plugin_key);
    const std::string hint = did_you_mean(wrong.key, keys);
    const std::string known_list =
        keys.empty() ? "; it has none" : format("; it has: {}", fmt::join(keys, ", "));
    return format("{}: {} has no parameter {}{}", wrong.place, owner, wrong.key,
                  hint.empty() ? known_list : hint);
}

}  // namespace

const char *type_name(int32_t type) {
    static constexpr const char *names[] = {"unknown", "integer", "real", "flag", "text"};
    return type >= MOORAGE_PARAM_INTEGER && type <= MOORAGE_PARAM_TEXT ? names[type] : names[0];
}

setting_value default_of(const moorage_param &declared) {
    switch (declared.type) {
        case MOORAGE_PARAM_INTEGER:
            return declared.integer_default;
        case MOORAGE_PARAM_REAL:
            return declared.real_default;
        case MOORAGE_PARAM_FLAG:
            return declared.integer_default != 0;
        default:
            return std::string(declared.plugin_text_default);
    }
}

result<parameter_values> check_parameters(const std::string &owner,
                                          std::span<const moorage_param> declared,
                                          const settings &settings) {
    parameter_values values;
    for (const moorage_param &p : declared) values.emplace_back(p.plugin_key, default_of(p));
    for (const setting &setting : settings) {
        const auto found = std::find_if(values.begin(), values.end(),
                                        [&](const auto &v) { return v.first == setting.key; });
        if (found == values.end()) return error{unknown_key(owner, declared, setting), true};
        auto value =
            converted(declared[static_cast<size_t>(found - values.begin())], setting.value);
        if (!value)
            return error{
                format("{}: {}: {} {}", setting.place, owner, setting.key, value.failure().text),
                true};
        found->second = std::move(value).value();
    }
    return values;
}

std::vector<moorage_value> typed_values(std::span<const moorage_param> declared,
                                        const parameter_values &values) {
    std::vector<moorage_value> typed;
    for (size_t i = 0; i < values.size(); ++i) {
        moorage_value v{sizeof(moorage_value), declared[i].type, 0, 0, nullptr};
        const setting_value &value = values[i].second;
        if (const bool *flag = std::get_if<bool>(&value))
            v.integer = *flag ? 1 : 0;
        else if (const int64_t *integer = std::get_if<int64_t>(&value))
            v.integer = *integer;
        else if (const double *real = std::get_if<double>(&value))
            v.real = *real;
        else
            v.host_text = std::get<std::string>(value).c_str();
        typed.push_back(v);
    }
    return typed;
}

}  // namespace moorage::core
