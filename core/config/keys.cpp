// keys.cpp - describes rows in words, and lists the tables.
#include "core/config/keys.h"

#include <algorithm>
#include <cassert>

#include "core/config/cluster_keys.h"
#include "core/config/profile_keys.h"
#include "core/config/run_keys.h"
#include "core/config/toml_text.h"

namespace moorage::core {

std::string value_text(const value_shape &takes, bool value) {
    if (takes.kind == value_kind::word) return value_text(takes, uint64_t{value});
    return value ? "true" : "false";
}

std::string value_text(const value_shape &takes, uint64_t value) {
    if (takes.kind != value_kind::word) return format("{}", value);
    const std::vector<std::string> words = words_of(takes);
    assert(value < words.size());
    return format("\"{}\"", words[value]);
}

std::string value_text(const value_shape &, double value) { return format("{}", value); }

std::string value_text(const value_shape &, const std::string &value) {
    return value.empty() ? "" : quoted(value);
}

std::vector<std::string> words_of(const value_shape &takes) { return split(takes.words, '|'); }

std::string text_of(const value_shape &takes) {
    using enum value_kind;
    const std::string example = takes.unit == quantity_unit::none
                                    ? ""
                                    : format(", or text such as \"{}\"", example_of(takes.unit));
    const std::string plain =
        takes.usual_high == 0
            ? ""
            : format("; plain from {} to {}", short_quantity_text(takes.usual_low, takes.unit),
                     short_quantity_text(takes.usual_high, takes.unit));
    switch (takes.kind) {
        case flag:
            return "true or false";
        case whole:
        case amount:
            return format("an integer from {} to {}{}{}", takes.least, takes.most, example, plain);
        case real:
            return format("a number {} {} and at most {}{}{}", takes.above_low ? "above" : "from",
                          takes.low, takes.high, example, plain);
        case text:
            return "text";
        case texts:
            return "a text, or a list of texts";
        case prose:
            return "a text, or a list of texts, with line breaks where wanted";
        case word:
            return format("\"{}\"", fmt::join(words_of(takes), "\" or \""));
        case path:
            return "a path";
        case paths:
            return "a path, or a list of paths";
        case counts:
            return "a whole number, or a list of them";
        case other:
            return std::string(takes.words);
    }
    return {};
}

std::string unusual_text(const value_shape &takes, double number) {
    if (takes.usual_high == 0 || number == 0) return {};
    if (number >= takes.usual_low && number <= takes.usual_high) return {};
    const std::string meant =
        likely_quantity_text(number, takes.unit, takes.usual_low, takes.usual_high, takes.likely);
    return format(
        "plain numbers are in {}, and from {} to {} they are believed; {}\"{}\" is taken "
        "as it stands",
        name_of(takes.unit), short_quantity_text(takes.usual_low, takes.unit),
        short_quantity_text(takes.usual_high, takes.unit),
        meant.empty() ? "" : format("did you mean \"{}\"; ", meant),
        quantity_text(number, takes.unit));
}

const config_key *key_table::find(std::string_view key) const {
    const auto found = std::ranges::find(
        keys, key, [](const documented_key &documented) { return documented.key->name; });
    return found == keys.end() ? nullptr : found->key;
}

cluster_use key_table::use_of(std::string_view key) const {
    const config_key *row = find(key);
    return row && row->in_cluster != cluster_use::as_table ? row->in_cluster : in_cluster;
}

std::vector<std::string> key_table::names() const {
    std::vector<std::string> key_names;
    for (const documented_key &documented : keys) key_names.emplace_back(documented.key->name);
    return key_names;
}

const std::vector<key_table> &key_tables() {
    static const std::vector<key_table> all_tables = [] {
        std::vector<key_table> tables;
        add_run_tables(tables);
        add_cluster_tables(tables);
        add_profile_tables(tables);
        return tables;
    }();
    return all_tables;
}

const key_table &key_table_of(std::string_view name) {
    const auto found = std::ranges::find(key_tables(), name, &key_table::name);
    assert(found != key_tables().end());
    return *found;
}

}  // namespace moorage::core
