// run_command.cpp - moorage run: one configuration, its report, and its timeline.
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/cluster/cluster_run.h"
#include "core/pipeline/timeline_sink.h"
#include "tools/comparison/comparison.h"
#include "tools/comparison/progress.h"
#include "core/report/timeline.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/what_if_rows.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct run_arguments {
    std::string config, json_file, html_file, timeline_file, timeline_window;
    setting_options settings;
    bool what_if = false;
};

// The page of a comparison with one row.
std::string page_of(const run_arguments &arguments, const run_report &report,
                    const std::optional<what_if> &answer) {
    comparison alone;
    alone.title = report.title;
    comparison_row &row = alone.rows.emplace_back();
    row.config = std::filesystem::path(arguments.config).stem().string();
    row.report = report;
    row.savings = answer;
    const json &config = *report.config;
    if (config.contains("memory")) {
        row.experts_all = config["memory"].value("experts_all", uint64_t{0});
        row.slots = config["memory"].value("experts", uint64_t{0});
    }
    const json source = config.value("source", json::object());
    alone.trace = source.value("trace", "");
    alone.shape = source.value("shape", source.value("model", ""));
    return to_html(alone, "moorage run " + arguments.config + arguments.settings.text() +
                              (arguments.what_if ? " --what-if" : ""));
}

// The text first: a file that cannot be written must not take the result with it.
int write_outputs(const run_arguments &arguments, const run_report &report,
                  const std::optional<what_if> &answer) {
    if (arguments.json_file != "-") {
        for (size_t i = 0; i < report.text.texts.size(); ++i)
            print(report.text.prompts[i] + report.text.texts[i] + "\n\n");
        print(to_text(report));
        if (answer) print(to_text(*answer));
    }
    if (!arguments.json_file.empty()) {
        json figures = to_json(report);
        if (answer) figures["what_if"] = to_json(*answer);
        if (const status done = write_json(arguments.json_file, figures); !done)
            return fail(done.failure());
    }
    if (arguments.html_file.empty()) return exit_ok;
    const status done = write_text(arguments.html_file, page_of(arguments, report, answer));
    if (!done) return fail(done.failure());
    print_written("HTML report", arguments.html_file, arguments.json_file);
    return exit_ok;
}

// "100:120" is a range of tokens without its end; either number may be missing.
result<timeline_sink::window> read_window(const run_arguments &arguments, bool is_cluster) {
    timeline_sink::window tokens = timeline_sink::everything;
    const std::string &text = arguments.timeline_window;
    if (text.empty()) return tokens;
    const auto wrong = [&](const char *reason) {
        return error{format("--timeline-window {}: {}; give the first token and the one after the "
                            "last, for example 100:120",
                            text, reason),
                     true};
    };
    if (arguments.timeline_file.empty()) return wrong("there is no --timeline");
    if (is_cluster) return wrong("tokens of a cluster are not counted together");
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return wrong("no colon in it");
    const auto read = [](std::string_view part, uint64_t &number) {
        if (part.empty()) return true;
        const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), number);
        return failure == std::errc() && end == part.data() + part.size();
    };
    const std::string_view whole = text;
    if (!read(whole.substr(0, colon), tokens.first) ||
        !read(whole.substr(colon + 1), tokens.second))
        return wrong("no number");
    if (tokens.first >= tokens.second) return wrong("no token in it");
    return tokens;
}

int run_configuration(const run_arguments &arguments) {
    const auto overrides = read_settings(arguments.settings);
    if (!overrides) return fail(overrides.failure());
    const auto config = load_run_config(arguments.config, *overrides);
    if (!config) return fail(config.failure());
    const auto window = read_window(arguments, config->cluster.has_value());
    if (!window) return fail(window.failure());
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return fail(done.failure());
    run_options options;
    uint64_t tokens = config->tokens, experts = 0;
    if (config->cluster) {
        tokens = 0;  // as many as come
    } else if (!config->trace.empty()) {
        const auto source = shared.open(config->trace);
        if (!source) return fail(source.failure());
        const uint64_t trace_tokens = (*source)->tokens();
        tokens = config->tokens ? std::min(config->tokens, trace_tokens) : trace_tokens;
        experts = (*source)->experts();
        if (window->first > 0 && window->first >= tokens)
            return fail({format("--timeline-window {}: the run has {} tokens, so nothing of it is "
                                "in there",
                                arguments.timeline_window, tokens),
                         true});
    } else {
        const auto source = shared.open_model(config->model);
        if (!source) return fail(source.failure());
        experts = (*source)->loaded_model->config().experts;
    }
    progress shown("run", tokens);
    options.progress = [&](uint64_t done) { shown.advance(done); };
    std::unique_ptr<timeline> events;
    std::unique_ptr<timeline_sink> sink;
    if (!arguments.timeline_file.empty()) {
        auto opened = timeline::open(arguments.timeline_file);
        if (!opened) return fail(opened.failure());
        events = std::move(opened).value();
        options.events = events.get();
        if (!config->cluster) {
            sink = std::make_unique<timeline_sink>(*events, static_cast<uint32_t>(experts), "GPU",
                                                   "host", *window);
            options.rows = sink.get();
        }
    }
    const auto report = run_either(*config, shared, options);
    if (events)
        if (const status done = events->close(); !done) return fail(done.failure());
    if (!report) return fail(report.failure());
    std::optional<what_if> answer;
    if (arguments.what_if) {
        auto answered = ask_what_if(*config, *report, shared);
        if (!answered) return fail(answered.failure());
        answer = std::move(answered).value();
    }
    if (const int code = write_outputs(arguments, *report, answer); code != exit_ok) return code;
    if (events)
        print_written("timeline, for ui.perfetto.dev", arguments.timeline_file,
                      arguments.json_file);
    return exit_ok;
}

}  // namespace

command install_run(parser &app) {
    parser *sub = app.add_subcommand("run", "run one configuration, from its source to the report");
    const auto arguments = std::make_shared<run_arguments>();
    sub->add_option("config", arguments->config, "the run's TOML file")
        ->required()
        ->type_name("CONFIG.toml");
    add_settings(*sub, arguments->settings);
    add_json(*sub, arguments->json_file, "the report");
    sub->add_option("--html", arguments->html_file, "write a page with tables and plots")
        ->type_name("FILE");
    sub->add_option("--timeline", arguments->timeline_file,
                    "write a timeline of the run, for ui.perfetto.dev: .pftrace for its own "
                    "format, else JSON; add .gz to compress")
        ->type_name("FILE");
    sub->add_option("--timeline-window", arguments->timeline_window, "record these tokens only")
        ->type_name("FIRST:LAST");
    sub->add_flag(
        "--what-if", arguments->what_if,
        "run it again with 10 % more of each resource, and show which one limits the run");
    return [arguments] { return run_configuration(*arguments); };
}

}  // namespace moorage::tool
