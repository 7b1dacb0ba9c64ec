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
std::optional<double> whole(const json &value) {
    if (!value.is_number()) return std::nullopt;
    const double number = value.get<double>();
    if (!std::isfinite(number) || number != std::floor(number)) return std::nullopt;
    return number;
}

}  // namespace

std::string described(const json &value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    return shown(json_line(value));
}

result<json> parse_object(std::string_view text, const std::string &name) {
    if (text.size() > config_bytes_max)
        return error{format("{}: {} bytes are more than the {} that such a file may have", name,
                            text.size(), config_bytes_max)};
    result<json> root = read_json(text);
    if (!root) return error{format("{}: not valid JSON: {}", name, root.failure().text)};
    if (!root->is_object())
        return error{format("{}: holds {}, not a JSON object", name, described(*root))};
    return root;
}

config_reader::found config_reader::look(spellings keys) const {
    for (const char *key : keys)
        if (const auto at = root_->find(key); at != root_->end() && !at->is_null())
            return {key, &*at};
    return {*keys.begin(), nullptr};
}

const json *config_reader::find(spellings keys) const { return look(keys).value; }

config_reader::found config_reader::require(spellings keys) {
    const found at = look(keys);
    if (at.value != nullptr) return at;
    std::string others;
    for (const char *const *key = keys.begin() + 1; key < keys.end(); ++key)
        others += format(" (or {})", *key);
    fail(at.key, others.empty() ? "is missing" : "is missing" + others);
    return at;
}

uint32_t config_reader::count(spellings keys, uint32_t min, uint32_t max,
                              std::optional<uint32_t> otherwise) {
    const found at = otherwise ? look(keys) : require(keys);
    if (at.value == nullptr) return otherwise.value_or(min);
    const std::optional<double> number = whole(*at.value);
    if (number && *number >= min && *number <= max) return static_cast<uint32_t>(*number);
    fail(at.key,
         format("is {}; a whole number from {} to {} is needed", described(*at.value), min, max));
    return min;
}

double config_reader::number(spellings keys, double min, double max,
                             std::optional<double> otherwise) {
    const found at = otherwise ? look(keys) : require(keys);
    if (at.value == nullptr) return otherwise.value_or(min);
    if (at.value->is_number()) {
        const double number = at.value->get<double>();
        if (number >= min && number <= max) return number;
    }
    fail(at.key,
         format("is {}; a number from {:g} to {:g} is needed", described(*at.value), min, max));
    return otherwise.value_or(min);
}

bool config_reader::flag(spellings keys, bool otherwise) {
    const found at = look(keys);
    if (at.value == nullptr) return otherwise;
    if (at.value->is_boolean()) return at.value->get<bool>();
    fail(at.key, format("is {}; true or false is needed", described(*at.value)));
    return otherwise;
}

std::string config_reader::text(spellings keys, const std::string &otherwise) {
    const found at = look(keys);
    if (at.value == nullptr) return otherwise;
    if (at.value->is_string()) return at.value->get<std::string>();
    fail(at.key, format("is {}; a text is needed", described(*at.value)));
    return otherwise;
}

std::vector<double> config_reader::numbers(spellings keys, double min, double max,
                                           size_t count_max) {
    const found at = look(keys);
    if (at.value == nullptr) return {};
    std::vector<double> all;
    if (!at.value->is_array() || at.value->size() > count_max)
        return fail(at.key, format("is {}; a list of at most {} numbers is needed",
                                   described(*at.value), count_max)),
               all;
    for (const json &one : *at.value) {
        const double number = one.is_number() ? one.get<double>() : std::nan("");
        if (!(number >= min && number <= max))
            return fail(at.key, format("holds {}; numbers from {:g} to {:g} are needed",
                                       described(one), min, max)),
                   std::vector<double>{};
        all.push_back(number);
    }
    return all;
}

std::vector<uint32_t> config_reader::counts(spellings keys, uint32_t max, size_t count_max) {
    std::vector<uint32_t> all;
    for (const double number : numbers(keys, 0, max, count_max)) {
        if (number != std::floor(number))
            return fail(look(keys).key, format("holds {:g}; whole numbers are needed", number)),
                   std::vector<uint32_t>{};
        all.push_back(static_cast<uint32_t>(number));
    }
    return all;
}

std::vector<std::string> config_reader::texts(spellings keys, size_t count_max) {
    const found at = look(keys);
    if (at.value == nullptr) return {};
    std::vector<std::string> all;
    if (!at.value->is_array() || at.value->size() > count_max)
        return fail(at.key, format("is {}; a list of at most {} texts is needed",
                                   described(*at.value), count_max)),
               all;
    for (const json &one : *at.value) {
        if (!one.is_string())
            return fail(at.key, format("holds {}; texts are needed", described(one))),
                   std::vector<std::string>{};
        all.push_back(one.get<std::string>());
    }
    return all;
}

const json *config_reader::object(spellings keys) {
    const found at = look(keys);
    if (at.value == nullptr || at.value->is_object()) return at.value;
    fail(at.key, format("is {}; an object is needed", described(*at.value)));
    return nullptr;
}

void config_reader::fail(std::string_view key, const std::string &what) {
    if (!failure_) failure_ = error{format("{}: {} {}", name_, key, what)};
}

void config_reader::adopt(const config_reader &other) {
    if (!failure_ && other.failure_) failure_ = other.failure_;
}

}  // namespace moorage::core
