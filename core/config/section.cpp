// section.cpp - typed reads of one section's keys. The first error is kept.
#include "core/config/section.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/base/text.h"

namespace moorage::core {

namespace {

bool is_plain_text(std::string_view text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// The part of the key's meaning that explains 0: " (0: all)"; "": there is none.
std::string meaning_of_zero(const config_key &key) {
    const size_t place = key.meaning.find("0: ");
    const bool is_apart = place == 0 || (place != std::string_view::npos && place >= 2 &&
                                         key.meaning.substr(place - 2, 2) == "; ");
    if (!is_apart) return "";
    return format(" ({})", key.meaning.substr(place, key.meaning.find(';', place) - place));
}

}  // namespace

std::string describe(const node &value) {
    switch (value.type) {
        case node_type::boolean:
            return value.boolean ? "true" : "false";
        case node_type::integer:
            return format("{}", value.integer);
        case node_type::number:
            return format("the number {:#.6g}", value.number);
        case node_type::text:
            if (!is_plain_text(value.text)) return "text with control characters";
            if (value.text.size() > 60)
                return format("the text \"{}...\"", value.text.substr(0, 57));
            return format("the text \"{}\"", value.text);
        default:
            return name_of(value.type);
    }
}

const std::string *text_of(const config_value &value) {
    const std::string *text = nullptr;
    if (value.value.type == node_type::text)
        text = &value.value.text;
    else if (value.raw && value.value.type != node_type::list)
        text = &*value.raw;
    return text && !text->empty() && is_plain_text(*text) ? text : nullptr;
}

std::optional<setting_value> setting_of(const config_value &value) {
    const node &parsed = value.value;
    switch (parsed.type) {
        case node_type::boolean:
            return parsed.boolean;
        case node_type::integer:
            return parsed.integer;
        case node_type::number:
            if (!std::isfinite(parsed.number)) return std::nullopt;
            return parsed.number;
        case node_type::text:
            if (!is_plain_text(parsed.text)) return std::nullopt;
            return parsed.text;
        default:
            return std::nullopt;
    }
}

void section_reader::add(const node &table) {
    for (const entry &inner : table.entries) {
        std::string place = format("{}:{}", file_, inner.value.line);
        values_.push_back({inner.key, inner.value, std::move(place), std::nullopt});
    }
}

void section_reader::expect(const std::vector<std::string> &known) {
    for (const config_value &value : values_) {
        if (std::find(known.begin(), known.end(), value.key) != known.end()) continue;
        const std::string hint = did_you_mean(value.key, known);
        std::string known_list;
        for (const std::string &key : known) known_list += (known_list.empty() ? "" : ", ") + key;
        fail(format("{}: unknown key {} in {}{}", value.place, value.key, title_,
                    hint.empty() ? "; it has " + known_list : hint));
    }
}

const config_value *section_reader::find(std::string_view key) const {
    const auto found = std::find_if(values_.rbegin(), values_.rend(),
                                    [&](const config_value &value) { return value.key == key; });
    return found == values_.rend() ? nullptr : &*found;
}

void section_reader::fail(std::string_view problem) {
    if (!failure_) failure_ = error{std::string(problem), true};
}

void section_reader::fail(const config_value &value, std::string_view problem) {
    fail(format("{}: {} {} is {}; {}", value.place, title_, value.key, describe(value.value),
                problem));
}

config_key section_reader::key_named(std::string_view name) const {
    if (!table_) return {.name = name, .accepted = a_text};
    const config_key *key = table_->find(name);
    assert(key != nullptr);
    return *key;
}

void section_reader::read(const config_key &key, std::string &value) {
    const config_value *found = find(key.name);
    if (!found || failed()) return;
    if (const std::string *text = text_of(*found))
        value = *text;
    else
        fail(*found, "text is needed, not empty and without control characters");
}

std::optional<size_t> section_reader::word_of(const config_key &key) {
    std::string text;
    read(key, text);
    if (text.empty() || failed()) return std::nullopt;
    const std::vector<std::string> words = words_of(key.accepted);
    const auto word = std::ranges::find(words, text);
    if (word != words.end()) return static_cast<size_t>(word - words.begin());
    fail(*find(key.name), format("choose {}{}", listed(words, "or"), did_you_mean(text, words)));
    return std::nullopt;
}

void section_reader::read(const config_key &key, bool &value) {
    const config_value *found = find(key.name);
    if (!found || failed()) return;
    if (key.accepted.kind == value_kind::word) {
        if (const auto word = word_of(key)) value = *word == 1;
    } else if (found->value.type == node_type::boolean) {
        value = found->value.boolean;
    } else {
        fail(*found, "true or false is needed");
    }
}

std::optional<double> section_reader::number_of(const config_key &key, const config_value &found) {
    const node &value = found.value;
    if (value.type == node_type::integer) return static_cast<double>(value.integer);
    const quantity_unit unit = key.accepted.unit;
    const bool has_unit = unit != quantity_unit::none;
    if (value.type == node_type::number && (key.accepted.kind == value_kind::real || has_unit))
        return value.number;
    if (value.type == node_type::text && has_unit) {
        const auto read = parse_quantity(value.text, unit);
        if (read) return *read;
        fail(found, read.failure().text);
    } else {
        fail(found, text_of(key.accepted) + " is needed");
    }
    return std::nullopt;
}

bool section_reader::is_believed(const config_key &key, const config_value &found, double number) {
    if (found.value.type == node_type::text) return true;
    const std::string unusual = unusual_text(key.accepted, number);
    if (!unusual.empty()) fail(found, unusual);
    return unusual.empty();
}

void section_reader::read(const config_key &key, uint64_t &value) {
    const config_value *found = find(key.name);
    if (!found || failed()) return;
    const uint64_t least = key.accepted.least, most = key.accepted.most;
    const auto wrong = [&] {
        fail(*found, format("choose from {} to {}{}", least, most, meaning_of_zero(key)));
    };
    if (found->value.type == node_type::integer) {  // exact, beyond the precision of a double
        const int64_t whole = found->value.integer;
        if (whole < 0 || static_cast<uint64_t>(whole) < least ||
            static_cast<uint64_t>(whole) > most)
            return wrong();
        if (!is_believed(key, *found, static_cast<double>(whole))) return;
        value = static_cast<uint64_t>(whole);
    } else if (const auto number = number_of(key, *found)) {
        const double whole = std::round(*number);
        // Rounding may lose part of a byte, as in "0.3 GiB". It must not lose more: "1.5 ms" is
        // refused if whole milliseconds are needed.
        if (std::abs(*number - whole) > 1e-6 * std::abs(*number))
            return fail(*found, text_of(key.accepted) + " is needed");
        // This form also refuses NaN.
        if (!(whole >= static_cast<double>(least)) || !(whole <= static_cast<double>(most)))
            return wrong();
        if (!is_believed(key, *found, *number)) return;
        value = static_cast<uint64_t>(whole);
    }
}

void section_reader::read(const config_key &key, uint32_t &value) {
    uint64_t wide = value;
    read(key, wide);
    value = static_cast<uint32_t>(wide);
}

void section_reader::read(const config_key &key, double &value) {
    const config_value *found = find(key.name);
    if (!found || failed()) return;
    const value_shape &takes = key.accepted;
    const auto number = number_of(key, *found);
    if (!number) return;
    // This form also refuses NaN.
    const bool enough = takes.above_low ? *number > takes.low : *number >= takes.low;
    if (!enough || !(*number <= takes.high)) return fail(*found, text_of(takes) + " is needed");
    if (!is_believed(key, *found, *number)) return;
    value = *number;
}

void section_reader::read_amount(std::string_view name, std::optional<uint32_t> &count,
                                 double &share) {
    const config_value *found = find(name);
    if (!found || failed()) return;
    const config_key &key = key_named(name);
    if (found->value.type == node_type::text) {
        if (parse_quantity(found->value.text, quantity_unit::bytes))
            return fail(*found, format("it counts experts; for their size say {} = \"{}\"",
                                       key.accepted.words, found->value.text));
        const auto number = number_of(key, *found);
        if (!number) return;
        if (!(*number > 0) || !(*number <= 1))  // also refuses NaN
            return fail(*found, "a share is above 0 % and at most 100 %; " + text_of(key.accepted) +
                                    " is needed");
        share = *number;
        return;
    }
    if (found->value.type != node_type::integer)
        return fail(*found, text_of(key.accepted) + " is needed");
    uint32_t whole = 0;
    read(key, whole);
    if (!failed()) count = whole;
}

void section_reader::read(const config_key &key, std::filesystem::path &value) {
    std::string text;
    read(key, text);
    if (!failed() && !text.empty()) value = resolved(text, *find(key.name));
}

void section_reader::read(const config_key &key, std::vector<std::filesystem::path> &values) {
    std::vector<std::string> texts;
    read(key, texts);
    if (failed() || !find(key.name)) return;
    values.clear();
    for (const std::string &text : texts) values.push_back(resolved(text, *find(key.name)));
}

namespace {

const std::string *prose_of(const config_value &value) {
    if (value.raw) return value.raw->empty() ? nullptr : &*value.raw;
    const bool is_text = value.value.type == node_type::text && !value.value.text.empty();
    return is_text ? &value.value.text : nullptr;
}

}  // namespace

void section_reader::read(const config_key &key, std::vector<std::string> &values) {
    const auto read = key.accepted.kind == value_kind::prose
                          ? prose_of
                          : static_cast<const std::string *(*)(const config_value &)>(text_of);
    const config_value *found = find(key.name);
    if (!found || failed()) return;
    std::vector<std::string> texts;
    if (found->value.type == node_type::list) {
        for (const node &item : found->value.items) {
            const config_value inner{found->key, item, found->place, std::nullopt};
            const std::string *text = read(inner);
            if (!text)
                return fail(*found, format("it holds {}, and only text is of use", describe(item)));
            texts.push_back(*text);
        }
    } else if (const std::string *single = read(*found)) {
        texts.push_back(*single);
    } else {
        return fail(*found, "a text that is not empty, or a list of such texts, is needed");
    }
    values = std::move(texts);
}

void section_reader::read(const config_key &key, std::vector<uint64_t> &values) {
    constexpr size_t count_max = 1 << 20;
    const config_value *found = find(key.name);
    if (!found || failed()) return;
    const bool is_list = found->value.type == node_type::list;
    const std::vector<node> items = is_list ? found->value.items : std::vector{found->value};
    if (items.size() > count_max)
        return fail(*found, format("at most {} whole numbers are of use", count_max));
    std::vector<uint64_t> counts;
    for (const node &item : items) {
        if (item.type != node_type::integer || item.integer < 0)
            return fail(*found, format("{}whole numbers from 0 are needed, one or a list: [0, 3]",
                                       is_list ? "it holds " + describe(item) + ", and " : ""));
        counts.push_back(static_cast<uint64_t>(item.integer));
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    values = std::move(counts);
}

void section_reader::require(std::string_view key, std::string_view remedy) {
    if (!find(key)) fail(format("{}: {} {} is not given; {}", file_, title_, key, remedy));
}

}  // namespace moorage::core
