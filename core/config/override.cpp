// override.cpp - parses the texts of --set and --sweep.
#include <algorithm>

#include "core/base/text.h"
#include "core/config/document.h"
#include "core/config/run_config.h"

namespace moorage::core {

namespace {

constexpr size_t sweep_values_max = 1024;

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

result<override_value> parse_assignment(std::string_view text, std::string_view option,
                                        std::string_view form) {
    const auto wrong = [&](std::string_view problem) {
        return error{format("{} {}: {}; the form is {}", option, text, problem, form), true};
    };
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return wrong("no = in it");
    const std::string_view name = trimmed(text.substr(0, equals));
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos) return wrong("no section before the key");
    for (const std::string &part : split(name, '.'))
        if (!is_bare_key(part)) return wrong(format("\"{}\" is no key", part));
    return override_value{std::string(name.substr(0, dot)),
                          std::string(name.substr(dot + 1)),
                          std::string(trimmed(text.substr(equals + 1))),
                          {}};
}

// Splits at commas outside quotes and brackets, so a value may be a quoted text or a list.
std::vector<std::string> split_values(std::string_view text) {
    std::vector<std::string> parts;
    size_t begin = 0;
    int depth = 0;
    char quote = 0;
    for (size_t i = 0; i <= text.size(); ++i) {
        if (i == text.size() || (text[i] == ',' && depth <= 0 && !quote)) {
            parts.emplace_back(trimmed(text.substr(begin, i - begin)));
            begin = i + 1;
        } else if (quote) {
            if (text[i] == quote) quote = 0;
        } else if (text[i] == '"' || text[i] == '\'') {
            quote = text[i];
        } else if (text[i] == '[' || text[i] == ']') {
            depth += text[i] == '[' ? 1 : -1;
        }
    }
    return parts;
}

}  // namespace

result<override_value> parse_override(std::string_view text) {
    return parse_assignment(text, "--set", "section.key=value, for example memory.experts=96");
}

result<sweep> parse_sweep(std::string_view text) {
    auto whole =
        parse_assignment(text, "--sweep", "section.key=a,b,c, for example memory.experts=64,128");
    if (!whole) return whole.failure();
    sweep parsed{whole->section, whole->key, split_values(whole->value)};
    if (parsed.values.size() > sweep_values_max)
        return error{format("--sweep {}.{}: {} values, and the limit is {}", parsed.section,
                            parsed.key, parsed.values.size(), sweep_values_max),
                     true};
    for (size_t i = 0; i < parsed.values.size(); ++i) {
        const std::string &value = parsed.values[i];
        if (value.empty())
            return error{format("--sweep {}.{}: value {} is empty; separate values by one comma",
                                parsed.section, parsed.key, i + 1),
                         true};
        if (std::find(parsed.values.begin(), parsed.values.begin() + static_cast<ptrdiff_t>(i),
                      value) != parsed.values.begin() + static_cast<ptrdiff_t>(i))
            return error{format("--sweep {}.{}: {} is given twice; once is enough", parsed.section,
                                parsed.key, value),
                         true};
    }
    return parsed;
}

}  // namespace moorage::core
