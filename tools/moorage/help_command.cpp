// help_command.cpp - moorage help: what a figure of a report or a key of a configuration means,
// from the tables that make the one and read the other.
#include <memory>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/report/figure_table.h"
#include "core/report/figures.h"
#include "tools/moorage/command.h"
#include "tools/moorage/help_keys.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

std::string line_of(const std::string &path, const figure &one) {
    constexpr size_t path_columns = 34;
    // A longer one has a line of its own.
    const bool wide = path.size() > path_columns;
    std::string text = (wide ? path + "\n" : "") + padded_right(wide ? "" : path, path_columns) +
                       " " + padded_right(name_of(one.unit), 11) + " ";
    std::string said(one.meaning);
    if (!one.where.empty()) said += format(" ({})", one.where);
    std::string all, lead = text;
    for (const std::string &part : wrapped(said, text_columns - 47)) {
        all += lead + part + "\n";
        lead = std::string(47, ' ');
    }
    return all;
}

std::string one_figure(const std::string &path, const figure &one) {
    std::string text = format("{}: {}\n", path, one.meaning);
    text += labelled("unit", name_of(one.unit));
    if (!one.where.empty()) text += labelled("where", one.where);
    if (one.better != wanted::neither)
        text += labelled("better", one.better == wanted::larger ? "larger" : "smaller");
    text += labelled("in tables", one.label);
    return text;
}

int help(const std::string &topic, bool markdown) {
    if (markdown && topic != "keys")
        return fail(
            {format("help {}: --markdown is of keys: moorage help keys --markdown", topic), true});
    std::string text;
    if (topic == "figures")
        for (const auto &[path, one] : all_figures()) text += line_of(path, *one);
    else if (topic == "keys")
        text = markdown ? markdown_of_keys() : text_of_keys();
    else if (topic == "units")
        text = text_of_units();
    else if (const figure *one = find_figure(topic))
        text = one_figure(*path_of_figure(topic), *one);
    const std::string of_keys = text_of_topic(topic);  // a word may be both: "tokens"
    text += (text.empty() || of_keys.empty() ? "" : "\n") + of_keys;
    print(text);
    if (!text.empty()) return exit_ok;
    std::vector<std::string> known = key_topics();
    known.push_back("figures");
    for (const auto &[name, of] : all_figures()) {
        known.push_back(name);
        known.push_back(name.substr(name.rfind('.') + 1));  // all of it where there is no point
    }
    return fail({format("help {}: no figure, section or key of that name{}; \"moorage help "
                        "figures\", \"moorage help keys\" and \"moorage help units\" list all, "
                        "\"moorage COMMAND --help\" explains a command",
                        topic, did_you_mean(topic, known)),
                 true});
}

}  // namespace

command install_help(parser &app) {
    parser *sub =
        app.add_subcommand("help", "what a figure of a report or a key of a configuration means");
    const auto topic = std::make_shared<std::string>("figures");
    const auto markdown = std::make_shared<bool>(false);
    sub->add_option("topic", *topic,
                    "figures, keys or units; a figure (tpot_ms), a section (memory), a key "
                    "(memory.experts), a policy's parameter (cache.lfu.half_life)")
        ->type_name("FIGURE|KEY");
    sub->add_flag("--markdown", *markdown, "keys as docs/configuration.md");
    return [topic, markdown] { return help(*topic, *markdown); };
}

}  // namespace moorage::tool
