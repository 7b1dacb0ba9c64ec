// config_texts.h - small configurations in tests: read as from a file conf/run.toml, accepted or
// refused, with the required text of a message.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/config/run_config.h"

namespace moorage::test {

using namespace moorage::core;

// Lines 1 to 6: the smallest valid run.
inline const std::string least =
    "[hardware]\n"
    "profile = \"rtx_4090\"\n"
    "[source]\n"
    "trace = \"routing.safetensors\"\n"
    "[memory]\n"
    "experts = 96\n";

inline std::vector<override_value> overrides(const std::vector<std::string> &texts) {
    std::vector<override_value> values;
    for (const std::string &text : texts) {
        auto value = parse_override(text);
        REQUIRE_MESSAGE(value.ok(), text);
        values.push_back(*value);
    }
    return values;
}

inline result<run_config> read(const std::string &text, const std::vector<std::string> &set = {}) {
    return parse_run_config(text, "conf/run.toml", overrides(set));
}

inline run_config accepted(const std::string &text, const std::vector<std::string> &set = {}) {
    auto config = read(text, set);
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    return *config;
}

inline std::string refused(const std::string &text, const std::vector<std::string> &set = {}) {
    const auto config = read(text, set);
    REQUIRE_FALSE(config.ok());
    CHECK(config.failure().usage);
    CHECK(config.failure().text.find('\n') == std::string::npos);
    return config.failure().text;
}

inline bool holds(const std::string &text, const std::string &part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE("\"" << text << "\" lacks \"" << part << "\"");
    return found;
}

}  // namespace moorage::test
