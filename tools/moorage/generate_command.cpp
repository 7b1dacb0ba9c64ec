// generate_command.cpp - moorage generate: continues prompts, and prints the text while it arrives.
#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/pipeline/run.h"
#include "core/pipeline/text_ends.h"
#include "core/report/figures.h"
#include "tools/comparison/progress.h"
#include "core/report/substitution.h"
#include "tools/moorage/command.h"
#include "tools/moorage/model_run.h"
#include "tools/moorage/node_ask.h"
#include "tools/moorage/node_run.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct generate_arguments {
    model_run_options common;
    node_run_options node_options;
    prompt_options prompts;
    std::string node;  // asked instead of computing here
    bool quiet = false, shows_report = false;
};

// The text of one prompt is printed while it arrives. Several texts would mix, so they are printed
// at the end. A refused run prints nothing.
class printer {
public:
    // `stops` (text_ends.h) are borrowed.
    printer(const run_config &config, const tokenizer &words, const std::vector<std::string> &stops,
            bool to_stdout)
        : streams_(to_stdout && config.prompts.size() == 1),
          prompt_(config.prompts[0]),
          text_(words, {}),
          shown_(&stops) {}
    bool streams() const { return streams_; }
    void print_token(int32_t id) {
        if (streams_) write(std::exchange(prompt_, "") + shown_.push(text_.push(id)));
    }
    void end(const text_report &done, bool to_stdout) {
        if (streams_) {
            const std::string rest = shown_.push(text_.finish());
            write(prompt_ + rest + shown_.finish() + "\n");
        }
        if (streams_ || !to_stdout) return;
        for (size_t i = 0; i < done.texts.size(); ++i)
            write(done.prompts[i] + done.texts[i] + "\n\n");
    }

private:
    static void write(const std::string &text) {
        print(text);
        output_failed();  // seen at once; a failure ends the run after this pass
    }
    bool streams_;
    std::string prompt_;  // until it is written
    text_stream text_;
    stop_stream shown_;
};

// Prints to standard error, because only the text is the result.
void print_figures(const run_config &config, const run_report &report) {
    const double tpot = report.tpot_ms.mean;
    std::string line =
        format("{} tokens written, first after {}, then {} tokens/s", report.text.written,
               human_ms(report.ttft_ms.mean), tpot > 0 ? three_digits(1000 / tpot) : "-");
    if (report.virtual_time) line += format(" in virtual time on {}", report.profile);
    if (report.experts.hits != report.experts.requested)
        line += format(", hit rate {}", percent(static_cast<double>(report.experts.hits),
                                                static_cast<double>(report.experts.requested)));
    if (report.lossy)
        line += format("; lossy: {} of the model's choices of experts substituted",
                       fine_percent(static_cast<double>(report.experts.substituted),
                                    static_cast<double>(report.routing.choices)));
    if (!report.version_names.empty()) line += "; " + versions_text(report);
    if (config.temperature > 0) line += format(", --seed {}", config.seed);
    print_error(line + "\n");
}

// Defaults of other programs: sampling from likely tokens.
run_config generate_defaults() {
    run_config defaults;
    defaults.temperature = 0.8;
    defaults.sample_top_k = 40;
    defaults.top_p = 0.95;
    defaults.min_p = 0.05;
    return defaults;
}

// Short enough to be typed again.
uint32_t drawn_seed() {
    std::random_device source;
    return source();
}

// A node chooses tokens and computes by its own file.
status check_asked(const generate_arguments &arguments) {
    constexpr std::string_view choices[] = {"source.temperature",
                                            "source.top_p",
                                            "source.top_k",
                                            "source.min_p",
                                            "source.repetition_penalty",
                                            "source.presence_penalty",
                                            "source.frequency_penalty",
                                            "source.penalty_window",
                                            "run.seed"};
    if (arguments.node_options.cluster.empty() || !arguments.node_options.server.empty())
        return error{"--node NAME asks a node of --cluster, in place of --server", true};
    const auto settings = read_settings(arguments.common.settings);
    if (!settings) return settings.failure();
    for (const override_value &setting : *settings) {
        const std::string key = format("{}.{}", setting.section, setting.key);
        if (std::ranges::find(choices, key) == std::end(choices)) continue;
        return error{format("--node: a request carries a prompt alone, and a node chooses tokens "
                            "as [source] of its own file says; leave {} out",
                            setting.place.empty() ? "--set " + key : setting.place),
                     true};
    }
    if (arguments.shows_report || !arguments.common.json_file.empty())
        return error{
            "--node: the report of a run is its node's (moorage load has one of what was asked); "
            "leave it out",
            true};
    return success();
}

result<run_config> config_of(const generate_arguments &arguments) {
    node_run_options node_options = arguments.node_options;
    if (!arguments.node.empty()) {
        if (const status fits = check_asked(arguments); !fits) return fits.failure();
        node_options.server = arguments.node;
    }
    if (!arguments.prompts.has_prompts())
        return error{"give --prompt TEXT or --prompt-file FILE (- is standard input)", true};
    auto config = config_of(arguments.common, node_options, generate_defaults());
    if (!config) return config;
    auto prompts = read_prompts(arguments.prompts);
    if (!prompts) return prompts.failure();
    config->prompts = std::move(*prompts);
    if (config->temperature > 0 && !config->seed_is_given) config->seed = drawn_seed();
    return config;
}

int ask(const generate_arguments &arguments, const run_config &config, run_resources &shared,
        printer &shown) {
    const auto answers = ask_node(
        config, arguments.node, shared, [&](int32_t id) { shown.print_token(id); },
        [&] { return shown.streams() && output_failed(); });
    if (!answers) return fail(answers.failure());
    shown.end(answers->text, /*to_stdout=*/true);
    if (!arguments.quiet) print_error(answers->line + "\n");
    return exit_ok;
}

std::string loading_text(const run_config &config, const model &source_model) {
    return format("loading {}, {}", config.model.lexically_normal().filename().string(),
                  human_bytes(static_cast<double>(source_model.sizes().total_bytes)));
}

int generate(const generate_arguments &arguments) {
    const auto config = config_of(arguments);
    if (!config) return fail(config.failure());
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return fail(done.failure());
    const auto opened = shared.open_model(config->model);
    if (!opened) return fail(opened.failure());
    if (!(*opened)->loaded_tokenizer)
        return fail({format("{} has no tokenizer ({}), so there is no text; moorage run takes "
                            "windows of ids",
                            config->model.string(), tokenizer_place(config->model)),
                     true});
    const auto ends =
        end_rules_of(*config, *(*opened)->loaded_model, (*opened)->loaded_tokenizer.get());
    if (!ends) return fail(ends.failure());
    const bool to_stdout = arguments.common.json_file != "-";
    printer shown(*config, *(*opened)->loaded_tokenizer, ends->texts, to_stdout);
    if (!arguments.node.empty()) return ask(arguments, *config, shared, shown);
    loading_line loading(loading_text(*config, *(*opened)->loaded_model), arguments.quiet);
    run_options options;
    options.on_token = [&](uint64_t, int32_t id) {
        loading.wipe();
        shown.print_token(id);
    };
    options.stop = [&] { return shown.streams() && output_failed(); };
    options.own_routing = arguments.shows_report || !arguments.common.json_file.empty();
    std::string calls;
    const auto report =
        arguments.node_options.cluster.empty()
            ? run(*config, shared, options)
            : run_at_server(*config, arguments.node_options, shared, options, calls);
    loading.wipe();
    if (!report) return fail(report.failure());
    shown.end(report->text, to_stdout);
    if (!arguments.quiet) print_figures(*config, *report);
    if (!arguments.quiet && !calls.empty()) print_error(calls + "\n");
    for (const std::string &warning : report->warnings)
        if (!arguments.quiet) print_error(format("moorage: warning: {}\n", warning));
    if (arguments.shows_report) print_error("\n" + to_text(*report));
    if (!arguments.common.json_file.empty())
        if (const status done = write_json(arguments.common.json_file, to_json(*report)); !done)
            return fail(done.failure());
    return exit_ok;
}

}  // namespace

command install_generate(parser &app) {
    parser *sub = app.add_subcommand("generate", "continue a prompt with a model");
    const auto arguments = std::make_shared<generate_arguments>();
    add_model_options(*sub, arguments->common);
    add_node_options(*sub, arguments->node_options);
    sub->add_option("--node", arguments->node,
                    "ask the running node of this server of --cluster; compute nothing here")
        ->type_name("NAME");
    add_prompt_options(*sub, arguments->prompts, arguments->common.settings);
    add_flag_of_key(*sub, arguments->common.settings, "--temperature",
                    "0: always the most probable token; above 0: tokens are drawn; default 0.8");
    add_flag_of_key(*sub, arguments->common.settings, "--top-k",
                    "draw from this many of the most probable tokens, 0: all; default 40");
    add_flag_of_key(
        *sub, arguments->common.settings, "--top-p",
        "draw from the most probable tokens with this total probability, 1: all; default 0.95");
    add_flag_of_key(*sub, arguments->common.settings, "--min-p",
                    "draw from tokens with at least this share of the largest probability, 0: all; "
                    "default 0.05");
    for (const char *flag : {"--repetition-penalty", "--presence-penalty", "--frequency-penalty",
                             "--penalty-window", "--stop", "--stop-id"})
        add_flag_of_key(*sub, arguments->common.settings, flag);
    sub->add_flag("--report", arguments->shows_report, "also print the whole report of the run");
    sub->add_flag("-q,--quiet", arguments->quiet, "print only the text");
    return [arguments] { return generate(*arguments); };
}

}  // namespace moorage::tool
