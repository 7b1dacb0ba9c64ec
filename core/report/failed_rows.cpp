// failed_rows.cpp - shows rows that failed.
#include "core/report/failed_rows.h"

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

std::string failed_text(std::span<const failed_row> rows, size_t columns) {
    std::string text, lead = "FAILED  ";
    for (const failed_row &row : rows) {
        const std::string said = row.label.empty() ? row.why : row.label + ": " + row.why;
        for (const std::string &line : wrapped(said, columns - lead.size())) {
            text += lead + line + "\n";
            lead = "        ";
        }
        lead = "FAILED  ";
    }
    return text;
}

json failed_json(std::span<const failed_row> rows) {
    json all = json::array();
    for (const failed_row &row : rows) {
        json one = {{"row", row.label}, {"error", row.why}};
        if (row.death->is_object()) one.update(*row.death);
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace moorage::core
