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
    std::string all;
    for (const std::string &key : split(name, '.')) {
        const bool index = key.find_first_not_of("0123456789") == std::string::npos;
        all += (all.empty() ? "" : ".") + (index && !key.empty() ? "*" : key);
    }
    return all;
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

void put_at(json &into, std::string_view path, json value) {
    json *at = &into;
    for (size_t dot; (dot = path.find('.')) != std::string_view::npos; path.remove_prefix(dot + 1))
        at = &(*at)[std::string(path.substr(0, dot))];
    (*at)[std::string(path)] = std::move(value);
}

const json *at_path(const json &of, std::string_view path) {
    const json *at = &of;
    for (const std::string &key : split(path, '.')) {
        if (at->is_array()) {
            size_t index = 0;
            const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), index);
            if (failure != std::errc() || end != key.data() + key.size() || index >= at->size())
                return nullptr;
            at = &(*at)[index];
        } else if (at->is_object() && at->contains(key)) {
            at = &at->at(key);
        } else {
            return nullptr;
        }
    }
    return at;
}

const figure *find_figure(std::string_view name) {
    const auto path = path_of_figure(name);
    for (const auto &[known, one] : all_figures())
        if (path && known == *path) return one;
    return nullptr;
}

std::optional<std::string> path_of_figure(std::string_view given) {
    const std::string name = with_stars(given);
    if (name.empty()) return {};
    const std::string mean = name + ".mean";  // a summary stands for it
    for (const auto &[path, one] : all_figures())
        if (path == name || path == mean) return path;
    for (const auto &[path, one] : all_figures())
        if (ends_as(path, name) || ends_as(path, mean)) return path;
    return {};
}

bool same_label(std::string_view a, std::string_view b) { return plain_label(a) == plain_label(b); }

std::optional<std::string> path_of_label(std::string_view label) {
    std::optional<std::string> of_element;
    for (const auto &[path, one] : all_figures()) {
        if (!same_label(one->label, label)) continue;
        if (path.find('*') == std::string::npos) return path;
        if (!of_element) of_element = path;
    }
    return of_element;
}

const figure *find_heading(std::string_view label) {
    for (const figure &one : heading_words())
        if (same_label(one.label, label)) return &one;
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
    json all = json::object();
    for (const auto &[path, one] : all_figures())
        all[path] = {{"label", one->label},
                     {"unit", name_of(one->unit)},
                     {"meaning", one->meaning},
                     {"better", better_names[static_cast<size_t>(one->better)]}};
    return all;
}

}  // namespace moorage::core
