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

bool is_section(const key_table &table) { return table.title.starts_with('['); }

std::string default_of(const documented_key &entry) {
    return entry.default_text.empty() ? "none" : entry.default_text;
}

// The key for --set; "" if --set cannot reach it.
std::string option_of(const key_table &table, std::string_view key) {
    if (!is_section(table)) return "";
    if (!table.title.starts_with("[[")) return format("--set {}.{}=VALUE", table.name, key);
    return format("--set {0}.{1}=VALUE for every entry, --set {0}.NAME.{1}=VALUE for one",
                  table.name, key);
}

std::string text_of_key(const key_table &table, const documented_key &entry) {
    const config_key &key = *entry.key;
    std::string text = format("{}.{}: {}\n", table.name, key.name, key.meaning);
    text += labelled("takes", text_of(key.accepted));
    if (key.accepted.kind == value_kind::amount)
        text += labelled("unit", format("experts, or as text a {}", name_of(key.accepted.unit)));
    else if (key.accepted.unit != quantity_unit::none)
        text += labelled("unit", name_of(key.accepted.unit));
    text += labelled("default", default_of(entry));
    text += labelled("where", is_section(table)
                                  ? format("{} of a configuration", table.title)
                                  : format("{}: a file of {}", table.title, table.meaning));
    const std::string option = option_of(table, key.name);
    return option.empty() ? text : text + labelled("or", option);
}

std::string lines_of(std::string_view name, const std::string &text) {
    constexpr size_t name_columns = 26;
    std::string lines, lead = "  " + padded_right(name, name_columns) + " ";
    for (const std::string &part : core::wrapped(text, text_columns - name_columns - 3)) {
        lines += lead + part + "\n";
        lead = std::string(name_columns + 3, ' ');
    }
    return lines;
}

std::string text_of_table(const key_table &table) {
    std::string text = format("{}: {}\n", table.title, table.meaning);
    for (const documented_key &entry : table.keys)
        text += lines_of(entry.key->name, format("{}; {}; default {}", entry.key->meaning,
                                                 text_of(entry.key->accepted), default_of(entry)));
    if (table.is_open)
        text += "  and the parameters of the policy: moorage plugins describe NAME\n";
    return text;
}

std::string default_text(const moorage_param &parameter) {
    const setting_value usual = core::default_of(parameter);
    if (const auto *text = std::get_if<std::string>(&usual)) return format("\"{}\"", *text);
    if (const auto *flag = std::get_if<bool>(&usual)) return *flag ? "true" : "false";
    if (const auto *whole = std::get_if<int64_t>(&usual)) return format("{}", *whole);
    return format("{}", std::get<double>(usual));
}

std::string domain_text(const moorage_param &parameter) {
    const quantity_unit unit = unit_of_name(parameter.plugin_key);
    const std::string example =
        unit == quantity_unit::none ? "" : format(", or text such as \"{}\"", example_of(unit));
    switch (parameter.type) {
        case MOORAGE_PARAM_INTEGER:
            return format("an integer from {} to {}{}", parameter.integer_min,
                          parameter.integer_max, example);
        case MOORAGE_PARAM_REAL:
            return format("a number from {} to {}{}", parameter.real_min, parameter.real_max,
                          example);
        case MOORAGE_PARAM_FLAG:
            return "true or false";
        default:
            if (!parameter.plugin_text_choices) return "text";
            return format("\"{}\"",
                          fmt::join(split(parameter.plugin_text_choices, '|'), "\" or \""));
    }
}

std::string text_of_parameter(const std::string &kind, const policy &loaded_policy,
                              const moorage_param &parameter) {
    const std::string name = format("{}.{}.{}", kind, loaded_policy.name(), parameter.plugin_key);
    std::string text = format("{}: {}\n", name, parameter.plugin_help);
    text += labelled("takes", domain_text(parameter));
    text += labelled("default", default_text(parameter));
    text += labelled(
        "where", format("[{0}] with plugin = \"{1}\", or [{0}.{1}]", kind, loaded_policy.name()));
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
    for (const policy &loaded_policy : policies->policies()) {
        if (!loaded_policy.is(parts[0]) || (parts.size() == 3 && parts[1] != loaded_policy.name()))
            continue;
        for (const moorage_param &parameter : loaded_policy.params)
            if (parts.back() == parameter.plugin_key)
                text += text_of_parameter(parts[0], loaded_policy, parameter);
    }
    return text;
}

}  // namespace

std::string text_of_keys() {
    std::string text;
    for (const key_table &table : key_tables())
        text += (text.empty() ? "" : "\n") + text_of_table(table);
    return text;
}

std::string text_of_units() {
    std::string text;
    for (const quantity_unit unit : all_units)
        text += lines_of(name_of(unit), format("{}", fmt::join(symbols_of(unit), ", ")));
    return text;
}

std::string text_of_topic(const std::string &topic) {
    std::string text;
    for (const key_table &table : key_tables()) {
        if (topic == table.name) text += text_of_table(table);
        for (const documented_key &entry : table.keys)
            if (topic == entry.key->name || topic == format("{}.{}", table.name, entry.key->name))
                text += text_of_key(table, entry);
    }
    return text + text_of_parameters(topic);
}

std::vector<std::string> key_topics() {
    std::vector<std::string> topics{"keys", "units"};
    for (const key_table &table : key_tables()) {
        topics.push_back(table.name);
        for (const documented_key &entry : table.keys) {
            topics.emplace_back(entry.key->name);
            topics.push_back(format("{}.{}", table.name, entry.key->name));
        }
    }
    return topics;
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
    for (const quantity_unit unit : all_units)
        text += format("| {} | {} |\n", name_of(unit), fmt::join(symbols_of(unit), ", "));
    for (const key_table &table : key_tables()) {
        text += format("\n## {}\n\n{}\n\n| key | meaning | takes | default |\n|---|---|---|---|\n",
                       table.title, table.meaning);
        for (const documented_key &entry : table.keys)
            text += format("| {} | {} | {} | {} |\n", entry.key->name, entry.key->meaning,
                           text_of(entry.key->accepted), default_of(entry));
        if (table.is_open)
            text +=
                "\n"
                "The parameters of the policy come in addition: `moorage plugins describe NAME`.\n";
    }
    return text;
}

}  // namespace moorage::tool
