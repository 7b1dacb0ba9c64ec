// section.h - reads the keys of one TOML section with their types, limits and places checked.
//
//   section_reader run("run.toml", "run");
//   run.add(node of [run]);
//   run.expect({"tokens", "batch"});
//   run.read("batch", config.batch, 1, 4096);
//   if (run.failed()) return run.failure();
//
// The first thing wrong is kept and every later call does nothing, so that a list of reads needs
// one check at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/setting.h"
#include "core/config/document.h"

namespace moorage::core {

// A key as given in the file or by --set. A value of --set that is to be text is its raw text.
struct given {
    std::string key;
    node value;
    std::string place;               // "run.toml:12" or "--set cache.half_life"
    std::optional<std::string> raw;  // of --set
};

class section_reader {
public:
    // `title` is what messages call it: "[run]".
    section_reader(std::string file, std::string title)
        : file_(std::move(file)), title_(std::move(title)) {}

    // Adds the keys of a table of the file.
    void add(const node &table);
    // Adds one of --set, which goes before every earlier one of its key.
    void add(given value) { values_.push_back(std::move(value)); }

    // Fails on a key that is not among `known`. `remedy` (may be empty) is added to the message.
    void expect(const std::vector<std::string> &known);
    // The last one given, null when there is none.
    const given *find(std::string_view key) const;
    const std::vector<given> &values() const { return values_; }

    // Each leaves `out` as it was when the key is not given.
    void read(std::string_view key, std::string &out);  // not empty, no control characters
    void read(std::string_view key, bool &out);
    void read(std::string_view key, uint64_t &out, uint64_t min, uint64_t max);
    void read(std::string_view key, uint32_t &out, uint32_t min, uint32_t max);
    // Finite; above `above` (or equal, when `or_equal`) and at most `max`.
    void read_above(std::string_view key, double &out, double above, double max,
                    bool or_equal = false);
    void read_texts(std::string_view key, std::vector<std::string> &out);  // a list, or one text
    // As read_texts, for prose: line breaks and tabs may be in it.
    void read_prose(std::string_view key, std::vector<std::string> &out);
    // A list of whole numbers from 0, or one; in ascending order, each once.
    void read_counts(std::string_view key, std::vector<uint64_t> &out, size_t count_max);
    // Fails when the key is not given.
    void require(std::string_view key, std::string_view remedy);

    void fail(const given &at, std::string_view what);
    void fail(std::string_view what);
    bool failed() const { return failure_.has_value(); }
    const error &failure() const { return *failure_; }

private:
    void read_list(std::string_view key, std::vector<std::string> &out,
                   const std::string *(*read)(const given &));

    std::string file_, title_;
    std::vector<given> values_;
    std::optional<error> failure_;
};

// The text of a value, checked: not empty, no control characters. Null when it is not such a text.
const std::string *text_of(const given &value);
// A boolean, integer, finite number or text as a setting; nothing when it is none of them.
std::optional<setting_value> setting_of(const given &value);
// "5", "text \"lru\"", "a list": the value for a message, shortened.
std::string describe(const node &value);

}  // namespace moorage::core
