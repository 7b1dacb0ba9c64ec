// config_reader.cpp - types and limits of JSON values, and the errors that name them.
#include "core/model/config_reader.h"

#include <cmath>

#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// Far above every config.json. A larger file is not one.
constexpr size_t config_bytes_max = 1u << 20;

// A whole number, also if it is written as 4096.0.
std::optional<double> whole_number(const json &value) {
    if (!value.is_number()) return std::nullopt;
    const double number = value.get<double>();
    if (!std::isfinite(number) || number != std::floor(number)) return std::nullopt;
    return number;
}

}  // namespace

std::string describe_json(const json &value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    return printable(json_line(value));
}

result<json> parse_object(std::string_view text, const std::string &name) {
    if (text.size() > config_bytes_max)
        return error{format("{}: {} bytes are more than the {} that such a file may have", name,
                            text.size(), config_bytes_max)};
    result<json> root = read_json(text);
    if (!root) return error{format("{}: not valid JSON: {}", name, root.failure().text)};
    if (!root->is_object())
        return error{format("{}: holds {}, not a JSON object", name, describe_json(*root))};
    return root;
}

config_reader::found config_reader::find_present(key_spellings keys) const {
    for (const char *key : keys)
        if (const auto entry = root_->find(key); entry != root_->end() && !entry->is_null())
            return {key, &*entry};
    return {*keys.begin(), nullptr};
}

const json *config_reader::find(key_spellings keys) const { return find_present(keys).value; }

config_reader::found config_reader::require(key_spellings keys) {
    const found entry = find_present(keys);
    if (entry.value != nullptr) return entry;
    std::string others;
    for (const char *const *key = keys.begin() + 1; key < keys.end(); ++key)
        others += format(" (or {})", *key);
    fail(entry.key, others.empty() ? "is missing" : "is missing" + others);
    return entry;
}

uint32_t config_reader::count(key_spellings keys, uint32_t min, uint32_t max,
                              std::optional<uint32_t> default_value) {
    const found entry = default_value ? find_present(keys) : require(keys);
    if (entry.value == nullptr) return default_value.value_or(min);
    const std::optional<double> number = whole_number(*entry.value);
    if (number && *number >= min && *number <= max) return static_cast<uint32_t>(*number);
    fail(entry.key, format("is {}; a whole number from {} to {} is needed",
                           describe_json(*entry.value), min, max));
    return min;
}

double config_reader::number(key_spellings keys, double min, double max,
                             std::optional<double> default_value) {
    const found entry = default_value ? find_present(keys) : require(keys);
    if (entry.value == nullptr) return default_value.value_or(min);
    if (entry.value->is_number()) {
        const double number = entry.value->get<double>();
        if (number >= min && number <= max) return number;
    }
    fail(entry.key, format("is {}; a number from {:g} to {:g} is needed",
                           describe_json(*entry.value), min, max));
    return default_value.value_or(min);
}

bool config_reader::flag(key_spellings keys, bool default_value) {
    const found entry = find_present(keys);
    if (entry.value == nullptr) return default_value;
    if (entry.value->is_boolean()) return entry.value->get<bool>();
    fail(entry.key, format("is {}; true or false is needed", describe_json(*entry.value)));
    return default_value;
}

std::string config_reader::text(key_spellings keys, const std::string &default_value) {
    const found entry = find_present(keys);
    if (entry.value == nullptr) return default_value;
    if (entry.value->is_string()) return entry.value->get<std::string>();
    fail(entry.key, format("is {}; a text is needed", describe_json(*entry.value)));
    return default_value;
}

std::vector<double> config_reader::numbers(key_spellings keys, double min, double max,
                                           size_t count_max) {
    const found entry = find_present(keys);
    if (entry.value == nullptr) return {};
    std::vector<double> values;
    if (!entry.value->is_array() || entry.value->size() > count_max)
        return fail(entry.key, format("is {}; a list of at most {} numbers is needed",
                                      describe_json(*entry.value), count_max)),
               values;
    for (const json &element : *entry.value) {
        const double number = element.is_number() ? element.get<double>() : std::nan("");
        if (!(number >= min && number <= max))
            return fail(entry.key, format("holds {}; numbers from {:g} to {:g} are needed",
                                          describe_json(element), min, max)),
                   std::vector<double>{};
        values.push_back(number);
    }
    return values;
}

std::vector<uint32_t> config_reader::counts(key_spellings keys, uint32_t max, size_t count_max) {
    std::vector<uint32_t> values;
    for (const double number : numbers(keys, 0, max, count_max)) {
        if (number != std::floor(number))
            return fail(find_present(keys).key,
                        format("holds {:g}; whole numbers are needed", number)),
                   std::vector<uint32_t>{};
        values.push_back(static_cast<uint32_t>(number));
    }
    return values;
}

std::vector<std::string> config_reader::texts(key_spellings keys, size_t count_max) {
    const found entry = find_present(keys);
    if (entry.value == nullptr) return {};
    std::vector<std::string> values;
    if (!entry.value->is_array() || entry.value->size() > count_max)
        return fail(entry.key, format("is {}; a list of at most {} texts is needed",
                                      describe_json(*entry.value), count_max)),
               values;
    for (const json &element : *entry.value) {
        if (!element.is_string())
            return fail(entry.key, format("holds {}; texts are needed", describe_json(element))),
                   std::vector<std::string>{};
        values.push_back(element.get<std::string>());
    }
    return values;
}

const json *config_reader::object(key_spellings keys) {
    const found entry = find_present(keys);
    if (entry.value == nullptr || entry.value->is_object()) return entry.value;
    fail(entry.key, format("is {}; an object is needed", describe_json(*entry.value)));
    return nullptr;
}

void config_reader::fail(std::string_view key, const std::string &problem) {
    if (!failure_) failure_ = error{format("{}: {} {}", name_, key, problem)};
}

void config_reader::adopt(const config_reader &reader) {
    if (!failure_ && reader.failure_) failure_ = reader.failure_;
}

}  // namespace moorage::core
