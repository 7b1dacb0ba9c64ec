// golden_check.cpp - one prompt pass and one greedy run against a golden file.
#include "core/execute/cpu/golden_check.h"

#include <algorithm>

#include "core/execute/cpu/forward.h"
#include "core/model/rope.h"
#include "core/source/sampler.h"

namespace moorage::core {

compute_limits golden_limits(const golden_data &golden) {
    const auto count = static_cast<uint32_t>(golden.input_ids.size());
    const auto continued = static_cast<uint32_t>(golden.greedy.size());
    compute_limits limits;
    limits.outputs_max = count;
    limits.tokens_max = limits.context_max = std::max(count, golden.prompt + continued);
    return limits;
}

namespace {

// Both checks; run(pass) computes one, after_prompt() looks at what else of it there is.
template <class Run, class AfterPrompt>
status check_with(const golden_data &golden, const pass_results &computed, const rope_config &rope,
                  golden_report &report, Run &&run, AfterPrompt &&after_prompt) {
    const auto continued = static_cast<uint32_t>(golden.greedy.size());
    if (const status done = run(prompt_pass(golden.input_ids, 0, 0, true)); !done) return done;
    report.logits_error = relative_error(computed.logits(), golden.logits);
    after_prompt();
    // The stream begins anew: its caches are overwritten from position 0.
    std::vector<int32_t> text(golden.input_ids.begin(), golden.input_ids.begin() + golden.prompt);
    size_t entered = 0;
    for (uint32_t i = 0; i < continued; ++i) {
        // A text that outgrows its rotations is computed from its beginning.
        if (i > 0 && rope_scaling_of(rope, text.size()) != rope_scaling_of(rope, text.size() - 1))
            entered = 0;
        const std::span<const int32_t> next = std::span(text).subspan(entered);
        const status done = run(prompt_pass(next, 0, static_cast<uint32_t>(entered), false));
        if (!done) return done;
        entered = text.size();
        text.push_back(most_probable(computed.logits()));
        report.greedy.push_back(text.back());
    }
    const auto difference = std::ranges::mismatch(report.greedy, golden.greedy);
    report.greedy_equal = static_cast<uint32_t>(difference.in1 - report.greedy.begin());
    report.greedy_match = report.greedy_equal == continued;
    return success();
}

}  // namespace

result<golden_report> check_golden(const model &model, const golden_data &golden,
                                   thread_pool &pool) {
    const model_config &config = model.config();
    compute_limits limits = golden_limits(golden);
    limits.keep_hidden = true;
    auto created = cpu_model::create(model, pool, limits);
    if (!created) return created.failure();
    cpu_model &compute = **created;
    forward run(compute, model);
    golden_report report;
    const auto compare_hidden = [&] {
        if (golden.hidden_states.empty()) return;
        const size_t layer_values = golden.input_ids.size() * config.hidden;
        for (size_t layer = 0; layer <= config.layers; ++layer)
            report.hidden_error.push_back(relative_error(
                compute.hidden_states().subspan(layer * layer_values, layer_values),
                std::span(golden.hidden_states).subspan(layer * layer_values, layer_values)));
    };
    const auto one_pass = [&](const pass &tokens) {
        run(tokens);
        return success();
    };
    const status done = check_with(golden, compute, config.rope, report, one_pass, compare_hidden);
    if (!done) return done.failure();
    return report;
}

result<golden_report> check_golden(const golden_data &golden, executor_drive &drive,
                                   const pass_results &computed, const rope_config &rope) {
    golden_report report;
    const status done = check_with(
        golden, computed, rope, report, [&](const pass &tokens) { return drive.run(tokens); },
        [] {});
    if (!done) return done.failure();
    return report;
}

}  // namespace moorage::core
