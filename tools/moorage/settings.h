// settings.h - keys of a configuration on the command line: --set in every command, and the flags
// that stand for a key wherever they are.
//
//     add_settings(*sub, given->settings);                       // --set, --seed, --plugins
//     auto config = load_run_config(file, *read_settings(given->settings));
//
// `--seed 3` is `--set run.seed=3`: the same bounds, the same errors. Where both are given, --set
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
    // By the list below, what each was given.
    std::vector<std::string> seed, plugins, tokens, on_fault, guard, call_limit, threads, executor,
        max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty,
        frequency_penalty, penalty_window, stop, stop_id;

    // As it was written, for pages: " --seed 3 --set cache.plugin=lru".
    std::string text() const;
};

// --set, --seed and --plugins: of commands that read a configuration.
void add_settings(parser &to, setting_options &of);
// Each alone; null help: the usual one. The flag is one of those of `flag_keys`.
void add_set(parser &to, setting_options &of);
option *add_flag_of_key(parser &to, setting_options &of, std::string_view flag,
                        const std::string &help = {});

// Flags, then --set.
core::result<std::vector<core::override_value>> read_settings(const setting_options &of);

// Of a command that reads no configuration: what is given, checked as in one that has nothing else,
// and its bounds kept. Keys that the command has no use for are named on standard error; `used`
// are keys ("run.seed"), or sections ("cache").
core::result<core::run_config> read_alone(const setting_options &of, std::string_view command,
                                          std::span<const std::string_view> used);
// Of such a command that has --executor and --threads: what the keys say instead.
core::status read_machine(const setting_options &of, std::string_view command,
                          std::string &executor, uint32_t &threads);
// Whether a value of the key is given.
bool gives(const std::vector<core::override_value> &all, std::string_view key);

// Figures as JSON: "write WHAT as JSON; - for standard output".
option *add_json(parser &to, std::string &file, const std::string &what);

}  // namespace moorage::tool
