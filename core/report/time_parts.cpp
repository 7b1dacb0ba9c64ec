// time_parts.cpp - causes of a run's time as text and JSON.
#include "core/report/time_parts.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/executors.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr size_t bar_columns = 40;

struct cause_words {
    std::string_view label;  // of 11 columns at most
    std::string_view said;   // in a sentence
};
// In the order of causes.
constexpr std::array<cause_words, cause_count> cause_texts{{
    {"computing", "computes"},
    {"launches", "launches and synchronises"},
    {"link wait", "waits for transfers"},
    {"disk wait", "waits for the disk"},
    {"CPU wait", "waits for the CPU"},
    {"network", "waits for the network"},
    {"others wait", "waits for other devices"},
    {"policy wait", "waits for policies"},
    {"host", "waits for the host"},
    {"idle", "has no request"},
}};

double as_ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

time_causes sum_of(const std::array<time_causes, 2> &phases) {
    time_causes sum = phases[0];
    return sum += phases[1];
}

// Takes the time without requests out and returns it. It is no part of a token's waiting.
uint64_t take_idle(time_causes &phase) { return std::exchange(phase[cause::idle], 0); }

// "computes 71.2 %, waits for the link 28.8 %": causes of half a percent or more, the largest
// first.
std::vector<std::string> shares_of(const time_causes &causes) {
    std::vector<size_t> order;
    for (size_t i = 0; i < cause_count; ++i)
        if (causes.ns[i] * 200 >= causes.sum()) order.push_back(i);
    std::ranges::stable_sort(order,
                             [&](size_t a, size_t b) { return causes.ns[a] > causes.ns[b]; });
    std::vector<std::string> shares;
    for (const size_t i : order)
        shares.push_back(format("{} {}", cause_texts[i].said,
                                percent(as_ms(causes.ns[i]), as_ms(causes.sum()))));
    return shares;
}

std::string phase_lines(const std::array<time_causes, 2> &phases) {
    const time_causes sum = sum_of(phases);
    if (phases[0].sum() == 0 || phases[1].sum() == 0) return "";
    std::string text;
    for (size_t phase = 0; phase < phases.size(); ++phase)
        text +=
            labelled(phase_names[phase],
                     format("{} of it: {}", percent(as_ms(phases[phase].sum()), as_ms(sum.sum())),
                            listed(shares_of(phases[phase]), "and")));
    return text;
}

// Work beside the device. It therefore sums to nothing.
std::string busy_text(const run_report &report) {
    const bool gpu = has_gpu(report);
    std::vector<std::string> busy;
    const auto add = [&](std::string_view label, double busy_ms) {
        if (busy_ms > 0) busy.push_back(format("{} {}", label, percent(busy_ms, report.total_ms)));
    };
    if (report.devices.empty()) {
        add(gpu ? "the link is busy" : "copies take", report.time.transfer);
    } else if (report.time.transfer > 0) {  // each GPU has one
        std::vector<std::string> shares;
        for (const device_report &device : report.devices)
            shares.push_back(percent(device.transfer_ms, report.total_ms));
        busy.push_back("the links are busy " + listed(shares, "and"));
    }
    add(gpu ? "the CPU computes" : "computed in place", report.time.cpu);
    add("the disk is busy", gpu && report.host ? report.host->disk_ms : 0);
    add("policies decide", report.time.policy);
    return busy.empty() ? "" : labelled("meanwhile", listed(busy, "and"));
}

}  // namespace

std::array<time_causes, 2> causes_of(const run_report &report) {
    std::array<time_causes, 2> sum{};
    for (const auto &layer : report.causes)
        for (size_t phase = 0; phase < sum.size(); ++phase) sum[phase] += layer[phase];
    return sum;
}

std::string_view label_of(cause which) { return cause_texts[static_cast<size_t>(which)].label; }

std::string_view meaning_of(cause which) { return cause_texts[static_cast<size_t>(which)].said; }

bool has_gpu(const run_report &report) {
    const executor_kind *found = find_executor(report.executor);
    return found == nullptr || found->memory != fast_memory::host;
}

std::string time_lines(const run_report &report) {
    std::array<time_causes, 2> phases = causes_of(report);
    const uint64_t idle_ns = take_idle(phases[0]) + take_idle(phases[1]);
    const time_causes sum = sum_of(phases);
    if (sum.sum() == 0 || report.tokens == 0) return "";
    const double all_ms = as_ms(sum.sum()), tokens = static_cast<double>(report.tokens);
    std::string text =
        "\n" +
        padded_right(format("  where the time goes: {} a token in all", human_ms(all_ms / tokens)),
                     55) +
        "   share   a token\n";
    for (size_t i = 0; i < cause_count; ++i) {
        if (sum.ns[i] == 0) continue;
        const double part_ms = as_ms(sum.ns[i]);
        text += format("  {:<12}{} {} {}\n", label_of(static_cast<cause>(i)),
                       padded_right(block_bar(part_ms / all_ms, bar_columns), bar_columns),
                       padded_left(percent(part_ms, all_ms), 8),
                       padded_left(human_ms(part_ms / tokens), 10));
    }
    if (idle_ns != 0)
        text += labelled("idle", format("{} of the time, without requests, is not counted above",
                                        percent(as_ms(idle_ns), as_ms(idle_ns + sum.sum()))));
    return text + phase_lines(phases) + busy_text(report);
}

std::string time_sentence(const time_causes &sum, bool gpu) {
    if (sum.sum() == 0) return "";
    return format("the {} {} of the time", gpu ? "GPU" : "CPU", listed(shares_of(sum), "and"));
}

std::string shares_text(const time_causes &sum) {
    time_causes busy = sum;
    const uint64_t idle_ns = take_idle(busy);
    if (busy.sum() == 0) return "has no request";
    const std::string text = listed(shares_of(busy), "and");
    if (idle_ns == 0) return text;
    return format("{}; has no request {} of all time", text,
                  percent(as_ms(idle_ns), as_ms(sum.sum())));
}

std::string policy_lines(const run_report &report) {
    if (report.policy_times.empty() || report.total_ms <= 0) return "";
    std::vector<const policy_time *> order;
    double all_ms = 0;
    for (const policy_time &entry : report.policy_times) {
        order.push_back(&entry);
        all_ms += entry.ms;
    }
    std::ranges::stable_sort(order, [](const auto *a, const auto *b) { return a->ms > b->ms; });
    std::vector<std::string> most;
    constexpr size_t shown_max = 3;
    for (size_t i = 0; i < std::min(order.size(), shown_max); ++i)
        most.push_back(format("{} {} {} ({} a call)", order[i]->policy, order[i]->call,
                              percent(order[i]->ms, report.total_ms),
                              human_ms(order[i]->ms / static_cast<double>(order[i]->calls))));
    return labelled("policies", format("{} of the time inside them: {}",
                                       percent(all_ms, report.total_ms), listed(most, "and")));
}

json causes_json(const std::array<time_causes, 2> &phases) {
    json root = json::object();
    for (size_t phase = 0; phase < phases.size(); ++phase)
        for (size_t i = 0; i < cause_count; ++i) {
            // Two kinds of runs have no such time: runs on one machine with all requests there from
            // the start, and runs in virtual time whose policies take none.
            const auto which = static_cast<cause>(i);
            const bool always =
                which != cause::idle && which != cause::network && which != cause::policy;
            if (!always && phases[phase].ns[i] == 0) continue;
            root[phase_names[phase]][std::string(cause_names[i]) + "_ms"] =
                stable(as_ms(phases[phase].ns[i]));
        }
    return root;
}

}  // namespace moorage::core
