// failed_rows.cpp - shows rows that failed.
#include "tools/comparison/failed_rows.h"

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

std::string failed_text(std::span<const failed_row> rows, size_t columns) {
    std::string text, lead = "FAILED  ";
    for (const failed_row &row : rows) {
        const std::string said = row.label.empty() ? row.reason : row.label + ": " + row.reason;
        for (const std::string &line : wrapped(said, columns - lead.size())) {
            text += lead + line + "\n";
            lead = "        ";
        }
        lead = "FAILED  ";
    }
    return text;
}

json failed_json(std::span<const failed_row> rows) {
    json list = json::array();
    for (const failed_row &row : rows) {
        json entry = {{"row", row.label}, {"error", row.reason}};
        if (row.death->is_object()) entry.update(*row.death);
        list.push_back(std::move(entry));
    }
    return list;
}

}  // namespace moorage::core
