// plugins_list.cpp - `plugins list` and `plugins describe`, as text of 80 columns and as JSON.
#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/call_list.h"
#include "core/host/parameters.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/plugins.h"

namespace moorage::tool {

namespace {

using core::format;
using core::json;
using core::policy;

std::vector<std::string> needs_of(const moorage_descriptor &of) {
    std::vector<std::string> needs;
    if (of.needs & MOORAGE_NEEDS_GATE_SCORES) needs.emplace_back("gate_scores");
    if (of.needs & MOORAGE_NEEDS_WEIGHTS) needs.emplace_back("weights");
    if (of.needs & MOORAGE_NEEDS_PREDICTIONS) needs.emplace_back("predictions");
    if (of.needs & MOORAGE_NEEDS_FUTURE) needs.emplace_back("future");
    if (of.needs & MOORAGE_NEEDS_PER_LAYER) needs.emplace_back("per_layer");
    if (of.needs & MOORAGE_NEEDS_LAYER_BUFFER) needs.emplace_back("layer_buffer");
    if (of.needs & MOORAGE_NEEDS_SERVERS) needs.emplace_back("servers");
    return needs;
}

std::vector<std::string> flags_of(const moorage_descriptor &of) {
    std::vector<std::string> flags;
    if (of.flags & MOORAGE_POLICY_LOSSY) flags.emplace_back("lossy");
    if (of.flags & MOORAGE_POLICY_RANDOMISED) flags.emplace_back("randomised");
    if (of.flags & MOORAGE_POLICY_SEGMENTS) flags.emplace_back("segments");
    return flags;
}

json param_json(const moorage_param &p) {
    json out{{"key", p.plugin_key},
             {"type", core::type_name(p.type)},
             {"default", core::json_of(core::default_of(p))}};
    if (p.type == MOORAGE_PARAM_INTEGER) out["min"] = p.integer_min, out["max"] = p.integer_max;
    if (p.type == MOORAGE_PARAM_REAL) out["min"] = p.real_min, out["max"] = p.real_max;
    if (p.type == MOORAGE_PARAM_TEXT && p.plugin_text_choices)
        out["choices"] = core::split(p.plugin_text_choices, '|');
    out["help"] = p.plugin_help;
    return out;
}

json policy_json(const policy &of, bool whole) {
    json ids = json::array(), params = json::array();
    for (uint32_t i = 0; i < of.descriptor->kind_count; ++i)
        ids.push_back(of.descriptor->plugin_kinds[i]);
    json out{{"name", of.name()},
             {"kinds", ids},
             {"version", of.descriptor->plugin_version},
             {"summary", of.descriptor->plugin_summary},
             {"file", of.path.string()}};
    if (!whole) return out;
    for (size_t i = 0; i < of.params.size(); ++i) {
        params.push_back(param_json(of.params[i]));
        if (of.descriptor->method_params >> i & 1) params.back()["of_method"] = true;
    }
    out["source"] = of.descriptor->plugin_source;
    out["needs"] = needs_of(*of.descriptor);
    out["flags"] = flags_of(*of.descriptor);
    out["module"] = {{"id", of.module->plugin_id},
                     {"version", of.module->plugin_version},
                     {"abi", format("{}.{}", of.module->abi_major, of.module->abi_minor)}};
    out["parameters"] = params;
    // null: it needs more than its defaults to make an instance
    out["calls"] = nullptr;
    if (const auto calls = core::list_calls(of)) {
        out["calls"] = json::array();
        for (const core::kind_calls &one : *calls)
            out["calls"].push_back(
                {{"kind", one.kind}, {"found", one.found}, {"absent", one.absent}});
    }
    return out;
}

std::string domain_of(const moorage_param &p) {
    const std::string type = core::type_name(p.type);
    switch (p.type) {
        case MOORAGE_PARAM_INTEGER:
            return format("{}, default {}, {} .. {}", type, p.integer_default, p.integer_min,
                          p.integer_max);
        case MOORAGE_PARAM_REAL:
            return format("{}, default {}, {} .. {}", type, p.real_default, p.real_min, p.real_max);
        case MOORAGE_PARAM_FLAG:
            return format("{}, default {}", type, p.integer_default != 0);
        default:
            return format(
                "{}, default \"{}\"{}", type, p.plugin_text_default,
                p.plugin_text_choices ? format(", one of {}", p.plugin_text_choices) : "");
    }
}

void print_policy(const policy &of) {
    const moorage_descriptor &d = *of.descriptor;
    const auto joined = [](const std::vector<std::string> &words) {
        return words.empty() ? std::string("nothing") : format("{}", fmt::join(words, ", "));
    };
    std::string text = format("{} {}, {} policy\n", of.name(), d.plugin_version, kinds_of(of));
    text += wrapped(d.plugin_summary, 2);
    if (*d.plugin_source) text += wrapped(format("source: {}", d.plugin_source), 2);
    text += wrapped(format("needs: {}", joined(needs_of(d))), 2);
    if (!flags_of(d).empty()) text += wrapped(format("it is: {}", joined(flags_of(d))), 2);
    text += wrapped(format("library: {} {}, abi {}.{}", of.module->plugin_id,
                           of.module->plugin_version, of.module->abi_major, of.module->abi_minor),
                    2);
    text += format("  file: {}\n", of.path.string());
    const auto calls = core::list_calls(of);
    text += wrapped("calls: " + (calls ? core::text_of(*calls) : calls.failure().text), 2);
    text += of.params.empty() ? "parameters: none\n" : "parameters:\n";
    for (const moorage_param &p : of.params) {
        text += wrapped(format("{}: {}", p.plugin_key, domain_of(p)), 2);
        text += wrapped(p.plugin_help, 6);
    }
    print(text);
}

void print_list(const core::registry &all) {
    std::string text, shown_kind;
    std::vector<const policy *> order;
    for (const policy &one : all.policies()) order.push_back(&one);
    const auto rank = [](const policy *p) {
        return static_cast<size_t>(std::find_if(std::begin(core::kinds), std::end(core::kinds),
                                                [&](auto kind) { return p->is(kind); }) -
                                   std::begin(core::kinds));
    };
    std::sort(order.begin(), order.end(), [&](const policy *a, const policy *b) {
        return std::pair(rank(a), a->name()) < std::pair(rank(b), b->name());
    });
    for (const policy *one : order) {
        const std::string kind = kinds_of(*one);
        if (kind != shown_kind) text += kind + "\n";
        shown_kind = kind;
        text += format("  {} {}  ({})\n", one->name(), one->descriptor->plugin_version,
                       one->path.filename().string());
        text += wrapped(one->descriptor->plugin_summary, 6);
    }
    if (order.empty()) text += "no policy was found; set MOORAGE_PLUGIN_PATH or give --plugins\n";
    if (!all.refusals().empty()) text += "refused\n";
    for (const core::refusal &one : all.refusals()) {
        text += format("  {}\n", one.path.string());
        text += wrapped(one.reason, 6);
    }
    print(text);
}

}  // namespace

std::string kinds_of(const policy &of) {
    std::string text;
    for (const std::string_view kind : core::kinds)
        if (of.is(kind)) text.append(text.empty() ? "" : ", ").append(kind);
    return text;
}

std::string wrapped(const std::string &text, size_t indent, size_t width) {
    std::string out, line;
    const std::string margin(indent, ' ');
    for (const std::string &word : core::split(text, ' ')) {
        if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
            out.append(margin).append(line).append("\n");
            line.clear();
        }
        line.append(line.empty() ? "" : " ").append(word);
    }
    return out.append(margin).append(line).append("\n");
}

core::result<core::registry> open_registry(const std::vector<std::filesystem::path> &paths) {
    core::registry all;
    if (auto found = all.scan(core::registry::default_paths()); !found) return found.failure();
    if (auto found = all.scan(paths); !found) return found.failure();
    return all;
}

core::result<core::registry> open_registry(const setting_options &of, std::string_view command) {
    constexpr std::string_view used[] = {"plugins.path"};
    const auto config = read_alone(of, command, used);
    if (!config) return config.failure();
    return open_registry(config->plugin_paths);
}

int plugins_list(const plugins_list_options &options) {
    core::set_log_level(core::log_level::error);  // refusals are part of the list itself
    const auto all = open_registry(options.settings, "plugins list");
    if (!all) return fail(all.failure());
    if (options.json.empty()) {
        print_list(*all);
        return exit_ok;
    }
    json policies = json::array(), refused = json::array();
    for (const policy &one : all->policies()) policies.push_back(policy_json(one, false));
    for (const core::refusal &one : all->refusals())
        refused.push_back({{"file", one.path.string()}, {"reason", one.reason}});
    const auto written = write_json(options.json, {{"policies", policies}, {"refused", refused}});
    return written ? exit_ok : fail(written.failure());
}

int plugins_describe(const plugins_describe_options &options) {
    const auto all = open_registry(options.settings, "plugins describe");
    if (!all) return fail(all.failure());
    std::vector<std::string> names;
    json found = json::array();
    for (const policy &one : all->policies()) {
        names.emplace_back(one.name());
        if (one.name() != options.name) continue;
        if (options.json.empty()) print_policy(one);
        found.push_back(policy_json(one, true));
    }
    if (!found.empty()) {
        // Policies of different kinds may share a name. Then this is a list.
        if (options.json.empty()) return exit_ok;
        const auto written = write_json(options.json, found.size() == 1 ? found[0] : found);
        return written ? exit_ok : fail(written.failure());
    }
    return fail({format("no policy {}{}; see: moorage plugins list", options.name,
                        core::did_you_mean(options.name, names)),
                 true});
}

}  // namespace moorage::tool
