// section.h - reads the keys of one TOML section with their types, limits and places checked.
//
//   section_reader run("run.toml", key_table_of("run"));
//   run.add(node of [run]);
//   run.expect();
//   run.read("batch", config.batch);     // as its row of the table says
//   if (run.failed()) return run.failure();
//
// The first error is kept, and every later call does nothing. So a list of reads needs one check at
// its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/setting.h"
#include "core/config/document.h"
#include "core/config/keys.h"

namespace moorage::core {

// A key from the file or from --set. `raw` is the text of --set, which is also its value if the key
// takes text.
struct config_value {
    std::string key;
    node value;
    std::string place;               // "run.toml:12" or "--set cache.half_life"
    std::optional<std::string> raw;  // of --set
};

class section_reader {
public:
    // Paths of the file are relative to `base`, those of --set to the current folder.
    section_reader(std::string file, const key_table &table, std::filesystem::path base = {})
        : file_(std::move(file)), title_(table.title), base_(std::move(base)), table_(&table) {}
    // For keys that no table here has. Messages call them `title`.
    section_reader(std::string file, std::string title)
        : file_(std::move(file)), title_(std::move(title)) {}

    // Adds the keys of a table in the file.
    void add(const node &table);
    // Adds a key of --set. It replaces every earlier one of its name.
    void add(config_value value) { values_.push_back(std::move(value)); }

    // Fails on a key that is not in the table, or not in `known`.
    void expect() { expect(table_->names()); }
    void expect(const std::vector<std::string> &known);
    // The last value given; null: none.
    const config_value *find(std::string_view key) const;
    const std::vector<config_value> &values() const { return values_; }

    // Each checks the given value against the key's row. If the key is not given, `value` stays.
    void read(const config_key &key, std::string &value);  // not empty, no control characters
    void read(const config_key &key, bool &value);         // a flag, or one of two words (true: the
                                                           // second)
    void read(const config_key &key, uint64_t &value);
    void read(const config_key &key, uint32_t &value);
    void read(const config_key &key, double &value);
    void read(const config_key &key, std::filesystem::path &value);  // resolved
    void read(const config_key &key, std::vector<std::filesystem::path> &values);
    void read(const config_key &key, std::vector<std::string> &values);  // a list, or one text
    // A list of whole numbers from 0, or one number. The result is sorted, without duplicates.
    void read(const config_key &key, std::vector<uint64_t> &values);
    template <class Word>
    requires std::is_enum_v<Word>
    void read(const config_key &key, Word &value) {
        if (const auto word = word_of(key)) value = static_cast<Word>(*word);
    }
    // By name: uses the table's row. Without a table, any text or flag is accepted.
    template <class Value>
    void read(std::string_view key, Value &value) {
        read(key_named(key), value);
    }
    // An amount of experts: sets `count` or `share`, whichever is given.
    void read_amount(std::string_view key, std::optional<uint32_t> &count, double &share);
    // Reads all rows that have a member.
    template <class Of>
    void read_rows(key_rows_of<Of> rows, Of &target) {
        for (const key_row<Of> &row : rows)
            if (row.read) row.read(*this, row, target);
    }
    // Fails when the key is not given.
    void require(std::string_view key, std::string_view remedy);
    // Resolves a path from where it was written: the file, or --set.
    std::filesystem::path resolved(const std::string &text, const config_value &origin) const {
        return (origin.raw ? std::filesystem::path(text) : base_ / text).lexically_normal();
    }

    void fail(const config_value &value, std::string_view problem);
    void fail(std::string_view problem);
    bool failed() const { return failure_.has_value(); }
    const error &failure() const { return *failure_; }
    const std::string &file() const { return file_; }

private:
    config_key key_named(std::string_view name) const;
    std::optional<size_t> word_of(const config_key &key);
    // The given number in the key's unit; nothing if it is no number, which is then an error.
    std::optional<double> number_of(const config_key &key, const config_value &found);
    // Is a number without its unit in the key's usual range? If not, that is an error.
    bool is_believed(const config_key &key, const config_value &found, double number);

    std::string file_, title_;
    std::filesystem::path base_;
    const key_table *table_ = nullptr;
    std::vector<config_value> values_;
    std::optional<error> failure_;
};

// The text of a value if it is sound: not empty, no control characters. Otherwise null.
const std::string *text_of(const config_value &value);
// A boolean, integer, finite number or text as a setting; nothing for other values.
std::optional<setting_value> setting_of(const config_value &value);
// "5", "text \"lru\"", "a list": the value for a message, shortened.
std::string describe(const node &value);

}  // namespace moorage::core
