// quantity.h - numbers with units as people write them: "5 GiB", "500 Mbit/s", "25%", "2 min".
//
//     parse_quantity("5 GiB", quantity_unit::bytes)           // 5368709120
//     parse_quantity("500 Mbit/s", quantity_unit::bytes_per_s)  // 62500000
//
// The format is a number, at most one space, and a unit. Units are those of the SI and of IEC
// 80000-13: kB is 1000 bytes, KiB 1024. Upper and lower case differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// The unit of a plain number for a key or flag.
enum class quantity_unit : uint8_t {
    none,  // a count, or a ratio
    share,
    bytes,
    bytes_per_s,
    bits_per_s,
    s,
    ms,
    ns,
    hz,
    w,
    flop_per_s,
    m
};
std::string_view name_of(quantity_unit unit);     // "bytes", "share of 1", "bit/s"; "" for none
std::string_view example_of(quantity_unit unit);  // "500 Mbit/s"; "" for none
// The symbols that may be written: "bit/s", "kbit/s", ...
std::vector<std::string> symbols_of(quantity_unit unit);
inline constexpr quantity_unit all_units[] = {
    quantity_unit::share,      quantity_unit::bytes, quantity_unit::bytes_per_s,
    quantity_unit::bits_per_s, quantity_unit::s,     quantity_unit::ms,
    quantity_unit::ns,         quantity_unit::hz,    quantity_unit::w,
    quantity_unit::flop_per_s, quantity_unit::m};
// By the ending of a key's name: "_bytes", "_bits_per_s", "_share". Other endings: none.
quantity_unit unit_of_name(std::string_view key);

// "25.3 B/s": a text that parse_quantity() reads. Requires: the unit is not none.
std::string quantity_text(double value, quantity_unit unit);
// As above, in the largest unit (a power of 1000) that gives at least 1: "1 MB/s".
std::string short_quantity_text(double value, quantity_unit unit);
// Guesses the unit that is missing behind `number`. It is `likely` if that puts the value between
// `low` and `high`. Otherwise it is the unit that puts it nearest to their middle. Empty: no unit
// does.
std::string likely_quantity_text(double number, quantity_unit unit, double low, double high,
                                 std::string_view likely);

// The value in `unit`, finite, of either sign. Fails if the text is no number, if it has no unit or
// one of another dimension, or if the value overflows. The error says what is wrong with the text.
result<double> parse_quantity(std::string_view text, quantity_unit unit);

}  // namespace moorage::core
