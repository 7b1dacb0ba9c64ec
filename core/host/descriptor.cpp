// descriptor.cpp - checks descriptors and parameter declarations.
#include "core/host/descriptor.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/text.h"
#include "core/host/library.h"
#include "core/host/registry.h"

namespace moorage::core {

namespace {

constexpr uint32_t kinds_max = 16, params_max = 256;
constexpr size_t name_max = 100;
// The host's keys in the section of a policy's parameters.
constexpr std::string_view stage_keys[] = {"plugin", "library"};

bool is_kind_id(std::string_view id) {
    const size_t slash = id.rfind('/');
    if (slash == std::string_view::npos || slash == 0 || slash + 1 == id.size()) return false;
    const std::string_view revision = id.substr(slash + 1);
    return id.find('.') < slash &&
           revision.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string limits_of(const moorage_param &p) {
    const bool real = p.type == MOORAGE_PARAM_REAL;
    return real ? format("{} .. {}", p.real_min, p.real_max)
                : format("{} .. {}", p.integer_min, p.integer_max);
}

// "" if the declaration is valid.
std::string fault_of(const moorage_param &p) {
    if (p.type < MOORAGE_PARAM_INTEGER || p.type > MOORAGE_PARAM_TEXT)
        return format("has type {}, expected 1 .. 4 (integer, real, flag, text)", p.type);
    if (!p.plugin_help) return "has no help text; give it one line";
    if (p.type == MOORAGE_PARAM_TEXT) {
        if (!p.plugin_text_default) return "is a text without a default";
        if (!p.plugin_text_choices) return "";
        const auto choices = split(p.plugin_text_choices, '|');
        const bool known =
            std::find(choices.begin(), choices.end(), p.plugin_text_default) != choices.end();
        return known ? ""
                     : format("has default {}, which is none of its choices {}",
                              p.plugin_text_default, p.plugin_text_choices);
    }
    if (p.type == MOORAGE_PARAM_REAL) {
        // This form refuses NaN in any of the three.
        if (p.real_min <= p.real_default && p.real_default <= p.real_max) return "";
        return format("has default {}, outside its limits {}", p.real_default, limits_of(p));
    }
    if (p.type == MOORAGE_PARAM_FLAG && (p.integer_min != 0 || p.integer_max != 1))
        return format("is a flag with limits {}, expected 0 .. 1", limits_of(p));
    if (p.integer_min <= p.integer_default && p.integer_default <= p.integer_max) return "";
    return format("has default {}, outside its limits {}", p.integer_default, limits_of(p));
}

result<std::vector<moorage_param>> read_params(const moorage_descriptor &descriptor) {
    std::vector<moorage_param> params;
    if (descriptor.param_count == 0) return params;
    if (descriptor.param_count > params_max)
        return error{format("policy {} declares {} parameters; at most {} are allowed",
                            descriptor.plugin_name, descriptor.param_count, params_max)};
    if (!descriptor.plugin_params)
        return error{
            format("policy {} declares {} parameters, but their table is null; set plugin_params",
                   descriptor.plugin_name, descriptor.param_count)};
    const uint32_t stride = descriptor.plugin_params[0].size;
    if (stride < param_size_min || stride > record_size_max || stride % 8 != 0)
        return error{
            format("policy {}: its parameters are {} bytes each, expected at least {}; set size",
                   descriptor.plugin_name, stride, param_size_min)};
    const char *record = reinterpret_cast<const char *>(descriptor.plugin_params);
    std::set<std::string_view> keys;
    for (uint32_t i = 0; i < descriptor.param_count; ++i, record += stride) {
        const moorage_param p = completed<moorage_param>(record);
        if (!p.plugin_key || !is_snake_case(p.plugin_key))
            return error{format("policy {}: the key of parameter {} is not snake_case; rename it",
                                descriptor.plugin_name, i)};
        for (const std::string_view stage_key : stage_keys)
            if (stage_key == p.plugin_key)
                return error{
                    format("policy {}: parameter {} could not be set, as {} beside it in "
                           "the configuration names the policy; rename it",
                           descriptor.plugin_name, stage_key, stage_key)};
        if (!keys.insert(p.plugin_key).second)
            return error{format("policy {}: parameter {} is declared twice; remove one",
                                descriptor.plugin_name, p.plugin_key)};
        if (const std::string fault = fault_of(p); !fault.empty())
            return error{
                format("policy {}: parameter {} {}", descriptor.plugin_name, p.plugin_key, fault)};
        params.push_back(p);
    }
    return params;
}

status check_kinds(const moorage_descriptor &descriptor) {
    if (descriptor.kind_count == 0 || descriptor.kind_count > kinds_max || !descriptor.plugin_kinds)
        return error{
            format("policy {} names {} kinds, expected 1 .. {}; set plugin_kinds and kind_count",
                   descriptor.plugin_name, descriptor.kind_count, kinds_max)};
    bool known = false;
    std::set<std::string_view> seen;
    for (uint32_t i = 0; i < descriptor.kind_count; ++i) {
        const char *id = descriptor.plugin_kinds[i];
        if (!id || !is_kind_id(id))
            return error{format("policy {}: kind {} is not an interface id such as {}",
                                descriptor.plugin_name, id ? id : "(null)", interface_id("cache"))};
        if (!seen.insert(id).second)
            return error{format("policy {} names kind {} twice", descriptor.plugin_name, id)};
        for (const std::string_view kind : kinds) known = known || interface_id(kind) == id;
    }
    if (known) return success();
    return error{
        format("policy {}: none of its kinds is known to this host (first: {}); "
               "use a newer moorage or an older sdk",
               descriptor.plugin_name, descriptor.plugin_kinds[0])};
}

}  // namespace

bool is_snake_case(std::string_view word) {
    const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
    if (word.empty() || !lower(word[0]) || word.back() == '_') return false;
    return std::all_of(word.begin(), word.end(),
                       [&](char c) { return lower(c) || (c >= '0' && c <= '9') || c == '_'; });
}

std::string policy_name_problem(std::string_view name) {
    if (!is_snake_case(name))
        return "expected snake_case: lower case letters, digits and _, beginning with a letter";
    if (name.size() > name_max)
        return format("{} letters are too many, {} the most", name.size(), name_max);
    if (name == "all") return "on the command line it means every policy";
    if (name == "host") return "[cache.host] is the cache of host memory";
    return "";
}

result<description> read_descriptor(const moorage_descriptor *record) {
    if (!record)
        return error{"is null; descriptor(index) must answer for every index below the count"};
    if (record->size < descriptor_size_min || record->size > record_size_max)
        return error{
            format("has size {}, expected {} or more; set size to sizeof(moorage_descriptor)",
                   record->size, descriptor_size_min)};
    description checked{completed<moorage_descriptor>(record), {}};
    moorage_descriptor &d = checked.descriptor;
    if (!d.plugin_name) return error{"has no name; set plugin_name"};
    if (const std::string reason = policy_name_problem(d.plugin_name); !reason.empty())
        return error{format("has the name {}: {}", d.plugin_name, reason)};
    if (!d.plugin_version || !*d.plugin_version)
        return error{format("policy {} has no version; set plugin_version", d.plugin_name)};
    if (!d.plugin_summary || !*d.plugin_summary)
        return error{format("policy {} has no summary; set plugin_summary", d.plugin_name)};
    if (!d.plugin_source) d.plugin_source = "";
    if (auto kinds_sound = check_kinds(d); !kinds_sound) return kinds_sound.failure();
    auto params = read_params(d);
    if (!params) return params.failure();
    checked.params = std::move(params).value();
    return checked;
}

}  // namespace moorage::core
