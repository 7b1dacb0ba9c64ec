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
template <class Of, class Json = json>
Json table_json(std::span<const figure_row<Of>> rows, const Of &of) {
    Json all = Json::object();
    for (const figure_row<Of> &row : rows)
        if (!row.there || row.there(of)) put_at(all, row.path, row.make(of));
    return all;
}

template <class Of>
void add_words(std::span<const figure_row<Of>> rows, const std::string &before,
               std::vector<std::pair<std::string, const figure *>> &all) {
    for (const figure_row<Of> &row : rows) all.emplace_back(before + std::string(row.path), &row);
}

struct layer_of_run {
    const run_report &run;
    size_t index;
};
json layer_json(const layer_of_run &of);
json to_json(const device_report &of);
json to_json(const host_report &of);
json to_json(const text_report &of);  // report.cpp
json versions_json(const run_report &of);
json policy_times_json(const run_report &of);
// Adds the words of the tables of parts: layers, devices, host, routing, text, cluster.
void add_part_words(std::vector<std::pair<std::string, const figure *>> &all);

}  // namespace moorage::core
