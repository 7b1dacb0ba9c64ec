// page.h - a report as one HTML file that needs nothing else: it carries its JSON, and a script
// draws from it.
//
//     std::string html = to_html({.title = "...", .kind = "comparison", .data =
//     to_json(compared)});
//
// page/page.js has a function for each kind, which names figures by their paths (figure_table.h).
// The page itself contains all text, for readers without scripts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"
#include "tools/comparison/failed_rows.h"

namespace moorage::core {

struct page {
    std::string title;
    std::string kind;                       // "comparison", "placement", "frontier", "validation"
    std::string command = {};               // command that makes the page again; may be empty
    std::vector<std::string> reading = {};  // sentences; those that begin with "warning" are
                                            // highlighted
    std::span<const failed_row> failed = {};
    std::string text = {};  // the report as a terminal shows it
    json_box data = {};
};
// Well-formed XML apart from the doctype line and what is in <script>.
std::string to_html(const page &page);

// For text and attribute values; control characters and broken UTF-8 are replaced.
std::string escape_markup(std::string_view text);
// <name>text</name>, the text escaped.
std::string element(const std::string &name, const std::string &text);

}  // namespace moorage::core
