// figure_words.cpp - figures by name, and how their values are read.
#include <array>
#include <charconv>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/report_figures.h"

namespace moorage::core {

namespace {

constexpr std::array<std::string_view, 10> unit_names = {
    "text", "yes or no", "count", "share of 1", "ratio", "ms", "s", "bytes", "1/s", "parts"};
constexpr std::array<std::string_view, 3> better_names = {"", "smaller", "larger"};

// "layers.3.hit_rate" as "layers.*.hit_rate".
std::string with_stars(std::string_view name) {
    std::string starred;
    for (const std::string &key : split(name, '.')) {
        const bool index = key.find_first_not_of("0123456789") == std::string::npos;
        starred += (starred.empty() ? "" : ".") + (index && !key.empty() ? "*" : key);
    }
    return starred;
}

// As far as a name may be shortened: its end, after a point.
bool ends_as(std::string_view path, std::string_view name) {
    if (path == name) return true;
    if (path.size() <= name.size() || !path.ends_with(name)) return false;
    return path[path.size() - name.size() - 1] == '.';
}

// "TPOT ms" as "tpot".
std::string plain_label(std::string_view label) {
    std::string plain(label);
    for (char &c : plain)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    for (const std::string_view unit : {" ms", " s"})
        if (plain.ends_with(unit)) return plain.substr(0, plain.size() - unit.size());
    return plain;
}

}  // namespace

std::string_view name_of(figure_unit unit) { return unit_names[static_cast<size_t>(unit)]; }

void put_at(json &root, std::string_view path, json value) {
    json *node = &root;
    for (size_t dot; (dot = path.find('.')) != std::string_view::npos; path.remove_prefix(dot + 1))
        node = &(*node)[std::string(path.substr(0, dot))];
    (*node)[std::string(path)] = std::move(value);
}

const json *at_path(const json &root, std::string_view path) {
    const json *node = &root;
    for (const std::string &key : split(path, '.')) {
        if (node->is_array()) {
            size_t index = 0;
            const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), index);
            if (failure != std::errc() || end != key.data() + key.size() || index >= node->size())
                return nullptr;
            node = &(*node)[index];
        } else if (node->is_object() && node->contains(key)) {
            node = &node->at(key);
        } else {
            return nullptr;
        }
    }
    return node;
}

const figure *find_figure(std::string_view name) {
    const auto path = path_of_figure(name);
    for (const auto &[known, figure] : all_figures())
        if (path && known == *path) return figure;
    return nullptr;
}

std::optional<std::string> path_of_figure(std::string_view requested_name) {
    const std::string name = with_stars(requested_name);
    if (name.empty()) return {};
    const std::string mean = name + ".mean";  // a summary stands for it
    for (const auto &[path, figure] : all_figures())
        if (path == name || path == mean) return path;
    for (const auto &[path, figure] : all_figures())
        if (ends_as(path, name) || ends_as(path, mean)) return path;
    return {};
}

bool same_label(std::string_view a, std::string_view b) { return plain_label(a) == plain_label(b); }

std::optional<std::string> path_of_label(std::string_view label) {
    std::optional<std::string> of_element;
    for (const auto &[path, figure] : all_figures()) {
        if (!same_label(figure->label, label)) continue;
        if (path.find('*') == std::string::npos) return path;
        if (!of_element) of_element = path;
    }
    return of_element;
}

const figure *find_heading(std::string_view label) {
    for (const figure &figure : heading_words())
        if (same_label(figure.label, label)) return &figure;
    return nullptr;
}

json time_figure(double ms) { return ms == 0 ? json() : json(stable(ms)); }

std::string figure_text(figure_unit unit, const json &value) {
    if (value.is_null()) return "-";
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    if (!value.is_number()) return value.dump();
    const double number = value.get<double>();
    switch (unit) {
        case figure_unit::count:
            return with_commas(value.get<uint64_t>());
        case figure_unit::share:
            return percent(number, 1);
        case figure_unit::ms:
            return human_ms(number);
        case figure_unit::s:
            return human_ms(number * 1e3);
        case figure_unit::bytes:
            return human_bytes(number);
        case figure_unit::ratio:
            return format("{:.2f}", number);
        default:
            return three_digits(number);
    }
}

json figures_json() {
    json figures = json::object();
    for (const auto &[path, figure] : all_figures())
        figures[path] = {{"label", figure->label},
                         {"unit", name_of(figure->unit)},
                         {"meaning", figure->meaning},
                         {"better", better_names[static_cast<size_t>(figure->better)]}};
    return figures;
}

}  // namespace moorage::core
