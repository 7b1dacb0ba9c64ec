// section.cpp - typed reads of one section's keys; the first failure is kept.
#include "core/config/section.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"

namespace moorage::core {

namespace {

bool is_plain_text(std::string_view text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
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

const std::string *text_of(const given &value) {
    const std::string *text = nullptr;
    if (value.value.type == node_type::text)
        text = &value.value.text;
    else if (value.raw && value.value.type != node_type::list)
        text = &*value.raw;
    return text && !text->empty() && is_plain_text(*text) ? text : nullptr;
}

std::optional<setting_value> setting_of(const given &value) {
    const node &at = value.value;
    switch (at.type) {
        case node_type::boolean:
            return at.boolean;
        case node_type::integer:
            return at.integer;
        case node_type::number:
            if (!std::isfinite(at.number)) return std::nullopt;
            return at.number;
        case node_type::text:
            if (!is_plain_text(at.text)) return std::nullopt;
            return at.text;
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
    for (const given &value : values_) {
        if (std::find(known.begin(), known.end(), value.key) != known.end()) continue;
        const std::string hint = did_you_mean(value.key, known);
        std::string all;
        for (const std::string &key : known) all += (all.empty() ? "" : ", ") + key;
        fail(format("{}: unknown key {} in {}{}", value.place, value.key, title_,
                    hint.empty() ? "; it has " + all : hint));
    }
}

const given *section_reader::find(std::string_view key) const {
    const auto found = std::find_if(values_.rbegin(), values_.rend(),
                                    [&](const given &value) { return value.key == key; });
    return found == values_.rend() ? nullptr : &*found;
}

void section_reader::fail(std::string_view what) {
    if (!failure_) failure_ = error{std::string(what), true};
}

void section_reader::fail(const given &at, std::string_view what) {
    fail(format("{}: {} {} is {}; {}", at.place, title_, at.key, describe(at.value), what));
}

void section_reader::read(std::string_view key, std::string &out) {
    const given *found = find(key);
    if (!found || failed()) return;
    if (const std::string *text = text_of(*found))
        out = *text;
    else
        fail(*found, "text is needed, not empty and without control characters");
}

void section_reader::read(std::string_view key, bool &out) {
    const given *found = find(key);
    if (!found || failed()) return;
    if (found->value.type == node_type::boolean)
        out = found->value.boolean;
    else
        fail(*found, "true or false is needed");
}

void section_reader::read(std::string_view key, uint64_t &out, uint64_t min, uint64_t max) {
    const given *found = find(key);
    if (!found || failed()) return;
    const node &value = found->value;
    if (value.type != node_type::integer)
        return fail(*found, format("an integer from {} to {} is needed", min, max));
    if (value.integer < 0 || static_cast<uint64_t>(value.integer) < min ||
        static_cast<uint64_t>(value.integer) > max)
        return fail(*found, format("choose from {} to {}", min, max));
    out = static_cast<uint64_t>(value.integer);
}

void section_reader::read(std::string_view key, uint32_t &out, uint32_t min, uint32_t max) {
    uint64_t wide = out;
    read(key, wide, uint64_t{min}, uint64_t{max});
    out = static_cast<uint32_t>(wide);
}

void section_reader::read_above(std::string_view key, double &out, double above, double max,
                                bool or_equal) {
    const given *found = find(key);
    if (!found || failed()) return;
    const node &value = found->value;
    const std::string range =
        format("a number {} {} and at most {} is needed", or_equal ? "from" : "above", above, max);
    if (value.type != node_type::number && value.type != node_type::integer)
        return fail(*found, range);
    const double number =
        value.type == node_type::number ? value.number : static_cast<double>(value.integer);
    // Written so that a NaN fails, too.
    const bool enough = or_equal ? number >= above : number > above;
    if (!enough || !(number <= max)) return fail(*found, range);
    out = number;
}

namespace {

const std::string *prose_of(const given &value) {
    if (value.raw) return value.raw->empty() ? nullptr : &*value.raw;
    const bool some = value.value.type == node_type::text && !value.value.text.empty();
    return some ? &value.value.text : nullptr;
}

}  // namespace

void section_reader::read_texts(std::string_view key, std::vector<std::string> &out) {
    read_list(key, out, text_of);
}

void section_reader::read_prose(std::string_view key, std::vector<std::string> &out) {
    read_list(key, out, prose_of);
}

void section_reader::read_list(std::string_view key, std::vector<std::string> &out,
                               const std::string *(*read)(const given &)) {
    const given *found = find(key);
    if (!found || failed()) return;
    std::vector<std::string> texts;
    if (found->value.type == node_type::list) {
        for (const node &item : found->value.items) {
            const given inner{found->key, item, found->place, std::nullopt};
            const std::string *text = read(inner);
            if (!text)
                return fail(*found, format("it holds {}, and only text is of use", describe(item)));
            texts.push_back(*text);
        }
    } else if (const std::string *one = read(*found)) {
        texts.push_back(*one);
    } else {
        return fail(*found, "a text that is not empty, or a list of such texts, is needed");
    }
    out = std::move(texts);
}

void section_reader::read_counts(std::string_view key, std::vector<uint64_t> &out,
                                 size_t count_max) {
    const given *found = find(key);
    if (!found || failed()) return;
    const bool is_list = found->value.type == node_type::list;
    const std::vector<node> items = is_list ? found->value.items : std::vector{found->value};
    if (items.size() > count_max)
        return fail(*found, format("at most {} whole numbers are of use", count_max));
    std::vector<uint64_t> counts;
    for (const node &item : items) {
        if (item.type != node_type::integer || item.integer < 0)
            return fail(*found, format("{}whole numbers from 0 are needed",
                                       is_list ? "it holds " + describe(item) + ", and " : ""));
        counts.push_back(static_cast<uint64_t>(item.integer));
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    out = std::move(counts);
}

void section_reader::require(std::string_view key, std::string_view remedy) {
    if (!find(key)) fail(format("{}: {} {} is not given; {}", file_, title_, key, remedy));
}

}  // namespace moorage::core
