// settings.cpp - flags that are keys, and what commands without a configuration make of --set.
#include "tools/moorage/settings.h"

#include <algorithm>

#include "core/base/json_fwd.h"
#include "core/base/text.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

// One meaning wherever the flag is.
struct flag_key {
    std::string_view flag, section, key, type, help;
    std::vector<std::string> setting_options::*values;
    bool list = false;  // every one given counts, else the last
};
constexpr flag_key flag_keys[] = {
    {"--seed", "run", "seed", "N", "of everything that is drawn at random", &setting_options::seed},
    {"--plugins", "plugins", "path", "PATH",
     "a further policy library, or a folder of them (not those in it); repeatable",
     &setting_options::plugins, /*list=*/true},
    {"--tokens", "run", "tokens", "N", "only the first ones; 0: all", &setting_options::tokens},
    {"--threads", "run", "threads", "N", "of arithmetic on the CPU; 0: one a core",
     &setting_options::threads},
    {"--on-fault", "plugins", "on_fault", "abort|replace",
     "what wrong advice does: abort ends the run, replace counts it and goes on",
     &setting_options::on_fault},
    {"--guard", "plugins", "guard", "off|default|full", "how closely policies are watched",
     &setting_options::guard},
    {"--call-limit-ms", "plugins", "call_limit_ms", "MS",
     "longest time that a call of a policy may take; 0: any", &setting_options::call_limit},
    {"--executor", "run", "executor", "NAME",
     "cpu, cuda or emulator; default: the configuration's, or cpu", &setting_options::executor},
    {"--max-tokens", "source", "max_tokens", "N", "new tokens of each prompt; default 128",
     &setting_options::max_tokens},
    {"--temperature", "source", "temperature", "T",
     "0: always the most probable token (default); higher: drawn, by [run] seed",
     &setting_options::temperature},
    {"--top-p", "source", "top_p", "P", "draw from the most probable tokens with this mass",
     &setting_options::top_p},
};

// As TOML where there are several: the last --set of a key would replace those before.
std::string value_of(const std::vector<std::string> &values) {
    if (values.size() == 1) return values[0];
    std::string list;
    for (const std::string &one : values) list += (list.empty() ? "" : ", ") + json_quoted(one);
    return format("[{}]", list);
}

}  // namespace

std::string setting_options::text() const {
    std::string all;
    for (const flag_key &one : flag_keys)
        for (const std::string &value : this->*one.values) all += format(" {} {}", one.flag, value);
    for (const std::string &one : set) all += " --set " + one;
    return all;
}

void add_set(parser &to, setting_options &of) {
    to.add_option("--set", of.set, "a key of a configuration (moorage help keys); repeatable")
        ->type_name("SECTION.KEY=VALUE")
        ->take_all()
        ->expected(1);
}

option *add_flag_of_key(parser &to, setting_options &of, std::string_view flag,
                        const std::string &help) {
    const flag_key &at = *std::ranges::find(flag_keys, flag, &flag_key::flag);
    return to
        .add_option(std::string(at.flag), of.*at.values,
                    format("{} ([{}] {})", help.empty() ? at.help : help, at.section, at.key))
        ->type_name(std::string(at.type))
        ->take_all()
        ->expected(1);
}

void add_settings(parser &to, setting_options &of) {
    add_set(to, of);
    add_flag_of_key(to, of, "--seed");
    add_flag_of_key(to, of, "--plugins");
}

result<std::vector<override_value>> read_settings(const setting_options &of) {
    std::vector<override_value> all;
    for (const flag_key &one : flag_keys)
        if (const auto &values = of.*one.values; !values.empty())
            all.push_back({std::string(one.section), std::string(one.key),
                           one.list ? value_of(values) : values.back(),
                           std::string(one.flag)});
    const auto set = read_overrides(of.set);
    if (!set) return set.failure();
    all.insert(all.end(), set->begin(), set->end());
    return all;
}

result<run_config> read_alone(const setting_options &of, std::string_view command,
                              std::span<const std::string_view> used) {
    const auto all = read_settings(of);
    if (!all) return all.failure();
    // The least that a configuration has.
    auto config = parse_run_config("[source]\nmodel = \"-\"\n[hardware]\nprofile = \"host\"\n",
                                   "command line", *all);
    if (!config) return config;
    for (const override_value &one : *all) {
        const std::string key = format("{}.{}", one.section, one.key);
        if (std::ranges::find(used, key) == used.end() &&
            std::ranges::find(used, one.section) == used.end())
            print_error(format("--set {}: {} has no use for it\n", key, command));
    }
    return config;
}

status read_machine(const setting_options &of, std::string_view command, std::string &executor,
                    uint32_t &threads) {
    constexpr std::string_view used[] = {"run.executor", "run.threads"};
    const auto keys = read_alone(of, command, used);
    if (!keys) return keys.failure();
    threads = keys->threads;
    if (!gives(*read_settings(of), used[0])) return success();
    executor = keys->executor;
    if (keys->runs_on().real) return success();
    return error{format("{} computes for real; set run.executor to cpu or cuda", command), true};
}

bool gives(const std::vector<override_value> &all, std::string_view key) {
    return std::ranges::any_of(
        all, [&](const override_value &one) { return one.section + "." + one.key == key; });
}

option *add_json(parser &to, std::string &file, const std::string &what) {
    return to.add_option("--json", file, format("write {} as JSON; - for standard output", what))
        ->type_name("FILE");
}

}  // namespace moorage::tool
