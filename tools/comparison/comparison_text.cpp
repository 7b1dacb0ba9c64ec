// comparison_text.cpp - the table of a comparison for a terminal, and the sentences below it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/comparison/cluster_comparison.h"
#include "tools/comparison/comparison.h"
#include "core/report/figure_table.h"
#include "core/report/figures.h"
#include "tools/comparison/lossy_rows.h"
#include "tools/comparison/text_table.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

constexpr size_t warnings_shown_max = 4;

double bytes_per_token(const comparison_row &row) {
    const run_report &report = row.report;
    return mean_or(row, "per_token.h2d_bytes",
                   report.tokens == 0 ? 0 : double(report.bytes.h2d) / double(report.tokens));
}

double hit_rate_of(const comparison_row &row) {
    return mean_or(row, "experts.hit_rate", row.report.experts.hit_rate());
}

std::string substituted_cell(const comparison_row &row) {
    return row.report.routing.choices == 0 ? "-" : fine_percent(substituted_share(row), 1);
}

// A column of a figure by its path; nothing where every row's is null or 0.
std::optional<table_column> figure_column(const comparison &compared, std::string_view path) {
    const figure &figure = *find_figure(path);
    table_column column{std::string(figure.label), {}};
    bool has_value = false;
    for (const comparison_row &row : compared.rows) {
        json value = value_of_figure(row.report, path);
        if (value.is_number()) value = mean_or(row, path, value.get<double>());
        has_value |= value.is_number() && value.get<double>() != 0;
        column.cells.push_back(figure_text(figure.unit, value));
    }
    return has_value ? std::optional(column) : std::nullopt;
}

table_column moved_column(const comparison &compared) {
    double least = 0;  // of those that moved any
    for (const comparison_row &row : compared.rows) {
        const double moved = bytes_per_token(row);
        if (moved > 0 && (least == 0 || moved < least)) least = moved;
    }
    const double unit = least >= 1e8 ? 1e9 : 1e6;
    std::vector<double> values;
    for (const comparison_row &row : compared.rows) values.push_back(bytes_per_token(row) / unit);
    return {unit == 1e9 ? "GB/token" : "MB/token", aligned(values), false, 1};
}

// With a mark if it is Pareto-optimal, or does not fit.
table_column tpot_column(const comparison &compared, const comparison_view &view) {
    std::vector<double> values;
    for (const comparison_row &row : compared.rows) {
        const double ms = row.report.cluster ? mean_or(row, "tpot_ms.mean", row.report.tpot_ms.mean)
                                             : shown_ms(row);
        values.push_back(ms == 0 ? std::numeric_limits<double>::quiet_NaN() : ms);
    }
    table_column column{"TPOT ms  ", aligned(values)};  // room for the mark
    for (size_t i = 0; i < column.cells.size(); ++i)
        column.cells[i] += !compared.rows[i].report.misfit.empty() ? " !"
                           : view.pareto[i]                        ? " *"
                                                                   : "  ";
    return column;
}

std::vector<table_column> columns_for(const comparison &compared, const comparison_view &view) {
    std::vector<table_column> columns;
    for (const key_column &key : view.columns) columns.push_back({key.heading, key.values, true});
    table_column slots{"experts", {}}, share{"share", {}, false, 2}, hits{"hit rate", {}},
        speed{"tokens/s", {}, false, 6}, perplexity{"perplexity", {}}, change{"change", {}};
    bool any_share = false;
    std::vector<double> speeds;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        const comparison_row &row = compared.rows[i];
        const run_report &report = row.report;
        slots.cells.push_back(format("{}", view.slots[i]));
        share.cells.push_back(view.share[i] > 0 ? percent(view.share[i], 1) : "-");
        hits.cells.push_back(percent(hit_rate_of(row), report.experts.requested == 0 ? 0 : 1));
        speeds.push_back(mean_or(row, "tokens_per_s", report.tokens_per_s));
        const bool scored = report.text.scored != 0;
        perplexity.cells.push_back(
            scored ? format("{:.3f}", mean_or(row, "text.perplexity", report.text.perplexity()))
                   : "-");
        change.cells.push_back(perplexity_change(row));
        any_share |= view.share[i] > 0;
    }
    speed.cells = aligned(speeds);
    columns.push_back(std::move(slots));
    if (any_share) columns.push_back(std::move(share));
    columns.push_back(std::move(hits));
    columns.push_back(moved_column(compared));
    columns.push_back(tpot_column(compared, view));
    if (const auto interval = interval_column(compared)) columns.push_back(*interval);
    columns.push_back(std::move(speed));  // says what TPOT says
    constexpr std::pair<const char *, uint8_t> optional_figures[] = {
        {"misses_over_optimum", 3}, {"shares.wasted", 4}, {"shares.late", 5}, {"shares.on_cpu", 0}};
    for (const auto &[path, drop_priority] : optional_figures)
        if (auto column = figure_column(compared, path)) {
            column->drop_priority = drop_priority;
            columns.push_back(std::move(*column));
        }
    const bool lossy = any_lossy(compared), scored = any_scored(compared);
    if (scored) columns.push_back(std::move(perplexity));
    if (lossy && scored) columns.push_back(std::move(change));  // of perplexity
    if (lossy) {
        table_column substituted{"substituted", {}};
        for (const comparison_row &row : compared.rows)
            substituted.cells.push_back(substituted_cell(row));
        columns.push_back(std::move(substituted));
    }
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
            reference_ms.emplace(view.group[i], shown_ms(compared.rows[i]));
    std::map<size_t, std::set<std::string>> winners;  // by group
    for (const size_t i : rows)
        if (view.best[i]) winners[view.group[i]].insert(view.labels[i]);
    std::map<std::string, standing> by_label;
    for (const size_t i : rows) {
        standing &standing = by_label[view.labels[i]];
        if (view.best[i]) {
            ++standing.wins;
            if (winners[view.group[i]].size() > 1) ++standing.shared_wins;
        }
        const auto reference_entry = reference_ms.find(view.group[i]);
        const double tpot_ms = shown_ms(compared.rows[i]);
        if (reference_entry == reference_ms.end() || reference_entry->second <= 0 || tpot_ms <= 0)
            continue;
        ++standing.groups;
        standing.log_tpot_ratio += std::log(reference_entry->second / tpot_ms);
    }
    return by_label;
}

// The label others are measured against: plain lru if it was run, else the first.
std::string reference_of(const comparison_view &view, const std::vector<size_t> &rows) {
    for (const size_t i : rows)
        if (view.labels[i] == "lru") return "lru";
    return view.labels[rows.front()];
}

// Why rows are not ranked, where each differs from all others in what makes a comparison fair.
std::string unranked_sentence(const comparison &compared, const comparison_view &view,
                              const std::vector<size_t> &rows) {
    std::set<size_t> groups;
    std::set<uint64_t> sizes;
    std::set<std::optional<double>> qualities;
    for (const size_t i : rows) {
        groups.insert(view.group[i]);
        sizes.insert(view.slots[i]);
        qualities.insert(quality_of(compared.rows[i].report));
    }
    if (rows.size() < 2 || groups.size() < rows.size()) return "";
    std::vector<std::string> differ;
    if (sizes.size() > 1) differ.emplace_back("memory");
    if (qualities.size() > 1) differ.emplace_back("quality");
    if (differ.empty()) differ.emplace_back("work");
    return format("none is called fastest, as the rows differ in {}", listed(differ, "and"));
}

// The nearest row of its group that is not a bound; nothing where it is alone.
std::optional<size_t> next_best(const comparison &compared, const comparison_view &view,
                                size_t first) {
    std::optional<size_t> next;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        if (i == first || view.group[i] != view.group[first] || view.offline[i]) continue;
        if (!next || shown_ms(compared.rows[i]) < shown_ms(compared.rows[*next])) next = i;
    }
    return next;
}

// The fastest label, and the fastest one that sees the future.
struct leaders {
    std::optional<std::string> fastest, bound;
    size_t groups = 0;  // in which something was ranked
};

leaders leaders_of(const comparison_view &view, const std::vector<size_t> &rows,
                   const std::map<std::string, standing> &by_label) {
    leaders found;
    std::set<size_t> ranked;
    const auto better = [&](const standing &a, const standing &b) {
        return a.wins != b.wins ? a.wins > b.wins : a.speed_up() > b.speed_up();
    };
    for (const size_t i : rows) {
        if (view.best[i]) ranked.insert(view.group[i]);
        std::optional<std::string> &leader = view.offline[i] ? found.bound : found.fastest;
        if (!leader || better(by_label.at(view.labels[i]), by_label.at(*leader)))
            leader = view.labels[i];
    }
    found.groups = ranked.size();
    return found;
}

bool of_sizes(const comparison_view &view, const std::vector<size_t> &rows) {
    return std::ranges::any_of(rows,
                               [&](size_t i) { return view.slots[i] != view.slots[rows.front()]; });
}

// Where the best are several: "none and echo are equally fast".
std::string equal_sentence(const comparison_view &view, const std::vector<size_t> &rows) {
    std::vector<std::string> best;
    for (const size_t i : rows)
        if (view.best[i]) best.push_back(view.labels[i]);
    if (best.size() < 2) return "";
    return format("{} are equally fast", listed(best, "and"));
}

std::string fastest_sentence(const comparison &compared, const comparison_view &view,
                             const std::vector<size_t> &rows) {
    const std::string reference = reference_of(view, rows);
    const auto by_label = standings(compared, view, rows, reference);
    const leaders found = leaders_of(view, rows, by_label);
    if (!found.fastest || found.groups == 0) return unranked_sentence(compared, view, rows);
    if (auto unsure = unsure_sentence(compared, view, rows, *found.fastest); !unsure.empty())
        return unsure;
    const standing &winner = by_label.at(*found.fastest);
    const bool many = found.groups > 1;
    if (const std::string equal = equal_sentence(view, rows); !many && !equal.empty()) return equal;
    std::string text = *found.fastest + " is fastest";
    if (many)
        text += format(" at {} of {} {}", winner.wins, found.groups,
                       of_sizes(view, rows) ? "sizes" : "settings");
    if (winner.shared_wins > 0 && many)
        text += format(" (at {} of them not alone)", winner.shared_wins);
    if (*found.fastest != reference && winner.groups > 0)
        text += format(", {:.2f} times as fast as {}{}", winner.speed_up(), reference,
                       many ? " on average" : "");
    if (found.bound && by_label.at(*found.bound).groups > 0 && winner.groups > 0)
        text +=
            format("; {}, which sees the future, would be {:.2f} times as fast as {}", *found.bound,
                   by_label.at(*found.bound).speed_up() / winner.speed_up(), *found.fastest);
    return text;
}

std::string time_sentence(const comparison &compared, const comparison_view &view,
                          const std::vector<size_t> &rows) {
    time_causes sum;
    bool gpu = true;
    size_t count = 0;
    for (const size_t i : rows) {
        if (view.offline[i]) continue;
        ++count;
        const run_report &report = compared.rows[i].report;
        for (const time_causes &phase : causes_of(report)) sum += phase;
        sum += compared.rows[i].more_causes;
        gpu = gpu && has_gpu(report);
    }
    const std::string text = time_sentence(sum, gpu);
    return count > 1 && !text.empty() ? "over all rows, " + text : text;
}

// Says once that the highest hit rate is not the highest speed: for the first size where the speeds
// are more than 1 % apart and the hit rates differ as they are written.
std::string hit_rate_sentence(const comparison &compared, const comparison_view &view) {
    const auto hits = [&](size_t i) { return hit_rate_of(compared.rows[i]); };
    const auto ms = [&](size_t i) { return shown_ms(compared.rows[i]); };
    std::map<size_t, std::pair<size_t, size_t>> leaders;  // group: (best hit rate, best TPOT)
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        if (view.offline[i] || compared.rows[i].report.cluster) continue;
        auto &[hit, fast] = leaders.try_emplace(view.group[i], i, i).first->second;
        if (hits(i) > hits(hit)) hit = i;
        if (ms(i) < ms(fast)) fast = i;
    }
    for (const auto &[group, pair] : leaders) {
        const auto [hit, fast] = pair;
        if (ms(hit) <= ms(fast) * 1.01 || hits(hit) < hits(fast) + 0.001) continue;
        return format(
            "more hits are not more speed: with {} experts on {}, {} hits most ({}), yet {} "
            "({}) is faster",
            view.slots[hit], compared.rows[hit].report.profile, view.labels[hit],
            percent(hits(hit), 1), view.labels[fast], percent(hits(fast), 1));
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
            count(format("plugin {} broke the rules", plugin));
        for (const std::string &warning : row.report.warnings)
            if (warning != row.report.misfit) count(warning);  // that is said beside its mark
    }
    for (size_t i = 0; i < std::min(counted.size(), warnings_shown_max); ++i)
        lines.push_back(format("warning ({} of {} runs): {}", counted[i].second,
                               compared.rows.size(), counted[i].first));
    if (counted.size() > warnings_shown_max)
        lines.push_back(format("{} further warnings are in the JSON report",
                               counted.size() - warnings_shown_max));
}

}  // namespace

std::string unsure_sentence(const comparison &compared, const comparison_view &view,
                            const std::vector<size_t> &rows, const std::string &fastest) {
    for (const size_t i : rows) {
        const comparison_row &row = compared.rows[i];
        if (view.labels[i] != fastest || !view.best[i] || row.repeats_ms.size() < 2) continue;
        const auto next = next_best(compared, view, i);
        if (next && !is_faster(row, compared.rows[*next]))
            return format("{} and {} are not told apart by {} repeats", fastest, view.labels[*next],
                          row.repeats_ms.size());
    }
    return "";
}

std::vector<std::string> reading(const comparison &compared, const comparison_view &view) {
    std::vector<std::string> lines;
    for (const std::string &profile : view.profiles) {
        const std::vector<size_t> rows = rows_on(compared, profile);
        const std::string name = profile.empty() ? "" : profile + ": ";
        for (const std::string &sentence :
             {fastest_sentence(compared, view, rows), time_sentence(compared, view, rows)})
            if (!sentence.empty()) lines.push_back(name + sentence);
    }
    for (std::string &sentence : cluster_reading(compared, view))
        lines.push_back(std::move(sentence));
    if (const std::string text = hit_rate_sentence(compared, view); !text.empty())
        lines.push_back(text);
    if (const std::string text = lossy_sentence(compared, view); !text.empty())
        lines.push_back(text);
    if (compared.rows.size() == 1 && compared.rows[0].savings)
        lines.push_back(what_if_sentence(*compared.rows[0].savings));
    add_warnings(lines, compared);
    return lines;
}

static std::string texts_of(const comparison &compared, const comparison_view &view,
                            size_t columns_max) {
    std::string text;
    for (const written_text &written : written_texts(compared, view)) {
        text += written.every_row
                    ? format("{} wrote, every run alike:\n", written.text->model)
                    : format("{} wrote with {}:\n", written.text->model, written.labels);
        for (size_t i = 0; i < written.text->texts.size(); ++i)
            for (const std::string &part :
                 wrapped(written.text->prompts[i] + written.text->texts[i], columns_max - 24))
                text += "    " + part + "\n";
        text += "\n";
    }
    return text;
}

static std::vector<std::string> offline_labels(const comparison &compared,
                                               const comparison_view &view) {
    std::vector<std::string> labels;
    for (size_t i = 0; i < compared.rows.size(); ++i)
        if (view.offline[i] && std::ranges::find(labels, view.labels[i]) == labels.end())
            labels.push_back(view.labels[i]);
    return labels;
}

// Explains the marks beside the times.
static std::string marks_text(const comparison &compared, const comparison_view &view,
                              bool any_mark, size_t columns_max) {
    std::string text;
    if (any_mark) {
        std::string mark =
            format("* Pareto-optimal in memory, {} and quality among rows of the same work",
                   all_clusters(compared) ? "latency" : "TPOT");
        if (const std::vector<std::string> seers = offline_labels(compared, view); !seers.empty())
            mark += format("; {} {} the future and {} not ranked", listed(seers, "and"),
                           seers.size() == 1 ? "sees" : "see", seers.size() == 1 ? "is" : "are");
        for (const std::string &part : wrapped(mark, columns_max)) text += part + "\n";
    }
    for (size_t i = 0; i < compared.rows.size(); ++i)
        if (const std::string &misfit = compared.rows[i].report.misfit; !misfit.empty())
            for (const std::string &part : wrapped(format("! {} with {} experts does not fit: {}",
                                                          view.labels[i], view.slots[i], misfit),
                                                   columns_max))
                text += part + "\n";
    return text;
}

// One for each machine, which is named where there are several.
static std::string what_if_tables(const comparison &compared, const comparison_view &view,
                                  size_t columns_max) {
    std::string text;
    for (const std::string &profile : view.profiles) {
        std::vector<std::string> labels;
        std::vector<const what_if *> savings;
        for (const size_t i : rows_on(compared, profile))
            if (compared.rows[i].savings) {
                labels.push_back(format("{}, {}", view.labels[i], view.slots[i]));
                savings.push_back(&*compared.rows[i].savings);
            }
        if (savings.empty()) continue;
        text += "\n" + (view.profiles.size() > 1 ? profile + ": " : std::string());
        text += what_if_table(labels, savings, columns_max) + "\n";
    }
    return text;
}

std::string interrupted_text(const comparison &compared) {
    const auto &interruption = compared.interrupted;
    if (interruption.signal.empty()) return "";
    return format("interrupted by {} after {} of {} rows{}{}", interruption.signal,
                  compared.rows.size() + compared.failed.size(), interruption.rows,
                  interruption.remedy.empty() ? "" : "; ", interruption.remedy);
}

std::string to_text(const comparison &compared, size_t columns_max) {
    const comparison_view view = view_of(compared);
    if (all_clusters(compared)) columns_max = text_columns;
    std::string text;
    for (const std::string &part : wrapped(compared.title, columns_max))
        if (!part.empty()) text += part + "\n";
    const std::string stopped = interrupted_text(compared);
    if (compared.rows.empty() && compared.failed.empty())
        return text + (stopped.empty() ? "nothing was run\n" : stopped + "\n");
    if (compared.rows.empty())
        return text + failed_text(compared.failed, columns_max) +
               (stopped.empty() ? "" : stopped + "\n");
    if (any_cluster(compared)) text += "\n" + cluster_table(compared, view);
    const std::vector<table_column> columns = columns_for(compared, view);
    const std::vector<size_t> widths = fitted_widths(columns, columns_max);
    bool any_mark = any_cluster(compared) && std::ranges::count(view.pareto, true) != 0;
    for (const std::string &profile : view.profiles) {
        const std::vector<size_t> rows = rows_on(compared, profile);
        text += "\n" + shortened(profile.empty() ? "no profile" : profile, columns_max) + "\n";
        text += heading_line(columns, widths);
        const bool by_size = in_blocks(rows, view.slots);
        const bool by_label = !by_size && in_blocks(rows, view.labels);
        for (size_t i = 0; i < rows.size(); ++i) {
            const bool new_size = i > 0 && view.slots[rows[i]] != view.slots[rows[i - 1]];
            const bool new_label = i > 0 && view.labels[rows[i]] != view.labels[rows[i - 1]];
            if ((by_size && new_size) || (by_label && new_label)) text += "\n";
            text += row_line(columns, widths, rows[i]);
            any_mark |= view.pareto[rows[i]];
        }
    }
    if (const std::string less = left_out(columns, widths); !less.empty()) {
        text += "\n";
        for (const std::string &part : wrapped(less + "; --html and --json have them", columns_max))
            text += part + "\n";
    }
    if (!compared.failed.empty()) text += "\n" + failed_text(compared.failed, columns_max);
    text += "\n" + texts_of(compared, view, columns_max);
    text += marks_text(compared, view, any_mark, columns_max);
    for (const std::string &part : wrapped(stopped, columns_max))
        if (!part.empty()) text += part + "\n";
    text += what_if_tables(compared, view, columns_max);
    for (const std::string &sentence : reading(compared, view)) {
        std::string_view lead = "- ";
        for (const std::string &part : wrapped(sentence, columns_max - 2)) {
            text += std::string(lead) + part + "\n";
            lead = "  ";
        }
    }
    return text;
}

}  // namespace moorage::core
