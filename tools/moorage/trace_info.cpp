// trace_info.cpp - lays out the summary of a trace.
#include "tools/moorage/trace_info.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "moorage/module.h"

namespace moorage::tool {

using core::format, core::json, core::mean_from;

namespace {

constexpr size_t columns = 80, label_columns = 12;

struct policy_need {
    uint32_t bit;
    const char *label;
};
constexpr std::array<policy_need, 4> needs = {{{MOORAGE_NEEDS_GATE_SCORES, "all gate scores"},
                                               {MOORAGE_NEEDS_WEIGHTS, "weights"},
                                               {MOORAGE_NEEDS_PREDICTIONS, "predictions"},
                                               {MOORAGE_NEEDS_FUTURE, "future"}}};

// Removes control characters, because a trace's texts must not control the terminal.
std::string clean(std::string text) {
    for (char &letter : text)
        if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
    return text;
}

// Cuts the text behind spaces or, if those are rare, behind commas.
std::vector<std::string> pieces_of(const std::string &text) {
    std::vector<std::string> pieces(1);
    for (const char letter : text) {
        pieces.back() += letter;
        if (letter == ' ' || letter == ',') pieces.emplace_back();
    }
    return pieces;
}

// "label       text", the text continued under itself.
std::string line(const std::string &label, const std::string &text) {
    const size_t begin = std::max(label_columns, label.size() + 1);
    std::string lines = format("{:<{}}", label, begin);
    size_t used = begin;
    for (const std::string &piece : pieces_of(text)) {
        const size_t visible = piece.ends_with(' ') ? piece.size() - 1 : piece.size();
        if (used > begin && used + visible > columns) {
            while (lines.ends_with(' ')) lines.pop_back();
            lines += "\n" + std::string(begin, ' ');
            used = begin;
        }
        lines += piece;
        used += piece.size();
    }
    return lines + "\n";
}

std::string percent(double share) {
    return std::isnan(share) ? "none" : format("{:.1f} %", 100 * share);
}

std::string number(double value) {
    return value == std::floor(value) ? format("{:.0f}", value) : format("{:.1f}", value);
}

std::string request_text(const trace_summary &summary) {
    const core::trace_statistics &s = summary.statistics;
    std::string text =
        format("{}; length min {}, median {}, max {} tokens", summary.trace.requests(),
               s.length_min, number(s.length_median), s.length_max);
    if (!summary.trace.request_domain().empty())
        text += format("; {} domains", summary.trace.domains().size());
    return text;
}

std::string routing_text(const trace_summary &summary) {
    const core::trace_statistics &s = summary.statistics;
    std::string text;
    const auto [least, most] = std::ranges::minmax(s.distinct);
    text += line("distinct", format("{} to {} of {} experts of a layer are chosen at all", least,
                                    most, summary.trace.experts()));
    text += line("skew",
                 format("the {} most chosen of {} experts of a layer get {} of the choices "
                        "(mean of the layers)",
                        s.top_count, summary.trace.experts(), percent(mean_from(s.top_share, 0))));
    text += line("reuse", format("an expert of the previous token is chosen again: {} (random: {})",
                                 percent(mean_from(s.reuse, 0)),
                                 percent(double(summary.trace.top_k()) / summary.trace.experts())));
    if (summary.trace.has_predictions())
        text += line("predictions",
                     format("{} a layer; of the chosen experts, the first {} predicted hold {} at "
                            "layer 0, {} later",
                            summary.trace.predictions(),
                            std::min(summary.trace.top_k(), summary.trace.predictions()),
                            percent(s.accuracy.front()), percent(mean_from(s.accuracy, 1))));
    return text;
}

}  // namespace

std::string text_of(const trace_summary &summary) {
    const core::trace &trace = summary.trace;
    std::string text = line("trace", trace.path().string());
    text += line("size", core::human_bytes(static_cast<double>(trace.file_bytes())));
    text += line("shape", format("{} tokens, {} layers of {} experts, top-{}", trace.tokens(),
                                 trace.layers(), trace.experts(), trace.top_k()));
    text += line("requests", request_text(summary));
    text += line("one token",
                 format("uses {} experts, {} of all {}", uint64_t{trace.layers()} * trace.top_k(),
                        percent(double(trace.top_k()) / trace.experts()),
                        uint64_t{trace.layers()} * trace.experts()));
    text += routing_text(summary);
    std::string offered, missing;
    for (const policy_need &requirement : needs) {
        std::string &list = (trace.offers() & requirement.bit) != 0 ? offered : missing;
        list += (list.empty() ? "" : ", ") + std::string(requirement.label);
    }
    text += line("serves", "policies that need: " + offered);
    if (!missing.empty()) text += line("", "not those that need: " + missing);
    text += "tensors\n";
    for (const core::tensor &tensor : summary.header.tensors)
        text += format("  {:<16} {:<5} {:<20} {:>9}\n", core::printable(tensor.name),
                       name_of(tensor.type), core::shape_text(tensor.shape),
                       core::human_bytes(static_cast<double>(tensor.bytes.size())));
    text += "metadata\n";
    for (const auto &[key, value] : trace.metadata())
        text += line(format("  {:<22}", core::printable(key)), clean(value));
    return text;
}

json json_of(const trace_summary &summary) {
    const core::trace &trace = summary.trace;
    const core::trace_statistics &s = summary.statistics;
    const auto or_null = [](double value) { return std::isnan(value) ? json() : json(value); };
    json document = {{"trace", trace.path().string()}, {"file_bytes", trace.file_bytes()},
                     {"tokens", trace.tokens()},       {"layers", trace.layers()},
                     {"experts", trace.experts()},     {"top_k", trace.top_k()}};
    document["requests"] = {{"count", trace.requests()},
                            {"length_min", s.length_min},
                            {"length_median", s.length_median},
                            {"length_max", s.length_max}};
    document["domains"] = trace.domains();
    document["working_set"] = uint64_t{trace.layers()} * trace.top_k();
    document["distinct_experts"] = s.distinct;
    document["top_quarter"] = {
        {"experts", s.top_count}, {"share", mean_from(s.top_share, 0)}, {"layers", s.top_share}};
    document["reuse"] = {{"mean", or_null(mean_from(s.reuse, 0))}, {"layers", json::array()}};
    for (const double value : s.reuse) document["reuse"]["layers"].push_back(or_null(value));
    if (trace.has_predictions())
        document["prediction"] = {{"experts", trace.predictions()},
                                  {"accuracy_first_layer", s.accuracy.front()},
                                  {"accuracy_later_layers", or_null(mean_from(s.accuracy, 1))},
                                  {"layers", s.accuracy}};
    for (const policy_need &requirement : needs)
        document["serves"][core::trace::tensor_of(requirement.bit)] =
            (trace.offers() & requirement.bit) != 0;
    document["serves"]["future"] = true;
    document["serves"].erase("experts");
    document["tensors"] = json::array();
    for (const core::tensor &tensor : summary.header.tensors)
        document["tensors"].push_back({{"name", tensor.name},
                                       {"dtype", name_of(tensor.type)},
                                       {"shape", tensor.shape},
                                       {"bytes", tensor.bytes.size()}});
    document["metadata"] = trace.metadata();
    return document;
}

}  // namespace moorage::tool
