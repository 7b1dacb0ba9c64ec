// substitution.cpp - shares, lines and sentences about routes that are not the model's own.
#include "core/report/substitution.h"

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

double part_of_all(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : double(part) / double(whole);
}

std::string with_sign(double value, int decimals) { return format("{:+.{}f}", value, decimals); }

std::string quality_text(const run_report &report) {
    const text_report &text = report.text;
    if (text.own_nll)
        return format(
            "nll {:.5f} against {:.5f} of the same tokens by the model's own routing: "
            "{}, perplexity {}",
            text.nll, *text.own_nll, with_sign(text.nll_change(), 5), perplexity_change(text));
    if (text.model.empty())
        return "not known of a trace: score a text with a model ([source] model and text)";
    return "not measured for what is written on a real machine; score a text ([source] text) or "
           "take the emulator";
}

}  // namespace

std::string fine_percent(double part, double whole) {
    return whole == 0 ? "-" : format("{:.2f} %", 100 * part / whole);
}

double substituted_share(const routing_counts &routing, uint64_t substituted) {
    return part_of_all(substituted, routing.choices);
}

std::vector<std::pair<std::string, std::string>> routing_lines(const run_report &report) {
    if (!report.lossy) return {};
    const routing_counts &routing = report.routing;
    std::vector<std::pair<std::string, std::string>> lines;
    const double choices = double(routing.choices);
    const uint64_t stood = routing.choices - report.experts.substituted;
    lines.emplace_back(
        "routing", format("lossy: {} of the model's {} choices substituted ({}), {} stood; {} of "
                          "{} rows (a token at a layer) unchanged",
                          with_commas(report.experts.substituted), with_commas(routing.choices),
                          fine_percent(double(report.experts.substituted), choices),
                          fine_percent(double(stood), choices),
                          fine_percent(double(routing.rows_unchanged), double(routing.rows)),
                          with_commas(routing.rows)));
    if (routing.reweighted + routing.dropped != 0)
        lines.emplace_back("",
                           format("of them {} kept with another weight, {} with none",
                                  with_commas(routing.reweighted), with_commas(routing.dropped)));
    if (routing.small != 0)
        lines.emplace_back("", format("of them {} for which the second version would do",
                                      with_commas(routing.small)));
    if (routing.held_exact + routing.held_cap != 0)
        lines.emplace_back("held back",
                           format("substitutions in exact requests {}, beyond the cap {}",
                                  with_commas(routing.held_exact), with_commas(routing.held_cap)));
    lines.emplace_back("quality", quality_text(report));
    return lines;
}

std::string versions_text(const run_report &report) {
    double total = 0;
    for (const version_counts &version : report.versions) total += double(version.computed);
    std::vector<std::string> said;
    for (size_t i = 0; i < report.version_names.size(); ++i)
        said.push_back(format("{} of the work in {} ({} loaded)",
                              fine_percent(double(report.versions[i].computed), total),
                              report.version_names[i],
                              human_bytes(double(report.versions[i].loaded_bytes))));
    return format("{}", fmt::join(said, ", "));
}

std::string perplexity_change(double nll_change) {
    return with_sign(100 * std::expm1(nll_change) + 0.0, 2) + " %";
}

std::string perplexity_change(const text_report &text) {
    return text.own_nll ? perplexity_change(text.nll_change()) : "-";
}

}  // namespace moorage::core
