// prediction.cpp - takes two reports apart into terms and sets them side by side.
#include "tools/comparison/prediction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

term cause_term(cause which, const time_causes &emulated, const time_causes &real) {
    const auto ms = [which](const time_causes &causes) {
        return static_cast<double>(causes[which]) / 1e6;
    };
    return {std::string(cause_names[static_cast<size_t>(which)]), std::string(label_of(which)),
            term_unit::ms, ms(emulated), ms(real)};
}

phase_terms phase_of(const char *name, const time_causes &emulated, const time_causes &real) {
    phase_terms phase;
    phase.name = name;
    phase.sum = {name, name, term_unit::ms};
    for (size_t i = 0; i < cause_count; ++i) {
        const term term = cause_term(static_cast<cause>(i), emulated, real);
        phase.sum.emulated += term.emulated;
        phase.sum.real += term.real;
        if (term.emulated != 0 || term.real != 0) phase.causes.push_back(term);
    }
    return phase;
}

// Every phase that took time, and the cause furthest apart.
void add_phases(const run_report &emulated, const run_report &real, const run_report &prompted,
                prediction &found) {
    const std::array<time_causes, 2> emulated_ns = causes_of(emulated);
    const auto real_ns = [&](size_t phase) {
        return causes_of(phase == 0 ? prompted : real)[phase];
    };
    double furthest = 0;
    for (size_t phase = 0; phase < std::size(phase_names); ++phase) {
        phase_terms terms = phase_of(phase_names[phase], emulated_ns[phase], real_ns(phase));
        if (terms.causes.empty()) continue;
        for (const term &term : terms.causes) {
            if (std::abs(term.emulated - term.real) <= furthest) continue;
            furthest = std::abs(term.emulated - term.real);
            found.worst = terms.name + "." + term.name;
        }
        found.phases.push_back(std::move(terms));
    }
}

std::string value_text(const term &term, double value) {
    if (term.unit == term_unit::ms) return human_ms(value);
    if (term.unit == term_unit::bytes) return human_bytes(value);
    return percent(value, 1);
}

std::string relative_text(const term &term) {
    const double relative = term.relative();
    if (!std::isfinite(relative)) return "none real";
    return format("{:+.1f} %", 100 * relative);
}

// "+1.20 ms"
std::string gap_text(const term &term) {
    const double gap_ms = term.emulated - term.real;
    return (gap_ms < 0 ? "-" : "+") + human_ms(std::abs(gap_ms));
}

// A line for each cause: both times, their difference, and the share of the phase's real time that
// it is. The shares sum to the error of the phase.
std::string phase_text(const phase_terms &phase) {
    std::string text = format("\n{:<22}{:>14}{:>14}{:>14}{:>14}\n", phase.name + ", by cause",
                              "emulated", "real", "gap", "of the time");
    const auto line = [&](const std::string &label, const term &entry) {
        const double gap = 100 * (entry.emulated - entry.real) / phase.sum.real;
        text += padded_right("  " + label, 22) + padded_left(human_ms(entry.emulated), 14) +
                padded_left(human_ms(entry.real), 14) + padded_left(gap_text(entry), 14) +
                padded_left(phase.sum.real > 0 ? format("{:+.1f} %", gap) : "none real", 14) + "\n";
    };
    for (const term &cause : phase.causes) line(cause.meaning, cause);
    line("sum", phase.sum);
    return text;
}

json twins_json(const term &term) {
    json figures{{"emulated", stable(term.emulated)}, {"real", stable(term.real)}};
    if (std::isfinite(term.relative()))
        figures["relative"] = stable(term.relative());
    else
        figures["relative"] = nullptr;
    return figures;
}

}  // namespace

double term::relative() const {
    if (emulated == real) return 0;
    if (real == 0) return std::numeric_limits<double>::infinity();
    return (emulated - real) / real;
}

prediction compare_runs(const run_report &emulated, const run_report &real,
                        const run_report &prompted) {
    prediction found;
    found.profile = emulated.profile;
    found.executor = real.executor;
    found.tokens = real.tokens;
    const auto bytes = [](uint64_t count) { return static_cast<double>(count); };
    constexpr term_unit ms = term_unit::ms;
    found.terms = {
        {"tpot", "time per token, mean", ms, emulated.tpot_ms.mean, real.tpot_ms.mean},
        {"tpot_p50", "time per token, median", ms, emulated.tpot_ms.p50, real.tpot_ms.p50},
        {"ttft", "time to first token, mean", ms, emulated.ttft_ms.mean, prompted.ttft_ms.mean},
        {"total", "whole run", ms, emulated.total_ms, real.total_ms},
        {"hit_rate", "hit rate", term_unit::share, emulated.experts.hit_rate(),
         real.experts.hit_rate()},
        {"h2d_bytes", "bytes loaded", term_unit::bytes, bytes(emulated.bytes.h2d),
         bytes(real.bytes.h2d)},
        {"prefetched_bytes", "bytes prefetched", term_unit::bytes, bytes(emulated.bytes.prefetched),
         bytes(real.bytes.prefetched)},
        {"transfer", "link busy", ms, emulated.time.transfer, real.time.transfer}};
    add_phases(emulated, real, prompted, found);
    if (emulated.tokens != real.tokens)
        found.warnings.push_back(format("the emulated run had {} tokens and the real one {}",
                                        emulated.tokens, real.tokens));
    if (emulated.text.texts != real.text.texts)
        found.warnings.push_back(
            "the runs wrote different texts: their arithmetic differs, so their routing may");
    return found;
}

std::string to_text(const prediction &found) {
    std::string text = format("{} tokens; profile {} on the emulator, and executor {}\n\n",
                              with_commas(found.tokens), found.profile, found.executor);
    text += format("{:<28}{:>14}{:>14}{:>14}\n", "", "emulated", "real", "difference");
    for (const term &term : found.terms) {
        if (term.emulated == 0 && term.real == 0) continue;
        text += padded_right(term.meaning, 28) + padded_left(value_text(term, term.emulated), 14) +
                padded_left(value_text(term, term.real), 14) +
                padded_left(relative_text(term), 14) + "\n";
    }
    for (const phase_terms &phase : found.phases) text += phase_text(phase);
    if (!found.worst.empty()) text += format("\nFurthest apart: {}.\n", found.worst);
    for (const std::string &warning : found.warnings)
        for (const std::string &line : wrapped("warning: " + warning, 80)) text += line + "\n";
    return text;
}

json to_json(const prediction &found) {
    json terms = json::object(), causes = json::object();
    for (const term &entry : found.terms) terms[entry.name] = twins_json(entry);
    for (const phase_terms &phase : found.phases)
        for (const term &cause : phase.causes) causes[phase.name][cause.name] = twins_json(cause);
    return {{"profile", found.profile},
            {"executor", found.executor},
            {"tokens", found.tokens},
            {"worst", found.worst},
            {"terms", terms},
            {"causes", causes},
            {"warnings", found.warnings}};
}

}  // namespace moorage::core
