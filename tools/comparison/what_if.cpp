// what_if.cpp - savings by resource as a table and a sentence.
#include "tools/comparison/what_if.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/text_table.h"

namespace moorage::core {

namespace {

// Less than this is not worth the word "decides".
constexpr double share_least = 0.005;
constexpr size_t effect_bar_columns = 30;

// Those whose runs ended, the largest saving first.
std::vector<const what_if::row *> ordered(const what_if &savings) {
    std::vector<const what_if::row *> order;
    for (const what_if::row &row : savings.rows)
        if (row.ms) order.push_back(&row);
    std::ranges::stable_sort(order, [](const auto *a, const auto *b) { return *a->ms < *b->ms; });
    return order;
}

}  // namespace

static const char *time_word(const what_if &savings) {
    return savings.metric == "tpot_ms" ? "TPOT" : "TTFT";
}

// "-7.9 %"; what rounds to nothing is +0.0 %.
static std::string change_text(double saved) {
    const double percent = std::round(-1000 * saved) / 10;
    return format("{:+.1f} %", percent == 0 ? 0.0 : percent);
}

std::string what_if_sentence(const what_if &savings) {
    const std::vector<const what_if::row *> order = ordered(savings);
    const std::string increase = format("{:.3g} %", 100 * (savings.factor - 1));
    if (order.empty()) return "no run with more of anything ended";
    const what_if::row &first = *order.front();
    if (savings.saved(first) < share_least)
        return format(
            "nothing decides alone: {} more of any one resource saves less than half a "
            "percent",
            increase);
    std::string text = format("{} decides: {} more of it saves {:.1f} %", first.words, increase,
                              100 * savings.saved(first));
    if (order.size() > 1 && savings.saved(*order[1]) >= share_least)
        text +=
            format("; next is {}, with {:.1f} %", order[1]->words, 100 * savings.saved(*order[1]));
    return text;
}

what_if what_if_of(const run_report &base) {
    what_if savings;
    savings.metric = base.tpot_ms.mean > 0 ? "tpot_ms" : "ttft_ms";
    savings.base_ms = figure_of(savings, base);
    return savings;
}

double figure_of(const what_if &savings, const run_report &report) {
    return savings.metric == "tpot_ms" ? report.tpot_ms.mean : report.ttft_ms.mean;
}

std::string to_text(const what_if &savings) {
    const std::vector<const what_if::row *> order = ordered(savings);
    std::string text = format("\n  what would help: {} with {:.3g} % more of one resource\n",
                              time_word(savings), 100 * (savings.factor - 1));
    double top = share_least;
    for (const what_if::row *row : order) top = std::max(top, savings.saved(*row));
    for (const what_if::row *row : order) {
        const double saved = savings.saved(*row);
        std::string line =
            format("  {} {} {} {}", padded_right(row->words, 20),
                   padded_left(human_ms(*row->ms), 10), padded_left(change_text(saved), 9),
                   block_bar(std::max(0.0, saved) / top, effect_bar_columns));
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    for (const what_if::row &row : savings.rows)
        if (!row.reason.empty()) text += labelled("", row.words + ": " + row.reason);
    for (const std::string &part : wrapped(what_if_sentence(savings), text_columns - 2))
        text += "  " + part + "\n";
    return text;
}

std::string what_if_table(const std::vector<std::string> &labels,
                          const std::vector<const what_if *> &savings, size_t columns_max) {
    if (savings.empty()) return "";
    std::vector<table_column> columns{{"", labels, true}};
    for (const what_if *run : savings)
        for (const what_if::row &row : run->rows) {
            const auto known = std::ranges::find(columns, row.words, &table_column::heading);
            if (known == columns.end())
                columns.push_back({row.words, std::vector<std::string>(savings.size(), "-")});
        }
    for (size_t i = 0; i < savings.size(); ++i)
        for (const what_if::row &row : savings[i]->rows)
            if (row.ms)
                std::ranges::find(columns, row.words, &table_column::heading)->cells[i] =
                    change_text(savings[i]->saved(row));
    // A column that helps nobody leaves its room to the labels.
    std::vector<std::string> useless;
    for (size_t i = 1; i < columns.size(); ++i)
        if (std::ranges::all_of(columns[i].cells,
                                [](const auto &cell) { return cell == "+0.0 %"; }))
            useless.push_back(columns[i].heading);
    std::erase_if(columns, [&](const table_column &column) {
        return std::ranges::find(useless, column.heading) != useless.end();
    });
    std::string text = format("what would help: {} with {:.3g} % more of one resource\n",
                              time_word(*savings[0]), 100 * (savings[0]->factor - 1));
    const std::vector<size_t> widths = fitted_widths(columns, columns_max);
    text += heading_line(columns, widths);
    for (size_t i = 0; i < savings.size(); ++i) text += row_line(columns, widths, i);
    if (!useless.empty()) text += format("  no change: {}\n", listed(useless, "and"));
    return text;
}

json to_json(const what_if &savings) {
    json rows = json::array();
    for (const what_if::row &row : savings.rows)
        rows.push_back({{"resource", row.resource},
                        {"words", row.words},
                        {"value", row.ms ? json(stable(*row.ms)) : json()},
                        {"saved", row.ms ? json(stable(savings.saved(row))) : json()},
                        {"error", row.reason.empty() ? json() : json(row.reason)}});
    return {{"factor", savings.factor},
            {"metric", savings.metric},
            {"base", stable(savings.base_ms)},
            {"rows", std::move(rows)}};
}

}  // namespace moorage::core
