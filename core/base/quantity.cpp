// quantity.cpp - the table of units and the conversion between them.
#include "core/base/quantity.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <vector>

#include "core/base/text.h"

namespace moorage::core {

namespace {

enum class dimension : uint8_t { none, share, size, rate, time, frequency, power, speed, length };

// `factor` counts the smallest unit of its dimension in this table. So factors are whole numbers,
// and only one division rounds.
struct named_unit {
    std::string_view symbol;
    dimension kind;
    double factor;
};
constexpr double kilo = 1e3, mega = 1e6, giga = 1e9, tera = 1e12, peta = 1e15, kibi = 0x1p10,
                 mebi = 0x1p20, gibi = 0x1p30, tebi = 0x1p40, pebi = 0x1p50;
using enum dimension;
constexpr named_unit units[] = {
    {"%", share, 1},
    {"B", size, 1},
    {"kB", size, kilo},
    {"MB", size, mega},
    {"GB", size, giga},
    {"TB", size, tera},
    {"PB", size, peta},
    {"KiB", size, kibi},
    {"MiB", size, mebi},
    {"GiB", size, gibi},
    {"TiB", size, tebi},
    {"PiB", size, pebi},
    {"bit/s", rate, 1},
    {"kbit/s", rate, kilo},
    {"Mbit/s", rate, mega},
    {"Gbit/s", rate, giga},
    {"Tbit/s", rate, tera},
    {"B/s", rate, 8},
    {"kB/s", rate, 8 * kilo},
    {"MB/s", rate, 8 * mega},
    {"GB/s", rate, 8 * giga},
    {"TB/s", rate, 8 * tera},
    {"KiB/s", rate, 8 * kibi},
    {"MiB/s", rate, 8 * mebi},
    {"GiB/s", rate, 8 * gibi},
    {"TiB/s", rate, 8 * tebi},
    {"ns", dimension::time, 1},
    {"us", dimension::time, kilo},
    {"ms", dimension::time, mega},
    {"s", dimension::time, giga},
    {"min", dimension::time, 60 * giga},
    {"h", dimension::time, 3600 * giga},
    {"d", dimension::time, 86400 * giga},
    {"Hz", frequency, 1},
    {"kHz", frequency, kilo},
    {"MHz", frequency, mega},
    {"GHz", frequency, giga},
    {"uW", power, 1},
    {"mW", power, kilo},
    {"W", power, mega},
    {"kW", power, giga},
    {"FLOP/s", speed, 1},
    {"kFLOP/s", speed, kilo},
    {"MFLOP/s", speed, mega},
    {"GFLOP/s", speed, giga},
    {"TFLOP/s", speed, tera},
    {"PFLOP/s", speed, peta},
    {"mm", length, 1},
    {"m", length, kilo},
    {"km", length, mega},
};

// Indexed by quantity_unit: the unit of plain numbers, and the text for examples.
struct base_unit {
    std::string_view name, ending, example;
    dimension kind;
    double factor;
};
constexpr base_unit bases[] = {
    {"", "", "", none, 1},
    {"share of 1", "_share", "25%", share, 100},
    {"bytes", "_bytes", "5 GiB", size, 1},
    {"bytes/s", "_bytes_per_s", "25 GB/s", rate, 8},
    {"bit/s", "_bits_per_s", "500 Mbit/s", rate, 1},
    {"s", "_s", "2 min", dimension::time, giga},
    {"ms", "_ms", "2 s", dimension::time, mega},
    {"ns", "_ns", "10 us", dimension::time, 1},
    {"Hz", "_hz", "5 MHz", frequency, 1},
    {"W", "_w", "10 mW", power, mega},
    {"FLOP/s", "_flops_per_s", "312 TFLOP/s", speed, 1},
    {"m", "_m", "1.2 km", length, kilo},
};
constexpr const base_unit &base_of(quantity_unit unit) { return bases[static_cast<size_t>(unit)]; }

std::string in_lower_case(std::string_view word) {
    std::string lower(word);
    for (char &c : lower)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return lower;
}

error unknown_unit(std::string_view word, quantity_unit unit) {
    const std::vector<std::string> known = symbols_of(unit);
    std::string hint;
    for (const std::string &symbol : known)
        if (in_lower_case(symbol) == in_lower_case(word)) hint = "; did you mean " + symbol;
    if (hint.empty()) hint = did_you_mean(word, known);
    return {format("{} is no unit of it{}", word,
                   hint.empty() ? "; choose " + listed(known, "or") : hint),
            true};
}

}  // namespace

std::string_view name_of(quantity_unit unit) { return base_of(unit).name; }

std::string_view example_of(quantity_unit unit) { return base_of(unit).example; }

std::vector<std::string> symbols_of(quantity_unit unit) {
    std::vector<std::string> symbols;
    for (const named_unit &candidate : units)
        if (candidate.kind == base_of(unit).kind) symbols.emplace_back(candidate.symbol);
    return symbols;
}

quantity_unit unit_of_name(std::string_view key) {
    quantity_unit found = quantity_unit::none;
    size_t longest = 0;
    for (size_t i = 1; i < std::size(bases); ++i) {
        const std::string_view ending = bases[i].ending;
        if (ending.size() <= longest || !(format("_{}", key).ends_with(ending))) continue;
        const std::string_view stem =
            key.substr(0, key.size() - std::min(key.size(), ending.size()));
        // calls_per_s does not count seconds, and a key "s" is an ordinary name.
        if (stem.ends_with("_per") || (stem.empty() && ending.size() < 4)) continue;
        found = static_cast<quantity_unit>(i), longest = ending.size();
    }
    return found;
}

std::string quantity_text(double value, quantity_unit unit) {
    const base_unit &base = base_of(unit);
    assert(base.kind != none);
    const auto match = std::ranges::find_if(units, [&](const named_unit &candidate) {
        return candidate.kind == base.kind && candidate.factor == base.factor;
    });
    // Shares have no unit of their own. They are written in per cent.
    if (match == std::end(units)) return format("{} %", value * base.factor);
    return format("{} {}", value, match->symbol);
}

namespace {

// Powers of 1000, not of 1024. Units of bits if the base unit counts bits.
bool is_decimal(const named_unit &candidate, const base_unit &base) {
    if (candidate.kind != base.kind || candidate.symbol.find('i') == 1) return false;
    if (candidate.kind == rate) return candidate.symbol.ends_with("bit/s") == (base.factor == 1);
    return candidate.kind != dimension::time || candidate.factor <= giga;
}

}  // namespace

std::string short_quantity_text(double value, quantity_unit unit) {
    const base_unit &base = base_of(unit);
    const named_unit *best = nullptr;
    for (const named_unit &candidate : units)
        if (is_decimal(candidate, base) && value * base.factor >= candidate.factor &&
            (best == nullptr || candidate.factor > best->factor))
            best = &candidate;
    if (best == nullptr) return quantity_text(value, unit);
    return format("{} {}", value * base.factor / best->factor, best->symbol);
}

std::string likely_quantity_text(double number, quantity_unit unit, double low, double high,
                                 std::string_view likely) {
    const base_unit &base = base_of(unit);
    // For a quantity that may be 0, the middle is some orders of magnitude below the largest value.
    const double middle = std::sqrt(std::max(low, high * 1e-8) * high);
    const named_unit *best = nullptr;
    double least = 0;
    for (const named_unit &candidate : units) {
        if (!is_decimal(candidate, base) || candidate.factor == base.factor) continue;
        const double converted = number * candidate.factor / base.factor;
        if (!(converted >= low && converted <= high)) continue;
        // The likely unit wins unless it is further from the middle by two orders of magnitude.
        const double apart =
            std::abs(std::log10(converted / middle)) - (candidate.symbol == likely ? 2 : 0);
        if (best == nullptr || apart < least) best = &candidate, least = apart;
    }
    return best == nullptr ? std::string() : format("{} {}", number, best->symbol);
}

result<double> parse_quantity(std::string_view text, quantity_unit unit) {
    const base_unit &base = base_of(unit);
    if (base.kind == none) return error{"it has no unit", true};
    const char *const end = text.data() + text.size();
    // The library would also read "nan" and "inf".
    const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
    const bool is_number = !digits.empty() && std::string_view("0123456789.").find(digits[0]) !=
                                                  std::string_view::npos;
    double number = 0;
    const auto read = std::from_chars(text.data(), end, number);
    if (read.ec == std::errc::result_out_of_range)
        return error{"the number is too large, or too close to 0", true};
    if (read.ec != std::errc() || !is_number)
        return error{format("a number comes first, for example \"{}\"", base.example), true};
    std::string_view word(read.ptr, static_cast<size_t>(end - read.ptr));
    if (word.starts_with(' ')) word.remove_prefix(1);
    if (word.empty())
        return error{format("its unit is missing, for example \"{}\"; plain numbers, without "
                            "quotes, are in {}",
                            base.example, base.name),
                     true};
    for (const named_unit &candidate : units)
        if (candidate.kind == base.kind && candidate.symbol == word) {
            const double value = number * candidate.factor / base.factor;
            if (!std::isfinite(value)) return error{"the number is too large", true};
            return value;
        }
    return unknown_unit(word, unit);
}

}  // namespace moorage::core
