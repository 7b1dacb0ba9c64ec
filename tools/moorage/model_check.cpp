// model_check.cpp - moorage model check: compares this program's results with the reference.
#include "tools/moorage/model_check.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/executors.h"
#include "core/execute/executor_module.h"
#include "core/model/odd_weight.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {
namespace {

using namespace moorage::core;

struct model_check_arguments {
    std::string directory, executor = "cpu", json_file;
    setting_options settings;
    uint32_t threads = 0;  // of [run]
};

json to_json(const model_check_arguments &arguments, const golden_results &results) {
    const golden_report &report = results.exact;
    json document = {{"model", arguments.directory},
                     {"executor", arguments.executor},
                     {"logits_rel_error", report.logits_error},
                     {"greedy_match", report.greedy_match},
                     {"pass", report.pass()},
                     {"logits_rel_error_max", golden_error_max},
                     {"greedy_equal", report.greedy_equal},
                     {"hidden_rel_errors", report.hidden_error}};
    if (results.fast)
        document["fast"] = {{"logits_rel_error", results.fast->logits_error},
                            {"greedy_match", results.fast->greedy_match},
                            {"greedy_equal", results.fast->greedy_equal}};
    return document;
}

std::string to_text(const std::string &name, const golden_results &results) {
    const golden_report &report = results.exact;
    std::string text = format(
        "{}: {}\n  logits: relative error {:.2e} (limit {:.0e})\n"
        "  greedy: {} of {} tokens as the reference\n",
        name, report.pass() ? "pass" : "fail", report.logits_error, golden_error_max,
        report.greedy_equal, report.greedy.size());
    if (results.fast)
        text += format("  fast arithmetic: relative error {:.2e}, greedy {} of {}\n",
                       results.fast->logits_error, results.fast->greedy_equal,
                       results.fast->greedy.size());
    if (report.pass() || report.hidden_error.empty()) return text;
    const uint32_t worst = report.worst_layer();
    text += format("  hidden states: relative error {:.2e} at {}, the largest\n",
                   report.hidden_error[worst],
                   worst + 1 == report.hidden_error.size() ? "the final norm"
                   : worst == 0                            ? "the embedding"
                                                           : format("layer {}", worst - 1));
    for (size_t i = 0; i < report.hidden_error.size(); ++i)
        if (report.hidden_error[i] > golden_error_max) {
            text += format("  first above the limit: hidden state {} of {}, {:.2e}\n", i,
                           report.hidden_error.size(), report.hidden_error[i]);
            break;
        }
    return text;
}

// An error that is not a number is not compared with a limit. The message names the weight that
// caused it.
status check_finite(const std::string &name, const model &source_model,
                    const golden_results &results) {
    if (std::isfinite(results.exact.logits_error) &&
        (!results.fast || std::isfinite(results.fast->logits_error)))
        return success();
    const std::string weight = find_non_finite_weight(source_model);
    return error{format("{}: fail: the error of logits is no finite number; {}", name,
                        weight.empty() ? "weights are, so activations overflow" : weight)};
}

int check(model_check_arguments &arguments) {
    if (const status read =
            read_machine(arguments.settings, "model check", arguments.executor, arguments.threads);
        !read)
        return fail(read.failure());
    const auto opened = open_model(arguments.directory);
    if (!opened) return fail(opened.failure());
    const auto golden = read_golden((*opened)->directory(), (*opened)->config());
    if (!golden) return fail(golden.failure());
    const auto report = module_of(*find_executor(arguments.executor))
                            .check_golden(**opened, *golden, arguments.threads);
    if (!report) return fail(report.failure());
    if (const status finite = check_finite(arguments.directory, **opened, *report); !finite)
        return fail(finite.failure());
    if (arguments.json_file != "-") print(to_text(arguments.directory, *report));
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, to_json(arguments, *report)); !done)
            return fail(done.failure());
    return report->exact.pass() ? exit_ok : exit_failed;
}

}  // namespace

command install_model_check(parser &model) {
    auto *app = model.add_subcommand("check",
                                     "compare a model with the reference results in "
                                     "DIR/golden.safetensors or FILE.ref.safetensors");
    app->footer(
        "golden.safetensors holds input_ids [n], logits [n, vocabulary], hidden_states\n"
        "[layers + 1, n, hidden] and greedy [m], the first 8 ids and what follows them.\n"
        "For FILE.gguf the file is FILE.ref.safetensors. There greedy follows all of input_ids, "
        "and\n"
        "float64_logits are preferred to logits.\n"
        "The relative error is max |computed - reference| / max |reference| over all logits.\n"
        "A model passes if it is at most 2e-3 and every greedy token is the reference's.\n"
        "The check also runs with [run] arithmetic = \"fast\". It shows this error and does not "
        "judge it.\n"
        "On the GPU the kernels compute as exactly as they can, and hidden states are not\n"
        "compared. Exit code 1: the model does not pass.");
    auto arguments =
        std::make_shared<model_check_arguments>();  // shared by the parser and the command
    app->add_option("model", arguments->directory, "model directory or GGUF file")->required();
    app->add_option("--executor", arguments->executor, "what computes: cpu (default) or cuda")
        ->type_name("NAME")
        ->one_of({"cpu", "cuda"});
    add_json(*app, arguments->json_file, "the figures");
    add_set(*app, arguments->settings);
    add_flag_of_key(*app, arguments->settings, "--threads");
    return [arguments] { return check(*arguments); };
}

}  // namespace moorage::tool
