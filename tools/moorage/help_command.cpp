// help_command.cpp - moorage help: what a figure of a report means, from the table that makes it.
#include <memory>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/report/figure_table.h"
#include "core/report/figures.h"
#include "tools/moorage/command.h"
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

int help(const std::string &topic) {
    if (topic == "figures") {
        for (const auto &[path, one] : all_figures()) print(line_of(path, *one));
        return exit_ok;
    }
    const auto path = path_of_figure(topic);
    const figure *one = find_figure(topic);
    if (path && one) {
        print(one_figure(*path, *one));
        return exit_ok;
    }
    std::vector<std::string> known{"figures"};
    for (const auto &[name, of] : all_figures()) {
        known.push_back(name);
        known.push_back(name.substr(name.rfind('.') + 1));  // all of it where there is no point
    }
    return fail({format("help {}: no figure of that name{}; \"moorage help figures\" lists all, "
                        "\"moorage COMMAND --help\" explains a command",
                        topic, did_you_mean(topic, known)),
                 true});
}

}  // namespace

command install_help(parser &app) {
    parser *sub = app.add_subcommand("help", "what a figure of a report means");
    const auto topic = std::make_shared<std::string>("figures");
    sub->add_option("topic", *topic, "figures, or the name of one")->type_name("FIGURE");
    return [topic] { return help(*topic); };
}

}  // namespace moorage::tool
