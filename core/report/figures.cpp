// figures.cpp - formatting of counts, durations and shares, and text measured in code points.
#include "core/report/figures.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// Offset of code point `index`, or the text's size when it has fewer.
size_t offset_of_column(std::string_view text, size_t index) {
    size_t offset = 0;
    for (; offset < text.size(); ++offset) {
        const bool continues = (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80;
        if (continues) continue;
        if (index == 0) return offset;
        --index;
    }
    return offset;
}

int decimals_for_three_digits(double value) {
    const double size = std::abs(value);
    if (size >= 99.95 || size == 0) return 0;
    if (size >= 9.995) return 1;
    if (size >= 0.9995) return 2;
    return std::min(8, 2 - int(std::floor(std::log10(size))));
}

}  // namespace

std::string with_commas(uint64_t count) {
    std::string digits = format("{}", count);
    for (size_t position = digits.size(); position > 3; position -= 3)
        digits.insert(position - 3, ",");
    return digits;
}

std::string three_digits(double value) {
    return format("{:.{}f}", value, decimals_for_three_digits(value));
}

std::string human_ms(double ms) {
    if (ms == 0) return "0 ms";
    if (std::abs(ms) < 0.9995e-3) return three_digits(ms * 1e6) + " ns";
    if (std::abs(ms) < 0.9995) return three_digits(ms * 1e3) + " us";
    if (std::abs(ms) < 999.5) return three_digits(ms) + " ms";
    return three_digits(ms / 1e3) + " s";
}

std::string percent(double part, double whole) {
    if (whole == 0) return "-";
    return format("{:.1f} %", 100 * part / whole);
}

size_t columns_of(std::string_view text) {
    return size_t(std::count_if(text.begin(), text.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    }));
}

std::string shortened(std::string_view text, size_t columns) {
    if (columns_of(text) <= columns) return std::string(text);
    if (columns == 0) return "";
    return std::string(text.substr(0, offset_of_column(text, columns - 1))) + "…";
}

std::string padded_left(std::string_view text, size_t columns) {
    const size_t used = columns_of(text);
    return std::string(columns > used ? columns - used : 0, ' ') + std::string(text);
}

std::string padded_right(std::string_view text, size_t columns) {
    const size_t used = columns_of(text);
    return std::string(text) + std::string(columns > used ? columns - used : 0, ' ');
}

bool before_unit(std::string_view text, size_t space) {
    if (space == 0 || text[space] != ' ' || text[space - 1] < '0' || text[space - 1] > '9')
        return false;
    const std::string_view rest = text.substr(space + 1);
    const std::string_view word = rest.substr(0, rest.find_first_of(" ,;:.)\n"));
    constexpr std::string_view units[] = {"%",  "ns", "us", "ms", "s",   "B",
                                          "kB", "MB", "GB", "TB", "MiB", "GiB"};
    return std::ranges::find(units, word) != std::end(units);
}

std::vector<std::string> wrapped(std::string_view text, size_t columns) {
    std::vector<std::string> lines(1);
    for (std::string_view rest = text; !rest.empty();) {
        size_t end = rest.find(' ');
        if (end < rest.size() && before_unit(rest, end)) end = rest.find(' ', end + 1);
        end = std::min(end, rest.size());
        std::string_view word = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (word.empty()) continue;
        if (!lines.back().empty() && columns_of(lines.back()) + 1 + columns_of(word) > columns)
            lines.emplace_back();
        while (columns_of(word) > columns) {
            const size_t cut = offset_of_column(word, columns);
            lines.back() = word.substr(0, cut);
            lines.emplace_back();
            word.remove_prefix(cut);
        }
        if (!lines.back().empty()) lines.back() += ' ';
        lines.back() += word;
    }
    return lines;
}

std::string block_bar(double share, size_t columns) {
    static constexpr const char *parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const double clamped = std::clamp(share, 0.0, 1.0);
    const size_t eighths = size_t(std::lround(clamped * double(columns) * 8));
    std::string bar;
    for (size_t i = 0; i < eighths / 8; ++i) bar += "█";
    return bar + parts[eighths % 8];
}

std::string spark_line(std::span<const double> values, double top, size_t columns) {
    static constexpr const char *heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const size_t shown = std::min(values.size(), columns);
    std::string line;
    for (size_t i = 0; i < shown; ++i) {
        const size_t begin = i * values.size() / shown, end = (i + 1) * values.size() / shown;
        double sum = 0;
        for (size_t j = begin; j < end; ++j) sum += values[j];
        const double share = top > 0 ? sum / double(end - begin) / top : 0;
        line += heights[size_t(std::lround(std::clamp(share, 0.0, 1.0) * 7))];
    }
    return line;
}

double stable(double value) { return std::round(value * 1e6) / 1e6 + 0.0; }

std::string labelled(std::string_view label, std::string_view text) {
    std::string lines;
    for (const std::string &part : wrapped(text, text_columns - 14)) {
        lines += "  " + padded_right(label, 12) + part + "\n";
        label = "";
    }
    return lines;
}

}  // namespace moorage::core
