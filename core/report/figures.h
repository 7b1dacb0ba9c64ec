// figures.h - formats figures for people: counts, durations, shares, bars and text columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::core {

// 1,234,567
std::string with_commas(uint64_t count);
// 4.56 us, 12.3 ms, 1.20 s, 95.1 s: three significant digits.
std::string human_ms(double ms);
// Three significant digits without a unit, never in exponents: 0.0123, 4.56, 123, 12346.
std::string three_digits(double value);
// 71.2 %; "-" if there is nothing to divide by.
std::string percent(double part, double whole);

// Width in terminal columns of UTF-8 text without wide characters: its code points.
size_t columns_of(std::string_view text);
// Cut to `columns`. If something was cut off, the last column is an ellipsis.
std::string shortened(std::string_view text, size_t columns);
std::string padded_left(std::string_view text, size_t columns);   // right-aligned
std::string padded_right(std::string_view text, size_t columns);  // left-aligned
// Words in lines of at most `columns`. Longer words are broken.
std::vector<std::string> wrapped(std::string_view text, size_t columns);
// Whether the space there is between a number and its unit. No line ends there.
bool before_unit(std::string_view text, size_t space);

// Width of a text report.
inline constexpr size_t text_columns = 80;
// "  label       text": the left column of a report, and the text beside it in as many lines as it
// needs.
std::string labelled(std::string_view label, std::string_view text);

// `share` of `columns`, in eighths of a block: a bar for a terminal, not padded.
std::string block_bar(double share, size_t columns);
// One block per value, of height value / top. If there are more values than `columns`, several
// values share a block (their mean). A value of exactly 0 is a low line, not a gap.
std::string spark_line(std::span<const double> values, double top, size_t columns);

// Rounded to 6 decimals, so that bytes of a report do not depend on the last bit of a sum. -0
// becomes 0.
double stable(double value);

}  // namespace moorage::core
