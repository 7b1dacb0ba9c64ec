// check.cpp - the order of the tests, and their run over one library.
#include "tools/moorage/check/check.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/base/text.h"
#include "core/host/library.h"
#include "core/host/parameters.h"
#include "tools/moorage/check/child.h"
#include "tools/moorage/check/tests.h"
#include "tools/moorage/check/wire_end.h"

namespace moorage::check {

using core::error;
using core::format;

namespace {

// The policies of a library. Calls its entry point in this process, so a child must have tried it
// before.
core::result<std::vector<const core::policy *>> policies_of(core::registry &loaded,
                                                            const options &options) {
    const std::filesystem::path files[] = {options.file};
    if (auto scanned = loaded.scan(files); !scanned) return scanned.failure();
    std::vector<const core::policy *> found;
    std::vector<std::string> names;
    for (const core::policy &policy : loaded.policies()) {
        names.emplace_back(policy.name());
        if (options.policy.empty() || options.policy == policy.name()) found.push_back(&policy);
    }
    if (!found.empty()) return found;
    return error{format("{} has no policy {}{}", options.file.string(), options.policy,
                        core::did_you_mean(options.policy, names)),
                 true};
}

// The key of `setting` (KIND.KEY or KIND.NAME.KEY) if it belongs to this policy.
std::optional<std::string> key_for(const core::policy &policy, const core::setting &setting) {
    const size_t dot = setting.key.find('.');
    if (!policy.is(setting.key.substr(0, dot))) return std::nullopt;
    const std::string key = setting.key.substr(dot + 1), prefix = std::string(policy.name()) + ".";
    if (key.starts_with(prefix)) return key.substr(prefix.size());
    return key.find('.') != std::string::npos ? std::nullopt : std::optional(key);
}

core::settings params_of(const core::policy &policy, const core::settings &settings) {
    core::settings params;
    for (const core::setting &setting : settings)
        if (auto key = key_for(policy, setting))
            params.push_back({std::move(*key), setting.value, setting.place});
    return params;
}

// Checks that each parameter belongs to a policy under test, which accepts it.
core::status check_params(const std::vector<const core::policy *> &policies,
                          const core::settings &settings) {
    for (const core::setting &setting : settings)
        if (std::ranges::none_of(policies, [&](const core::policy *policy) {
                return key_for(*policy, setting).has_value();
            }))
            return error{format("{}: no policy under test is of this kind and name", setting.place),
                         true};
    for (const core::policy *policy : policies) {
        const auto values = core::check_parameters("policy " + std::string(policy->name()),
                                                   policy->params, params_of(*policy, settings));
        if (!values) return error{values.failure().text, true};
    }
    return core::success();
}

class session {
public:
    explicit session(const options &options) : options_(options) {}

    const verdict &run(const test &test_case, const std::string &policy_name) {
        const auto begin = std::chrono::steady_clock::now();
        verdict found =
            run_in_child([&] { return run_here(test_case, policy_name); }, options_.timeout_s);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        results_.push_back({policy_name, test_case.name, std::move(found), took.count()});
        return results_.back().test_verdict;
    }
    void skip(const test &test_case, const std::string &policy_name, const char *reason) {
        results_.push_back({policy_name, test_case.name, skipped(reason), 0});
    }
    bool is_selected(const test &test_case) const {
        return options_.only_test.empty() || options_.only_test == test_case.name;
    }
    std::vector<test_result> take_results() { return std::move(results_); }

private:
    verdict run_here(const test &test_case, const std::string &policy_name) const {
        test_input input{.file = options_.file,
                         .policy_name = policy_name,
                         .seed = options_.seed,
                         .wire_address = options_.wire_address,
                         .large = options_.large};
        if (test_case.level == test::scope::library) return test_case.run(input);
        core::registry loaded;
        const std::filesystem::path files[] = {options_.file};
        if (auto scanned = loaded.scan(files); !scanned) return failed(scanned.failure().text);
        for (const core::policy &candidate : loaded.policies())
            if (candidate.name() == policy_name) input.policy = &candidate;
        if (input.policy == nullptr) return failed("the library does not load a second time");
        input.params = params_of(*input.policy, options_.params);
        patience = std::max(1.0, options_.timeout_s / options{}.timeout_s);
        return test_case.run(input);
    }
    const options &options_;
    std::vector<test_result> results_;
};

constexpr auto library = test::scope::library, policy = test::scope::policy,
               steps = test::scope::steps, wire = test::scope::wire;
constexpr test tests[] = {
    {"loads", "the library loads, and its records and descriptors are sound", library, loads},
    {"exported-symbols-one", "it exports moorage_module_v2 and nothing else", library,
     exported_symbols_one},
    {"scan-time", "loading and describing it takes at most 100 ms", library, scan_time},
    {"descriptor-consistency", "it answers for the kinds it declares, no others, always alike",
     policy, descriptor_consistency},
    {"calls-found", "the calls that it has are listed, and the optional ones it has not", policy,
     calls_found},
    {"unknown-interface-null", "get_interface answers null for an unknown id", policy,
     unknown_interface_null},
    {"id-trailing-garbage-null", "get_interface compares whole ids", policy,
     id_trailing_garbage_null},
    {"params-out-of-range", "values beyond their declaration are refused with a text", policy,
     params_out_of_range},
    {"life-cycle", "create, activate, steps, reset, deactivate, activate and destroy all come back",
     policy, life_cycle},
    {"create-destroy-repeat", "a hundred instances can be made and destroyed, many alive at a time",
     steps, create_destroy_repeat},
    {"activate-limits-extremes", "smallest and large limits work or are refused with a text", steps,
     activate_limits_extremes},
    {"step-before-activate-refused",
     "the host keeps the order of the calls, and a refusal changes nothing", steps,
     step_before_activate_refused},
    {"exception-contained", "no exception crosses the border", steps, exception_contained},
    {"advice-in-range", "advice names things that exist, are where they should be, once each",
     steps, advice_in_range},
    {"advice-complete",
     "as many victims as asked for while there are any; every byte sent, every expert placed",
     steps, advice_complete},
    {"advice-pinned-never-named", "no victim is pinned by the running step", steps,
     advice_pinned_never_named},
    {"advice-over-capacity", "never more advice than there is room for", steps,
     advice_over_capacity},
    {"advice-capacity-zero", "no slots, no buffer, no servers: nothing is advised that cannot be",
     steps, advice_capacity_zero},
    {"no-allocation-in-step", "steps neither allocate nor free memory", steps,
     no_allocation_in_step},
    {"no-block-in-step", "steps make no system call that may block", steps, no_block_in_step},
    {"reads-wall-clock", "steps do not read the system's clock", steps, reads_wall_clock},
    {"output-canaries", "nothing is written outside the arrays that were given", steps,
     output_canaries},
    {"inputs-left-alone", "nothing is written to arrays that were lent for reading", steps,
     inputs_left_alone},
    {"surroundings-kept",
     "rounding mode, locale, directory, signals and umask are the same after every call", steps,
     surroundings_kept},
    {"streams-kept", "nothing is written to standard output or error, and they stay open", steps,
     streams_kept},
    {"struct-size-min", "nothing is read beyond the end of any struct or array", steps,
     struct_size_min},
    {"older-host-tables", "it works with the first host there was, or says why not", steps,
     older_host_tables},
    {"params-fuzz", "random parameters within their limits work or are refused with a text", steps,
     params_fuzz},
    {"determinism-same-seed", "two runs with one seed make equal decisions", steps,
     determinism_same_seed},
    {"determinism-thread-move", "steps may move between threads", steps, determinism_thread_move},
    {"reset-equals-new", "after reset it decides as a new instance does", steps, reset_equals_new},
    {"replay-equals-steps", "its replay function decides as its other functions do", steps,
     replay_equals_steps},
    {"leak", "from create to destroy no memory is left behind", steps, leak},
    {"wire-connects", "both sides are told of a connection, alike", wire, wire_connects},
    {"wire-order", "messages arrive once, unchanged and in order, and only sent memory is used",
     wire, wire_order},
    {"wire-sizes", "1 byte to 16 MiB (with --large 1 GiB) in 1 to 64 parts arrive as sent", wire,
     wire_sizes},
    {"wire-in-flight", "10,000 messages each way can be under way", wire, wire_in_flight},
    {"wire-backpressure", "who does not release holds its sender back, within the bounds", wire,
     wire_backpressure},
    {"wire-memory-stays", "a lent message stays until its release, in any order", wire,
     wire_memory_stays},
    {"wire-channels", "calls do not wait behind bulk", wire, wire_channels},
    {"wire-registered", "messages out of remembered memory arrive as sent", wire, wire_registered},
    {"wire-wake", "a poll that waits is ended by wake and by a message", wire, wire_wake},
    {"wire-close", "what was taken before close arrives, and both sides hear of the end", wire,
     wire_close},
    {"wire-close-at-once", "a connection or listener that is closed is closed", wire,
     wire_close_at_once},
    {"wire-peer-death", "a peer that ends is told of once, and can come back", wire,
     wire_peer_death},
    {"wire-wrong-address", "a wrong address is refused or told of; one good one is enough", wire,
     wire_wrong_address},
    {"wire-limits", "no more connections than allowed, on either side", wire, wire_limits},
    {"wire-refusals", "messages that cannot be sent are refused with a text", wire, wire_refusals},
    {"wire-numbers", "no number is used twice, and one that is none does nothing", wire,
     wire_numbers},
    {"wire-identity", "a peer is who it proves to be, or the wire says that it cannot tell", wire,
     wire_identity},
    {"wire-idle", "waiting takes no processor", wire, wire_idle},
};

void run_on_policy(session &test_session, const std::string &name, bool is_wire) {
    bool life_cycle_passed = true;
    for (const test &test_case : tests) {
        if (test_case.level == test::scope::library || (test_case.level == wire && !is_wire))
            continue;
        const bool is_gate = std::string_view(test_case.name) == "life-cycle";
        // life-cycle decides whether the others make sense, so it always runs.
        if (!test_session.is_selected(test_case) && !is_gate) continue;
        if ((test_case.level == test::scope::steps || test_case.level == wire) &&
            !life_cycle_passed)
            test_session.skip(test_case, name, "life-cycle did not pass");
        else if (const verdict &found = test_session.run(test_case, name); is_gate)
            life_cycle_passed = found.result == outcome::passed;
    }
}

}  // namespace

const char *name_of(outcome value) {
    static constexpr const char *names[] = {"passed", "failed", "warning", "skipped", "crashed"};
    return names[static_cast<size_t>(value)];
}

std::span<const test> all_tests() { return tests; }

core::result<std::vector<test_result>> run_checks(const options &options) {
    if (!std::filesystem::exists(options.file))
        return error{format("{} does not exist; give a policy library (.so) or its source",
                            options.file.string()),
                     true};
    std::vector<std::string> names;
    for (const test &test_case : tests) names.emplace_back(test_case.name);
    if (!options.only_test.empty() &&
        std::find(names.begin(), names.end(), options.only_test) == names.end())
        return error{format("no test {}{}; see --list-tests", options.only_test,
                            core::did_you_mean(options.only_test, names)),
                     true};

    session test_session(options);
    bool is_loadable = true;
    for (const test &test_case : tests) {
        if (test_case.level != test::scope::library) continue;
        const bool is_gate = std::string_view(test_case.name) == "loads";
        if (!is_gate && !test_session.is_selected(test_case)) continue;
        const verdict &found = test_session.run(test_case, "");
        if (is_gate) is_loadable = found.result == outcome::passed;
    }
    if (!is_loadable) return test_session.take_results();
    core::registry loaded;
    const auto policies = policies_of(loaded, options);
    if (!policies) return policies.failure();
    if (auto good = check_params(*policies, options.params); !good) return good.failure();
    for (const core::policy *tested_policy : *policies)
        run_on_policy(test_session, std::string(tested_policy->name()), tested_policy->is("wire"));
    return test_session.take_results();
}

}  // namespace moorage::check
