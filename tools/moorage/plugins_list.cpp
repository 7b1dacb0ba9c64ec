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

std::vector<std::string> needs_of(const moorage_descriptor &descriptor) {
    std::vector<std::string> needs;
    if (descriptor.needs & MOORAGE_NEEDS_GATE_SCORES) needs.emplace_back("gate_scores");
    if (descriptor.needs & MOORAGE_NEEDS_WEIGHTS) needs.emplace_back("weights");
    if (descriptor.needs & MOORAGE_NEEDS_PREDICTIONS) needs.emplace_back("predictions");
    if (descriptor.needs & MOORAGE_NEEDS_FUTURE) needs.emplace_back("future");
    if (descriptor.needs & MOORAGE_NEEDS_PER_LAYER) needs.emplace_back("per_layer");
    if (descriptor.needs & MOORAGE_NEEDS_LAYER_BUFFER) needs.emplace_back("layer_buffer");
    if (descriptor.needs & MOORAGE_NEEDS_SERVERS) needs.emplace_back("servers");
    return needs;
}

std::vector<std::string> flags_of(const moorage_descriptor &descriptor) {
    std::vector<std::string> flags;
    if (descriptor.flags & MOORAGE_POLICY_LOSSY) flags.emplace_back("lossy");
    if (descriptor.flags & MOORAGE_POLICY_RANDOMISED) flags.emplace_back("randomised");
    if (descriptor.flags & MOORAGE_POLICY_SEGMENTS) flags.emplace_back("segments");
    return flags;
}

json param_json(const moorage_param &p) {
    json document{{"key", p.plugin_key},
                  {"type", core::type_name(p.type)},
                  {"default", core::json_of(core::default_of(p))}};
    if (p.type == MOORAGE_PARAM_INTEGER)
        document["min"] = p.integer_min, document["max"] = p.integer_max;
    if (p.type == MOORAGE_PARAM_REAL) document["min"] = p.real_min, document["max"] = p.real_max;
    if (p.type == MOORAGE_PARAM_TEXT && p.plugin_text_choices)
        document["choices"] = core::split(p.plugin_text_choices, '|');
    document["help"] = p.plugin_help;
    return document;
}

json policy_json(const policy &loaded_policy, bool whole) {
    json ids = json::array(), params = json::array();
    for (uint32_t i = 0; i < loaded_policy.descriptor->kind_count; ++i)
        ids.push_back(loaded_policy.descriptor->plugin_kinds[i]);
    json document{{"name", loaded_policy.name()},
                  {"kinds", ids},
                  {"version", loaded_policy.descriptor->plugin_version},
                  {"summary", loaded_policy.descriptor->plugin_summary},
                  {"file", loaded_policy.path.string()}};
    if (!whole) return document;
    for (size_t i = 0; i < loaded_policy.params.size(); ++i) {
        params.push_back(param_json(loaded_policy.params[i]));
        if (loaded_policy.descriptor->method_params >> i & 1) params.back()["of_method"] = true;
    }
    document["source"] = loaded_policy.descriptor->plugin_source;
    document["needs"] = needs_of(*loaded_policy.descriptor);
    document["flags"] = flags_of(*loaded_policy.descriptor);
    document["module"] = {
        {"id", loaded_policy.module->plugin_id},
        {"version", loaded_policy.module->plugin_version},
        {"abi", format("{}.{}", loaded_policy.module->abi_major, loaded_policy.module->abi_minor)}};
    document["parameters"] = params;
    // null: it needs more than its defaults to make an instance
    document["calls"] = nullptr;
    if (const auto calls = core::list_calls(loaded_policy)) {
        document["calls"] = json::array();
        for (const core::kind_calls &kind : *calls)
            document["calls"].push_back(
                {{"kind", kind.kind}, {"found", kind.found}, {"absent", kind.absent}});
    }
    return document;
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

void print_policy(const policy &loaded_policy) {
    const moorage_descriptor &d = *loaded_policy.descriptor;
    const auto joined = [](const std::vector<std::string> &words) {
        return words.empty() ? std::string("nothing") : format("{}", fmt::join(words, ", "));
    };
    std::string text = format("{} {}, {} policy\n", loaded_policy.name(), d.plugin_version,
                              kinds_of(loaded_policy));
    text += wrapped(d.plugin_summary, 2);
    if (*d.plugin_source) text += wrapped(format("source: {}", d.plugin_source), 2);
    text += wrapped(format("needs: {}", joined(needs_of(d))), 2);
    if (!flags_of(d).empty()) text += wrapped(format("it is: {}", joined(flags_of(d))), 2);
    text += wrapped(format("library: {} {}, abi {}.{}", loaded_policy.module->plugin_id,
                           loaded_policy.module->plugin_version, loaded_policy.module->abi_major,
                           loaded_policy.module->abi_minor),
                    2);
    text += format("  file: {}\n", loaded_policy.path.string());
    const auto calls = core::list_calls(loaded_policy);
    text += wrapped("calls: " + (calls ? core::text_of(*calls) : calls.failure().text), 2);
    text += loaded_policy.params.empty() ? "parameters: none\n" : "parameters:\n";
    for (const moorage_param &p : loaded_policy.params) {
        text += wrapped(format("{}: {}", p.plugin_key, domain_of(p)), 2);
        text += wrapped(p.plugin_help, 6);
    }
    print(text);
}

void print_list(const core::registry &registry) {
    std::string text, shown_kind;
    std::vector<const policy *> order;
    for (const policy &loaded_policy : registry.policies()) order.push_back(&loaded_policy);
    const auto rank = [](const policy *p) {
        return static_cast<size_t>(std::find_if(std::begin(core::kinds), std::end(core::kinds),
                                                [&](auto kind) { return p->is(kind); }) -
                                   std::begin(core::kinds));
    };
    std::sort(order.begin(), order.end(), [&](const policy *a, const policy *b) {
        return std::pair(rank(a), a->name()) < std::pair(rank(b), b->name());
    });
    for (const policy *loaded_policy : order) {
        const std::string kind = kinds_of(*loaded_policy);
        if (kind != shown_kind) text += kind + "\n";
        shown_kind = kind;
        text += format("  {} {}  ({})\n", loaded_policy->name(),
                       loaded_policy->descriptor->plugin_version,
                       loaded_policy->path.filename().string());
        text += wrapped(loaded_policy->descriptor->plugin_summary, 6);
    }
    if (order.empty()) text += "no policy was found; set MOORAGE_PLUGIN_PATH or give --plugins\n";
    if (!registry.refusals().empty()) text += "refused\n";
    for (const core::refusal &refusal : registry.refusals()) {
        text += format("  {}\n", refusal.path.string());
        text += wrapped(refusal.reason, 6);
    }
    print(text);
}

}  // namespace

std::string kinds_of(const policy &loaded_policy) {
    std::string text;
    for (const std::string_view kind : core::kinds)
        if (loaded_policy.is(kind)) text.append(text.empty() ? "" : ", ").append(kind);
    return text;
}

std::string wrapped(const std::string &text, size_t indent, size_t width) {
    std::string lines, line;
    const std::string margin(indent, ' ');
    for (const std::string &word : core::split(text, ' ')) {
        if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
            lines.append(margin).append(line).append("\n");
            line.clear();
        }
        line.append(line.empty() ? "" : " ").append(word);
    }
    return lines.append(margin).append(line).append("\n");
}

core::result<core::registry> open_registry(const std::vector<std::filesystem::path> &paths) {
    core::registry registry;
    if (auto found = registry.scan(core::registry::default_paths()); !found) return found.failure();
    if (auto found = registry.scan(paths); !found) return found.failure();
    return registry;
}

core::result<core::registry> open_registry(const setting_options &settings,
                                           std::string_view command) {
    constexpr std::string_view used[] = {"plugins.path"};
    const auto config = read_alone(settings, command, used);
    if (!config) return config.failure();
    return open_registry(config->plugin_paths);
}

int plugins_list(const plugins_list_options &options) {
    core::set_log_level(core::log_level::error);  // refusals are part of the list itself
    const auto registry = open_registry(options.settings, "plugins list");
    if (!registry) return fail(registry.failure());
    if (options.json.empty()) {
        print_list(*registry);
        return exit_ok;
    }
    json policies = json::array(), refused = json::array();
    for (const policy &loaded_policy : registry->policies())
        policies.push_back(policy_json(loaded_policy, false));
    for (const core::refusal &refusal : registry->refusals())
        refused.push_back({{"file", refusal.path.string()}, {"reason", refusal.reason}});
    const auto written = write_json(options.json, {{"policies", policies}, {"refused", refused}});
    return written ? exit_ok : fail(written.failure());
}

int plugins_describe(const plugins_describe_options &options) {
    const auto registry = open_registry(options.settings, "plugins describe");
    if (!registry) return fail(registry.failure());
    std::vector<std::string> names;
    json found = json::array();
    for (const policy &loaded_policy : registry->policies()) {
        names.emplace_back(loaded_policy.name());
        if (loaded_policy.name() != options.name) continue;
        if (options.json.empty()) print_policy(loaded_policy);
        found.push_back(policy_json(loaded_policy, true));
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
