// report_figures.h - shared by the files that hold tables of figures. Other files use
// figure_table.h.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/report/figure_table.h"
#include "core/report/report.h"

namespace moorage::core {

// Every figure that applies, in the order of the table. Json: `json`, which is only known where
// this is used.
template <class Subject, class Json = json>
Json table_json(std::span<const figure_row<Subject>> rows, const Subject &subject) {
    Json figures = Json::object();
    for (const figure_row<Subject> &row : rows)
        if (!row.applies || row.applies(subject)) put_at(figures, row.path, row.make(subject));
    return figures;
}

template <class Subject>
void add_words(std::span<const figure_row<Subject>> rows, const std::string &prefix,
               std::vector<std::pair<std::string, const figure *>> &figures) {
    for (const figure_row<Subject> &row : rows)
        figures.emplace_back(prefix + std::string(row.path), &row);
}

struct layer_of_run {
    const run_report &run;
    size_t index;
};
json layer_json(const layer_of_run &layer);
json to_json(const device_report &device);
json to_json(const host_report &host);
json to_json(const text_report &text);  // report.cpp
json versions_json(const run_report &report);
json policy_times_json(const run_report &report);
// Adds the words of the tables of parts: layers, devices, host, routing, text, cluster.
void add_part_words(std::vector<std::pair<std::string, const figure *>> &figures);

}  // namespace moorage::core
