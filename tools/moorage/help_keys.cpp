// help_keys.cpp - keys in words: alone, by table, as a page.
#include "tools/moorage/help_keys.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/config/keys.h"
#include "core/host/kinds.h"
#include "core/host/parameters.h"
#include "core/report/figures.h"
#include "tools/moorage/plugins.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

bool is_section(const key_table &of) { return of.called.starts_with('['); }

std::string default_of(const told_key &one) { return one.usual.empty() ? "none" : one.usual; }

// The key for --set; "" if --set cannot reach it.
std::string option_of(const key_table &of, std::string_view key) {
    if (!is_section(of)) return "";
    if (!of.called.starts_with("[[")) return format("--set {}.{}=VALUE", of.name, key);
    return format("--set {0}.{1}=VALUE for every entry, --set {0}.NAME.{1}=VALUE for one", of.name,
                  key);
}

std::string text_of_key(const key_table &of, const told_key &one) {
    const config_key &key = *one.key;
    std::string text = format("{}.{}: {}\n", of.name, key.name, key.meaning);
    text += labelled("takes", text_of(key.takes));
    if (key.takes.kind == value_kind::amount)
        text += labelled("unit", format("experts, or as text a {}", name_of(key.takes.unit)));
    else if (key.takes.unit != quantity_unit::none)
        text += labelled("unit", name_of(key.takes.unit));
    text += labelled("default", default_of(one));
    text += labelled("where", is_section(of) ? format("{} of a configuration", of.called)
                                             : format("{}: a file of {}", of.called, of.meaning));
    const std::string option = option_of(of, key.name);
    return option.empty() ? text : text + labelled("or", option);
}

std::string lines_of(std::string_view name, const std::string &said) {
    constexpr size_t name_columns = 26;
    std::string all, lead = "  " + padded_right(name, name_columns) + " ";
    for (const std::string &part : core::wrapped(said, text_columns - name_columns - 3)) {
        all += lead + part + "\n";
        lead = std::string(name_columns + 3, ' ');
    }
    return all;
}

std::string text_of_table(const key_table &of) {
    std::string text = format("{}: {}\n", of.called, of.meaning);
    for (const told_key &one : of.keys)
        text += lines_of(one.key->name, format("{}; {}; default {}", one.key->meaning,
                                               text_of(one.key->takes), default_of(one)));
    if (of.is_open) text += "  and the parameters of the policy: moorage plugins describe NAME\n";
    return text;
}

std::string default_text(const moorage_param &of) {
    const setting_value usual = core::default_of(of);
    if (const auto *text = std::get_if<std::string>(&usual)) return format("\"{}\"", *text);
    if (const auto *flag = std::get_if<bool>(&usual)) return *flag ? "true" : "false";
    if (const auto *whole = std::get_if<int64_t>(&usual)) return format("{}", *whole);
    return format("{}", std::get<double>(usual));
}

std::string domain_text(const moorage_param &of) {
    const quantity_unit unit = unit_of_name(of.plugin_key);
    const std::string example =
        unit == quantity_unit::none ? "" : format(", or text such as \"{}\"", example_of(unit));
    switch (of.type) {
        case MOORAGE_PARAM_INTEGER:
            return format("an integer from {} to {}{}", of.integer_min, of.integer_max, example);
        case MOORAGE_PARAM_REAL:
            return format("a number from {} to {}{}", of.real_min, of.real_max, example);
        case MOORAGE_PARAM_FLAG:
            return "true or false";
        default:
            if (!of.plugin_text_choices) return "text";
            return format("\"{}\"", fmt::join(split(of.plugin_text_choices, '|'), "\" or \""));
    }
}

std::string text_of_parameter(const std::string &kind, const policy &of, const moorage_param &one) {
    const std::string name = format("{}.{}.{}", kind, of.name(), one.plugin_key);
    std::string text = format("{}: {}\n", name, one.plugin_help);
    text += labelled("takes", domain_text(one));
    text += labelled("default", default_text(one));
    text += labelled("where", format("[{0}] with plugin = \"{1}\", or [{0}.{1}]", kind, of.name()));
    return text + labelled("or", format("--set {}=VALUE", name));
}

// "cache.half_life" of every cache policy that has it, "cache.lfu.half_life" of lfu's.
std::string text_of_parameters(const std::string &topic) {
    const std::vector<std::string> parts = split(topic, '.');
    if (parts.size() < 2 || parts.size() > 3) return "";
    if (std::ranges::find(kinds, parts[0]) == std::end(kinds)) return "";
    const auto policies = open_registry({});
    if (!policies) return "";
    std::string text;
    for (const policy &of : policies->policies()) {
        if (!of.is(parts[0]) || (parts.size() == 3 && parts[1] != of.name())) continue;
        for (const moorage_param &one : of.params)
            if (parts.back() == one.plugin_key) text += text_of_parameter(parts[0], of, one);
    }
    return text;
}

}  // namespace

std::string text_of_keys() {
    std::string text;
    for (const key_table &one : key_tables())
        text += (text.empty() ? "" : "\n") + text_of_table(one);
    return text;
}

std::string text_of_units() {
    std::string text;
    for (const quantity_unit one : all_units)
        text += lines_of(name_of(one), format("{}", fmt::join(symbols_of(one), ", ")));
    return text;
}

std::string text_of_topic(const std::string &topic) {
    std::string text;
    for (const key_table &of : key_tables()) {
        if (topic == of.name) text += text_of_table(of);
        for (const told_key &one : of.keys)
            if (topic == one.key->name || topic == format("{}.{}", of.name, one.key->name))
                text += text_of_key(of, one);
    }
    return text + text_of_parameters(topic);
}

std::vector<std::string> key_topics() {
    std::vector<std::string> all{"keys", "units"};
    for (const key_table &of : key_tables()) {
        all.push_back(of.name);
        for (const told_key &one : of.keys) {
            all.emplace_back(one.key->name);
            all.push_back(format("{}.{}", of.name, one.key->name));
        }
    }
    return all;
}

std::string markdown_of_keys() {
    std::string text =
        "# Keys of configurations\n\n"
        "`moorage help keys --markdown` writes this page from the parser's table of keys. "
        "`moorage help KEY` explains one key.\n`configs/example.toml` shows the keys in use. Every "
        "command takes `--set SECTION.KEY=VALUE`.\n`core/config/README.md` says which value counts "
        "if several are given.\n\n"
        "You may write a number as text with another unit of the same kind. Put one space or "
        "none before the unit. Upper and\nlower case differ. Examples: `bytes = \"5 GiB\"`, "
        "`experts = \"25%\"`,\n`--set cluster.links.bits_per_s=\"500 Mbit/s\"`.\n\n"
        "| plain numbers are in | units |\n|---|---|\n";
    for (const quantity_unit one : all_units)
        text += format("| {} | {} |\n", name_of(one), fmt::join(symbols_of(one), ", "));
    for (const key_table &of : key_tables()) {
        text += format("\n## {}\n\n{}\n\n| key | meaning | takes | default |\n|---|---|---|---|\n",
                       of.called, of.meaning);
        for (const told_key &one : of.keys)
            text += format("| {} | {} | {} | {} |\n", one.key->name, one.key->meaning,
                           text_of(one.key->takes), default_of(one));
        if (of.is_open)
            text +=
                "\n"
                "The parameters of the policy come in addition: `moorage plugins describe NAME`.\n";
    }
    return text;
}

}  // namespace moorage::tool
