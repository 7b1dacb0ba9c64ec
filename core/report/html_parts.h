// html_parts.h - what the pages of comparisons and of placements are put together from.
#pragma once

#include <string>
#include <vector>

#include "core/report/chart.h"

namespace moorage::core {

// From the doctype to the heading, and what closes the page.
std::string page_begin(const std::string &title);
inline constexpr const char *page_end = "</main></body></html>\n";

// <name>text</name>, the text escaped.
std::string element(const std::string &name, const std::string &text);
// Keeps numbers and their percent signs on one line.
std::string unbroken(std::string text);
// "a, b, c"
std::string joined(const std::vector<std::string> &parts);
// A term and what it is, for <dl class="facts">; "" where there is nothing to say.
std::string fact_line(const std::string &name, const std::string &value);
// A chapter with its heading; "" where its body is.
std::string chapter(const std::string &heading, const std::string &note, const std::string &body);
// Figures side by side, or one below the other; those without a drawing are left out.
std::string grid_of(const std::vector<chart_figure> &figures);
std::string maps_of(const std::vector<chart_figure> &figures);

}  // namespace moorage::core
