// prediction.cpp - takes two reports apart into terms and sets them side by side.
#include "core/report/prediction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/executors.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

// What no other part accounts for: routing, policies, sampling. On the CPU as the device, experts
// of the CPU take their turn in the same stream.
double rest_ms(const run_report &run, bool one_stream) {
    const double known = run.time.compute + run.time.stall + (one_stream ? run.time.cpu : 0);
    const double rest = run.total_ms - known;
    return rest < 1e-6 ? 0 : rest;  // sums of nanoseconds are not exact
}

std::string value_text(const term &one, double value) {
    if (one.unit == term_unit::ms) return human_ms(value);
    if (one.unit == term_unit::bytes) return human_bytes(value);
    return percent(value, 1);
}

std::string relative_text(const term &one) {
    const double relative = one.relative();
    if (!std::isfinite(relative)) return "none real";
    return format("{:+.1f} %", 100 * relative);
}

}  // namespace

double term::relative() const {
    if (emulated == real) return 0;
    if (real == 0) return std::numeric_limits<double>::infinity();
    return (emulated - real) / real;
}

prediction compare_runs(const run_report &emulated, const run_report &real) {
    prediction found;
    found.profile = emulated.profile;
    found.executor = real.executor;
    found.tokens = real.tokens;
    const executor_kind *on = find_executor(real.executor);
    const bool one_stream = on != nullptr && on->memory == fast_memory::host;
    const auto bytes = [](uint64_t count) { return static_cast<double>(count); };
    constexpr term_unit ms = term_unit::ms;
    found.terms = {
        {"tpot", "time per token, mean", ms, emulated.tpot_ms.mean, real.tpot_ms.mean},
        {"tpot_p50", "time per token, median", ms, emulated.tpot_ms.p50, real.tpot_ms.p50},
        {"ttft", "time to first token, mean", ms, emulated.ttft_ms.mean, real.ttft_ms.mean},
        {"total", "whole run", ms, emulated.total_ms, real.total_ms},
        {"hit_rate", "hit rate", term_unit::share, emulated.experts.hit_rate(),
         real.experts.hit_rate()},
        {"h2d_bytes", "bytes loaded", term_unit::bytes, bytes(emulated.bytes.h2d),
         bytes(real.bytes.h2d)},
        {"prefetched_bytes", "bytes prefetched", term_unit::bytes, bytes(emulated.bytes.prefetched),
         bytes(real.bytes.prefetched)},
        {"transfer", "link busy", ms, emulated.time.transfer, real.time.transfer},
        {"compute", "compute", ms, emulated.time.compute, real.time.compute, true},
        {"stall", "waiting for experts", ms, emulated.time.stall, real.time.stall, true},
        {"cpu", "experts on the CPU", ms, emulated.time.cpu, real.time.cpu, true},
        {"rest", "policies, sampling, rest", ms, rest_ms(emulated, one_stream),
         rest_ms(real, one_stream), true}};
    double furthest = 0;
    for (const term &one : found.terms) {
        if (!one.part || std::abs(one.emulated - one.real) <= furthest) continue;
        furthest = std::abs(one.emulated - one.real);
        found.worst = one.name;
    }
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
    for (const term &one : found.terms) {
        if (one.emulated == 0 && one.real == 0) continue;
        text += padded_right(one.meaning, 28) + padded_left(value_text(one, one.emulated), 14) +
                padded_left(value_text(one, one.real), 14) + padded_left(relative_text(one), 14) +
                "\n";
    }
    text += "\n";
    const auto worst = std::ranges::find(found.terms, found.worst, &term::name);
    if (worst != found.terms.end())
        text += format("Furthest apart of what the run's time is made of: {} ({} of {}).\n",
                       worst->meaning, human_ms(std::abs(worst->emulated - worst->real)),
                       human_ms(found.terms[3].real));
    for (const std::string &warning : found.warnings)
        for (const std::string &line : wrapped("warning: " + warning, 80)) text += line + "\n";
    return text;
}

json to_json(const prediction &found) {
    json terms = json::object();
    for (const term &one : found.terms) {
        json &into =
            terms[one.name] = {{"emulated", stable(one.emulated)}, {"real", stable(one.real)}};
        if (std::isfinite(one.relative()))
            into["relative"] = stable(one.relative());
        else
            into["relative"] = nullptr;
    }
    return {{"profile", found.profile}, {"executor", found.executor},
            {"tokens", found.tokens},   {"worst", found.worst},
            {"terms", terms},           {"warnings", found.warnings}};
}

}  // namespace moorage::core
