// what_if.cpp - savings by resource as a table and a sentence.
#include "core/report/what_if.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/text_table.h"

namespace moorage::core {

namespace {

// Less than this is not worth the word "decides".
constexpr double share_least = 0.005;
constexpr size_t effect_bar_columns = 30;

// Those whose runs ended, the largest saving first.
std::vector<const what_if::row *> ordered(const what_if &asked) {
    std::vector<const what_if::row *> order;
    for (const what_if::row &one : asked.rows)
        if (one.ms) order.push_back(&one);
    std::ranges::stable_sort(order, [](const auto *a, const auto *b) { return *a->ms < *b->ms; });
    return order;
}

}  // namespace

static const char *time_word(const what_if &asked) {
    return asked.metric == "tpot_ms" ? "TPOT" : "TTFT";
}

// "-7.9 %"; what rounds to nothing is +0.0 %.
static std::string change_text(double saved) {
    const double percent = std::round(-1000 * saved) / 10;
    return format("{:+.1f} %", percent == 0 ? 0.0 : percent);
}

std::string what_if_sentence(const what_if &asked) {
    const std::vector<const what_if::row *> order = ordered(asked);
    const std::string more = format("{:.3g} %", 100 * (asked.factor - 1));
    if (order.empty()) return "no run with more of anything ended";
    const what_if::row &first = *order.front();
    if (asked.saved(first) < share_least)
        return format(
            "nothing decides alone: {} more of any one resource saves less than half a "
            "percent",
            more);
    std::string text = format("{} decides: {} more of it saves {:.1f} %", first.words, more,
                              100 * asked.saved(first));
    if (order.size() > 1 && asked.saved(*order[1]) >= share_least)
        text +=
            format("; next is {}, with {:.1f} %", order[1]->words, 100 * asked.saved(*order[1]));
    return text;
}

what_if what_if_of(const run_report &base) {
    what_if asked;
    asked.metric = base.tpot_ms.mean > 0 ? "tpot_ms" : "ttft_ms";
    asked.base_ms = figure_of(asked, base);
    return asked;
}

double figure_of(const what_if &asked, const run_report &of) {
    return asked.metric == "tpot_ms" ? of.tpot_ms.mean : of.ttft_ms.mean;
}

std::string to_text(const what_if &asked) {
    const std::vector<const what_if::row *> order = ordered(asked);
    std::string text = format("\n  what would help: {} with {:.3g} % more of one resource\n",
                              time_word(asked), 100 * (asked.factor - 1));
    double top = share_least;
    for (const what_if::row *one : order) top = std::max(top, asked.saved(*one));
    for (const what_if::row *one : order) {
        const double saved = asked.saved(*one);
        std::string line =
            format("  {} {} {} {}", padded_right(one->words, 20),
                   padded_left(human_ms(*one->ms), 10), padded_left(change_text(saved), 9),
                   block_bar(std::max(0.0, saved) / top, effect_bar_columns));
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    for (const what_if::row &one : asked.rows)
        if (!one.why.empty()) text += labelled("", one.words + ": " + one.why);
    for (const std::string &part : wrapped(what_if_sentence(asked), text_columns - 2))
        text += "  " + part + "\n";
    return text;
}

std::string what_if_table(const std::vector<std::string> &labels,
                          const std::vector<const what_if *> &asked, size_t columns_max) {
    if (asked.empty()) return "";
    std::vector<table_column> columns{{"", labels, true}};
    for (const what_if *of : asked)
        for (const what_if::row &one : of->rows) {
            const auto known = std::ranges::find(columns, one.words, &table_column::heading);
            if (known == columns.end())
                columns.push_back({one.words, std::vector<std::string>(asked.size(), "-")});
        }
    for (size_t i = 0; i < asked.size(); ++i)
        for (const what_if::row &one : asked[i]->rows)
            if (one.ms)
                std::ranges::find(columns, one.words, &table_column::heading)->cells[i] =
                    change_text(asked[i]->saved(one));
    // A column that helps nobody leaves its room to the labels.
    std::vector<std::string> useless;
    for (size_t i = 1; i < columns.size(); ++i)
        if (std::ranges::all_of(columns[i].cells,
                                [](const auto &cell) { return cell == "+0.0 %"; }))
            useless.push_back(columns[i].heading);
    std::erase_if(columns, [&](const table_column &one) {
        return std::ranges::find(useless, one.heading) != useless.end();
    });
    std::string text = format("what would help: {} with {:.3g} % more of one resource\n",
                              time_word(*asked[0]), 100 * (asked[0]->factor - 1));
    const std::vector<size_t> widths = fitted_widths(columns, columns_max);
    text += heading_line(columns, widths);
    for (size_t i = 0; i < asked.size(); ++i) text += row_line(columns, widths, i);
    if (!useless.empty()) text += format("  no change: {}\n", listed(useless, "and"));
    return text;
}

json to_json(const what_if &asked) {
    json rows = json::array();
    for (const what_if::row &one : asked.rows)
        rows.push_back({{"resource", one.resource},
                        {"words", one.words},
                        {"value", one.ms ? json(stable(*one.ms)) : json()},
                        {"saved", one.ms ? json(stable(asked.saved(one))) : json()},
                        {"error", one.why.empty() ? json() : json(one.why)}});
    return {{"factor", asked.factor},
            {"metric", asked.metric},
            {"base", stable(asked.base_ms)},
            {"rows", std::move(rows)}};
}

}  // namespace moorage::core
