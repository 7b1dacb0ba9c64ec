// json.cpp - the functions of json_fwd.h that need the complete JSON type.
#include "core/base/json.h"

#include <algorithm>
#include <utility>

#include "core/base/visible.h"

namespace moorage::core {

json parse_json(std::string_view text) { return json::parse(text.begin(), text.end()); }

json json_or_discarded(std::string_view text) {
    return json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

result<json> read_json(std::string_view text) { return read_json_as<json>(text); }

namespace {

constexpr std::string_view non_finite_words[] = {"-Infinity", "Infinity", "NaN"};

}  // namespace

std::string unquote_non_finite_numbers(std::string text) {
    for (const std::string_view word : non_finite_words) {
        const std::string quoted = json_quoted(word);
        for (size_t position = 0; (position = text.find(quoted, position)) != text.npos;
             position += word.size())
            text.replace(position, quoted.size(), word);
    }
    return text;
}

std::string quote_non_finite_numbers(std::string_view text) {
    std::string quoted;
    quoted.reserve(text.size());
    bool in_text = false;
    for (size_t position = 0; position < text.size();) {
        const char letter = text[position];
        if (!in_text && (letter == '-' || letter == 'I' || letter == 'N')) {
            const auto word =
                std::ranges::find_if(non_finite_words, [&](std::string_view candidate) {
                    return text.substr(position).starts_with(candidate);
                });
            if (word != std::end(non_finite_words)) {
                quoted.append("\"").append(*word).append("\"");
                position += word->size();
                continue;
            }
        }
        const size_t taken = in_text && letter == '\\' ? 2 : 1;  // an escaped quote does not end
                                                                 // the text
        if (letter == '"') in_text = !in_text;
        quoted += text.substr(position, taken);
        position += taken;
    }
    return quoted;
}

std::string json_problem(std::string_view message) {
    constexpr std::string_view id_end = "] ", token = "last read: '", token_end = "'";
    constexpr size_t token_max = 60, text_max = 400;
    if (const size_t id_end_position = message.find(id_end); id_end_position != message.npos)
        message.remove_prefix(id_end_position + id_end.size());
    std::string text(message);
    const size_t begin = text.find(token), end = text.rfind(token_end);
    if (begin != text.npos && end > begin + token.size() + token_max) {
        const size_t first = begin + token.size();
        // The end of the token, next to the mistake, helps more than its beginning.
        text.replace(first, end - token_max - first, "...");
    }
    if (text.size() > text_max) text = text.substr(0, text_max) + "...";
    return visible(text);
}

std::string json_line(const json &value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_quoted(std::string_view text) { return json_line(json(text)); }

std::string repaired_utf8(std::string_view text) {
    const bool plain = std::all_of(text.begin(), text.end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    return plain ? std::string(text) : parse_json(json_quoted(text)).get<std::string>();
}

json_box::json_box() : held_(std::make_unique<json>()) {}
json_box::json_box(json value) : held_(std::make_unique<json>(std::move(value))) {}
json_box::json_box(const json_box &source) : held_(std::make_unique<json>(*source.held_)) {}
json_box::json_box(json_box &&source) noexcept = default;
json_box &json_box::operator=(json_box &&source) noexcept = default;
json_box::~json_box() = default;

json_box &json_box::operator=(const json_box &source) {
    held_ = std::make_unique<json>(*source.held_);
    return *this;
}

json &json_box::operator[](const std::string &key) { return (*held_)[key]; }
const json &json_box::operator[](const std::string &key) const {
    return std::as_const(*held_)[key];
}

std::vector<uint8_t> json_box::cbor() const { return json::to_cbor(*held_); }

bool json_box::read_cbor(const std::vector<uint8_t> &bytes) {
    json read = json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
    const bool sound = !read.is_discarded();
    *this = json_box(sound ? std::move(read) : json());
    return sound;
}

}  // namespace moorage::core
