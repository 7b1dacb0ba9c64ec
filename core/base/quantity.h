// quantity.h - numbers with units as people write them: "5 GiB", "500 Mbit/s", "25%", "2 min".
//
//     parse_quantity("5 GiB", quantity_unit::bytes)           // 5368709120
//     parse_quantity("500 Mbit/s", quantity_unit::bytes_per_s)  // 62500000
//
// A number, at most one space, a unit. Units are those of the SI and of IEC 80000-13 (kB is 1000
// bytes, KiB 1024); upper and lower case differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// What plain numbers of a key or flag count.
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
std::string_view name_of(quantity_unit unit);     // "bytes", "share of 1", "bit/s"; "" of none
std::string_view example_of(quantity_unit unit);  // "500 Mbit/s"; "" of none
// Those that may be written: "bit/s", "kbit/s", ...
std::vector<std::string> symbols_of(quantity_unit unit);
inline constexpr quantity_unit all_units[] = {
    quantity_unit::share,      quantity_unit::bytes, quantity_unit::bytes_per_s,
    quantity_unit::bits_per_s, quantity_unit::s,     quantity_unit::ms,
    quantity_unit::ns,         quantity_unit::hz,    quantity_unit::w,
    quantity_unit::flop_per_s, quantity_unit::m};
// As names of keys end: "_bytes", "_bits_per_s", "_share"; none where they end otherwise.
quantity_unit unit_of_name(std::string_view key);

// "25.3 B/s": a number as a text that parse_quantity() reads. Requires: the unit is not none.
std::string quantity_text(double value, quantity_unit unit);
// The same in the largest unit of powers of 1000 of which there is one at least: "1 MB/s".
std::string short_quantity_text(double value, quantity_unit unit);
// Who writes a number without its unit means one in which it lies from `low` to `high`: `likely`
// where that does, else the one that brings it nearest to their middle. Empty: there is none.
std::string likely_quantity_text(double number, quantity_unit unit, double low, double high,
                                 std::string_view likely);

// In `unit`. Finite, of either sign. Fails on what is no number with a unit of this dimension, on
// a number without one, and on what is too large; the error says what is wrong with the text.
result<double> parse_quantity(std::string_view text, quantity_unit unit);

}  // namespace moorage::core
