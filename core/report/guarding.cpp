// guarding.cpp - lines, warnings and a table about the policies that the guard switches off.
#include "core/report/guarding.h"

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/report.h"

namespace moorage::core {

namespace {

bool was_tried(const guard_arm &arm) { return arm.trials != 0; }

std::string figures_of(const guard_arm &arm) {
    return format("{} a token with it, {} without", human_ms(arm.on_ns / 1e6),
                  human_ms(arm.off_ns / 1e6));
}

std::string times(uint64_t count) { return count == 1 ? "once" : format("{} times", count); }

std::string decision(const guard_arm &arm) {
    std::string text = arm.enabled ? "on" : "off";
    if (arm.changes != 0) text += format(" since token {}", with_commas(arm.since_token));
    return text;
}

// The setting with which a user gets this from the first token on.
std::string remedy(const guard_arm &arm) {
    if (arm.name == "prefetch") return "[prefetch] plugin = \"none\"";
    if (arm.name == "substitution") return "[router] plugin = \"topk\"";
    if (arm.phase == "prefill") return "[memory] prefill_displaces = false";
    return "[dispatch] plugin = \"cpu_all\"";
}

}  // namespace

json to_json(const guard_arm &arm) {
    const bool tried = was_tried(arm);
    return {{"name", arm.name},
            {"phase", arm.phase},
            {"on", arm.enabled},
            {"on_ms", tried ? json(stable(arm.on_ns / 1e6)) : json()},
            {"off_ms", tried ? json(stable(arm.off_ns / 1e6)) : json()},
            {"why", arm.reason.empty() ? json() : json(arm.reason)},
            {"since_token", arm.since_token},
            {"trials", arm.trials},
            {"changes", arm.changes},
            {"off_tokens", arm.off_tokens}};
}

std::vector<std::pair<std::string, std::string>> guard_lines(const std::vector<guard_arm> &arms) {
    std::vector<std::pair<std::string, std::string>> lines;
    for (const guard_arm &arm : arms) {
        std::string text = format("{} in {}: {}", arm.name, arm.phase, decision(arm));
        if (was_tried(arm))
            text += format("; {}; tried {}", figures_of(arm), times(arm.trials));
        else
            text += ", not tried: " + arm.reason;
        if (arm.off_tokens != 0) text += format(", off for {} tokens", with_commas(arm.off_tokens));
        lines.emplace_back(lines.empty() ? "guard" : "", text);
    }
    return lines;
}

std::string guard_warning(const guard_arm &arm) {
    if (arm.enabled || arm.as_configured) return "";
    std::string text = format("guard: {} is switched off in {}", arm.name, arm.phase);
    if (was_tried(arm))
        text += format(" since token {}: {}", with_commas(arm.since_token), figures_of(arm));
    else
        text += ": " + arm.reason;
    return text + format("; {} makes it permanent", remedy(arm));
}

}  // namespace moorage::core
