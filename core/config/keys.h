// keys.h - the only definition of each configuration key: its name, values, meaning, and the member
// that it sets.
//
//     constexpr key_row<run_config> run_rows[] = {
//         {"batch", whole(1, 4096), "requests that are decoded together",
//         into<&run_config::batch>},
//         {"prefill", whole(0, 1 << 24), "tokens of a prefill pass", by_hand, "0 of a trace"}};
//
// The parser reads these rows and checks values against them. `moorage help` and
// docs/configuration.md are made from them (core/decisions/0043). A key's default is the member's
// value in a fresh struct. A row that does not fit its member's type does not compile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/quantity.h"
#include "core/base/text.h"

namespace moorage::core {

enum class value_kind : uint8_t {
    flag,
    whole,   // a whole number
    real,    // a number
    amount,  // experts: a whole number, or a share of all of them
    text,
    texts,  // a list of texts, or one text
    prose,  // texts with line breaks
    word,   // one word of a list
    path,
    paths,
    counts,  // a list of whole numbers, or one number
    other    // described by `words`
};

struct value_shape {
    value_kind kind = value_kind::other;
    quantity_unit unit = quantity_unit::none;
    uint64_t least = 0, most = 0;  // limits of a whole number or an amount
    double low = 0, high = 0;      // limits of a number: from `low`, or above it with above_low
    bool above_low = false;
    std::string_view words = {};  // "abort|replace"; for other kinds of values: "a table"
    // Range in which a plain number is believed, and 0 if `least` or `low` allow it. A plain number
    // outside it has lost its unit and is refused. A number with its unit is always accepted.
    // usual_high 0: any number.
    double usual_low = 0, usual_high = 0;
    std::string_view likely = {};  // the unit that is most often missing: "GB/s"
};

consteval value_shape whole(uint64_t least, uint64_t most,
                            quantity_unit unit = quantity_unit::none) {
    return {value_kind::whole, unit, least, most};
}
consteval value_shape real(double low, double high, quantity_unit unit = quantity_unit::none) {
    return {.kind = value_kind::real, .unit = unit, .low = low, .high = high};
}
consteval value_shape real_above(double low, double high,
                                 quantity_unit unit = quantity_unit::none) {
    return {.kind = value_kind::real, .unit = unit, .low = low, .high = high, .above_low = true};
}
consteval value_shape usually(value_shape shape, double low, double high, std::string_view likely) {
    if (shape.unit == quantity_unit::none || !(low < high)) throw "a range of a quantity";
    shape.usual_low = low, shape.usual_high = high, shape.likely = likely;
    return shape;
}
// `bytes_key`: the alternative key that counts the same in bytes.
consteval value_shape amount(uint64_t most, std::string_view bytes_key) {
    return {.kind = value_kind::amount,
            .unit = quantity_unit::share,
            .least = 1,
            .most = most,
            .words = bytes_key};
}
consteval value_shape word(std::string_view words) {
    return {.kind = value_kind::word, .words = words};
}
consteval value_shape in_words(std::string_view description) {
    return {.kind = value_kind::other, .words = description};
}
consteval value_shape of_kind(value_kind kind) { return {.kind = kind}; }
inline constexpr value_shape a_flag = of_kind(value_kind::flag), a_text = of_kind(value_kind::text),
                             a_path = of_kind(value_kind::path),
                             some_texts = of_kind(value_kind::texts),
                             some_paths = of_kind(value_kind::paths),
                             some_prose = of_kind(value_kind::prose),
                             some_counts = of_kind(value_kind::counts);

// Which parts of a cluster a key has an effect on.
enum class cluster_use : uint8_t {
    as_table,  // for a row: as its table says
    all,       // emulated clusters and real nodes
    loads,     // servers that load experts (host_experts)
    nodes,     // only real nodes
    none
};

struct config_key {
    std::string_view name;
    value_shape accepted = {};
    std::string_view meaning = {};       // a sentence without a full stop
    std::string_view default_text = {};  // the default in words, if no member has it
    cluster_use in_cluster = cluster_use::as_table;
};

class section_reader;

// A member's value as TOML; "" for an empty text.
std::string value_text(const value_shape &takes, bool value);
std::string value_text(const value_shape &takes, uint64_t value);
std::string value_text(const value_shape &takes, double value);
std::string value_text(const value_shape &takes, const std::string &value);

namespace key_rows {

template <class Value>
constexpr bool fits(value_kind kind) {
    using enum value_kind;
    if constexpr (std::is_same_v<Value, bool>) return kind == flag || kind == word;
    if constexpr (std::is_enum_v<Value>) return kind == word;
    if constexpr (std::is_same_v<Value, double>) return kind == real;
    if constexpr (std::is_integral_v<Value>) return kind == whole;
    if constexpr (std::is_same_v<Value, std::string>) return kind == text;
    if constexpr (std::is_same_v<Value, std::filesystem::path>) return kind == path;
    if constexpr (std::is_same_v<Value, std::vector<std::string>>)
        return kind == texts || kind == prose;
    if constexpr (std::is_same_v<Value, std::vector<std::filesystem::path>>) return kind == paths;
    if constexpr (std::is_same_v<Value, std::vector<uint64_t>>) return kind == counts;
    return false;
}

template <class Value>
std::string text_of(const value_shape &takes, const Value &value) {
    if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, double> ||
                  std::is_same_v<Value, std::string>)
        return value_text(takes, value);
    else if constexpr (std::is_enum_v<Value> || std::is_integral_v<Value>)
        return value_text(takes, static_cast<uint64_t>(value));
    else if constexpr (std::is_same_v<Value, std::filesystem::path>)
        return value_text(takes, value.string());
    else
        return value.empty() ? "" : "[...]";
}

template <auto Member>
struct member {};
struct none {};

}  // namespace key_rows

template <auto Member>
inline constexpr key_rows::member<Member> member{};
inline constexpr key_rows::none by_hand{};

template <class Of>
struct key_row : config_key {
    void (*read)(section_reader &, const config_key &, Of &) = nullptr;  // null: the parser reads
                                                                         // it itself
    std::string (*value)(const value_shape &, const Of &) = nullptr;

    template <auto Member>
    consteval key_row(std::string_view key, value_shape accepted, std::string_view meaning,
                      key_rows::member<Member>, std::string_view default_words = {},
                      cluster_use use = cluster_use::as_table)
        : config_key{key, accepted, meaning, default_words, use} {
        using value_type = std::remove_cvref_t<decltype(std::declval<Of>().*Member)>;
        if (!key_rows::fits<value_type>(accepted.kind)) throw "the member has another type";
        read = [](section_reader &section, const config_key &row, Of &target) {
            get(section, row, target.*Member);
        };
        value = [](const value_shape &shape, const Of &source) {
            return key_rows::text_of(shape, source.*Member);
        };
    }
    consteval key_row(std::string_view key, value_shape accepted, std::string_view meaning,
                      key_rows::none, std::string_view default_words = {},
                      cluster_use use = cluster_use::as_table)
        : config_key{key, accepted, meaning, default_words, use} {}

private:
    // A template, so that this header does not need section.h.
    template <class Reader, class Value>
    static void get(Reader &reader, const config_key &row, Value &target) {
        reader.read(row, target);
    }
};

template <class Of>
using key_rows_of = std::span<const key_row<Of>>;

// A key with its default, as TOML or in words. "": no default.
struct documented_key {
    const config_key *key;
    std::string default_text;
};

// A section, a table in a section, or a file of its own.
struct key_table {
    std::string name;      // "run", "cluster.servers", "device"
    std::string title;     // "[run]", "[[cluster.servers]]", "device profile"
    std::string meaning;   // a sentence without a full stop
    bool is_open = false;  // may also contain keys of policies
    cluster_use in_cluster = cluster_use::all;
    std::vector<documented_key> keys = {};

    const config_key *find(std::string_view key) const;  // null: it has no such key
    cluster_use use_of(std::string_view key) const;      // that of the row, or of the table
    std::vector<std::string> names() const;

    template <class Of>
    key_table &add(key_rows_of<Of> rows, const Of &untouched = {}) {
        for (const key_row<Of> &row : rows)
            keys.push_back({&row, row.value && row.default_text.empty()
                                      ? row.value(row.accepted, untouched)
                                      : std::string(row.default_text)});
        return *this;
    }
};

// All tables, in the order in which they are documented and checked.
const std::vector<key_table> &key_tables();
// Requires: a table of this name exists.
const key_table &key_table_of(std::string_view name);

// "a whole number from 1 to 4096", "a share above 0 and at most 1, or text such as \"25%\"".
std::string text_of(const value_shape &takes);
// Explains a plain number outside its usual range: what is usual, and what was probably meant.
// Empty: the number is believed.
std::string unusual_text(const value_shape &takes, double number);
std::vector<std::string> words_of(const value_shape &takes);

}  // namespace moorage::core
