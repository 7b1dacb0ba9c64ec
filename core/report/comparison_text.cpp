// comparison_text.cpp - the table of a comparison for a terminal, and the sentences below it.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/base/text.h"
#include "core/report/cluster_comparison.h"
#include "core/report/comparison.h"
#include "core/report/figures.h"
#include "core/report/substitution.h"
#include "core/report/text_table.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

constexpr size_t table_columns = 100;
constexpr size_t warnings_shown_max = 4;

double bytes_per_token(const run_report &report) {
    return report.tokens == 0 ? 0 : double(report.bytes.h2d) / double(report.tokens);
}

std::vector<table_column> columns_for(const comparison &compared, const comparison_view &view) {
    std::vector<table_column> columns;
    for (const key_column &key : view.columns) columns.push_back({key.heading, key.values, true});
    table_column slots{"experts", {}}, share{"share", {}}, hits{"hit rate", {}}, moved{"", {}},
        tpot{"TPOT ms", {}}, speed{"tokens/s", {}}, optimum{"misses/OPT", {}},
        perplexity{"perplexity", {}}, substituted{"substituted", {}}, change{"change", {}};
    double moved_least = 0;  // of those that moved any
    for (const comparison_row &row : compared.rows) {
        const double moved_bytes = bytes_per_token(row.report);
        if (moved_bytes > 0 && (moved_least == 0 || moved_bytes < moved_least))
            moved_least = moved_bytes;
    }
    const double unit = moved_least >= 1e8 ? 1e9 : 1e6;
    moved.heading = unit == 1e9 ? "GB/token" : "MB/token";
    bool any_share = false, any_optimum = false;
    std::vector<double> moved_values, tpot_values, speed_values;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        const run_report &report = compared.rows[i].report;
        const expert_counts &experts = report.experts;
        slots.cells.push_back(format("{}", view.slots[i]));
        share.cells.push_back(view.share[i] > 0 ? percent(view.share[i], 1) : "-");
        hits.cells.push_back(percent(double(experts.hits), double(experts.requested)));
        moved_values.push_back(bytes_per_token(report) / unit);
        tpot_values.push_back(report.tpot_ms.mean);
        speed_values.push_back(report.tokens_per_s);
        optimum.cells.push_back(
            report.opt_misses == 0
                ? "-"
                : format("{:.2f}", double(experts.misses) / double(report.opt_misses)));
        const bool scored = report.text.scored != 0;
        perplexity.cells.push_back(scored ? format("{:.3f}", report.text.perplexity()) : "-");
        const double choices = double(report.routing.choices);
        substituted.cells.push_back(fine_percent(double(report.experts.substituted), choices));
        change.cells.push_back(perplexity_change(report.text));
        any_share |= view.share[i] > 0;
        any_optimum |= report.opt_misses != 0;
    }
    moved.cells = aligned(moved_values);
    speed.cells = aligned(speed_values);
    tpot.cells = aligned(tpot_values);
    tpot.heading += "  ";  // room for the mark of the fastest
    for (size_t i = 0; i < tpot.cells.size(); ++i) tpot.cells[i] += view.best[i] ? " *" : "  ";
    columns.push_back(std::move(slots));
    if (any_share) columns.push_back(std::move(share));
    for (table_column *column : {&hits, &moved, &tpot}) columns.push_back(std::move(*column));
    const bool lossy = any_lossy(compared), scored = any_scored(compared);
    // Says what TPOT says, and gives way where the table would be too wide.
    if (!lossy || !scored) columns.push_back(std::move(speed));
    if (any_optimum) columns.push_back(std::move(optimum));
    if (scored) columns.push_back(std::move(perplexity));
    if (lossy && scored) columns.push_back(std::move(change));  // of perplexity
    if (lossy) columns.push_back(std::move(substituted));
    return columns;
}

// Whether equal keys follow each other, several of each: then blank lines between them help.
template <class Key>
bool in_blocks(const std::vector<size_t> &rows, const std::vector<Key> &keys) {
    std::set<Key> seen;
    for (size_t i = 0; i < rows.size(); ++i) {
        if (i > 0 && keys[rows[i]] == keys[rows[i - 1]]) continue;
        if (!seen.insert(keys[rows[i]]).second) return false;
    }
    return seen.size() > 1 && seen.size() < rows.size();
}

// How one label fares on one profile against the label `reference`, over the groups that have both.
struct standing {
    size_t groups = 0, wins = 0;
    size_t shared_wins = 0;     // of the wins: as fast as another label
    double log_tpot_ratio = 0;  // summed ln(reference / own)
    double speed_up() const { return groups == 0 ? 1 : std::exp(log_tpot_ratio / double(groups)); }
};

std::map<std::string, standing> standings(const comparison &compared, const comparison_view &view,
                                          const std::vector<size_t> &rows,
                                          const std::string &reference) {
    std::map<size_t, double> reference_ms;  // by group
    for (const size_t i : rows)
        if (view.labels[i] == reference)
            reference_ms.emplace(view.group[i], compared.rows[i].report.tpot_ms.mean);
    std::map<size_t, std::set<std::string>> winners;  // by group
    for (const size_t i : rows)
        if (view.best[i]) winners[view.group[i]].insert(view.labels[i]);
    std::map<std::string, standing> by_label;
    for (const size_t i : rows) {
        standing &own = by_label[view.labels[i]];
        if (view.best[i]) {
            ++own.wins;
            if (winners[view.group[i]].size() > 1) ++own.shared_wins;
        }
        const auto at = reference_ms.find(view.group[i]);
        const double tpot_ms = compared.rows[i].report.tpot_ms.mean;
        if (at == reference_ms.end() || at->second <= 0 || tpot_ms <= 0) continue;
        ++own.groups;
        own.log_tpot_ratio += std::log(at->second / tpot_ms);
    }
    return by_label;
}

// The label others are measured against: plain lru if it was run, else the first.
std::string reference_of(const comparison_view &view, const std::vector<size_t> &rows) {
    for (const size_t i : rows)
        if (view.labels[i] == "lru") return "lru";
    return view.labels[rows.front()];
}

std::string fastest_sentence(const comparison &compared, const comparison_view &view,
                             const std::vector<size_t> &rows) {
    const std::string reference = reference_of(view, rows);
    const auto by_label = standings(compared, view, rows, reference);
    std::optional<std::string> fastest, bound;
    std::set<size_t> groups;
    size_t marked = 0;
    const auto better = [&](const standing &a, const standing &b) {
        return a.wins != b.wins ? a.wins > b.wins : a.speed_up() > b.speed_up();
    };
    for (const size_t i : rows) {
        groups.insert(view.group[i]);
        marked += view.best[i];
        std::optional<std::string> &leader = view.offline[i] ? bound : fastest;
        if (!leader || better(by_label.at(view.labels[i]), by_label.at(*leader)))
            leader = view.labels[i];
    }
    if (!fastest || marked == 0) return "";
    const standing &winner = by_label.at(*fastest);
    const bool many = groups.size() > 1;
    std::string text = *fastest + " is fastest";
    if (many) text += format(" at {} of {} sizes", winner.wins, groups.size());
    if (winner.shared_wins > 0 && many)
        text += format(" (at {} of them not alone)", winner.shared_wins);
    if (*fastest != reference && winner.groups > 0)
        text += format(", {:.2f} times as fast as {}{}", winner.speed_up(), reference,
                       many ? " on average" : "");
    if (bound && by_label.at(*bound).groups > 0 && winner.groups > 0)
        text += format("; {}, which sees the future, would be {:.2f} times as fast as {}", *bound,
                       by_label.at(*bound).speed_up() / winner.speed_up(), *fastest);
    return text;
}

std::string time_sentence(const comparison &compared, const comparison_view &view,
                          const std::vector<size_t> &rows) {
    time_causes sum;
    bool gpu = true;
    for (const size_t i : rows) {
        if (view.offline[i]) continue;
        const run_report &report = compared.rows[i].report;
        for (const time_causes &phase : causes_of(report)) sum += phase;
        gpu = gpu && has_gpu(report);
    }
    return time_sentence(sum, gpu);
}

// Where the highest hit rate is not the highest speed, once: the first size where the speeds are
// more than 1 % apart and the hit rates differ as they are written.
std::string hit_rate_sentence(const comparison &compared, const comparison_view &view) {
    std::map<size_t, std::pair<size_t, size_t>> leaders;  // group: (best hit rate, best TPOT)
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        if (view.offline[i] || compared.rows[i].report.cluster) continue;
        auto &[hit, fast] = leaders.try_emplace(view.group[i], i, i).first->second;
        const auto &rows = compared.rows;
        if (rows[i].report.experts.hit_rate() > rows[hit].report.experts.hit_rate()) hit = i;
        if (rows[i].report.tpot_ms.mean < rows[fast].report.tpot_ms.mean) fast = i;
    }
    for (const auto &[group, pair] : leaders) {
        const run_report &hit = compared.rows[pair.first].report;
        const run_report &fast = compared.rows[pair.second].report;
        if (hit.tpot_ms.mean <= fast.tpot_ms.mean * 1.01) continue;
        if (hit.experts.hit_rate() < fast.experts.hit_rate() + 0.001) continue;
        return format(
            "more hits are not more speed: with {} experts on {}, {} hits most ({}), yet {} "
            "({}) is faster",
            view.slots[pair.first], hit.profile, view.labels[pair.first],
            percent(hit.experts.hit_rate(), 1), view.labels[pair.second],
            percent(fast.experts.hit_rate(), 1));
    }
    return "";
}

void add_warnings(std::vector<std::string> &lines, const comparison &compared) {
    std::vector<std::pair<std::string, size_t>> counted;
    const auto count = [&](const std::string &text) {
        const auto same = std::find_if(counted.begin(), counted.end(),
                                       [&](const auto &entry) { return entry.first == text; });
        if (same != counted.end())
            ++same->second;
        else
            counted.emplace_back(text, 1);
    };
    for (const comparison_row &row : compared.rows) {
        for (const auto &[plugin, faults] : row.report.faults)
            count(format("plugin {} gave invalid advice", plugin));
        for (const std::string &warning : row.report.warnings) count(warning);
    }
    for (size_t i = 0; i < std::min(counted.size(), warnings_shown_max); ++i)
        lines.push_back(format("warning ({} of {} runs): {}", counted[i].second,
                               compared.rows.size(), counted[i].first));
    if (counted.size() > warnings_shown_max)
        lines.push_back(format("{} further warnings are in the JSON report",
                               counted.size() - warnings_shown_max));
}

}  // namespace

std::vector<std::string> reading(const comparison &compared, const comparison_view &view) {
    std::vector<std::string> lines;
    for (const std::string &profile : view.profiles) {
        const std::vector<size_t> rows = rows_on(compared, profile);
        const std::string name = profile.empty() ? "" : profile + ": ";
        const std::string fastest = fastest_sentence(compared, view, rows);
        const std::string time = time_sentence(compared, view, rows);
        const std::string join = fastest.empty() || time.empty() ? "" : "; ";
        if (!fastest.empty() || !time.empty()) lines.push_back(name + fastest + join + time);
    }
    for (std::string &sentence : cluster_reading(compared, view))
        lines.push_back(std::move(sentence));
    if (const std::string text = hit_rate_sentence(compared, view); !text.empty())
        lines.push_back(text);
    if (const std::string text = lossy_sentence(compared, view); !text.empty())
        lines.push_back(text);
    add_warnings(lines, compared);
    return lines;
}

static std::string texts_of(const comparison &compared, const comparison_view &view) {
    std::string text;
    for (const written_text &one : written_texts(compared, view)) {
        text += one.every_row ? format("{} wrote, every run alike:\n", one.text->model)
                              : format("{} wrote with {}:\n", one.text->model, one.labels);
        for (size_t i = 0; i < one.text->texts.size(); ++i)
            for (const std::string &part :
                 wrapped(one.text->prompts[i] + one.text->texts[i], table_columns - 24))
                text += "    " + part + "\n";
        text += "\n";
    }
    return text;
}

std::string to_text(const comparison &compared) {
    const comparison_view view = view_of(compared);
    std::string text;
    for (const std::string &part :
         wrapped(compared.title, all_clusters(compared) ? text_columns : table_columns))
        if (!part.empty()) text += part + "\n";
    if (compared.rows.empty())
        return text + (compared.failed.empty() ? "nothing was run\n"
                                               : failed_text(compared.failed, table_columns));
    if (any_cluster(compared)) text += "\n" + cluster_table(compared, view);
    const std::vector<table_column> columns = columns_for(compared, view);
    const std::vector<size_t> widths = fitted_widths(columns, table_columns);
    bool any_best = false;
    for (const std::string &profile : view.profiles) {
        const std::vector<size_t> rows = rows_on(compared, profile);
        text += "\n" + shortened(profile.empty() ? "no profile" : profile, table_columns) + "\n";
        text += heading_line(columns, widths);
        const bool by_size = in_blocks(rows, view.slots);
        const bool by_label = !by_size && in_blocks(rows, view.labels);
        for (size_t i = 0; i < rows.size(); ++i) {
            const bool new_size = i > 0 && view.slots[rows[i]] != view.slots[rows[i - 1]];
            const bool new_label = i > 0 && view.labels[rows[i]] != view.labels[rows[i - 1]];
            if ((by_size && new_size) || (by_label && new_label)) text += "\n";
            text += row_line(columns, widths, rows[i]);
            any_best |= view.best[rows[i]];
        }
    }
    if (!compared.failed.empty())
        text += "\n" +
                failed_text(compared.failed, all_clusters(compared) ? text_columns : table_columns);
    text += "\n" + texts_of(compared, view);
    if (any_best) text += "* fastest of its profile and size\n";
    for (const std::string &sentence : reading(compared, view)) {
        std::string_view lead = "- ";
        const size_t columns_max = all_clusters(compared) ? text_columns : table_columns;
        for (const std::string &part : wrapped(sentence, columns_max - 2)) {
            text += std::string(lead) + part + "\n";
            lead = "  ";
        }
    }
    return text;
}

}  // namespace moorage::core
