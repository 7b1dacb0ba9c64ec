// settings.cpp - flags that stand for keys, and --set in commands without a configuration.
#include "tools/moorage/settings.h"

#include <algorithm>
#include <set>

#include "core/base/json_fwd.h"
#include "core/base/text.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

// A flag has the same meaning in every command.
struct flag_key {
    std::string_view flag, section, key, type, help;
    std::vector<std::string> setting_options::*values;
    bool is_list = false;  // all given values count; otherwise the last
};
constexpr flag_key flag_keys[] = {
    {"--seed", "run", "seed", "N", "random seed of the run", &setting_options::seed},
    {"--plugins", "plugins", "path", "PATH",
     "further policy library, or a folder of them without subfolders; repeatable",
     &setting_options::plugins, /*is_list=*/true},
    {"--tokens", "run", "tokens", "N", "use only this many first tokens; 0: all",
     &setting_options::tokens},
    {"--threads", "run", "threads", "N",
     "threads for arithmetic on the CPU; 0: one for each usable processor",
     &setting_options::threads},
    {"--on-fault", "plugins", "on_fault", "abort|replace",
     "after wrong advice of a policy: abort ends the run, replace counts it and goes on",
     &setting_options::on_fault},
    {"--guard", "plugins", "guard", "off|default|full", "how closely policies are watched",
     &setting_options::guard},
    {"--call-limit-ms", "plugins", "call_limit_ms", "MS",
     "time limit of a policy call; 0: no limit", &setting_options::call_limit},
    {"--executor", "run", "executor", "NAME",
     "cpu, cuda or emulator; default: the configuration's, or cpu", &setting_options::executor},
    {"--max-tokens", "source", "max_tokens", "N",
     "largest number of new tokens per prompt; default 128", &setting_options::max_tokens},
    {"--temperature", "source", "temperature", "T",
     "0: always the most probable token; above 0: tokens are drawn with [run] seed",
     &setting_options::temperature},
    {"--top-k", "source", "top_k", "N", "draw from this many of the most probable tokens; 0: all",
     &setting_options::top_k},
    {"--top-p", "source", "top_p", "P",
     "draw from the most probable tokens with this total probability; 1: all",
     &setting_options::top_p},
    {"--min-p", "source", "min_p", "P",
     "draw from tokens with at least this share of the largest probability; 0: all",
     &setting_options::min_p},
    {"--repetition-penalty", "source", "repetition_penalty", "R",
     "factor that lowers the logit of a token that is already present; 1: no effect",
     &setting_options::repetition_penalty},
    {"--presence-penalty", "source", "presence_penalty", "A",
     "amount subtracted from the logit of a token that is already present",
     &setting_options::presence_penalty},
    {"--frequency-penalty", "source", "frequency_penalty", "A",
     "amount subtracted from a token's logit for each time that it is present",
     &setting_options::frequency_penalty},
    {"--penalty-window", "source", "penalty_window", "N",
     "number of last tokens that penalties look at; 0: all", &setting_options::penalty_window},
    {"--stop", "source", "stop", "TEXT",
     "end the text before this one, or at the special token of this name; repeatable",
     &setting_options::stop, /*is_list=*/true},
    {"--stop-id", "source", "stop", "ID", "end the text at the token of this id; repeatable",
     &setting_options::stop_id, /*is_list=*/true},
};

// Several values become a TOML list, since the last --set of a key would replace the earlier ones.
std::string list_of(const std::vector<std::string> &values, bool quoted) {
    std::string list;
    for (const std::string &value : values)
        list += (list.empty() ? "" : ", ") + (quoted ? json_quoted(value) : value);
    return list;
}
std::string value_of(const flag_key &row, const std::vector<std::string> &values) {
    if (!row.is_list) return values.back();
    if (values.size() == 1) return values[0];
    return format("[{}]", list_of(values, true));
}

// --stop and --stop-id are one list.
status add_stops(const setting_options &options, std::vector<override_value> &overrides) {
    if (options.stop.empty() && options.stop_id.empty()) return success();
    for (const std::string &id : options.stop_id)
        if (id.empty() || id.find_first_not_of("0123456789") != id.npos)
            return error{format("--stop-id {}: it is no token id, a whole number from 0", id),
                         true};
    std::string list = list_of(options.stop, true);
    if (!list.empty() && !options.stop_id.empty()) list += ", ";
    overrides.push_back({"source", "stop", format("[{}{}]", list, list_of(options.stop_id, false)),
                         options.stop.empty() ? "--stop-id" : "--stop"});
    return success();
}

}  // namespace

std::string setting_options::text() const {
    std::string flags_text;
    for (const flag_key &row : flag_keys)
        for (const std::string &value : this->*row.values)
            flags_text += format(" {} {}", row.flag, value);
    for (const std::string &assignment : set) flags_text += " --set " + assignment;
    return flags_text;
}

void add_set(parser &command, setting_options &options) {
    command
        .add_option("--set", options.set,
                    "set a key of the configuration (moorage help keys); repeatable")
        ->type_name("SECTION.KEY=VALUE")
        ->take_all()
        ->expected(1);
}

option *add_flag_of_key(parser &command, setting_options &options, std::string_view flag,
                        const std::string &help) {
    const flag_key &row = *std::ranges::find(flag_keys, flag, &flag_key::flag);
    return command
        .add_option(std::string(row.flag), options.*row.values,
                    format("{} ([{}] {})", help.empty() ? row.help : help, row.section, row.key))
        ->type_name(std::string(row.type))
        ->take_all()
        ->expected(1);
}

void add_settings(parser &command, setting_options &options) {
    add_set(command, options);
    add_flag_of_key(command, options, "--seed");
    add_flag_of_key(command, options, "--plugins");
}

// A flag counts less than --set (decision 0052), which is told once.
static void warn_unused(const std::vector<override_value> &flags,
                        const std::vector<override_value> &set) {
    static std::set<std::string> reported;
    for (const override_value &flag : flags)
        for (const override_value &key : set) {
            if (flag.section != key.section || flag.key != key.key || flag.value == key.value)
                continue;
            const std::string text = format("{} {} is not used: --set {}.{}={} counts", flag.place,
                                            flag.value, key.section, key.key, key.value);
            if (reported.insert(text).second) print_error("moorage: " + text + "\n");
        }
}

result<std::vector<override_value>> read_settings(const setting_options &options) {
    std::vector<override_value> overrides;
    for (const flag_key &row : flag_keys)
        if (const auto &values = options.*row.values; !values.empty() && row.key != "stop")
            overrides.push_back({std::string(row.section), std::string(row.key),
                                 value_of(row, values), std::string(row.flag)});
    if (const status added = add_stops(options, overrides); !added) return added.failure();
    const auto set = read_overrides(options.set);
    if (!set) return set.failure();
    warn_unused(overrides, *set);
    overrides.insert(overrides.end(), set->begin(), set->end());
    return overrides;
}

result<run_config> read_alone(const setting_options &options, std::string_view command,
                              std::span<const std::string_view> used) {
    const auto overrides = read_settings(options);
    if (!overrides) return overrides.failure();
    // The smallest valid configuration.
    auto config = parse_run_config("[source]\nmodel = \"-\"\n[hardware]\nprofile = \"host\"\n",
                                   "command line", *overrides);
    if (!config) return config;
    for (const override_value &setting : *overrides) {
        const std::string key = format("{}.{}", setting.section, setting.key);
        if (std::ranges::find(used, key) == used.end() &&
            std::ranges::find(used, setting.section) == used.end())
            print_error(format("--set {}: {} has no use for it\n", key, command));
    }
    return config;
}

status read_machine(const setting_options &options, std::string_view command, std::string &executor,
                    uint32_t &threads) {
    constexpr std::string_view used[] = {"run.executor", "run.threads"};
    const auto keys = read_alone(options, command, used);
    if (!keys) return keys.failure();
    threads = keys->threads;
    if (!has_setting(*read_settings(options), used[0])) return success();
    executor = keys->executor;
    if (keys->runs_on().real) return success();
    return error{format("{} computes for real; set run.executor to cpu or cuda", command), true};
}

bool has_setting(const std::vector<override_value> &overrides, std::string_view key) {
    return std::ranges::any_of(overrides, [&](const override_value &setting) {
        return setting.section + "." + setting.key == key;
    });
}

option *add_json(parser &command, std::string &file, const std::string &contents) {
    return command
        .add_option("--json", file, format("write {} as JSON; -: standard output", contents))
        ->type_name("FILE");
}

}  // namespace moorage::tool
