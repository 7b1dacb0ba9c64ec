// config_reader.h - typed reads of the keys of a JSON object. The first failure is kept.
//
//   config_reader reader(root, "DIR/config.json");
//   config.hidden = reader.count({"hidden_size"}, 1, 131072);
//   if (reader.failed()) return reader.failure();
//
// A key may have several spellings, old and new. The first one that is present counts. null means
// absent, as in the reference. After a failure every read returns its default or minimum.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"

namespace moorage::core {

using key_spellings = std::initializer_list<const char *>;

class config_reader {
public:
    // `root` is borrowed and must be an object. `name` is its name in errors.
    config_reader(const json &root, std::string name) : root_(&root), name_(std::move(name)) {}

    bool has(key_spellings keys) const { return find(keys) != nullptr; }
    // Null: absent or null.
    const json *find(key_spellings keys) const;

    // Without a default the key is required.
    uint32_t count(key_spellings keys, uint32_t min, uint32_t max,
                   std::optional<uint32_t> default_value = std::nullopt);
    double number(key_spellings keys, double min, double max,
                  std::optional<double> default_value = std::nullopt);
    bool flag(key_spellings keys, bool default_value);
    std::string text(key_spellings keys, const std::string &default_value);
    // Empty: absent.
    std::vector<double> numbers(key_spellings keys, double min, double max, size_t count_max);
    std::vector<uint32_t> counts(key_spellings keys, uint32_t max, size_t count_max);
    std::vector<std::string> texts(key_spellings keys, size_t count_max);
    // The object under a key, to be read by another reader. Null: absent.
    const json *object(key_spellings keys);

    // Fails with "DIR/config.json: KEY WHAT".
    void fail(std::string_view key, const std::string &problem);
    // Takes over the failure of another reader of the same file.
    void adopt(const config_reader &reader);
    const std::string &name() const { return name_; }
    bool failed() const { return failure_.has_value(); }
    const error &failure() const { return *failure_; }

private:
    struct found {
        const char *key;
        const json *value;
    };
    found find_present(key_spellings keys) const;
    found require(key_spellings keys);

    const json *root_;
    std::string name_;
    std::optional<error> failure_;
};

// A JSON value for a message, shortened: "\"relu\"", "3", "a list".
std::string describe_json(const json &value);

// Parses the text as a JSON object. Errors give the place of the first mistake.
result<json> parse_object(std::string_view text, const std::string &name);

}  // namespace moorage::core
