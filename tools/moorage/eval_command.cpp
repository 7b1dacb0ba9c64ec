// eval_command.cpp - moorage eval: how well a model predicts a text.
#include <cmath>
#include <memory>
#include <string>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/pipeline/run.h"
#include "core/report/figures.h"
#include "tools/comparison/progress.h"
#include "core/report/substitution.h"
#include "tools/moorage/command.h"
#include "tools/moorage/model_run.h"
#include "tools/moorage/node_run.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct eval_arguments {
    model_run_options common;
    node_run_options node_options;
    std::string text, windows;
    bool shows_report = false;
};

json figures_of(const run_report &report) {
    json figures = {{"tokens", report.text.scored},
                    {"nll", report.text.nll},
                    {"perplexity", report.text.perplexity()}};
    if (report.text.own_nll) {
        figures["own_routing"] = {{"nll", *report.text.own_nll},
                                  {"perplexity", std::exp(*report.text.own_nll)}};
        figures["nll_change"] = report.text.nll_change();
    }
    for (const text_report::part &part : report.text.parts)
        figures["parts"][part.name] = {
            {"tokens", part.scored}, {"nll", part.nll}, {"perplexity", std::exp(part.nll)}};
    figures["report"] = to_json(report);
    return figures;
}

std::string line_of(const std::string &name, uint64_t scored, double nll) {
    return format("  {} {:>10} {:>10.5f} {:>12.4f}\n", padded_right(shortened(name, 20), 20),
                  scored, nll, std::exp(nll));
}

int evaluate(const eval_arguments &arguments) {
    auto config = config_of(arguments.common, arguments.node_options);
    if (!config) return fail(config.failure());
    if (arguments.text.empty() == arguments.windows.empty())
        return fail({"give --text FILE or --windows FILE.json, one of them", true});
    config->text = arguments.text.empty() ? arguments.windows : arguments.text;
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return fail(done.failure());
    run_options options;
    progress shown("eval", 0);
    options.progress = [&](uint64_t tokens) { shown.advance(tokens); };
    std::string calls;
    const auto report =
        arguments.node_options.cluster.empty()
            ? run(*config, shared, options)
            : run_at_server(*config, arguments.node_options, shared, options, calls);
    if (!report) return fail(report.failure());
    if (!calls.empty()) print_error(calls + "\n");
    const text_report &text = report->text;
    if (arguments.common.json_file != "-") {
        print(format("  {:<20} {:>10} {:>10} {:>12}\n", "part", "tokens", "nll", "perplexity"));
        for (const text_report::part &part : text.parts)
            print(line_of(part.name, part.scored, part.nll));
        print(line_of("all", text.scored, text.nll));
        if (text.own_nll) {
            print(line_of("by its own routing", text.scored, *text.own_nll));
            print(format("  {:<20} {:>10} {:>+10.5f} {:>12}\n", "change", "", text.nll_change(),
                         perplexity_change(text)));
        }
        if (!report->version_names.empty()) print("  " + versions_text(*report) + "\n");
        if (arguments.shows_report) print("\n" + to_text(*report));
    }
    if (!arguments.common.json_file.empty())
        if (const status done = write_json(arguments.common.json_file, figures_of(*report)); !done)
            return fail(done.failure());
    return exit_ok;
}

}  // namespace

command install_eval(parser &app) {
    parser *sub = app.add_subcommand(
        "eval", "compute the negative log-likelihood and the perplexity of a text");
    const auto arguments = std::make_shared<eval_arguments>();
    add_model_options(*sub, arguments->common);
    add_node_options(*sub, arguments->node_options);
    sub->add_option("--text", arguments->text,
                    "text file to score, in windows of [source] window ids")
        ->type_name("FILE");
    sub->add_option("--windows", arguments->windows,
                    "file to score: lists of ids or texts, or an object of parts with \"windows\"")
        ->type_name("FILE.json");
    sub->add_flag("--report", arguments->shows_report, "also print the whole report of the run");
    sub->footer(
        "nll: mean of -log p of every token, without the first one of each window.\n"
        "If [run] prefill is 0, tokens are decoded one by one, as policies see them in "
        "generation.");
    return [arguments] { return evaluate(*arguments); };
}

}  // namespace moorage::tool
