// plugins_check.cpp - `plugins check`: runs the conformance kit and prints its findings.
#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/kinds.h"
#include "tools/moorage/check/check.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/plugins.h"
#include "tools/moorage/setting_text.h"

namespace moorage::tool {

using check::outcome;
using core::format;
using core::json;

namespace {

constexpr outcome all_outcomes[] = {outcome::passed, outcome::failed, outcome::warning,
                                    outcome::skipped, outcome::crashed};

size_t count_of(const std::vector<check::test_result> &results, outcome kind,
                const std::string *policy = nullptr) {
    return static_cast<size_t>(
        std::count_if(results.begin(), results.end(), [&](const check::test_result &r) {
            return r.test_verdict.result == kind && (!policy || r.policy == *policy);
        }));
}

bool has_kept_rules(const std::vector<check::test_result> &results) {
    return count_of(results, outcome::failed) == 0 && count_of(results, outcome::crashed) == 0;
}

json to_json(const plugins_check_options &options, const std::vector<check::test_result> &results) {
    json tests = json::array(), counts;
    for (const check::test_result &r : results)
        tests.push_back({{"policy", r.policy},
                         {"test", r.name},
                         {"outcome", check::name_of(r.test_verdict.result)},
                         {"text", r.test_verdict.text},
                         {"seconds", r.seconds}});
    for (const outcome kind : all_outcomes) counts[check::name_of(kind)] = count_of(results, kind);
    return {
        {"file", options.file.string()},   {"seed", options.seed}, {"timeout_s", options.timeout_s},
        {"pass", has_kept_rules(results)}, {"counts", counts},     {"tests", tests}};
}

std::string summary(const std::vector<check::test_result> &results, const std::string *policy) {
    std::string text;
    for (const outcome kind : all_outcomes)
        if (const size_t count = count_of(results, kind, policy); count > 0)
            text += format("{}{} {}", text.empty() ? "" : ", ", count, check::name_of(kind));
    return text;
}

void print_text(const plugins_check_options &options,
                const std::vector<check::test_result> &results) {
    std::string text = format("check of {}, seed {}\n", options.file.string(), options.seed),
                shown = "-";
    for (const check::test_result &r : results) {
        if (r.policy != shown)
            text += format("{}: {}\n", r.policy.empty() ? "library" : "policy " + r.policy,
                           summary(results, &r.policy));
        shown = r.policy;
        if (r.name == "calls-found" && r.test_verdict.result == outcome::passed) {
            text += wrapped("calls: " + r.test_verdict.text, 2);
            continue;
        }
        const bool quiet =
            r.test_verdict.result == outcome::passed || r.test_verdict.result == outcome::skipped;
        if (quiet && !options.verbose) continue;
        text += format("  {:8} {}\n", check::name_of(r.test_verdict.result), r.name);
        if (!r.test_verdict.text.empty()) text += wrapped(r.test_verdict.text, 11);
    }
    text += has_kept_rules(results) ? "it keeps the rules\n"
                                    : "it breaks rules; repeat one test with --only TEST\n";
    print(text);
}

bool is_source(const std::filesystem::path &file) {
    const auto extension = file.extension();
    return extension == ".cpp" || extension == ".cc" || extension == ".cxx" || extension == ".c" ||
           extension == ".rs";
}

int print_tests() {
    std::string text;
    for (const check::test &test_case : check::all_tests())
        text += format("{}\n", test_case.name) + wrapped(test_case.sentence, 4);
    print(text);
    return exit_ok;
}

}  // namespace

int plugins_check(const plugins_check_options &arguments) {
    if (arguments.list_tests) return print_tests();
    plugins_check_options options = arguments;
    if (options.file.empty())
        return fail({"check which file? give a policy library or its source", true});
    if (is_source(options.file) && std::filesystem::exists(options.file)) {
        const auto library = compile_policy(options.file);
        if (!library) return fail(library.failure());
        options.file = *library;
    }
    core::settings params;
    for (const std::string &text : options.params) {
        std::string whole = text;
        const std::string kind = text.substr(0, text.find('.'));
        if (std::ranges::find(core::kinds, kind) == std::end(core::kinds)) {
            whole = "wire." + text;
            warn_old_spelling("--param " + text, "--param " + whole);
        }
        auto setting = parse_setting(whole, format("--param {}", text));
        if (!setting) return fail(setting.failure());
        params.push_back(std::move(*setting));
    }
    constexpr std::string_view used[] = {"run.seed"};
    const auto overrides = read_settings(options.settings);
    const auto config = read_alone(options.settings, "plugins check", used);
    if (!config) return fail(config.failure());
    if (has_setting(*overrides, used[0])) options.seed = config->seed;
    core::set_log_level(core::log_level::off);  // the result has all errors
    const auto results =
        check::run_checks({options.file, options.policy, options.only_test, options.seed,
                           options.timeout_s, std::move(params), options.address, options.large});
    if (!results) return fail(results.failure());
    if (options.json != "-") print_text(options, *results);
    if (!options.json.empty())
        if (const auto done = write_json(options.json, to_json(options, *results)); !done)
            return fail(done.failure());
    return has_kept_rules(*results) ? exit_ok : exit_failed;
}

}  // namespace moorage::tool
