// figure_table.h - the one definition of each figure: its place in the JSON report, its unit, its
// meaning, where it applies, and how it is read from a report.
//
//     constexpr figure_row<run_report> rows[] = {
//         {{"tokens_per_s", figure_unit::per_s, better_when::larger, "tokens/s", "whole run"},
//          [](const run_report &report) -> json { return stable(report.tokens_per_s); }}};
//
// JSON, columns of comparisons, pages, targets of `tune` and `moorage help` are made from these
// tables. A row without a producer does not compile. A figure that was not measured is null.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"

namespace moorage::core {

struct run_report;

enum class figure_unit : uint8_t { text, flag, count, share, ratio, ms, s, bytes, per_s, parts };
std::string_view name_of(figure_unit unit);  // "ms", "share of 1"

// In which direction a figure is better, for targets and marks.
enum class better_when : uint8_t { neither, smaller, larger };

struct figure {
    std::string_view path;  // "tpot_ms.p99"; for an element of a list, without the list's name
    figure_unit unit = figure_unit::text;
    better_when better = better_when::neither;
    std::string_view label;           // heading of a column: "p99 ms"
    std::string_view meaning;         // a sentence without a full stop
    std::string_view condition = {};  // the reports that have it; "": all
};

template <class Subject>
struct figure_row : figure {
    json (*make)(const Subject &);
    bool (*applies)(const Subject &);  // null: always

    consteval figure_row(figure words, json (*produce)(const Subject &),
                         bool (*test)(const Subject &) = nullptr)
        : figure(words), make(produce), applies(test) {
        if (make == nullptr) throw "a figure needs a producer";
        if ((applies == nullptr) != condition.empty())
            throw "where a figure is has words and a test";
    }
};

// Puts `value` at a path of objects. Creates these objects.
void put_at(json &root, std::string_view path, json value);
// The value at a path of objects and, by number, of lists. null: there is no such place.
const json *at_path(const json &root, std::string_view path);

// All figures of a run's report by their whole paths ("layers.*.hit_rate"), in order.
const std::vector<std::pair<std::string, const figure *>> &all_figures();
// Finds a figure by its whole path, or by its last words alone ("hit_rate", "h2d"): the first one.
// null: none.
const figure *find_figure(std::string_view name);
// The same, as the path in a report.
std::optional<std::string> path_of_figure(std::string_view name);
// Finds a figure by the heading that tables show, in any case, with or without the unit after it
// ("TPOT"). A figure of the whole run comes before one of a list's elements.
std::optional<std::string> path_of_label(std::string_view label);
// Headings of tables that are not figures of a report, each with its meaning. Paths are empty.
std::span<const figure> heading_words();
// Finds a heading. null: none.
const figure *find_heading(std::string_view label);
// Whether two headings are equal, except for upper case and a unit of time after them.
bool same_label(std::string_view a, std::string_view b);
// The value of a run's own figure (not of a list's element). Null: not measured, or no such one.
json value_of_figure(const run_report &report, std::string_view path);

// A measured time. null if nothing was timed, because no time is 0.
json time_figure(double ms);
// As people read it: "12.3 ms", "71.2 %", "1,234", "3.00 MB". null gives "-".
std::string figure_text(figure_unit unit, const json &value);
// For pages: {path: {"label", "unit", "meaning", "better"}}.
json figures_json();

}  // namespace moorage::core
