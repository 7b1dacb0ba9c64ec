// settings.h - keys of a configuration on the command line: --set in every command, and flags that
// stand for keys.
//
//     add_settings(*sub, arguments->settings);                   // --set, --seed, --plugins
//     auto config = load_run_config(file, *read_settings(arguments->settings));
//
// `--seed 3` is `--set run.seed=3`: the same bounds, the same errors. If both are given, --set
// counts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "tools/moorage/parser.h"

namespace moorage::tool {

struct setting_options {
    std::vector<std::string> set;
    // The values given to each flag; see the list below.
    std::vector<std::string> seed, plugins, tokens, on_fault, guard, call_limit, threads, executor,
        max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty,
        frequency_penalty, penalty_window, stop, stop_id;

    // The options as they were written, for pages: " --seed 3 --set cache.plugin=lru".
    std::string text() const;
};

// Adds --set, --seed and --plugins to a command that reads a configuration.
void add_settings(parser &command, setting_options &options);
// Adds one of them. Empty help: the usual text. `flag` is one of `flag_keys`.
void add_set(parser &command, setting_options &options);
option *add_flag_of_key(parser &command, setting_options &options, std::string_view flag,
                        const std::string &help = {});

// Flags, then --set.
core::result<std::vector<core::override_value>> read_settings(const setting_options &options);

// Reads the settings of a command without a configuration file. They are checked as in a file that
// has nothing else, with the same bounds. Keys that the command has no use for are named on
// standard error. `used`: keys ("run.seed") or sections ("cache").
core::result<core::run_config> read_alone(const setting_options &options, std::string_view command,
                                          std::span<const std::string_view> used);
// For such a command with --executor and --threads: replaces both by the values of the keys.
core::status read_machine(const setting_options &options, std::string_view command,
                          std::string &executor, uint32_t &threads);
// Whether `overrides` has a value for the key.
bool has_setting(const std::vector<core::override_value> &overrides, std::string_view key);

// Figures as JSON: "write WHAT as JSON; - for standard output".
option *add_json(parser &command, std::string &file, const std::string &contents);

}  // namespace moorage::tool
