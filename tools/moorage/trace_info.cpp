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

struct need {
    uint32_t bit;
    const char *what;
};
constexpr std::array<need, 4> needs = {{{MOORAGE_NEEDS_GATE_SCORES, "all gate scores"},
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
    std::string out = format("{:<{}}", label, begin);
    size_t used = begin;
    for (const std::string &piece : pieces_of(text)) {
        const size_t visible = piece.ends_with(' ') ? piece.size() - 1 : piece.size();
        if (used > begin && used + visible > columns) {
            while (out.ends_with(' ')) out.pop_back();
            out += "\n" + std::string(begin, ' ');
            used = begin;
        }
        out += piece;
        used += piece.size();
    }
    return out + "\n";
}

std::string percent(double share) {
    return std::isnan(share) ? "none" : format("{:.1f} %", 100 * share);
}

std::string number(double value) {
    return value == std::floor(value) ? format("{:.0f}", value) : format("{:.1f}", value);
}

std::string request_text(const trace_summary &summary) {
    const core::trace_statistics &s = summary.statistics;
    std::string text = format("{}; length min {}, median {}, max {} tokens", summary.of.requests(),
                              s.length_min, number(s.length_median), s.length_max);
    if (!summary.of.request_domain().empty())
        text += format("; {} domains", summary.of.domains().size());
    return text;
}

std::string routing_text(const trace_summary &summary) {
    const core::trace_statistics &s = summary.statistics;
    std::string out;
    const auto [least, most] = std::ranges::minmax(s.distinct);
    out += line("distinct", format("{} to {} of {} experts of a layer are chosen at all", least,
                                   most, summary.of.experts()));
    out +=
        line("skew", format("the {} most chosen of {} experts of a layer get {} of the choices "
                            "(mean of the layers)",
                            s.top_count, summary.of.experts(), percent(mean_from(s.top_share, 0))));
    out += line("reuse", format("an expert of the previous token is chosen again: {} (random: {})",
                                percent(mean_from(s.reuse, 0)),
                                percent(double(summary.of.top_k()) / summary.of.experts())));
    if (summary.of.has_predictions())
        out += line(
            "predictions",
            format("{} a layer; of the chosen experts, the first {} predicted hold {} at "
                   "layer 0, {} later",
                   summary.of.predictions(), std::min(summary.of.top_k(), summary.of.predictions()),
                   percent(s.accuracy.front()), percent(mean_from(s.accuracy, 1))));
    return out;
}

}  // namespace

std::string text_of(const trace_summary &summary) {
    const core::trace &of = summary.of;
    std::string out = line("trace", of.path().string());
    out += line("size", core::human_bytes(static_cast<double>(of.file_bytes())));
    out += line("shape", format("{} tokens, {} layers of {} experts, top-{}", of.tokens(),
                                of.layers(), of.experts(), of.top_k()));
    out += line("requests", request_text(summary));
    out += line(
        "one token",
        format("uses {} experts, {} of all {}", uint64_t{of.layers()} * of.top_k(),
               percent(double(of.top_k()) / of.experts()), uint64_t{of.layers()} * of.experts()));
    out += routing_text(summary);
    std::string offered, missing;
    for (const need &one : needs) {
        std::string &list = (of.offers() & one.bit) != 0 ? offered : missing;
        list += (list.empty() ? "" : ", ") + std::string(one.what);
    }
    out += line("serves", "policies that need: " + offered);
    if (!missing.empty()) out += line("", "not those that need: " + missing);
    out += "tensors\n";
    for (const core::tensor &one : summary.header.tensors)
        out += format("  {:<16} {:<5} {:<20} {:>9}\n", core::shown(one.name), name_of(one.type),
                      core::shape_text(one.shape),
                      core::human_bytes(static_cast<double>(one.bytes.size())));
    out += "metadata\n";
    for (const auto &[key, value] : of.metadata())
        out += line(format("  {:<22}", core::shown(key)), clean(value));
    return out;
}

json json_of(const trace_summary &summary) {
    const core::trace &of = summary.of;
    const core::trace_statistics &s = summary.statistics;
    const auto or_null = [](double value) { return std::isnan(value) ? json() : json(value); };
    json out = {{"trace", of.path().string()}, {"file_bytes", of.file_bytes()},
                {"tokens", of.tokens()},       {"layers", of.layers()},
                {"experts", of.experts()},     {"top_k", of.top_k()}};
    out["requests"] = {{"count", of.requests()},
                       {"length_min", s.length_min},
                       {"length_median", s.length_median},
                       {"length_max", s.length_max}};
    out["domains"] = of.domains();
    out["working_set"] = uint64_t{of.layers()} * of.top_k();
    out["distinct_experts"] = s.distinct;
    out["top_quarter"] = {
        {"experts", s.top_count}, {"share", mean_from(s.top_share, 0)}, {"layers", s.top_share}};
    out["reuse"] = {{"mean", or_null(mean_from(s.reuse, 0))}, {"layers", json::array()}};
    for (const double value : s.reuse) out["reuse"]["layers"].push_back(or_null(value));
    if (of.has_predictions())
        out["prediction"] = {{"experts", of.predictions()},
                             {"accuracy_first_layer", s.accuracy.front()},
                             {"accuracy_later_layers", or_null(mean_from(s.accuracy, 1))},
                             {"layers", s.accuracy}};
    for (const need &one : needs)
        out["serves"][core::trace::tensor_of(one.bit)] = (of.offers() & one.bit) != 0;
    out["serves"]["future"] = true;
    out["serves"].erase("experts");
    out["tensors"] = json::array();
    for (const core::tensor &one : summary.header.tensors)
        out["tensors"].push_back({{"name", one.name},
                                  {"dtype", name_of(one.type)},
                                  {"shape", one.shape},
                                  {"bytes", one.bytes.size()}});
    out["metadata"] = of.metadata();
    return out;
}

}  // namespace moorage::tool
