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

using spellings = std::initializer_list<const char *>;

class config_reader {
public:
    // `root` is borrowed and must be an object. `name` is its name in errors.
    config_reader(const json &root, std::string name) : root_(&root), name_(std::move(name)) {}

    bool has(spellings keys) const { return find(keys) != nullptr; }
    // Null: absent or null.
    const json *find(spellings keys) const;

    // Without a default the key is required.
    uint32_t count(spellings keys, uint32_t min, uint32_t max,
                   std::optional<uint32_t> otherwise = std::nullopt);
    double number(spellings keys, double min, double max,
                  std::optional<double> otherwise = std::nullopt);
    bool flag(spellings keys, bool otherwise);
    std::string text(spellings keys, const std::string &otherwise);
    // Empty: absent.
    std::vector<double> numbers(spellings keys, double min, double max, size_t count_max);
    std::vector<uint32_t> counts(spellings keys, uint32_t max, size_t count_max);
    std::vector<std::string> texts(spellings keys, size_t count_max);
    // The object under a key, to be read by another reader. Null: absent.
    const json *object(spellings keys);

    // Fails with "DIR/config.json: KEY WHAT".
    void fail(std::string_view key, const std::string &what);
    // Takes over the failure of another reader of the same file.
    void adopt(const config_reader &other);
    const std::string &name() const { return name_; }
    bool failed() const { return failure_.has_value(); }
    const error &failure() const { return *failure_; }

private:
    struct found {
        const char *key;
        const json *value;
    };
    found look(spellings keys) const;
    found require(spellings keys);

    const json *root_;
    std::string name_;
    std::optional<error> failure_;
};

// A JSON value for a message, shortened: "\"relu\"", "3", "a list".
std::string described(const json &value);

// Parses the text as a JSON object. Errors give the place of the first mistake.
result<json> parse_object(std::string_view text, const std::string &name);

}  // namespace moorage::core
