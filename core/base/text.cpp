// text.cpp - edit distance, splitting and human-readable sizes.
#include "core/base/text.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace moorage::core {

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < a.size(); ++i) {
        size_t diagonal = std::exchange(row[0], i + 1);
        for (size_t j = 0; j < b.size(); ++j) {
            const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
    std::string best;
    size_t best_distance = SIZE_MAX;
    for (const std::string &candidate : candidates) {
        // Distances count in halves, so that an unfinished word is nearer than a different one.
        const bool is_begun = !word.empty() && candidate.starts_with(word);
        const size_t distance = edit_distance(word, candidate) * (is_begun ? 1 : 2);
        const size_t limit = 2 * std::max<size_t>(2, std::max(word.size(), candidate.size()) / 3);
        if (distance <= limit && distance < best_distance)
            best = candidate, best_distance = distance;
    }
    return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
    const std::string best = nearest(word, candidates);
    return best.empty() ? "" : "; did you mean " + best;
}

std::string listed(std::span<const std::string> words, std::string_view last) {
    if (words.size() < 2) return words.empty() ? "" : words[0];
    return format("{} {} {}", fmt::join(words.first(words.size() - 1), ", "), last, words.back());
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (size_t begin = 0;;) {
        const size_t end = text.find(separator, begin);
        parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
        if (end == std::string_view::npos) return parts;
        begin = end + 1;
    }
}

std::string human_bytes(double bytes) {
    static constexpr const char *units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (std::abs(bytes) >= 999.5 && unit + 1 < std::size(units)) bytes /= 1000, ++unit;
    if (unit == 0) return format("{:.0f} B", bytes);
    const int digits = std::abs(bytes) >= 99.95 ? 0 : std::abs(bytes) >= 9.995 ? 1 : 2;
    return format("{:.{}f} {}", bytes, digits, units[unit]);
}

}  // namespace moorage::core
