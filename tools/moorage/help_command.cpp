// help_command.cpp - moorage help: explains figures of reports, keys of configurations, and options
// of commands. Figures and keys come from the tables that write and read them.
#include <memory>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/report/figure_table.h"
#include "core/report/figures.h"
#include "core/report/time_parts.h"
#include "tools/moorage/command.h"
#include "tools/moorage/help_keys.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

std::string figure_line(const std::string &path, const figure &entry) {
    constexpr size_t path_columns = 34;
    // A longer one has a line of its own.
    const bool wide = path.size() > path_columns;
    std::string text = (wide ? path + "\n" : "") + padded_right(wide ? "" : path, path_columns) +
                       " " + padded_right(name_of(entry.unit), 11) + " ";
    std::string meaning(entry.meaning);
    if (!entry.condition.empty()) meaning += format(" ({})", entry.condition);
    std::string lines, lead = text;
    for (const std::string &part : wrapped(meaning, text_columns - 47)) {
        lines += lead + part + "\n";
        lead = std::string(47, ' ');
    }
    return lines;
}

std::string figure_help(const std::string &path, const figure &entry) {
    std::string text = format("{}: {}\n", path, entry.meaning);
    text += labelled("unit", name_of(entry.unit));
    if (!entry.condition.empty()) text += labelled("where", entry.condition);
    if (entry.better != better_when::neither)
        text += labelled("better", entry.better == better_when::larger ? "larger" : "smaller");
    text += labelled("in tables", entry.label);
    return text;
}

std::string text_of_figure(const std::string &topic) {
    auto path = path_of_figure(topic);
    if (!path) path = path_of_label(topic);
    return path ? figure_help(*path, *find_figure(*path)) : "";
}

std::string text_of_heading(const std::string &topic) {
    const figure *heading = find_heading(topic);
    return heading ? figure_help(std::string(heading->label), *heading) : "";
}

std::string text_of_cause(const std::string &topic) {
    for (size_t i = 0; i < cause_count; ++i) {
        const std::string_view label = label_of(static_cast<cause>(i));
        if (!same_label(label, topic)) continue;
        return format("{}: part of a run's time in which the device {}\n", label,
                      meaning_of(static_cast<cause>(i))) +
               labelled("unit", "ms a token, and share of the time") +
               labelled("where", "the table \"where the time goes\"") +
               labelled("in JSON", format("causes.PHASE.{}_ms", cause_names[i]));
    }
    return "";
}

// "plugins check".
std::string words_of(const parser &leaf) {
    const std::string name = leaf.name();
    return name.substr(std::min(name.size(), name.find(' ') + 1));
}

std::vector<std::string> known_topics(parser &app) {
    std::vector<std::string> known = key_topics();
    for (const parser *leaf : app.leaves()) known.push_back(words_of(*leaf));
    known.push_back("figures");
    for (const auto &[name, entry] : all_figures()) {
        known.push_back(name);
        known.push_back(name.substr(name.rfind('.') + 1));  // all of it where there is no point
        known.emplace_back(entry->label);
    }
    for (const figure &heading : heading_words()) known.emplace_back(heading.label);
    for (size_t i = 0; i < cause_count; ++i) known.emplace_back(label_of(static_cast<cause>(i)));
    return known;
}

std::string text_of_command(const parser &app, const std::string &topic) {
    const parser *command_parser = app.find(topic);
    return command_parser ? command_parser->help() : "";
}

int help(parser &app, const std::string &topic, bool markdown) {
    if (topic.empty() && !markdown) {
        print(app.help() +
              "\n"
              "moorage help COMMAND, FIGURE or KEY explains one of them. moorage help figures, "
              "keys and\n"
              "units list all figures of reports and all keys and units of configurations.\n");
        return exit_ok;
    }
    if (markdown && topic != "keys")
        return fail(
            {format("help {}: --markdown is of keys: moorage help keys --markdown", topic), true});
    std::string text;
    if (topic == "figures")
        for (const auto &[path, entry] : all_figures()) text += figure_line(path, *entry);
    else if (topic == "keys")
        text = markdown ? markdown_of_keys() : text_of_keys();
    else if (topic == "units")
        text = text_of_units();
    else {  // a word may be several: "run", "tokens", "network"
        text = text_of_command(app, topic);
        for (const auto part : {text_of_figure, text_of_heading, text_of_cause, text_of_topic})
            if (const std::string section = part(topic); !section.empty())
                text += (text.empty() ? "" : "\n") + section;
    }
    print(text);
    if (!text.empty()) return exit_ok;
    return fail({format("help {}: no command, figure, heading, section or key of that name{}; "
                        "\"moorage help\", \"moorage help figures\", \"moorage help keys\" and "
                        "\"moorage help units\" list all",
                        topic, did_you_mean(topic, known_topics(app))),
                 true});
}

}  // namespace

command install_help(parser &app) {
    parser *sub = app.add_subcommand(
        "help", "explain a command, a figure of a report or a key of a configuration");
    const auto words = std::make_shared<std::vector<std::string>>();
    const auto markdown = std::make_shared<bool>(false);
    sub->add_option("topic", *words,
                    "figures, keys or units: lists all of them; or a command (plugins check), a "
                    "figure (tpot_ms) or its heading in tables (hit rate), a section (memory), a "
                    "key (memory.experts), a policy's parameter (cache.lfu.half_life)")
        ->type_name("COMMAND|FIGURE|KEY");
    sub->add_flag("--markdown", *markdown, "print the keys as docs/configuration.md");
    return [&app, words, markdown] {
        std::string topic;
        for (const std::string &word : *words) topic += (topic.empty() ? "" : " ") + word;
        return help(app, topic, *markdown);
    };
}

}  // namespace moorage::tool
