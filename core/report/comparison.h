// comparison.h - several runs of the same work side by side: what differs, and the table.
//
//     comparison compared{.title = "...", .trace = "prose.safetensors", .shape = "mixtral-8x7b"};
//     compared.rows.push_back({.report = report, .slots = 64, .experts_all = 256});
//     std::fputs(to_text(compared).c_str(), stdout);
//
// Which settings become columns is found from the reports' configs: only those that differ. html.h
// makes a page of the same comparison.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/report/failed_rows.h"
#include "core/report/report.h"

namespace moorage::core {

struct comparison_row {
    run_report report;
    uint64_t slots = 0;  // cached experts; 0: the sum of the report's layers, or memory.experts
    uint64_t experts_all = 0;  // of the model, all layers; 0: not known, no shares are shown
    // The policy sees the trace's future: a bound, never called the fastest. Also true of any row
    // whose cache plugin is belady.
    bool offline = false;
    std::string config = {};  // names the row's configuration where several are compared
};

struct comparison {
    std::string title;         // heading
    std::string trace, shape;  // what was run, for the page's header; may be empty
    std::vector<comparison_row> rows;
    std::vector<failed_row> failed = {};  // what else was to be a row
};

// A column that tells rows apart. Stages have one column each: the plugin, and in brackets those of
// its parameters that differ between rows with this plugin, "lfu(half_life=16)".
struct key_column {
    std::string heading;              // "cache", "sharing", "batch"
    std::vector<std::string> values;  // by row
};

// What text, JSON and page need to know about the rows as a whole; vectors are by row unless said.
struct comparison_view {
    std::vector<std::string> settings;  // "section.key" of every setting that differs; not by row
    std::vector<key_column> columns;    // without profile and size, which the table always has
    std::vector<std::string> labels;    // the columns' values joined: a line in a plot
    std::vector<uint64_t> slots;
    std::vector<double> share;  // slots / experts_all; 0: not known
    std::vector<bool> offline;
    std::vector<uint64_t> storage_bytes;  // for experts, of a cluster's devices; 0: one machine
    std::vector<bool> best;               // lowest mean TPOT in its group; latency, of clusters
    std::vector<size_t> group;            // equal numbers: equal profile, size and work
    std::vector<std::string> profiles;    // of single machines, in order of appearance; not by row
};

comparison_view view_of(const comparison &compared);

// Of single machines of a profile.
std::vector<size_t> rows_on(const comparison &compared, const std::string &profile);

// The value of a setting as it was given, "" where the row's config has none.
std::string setting_text(const run_report &report, const std::string &key);

// Sentences: the fastest policy of each profile, where its time goes, what else a reader should
// know before drawing a conclusion (bounds, hit rate against speed). Warnings come last.
std::vector<std::string> reading(const comparison &compared, const comparison_view &view);

// What models wrote: each text once, with the labels of the rows that wrote it.
struct written_text {
    const text_report *text = nullptr;  // borrowed from a row
    std::string labels;                 // "lru; lfu"
    bool every_row = false;
};
std::vector<written_text> written_texts(const comparison &compared, const comparison_view &view);
// Whether any row scored a text, its own or another's.
bool any_scored(const comparison &compared);

// The table, at most 100 columns (80 where all rows are of clusters), and the reading below it.
std::string to_text(const comparison &compared);
// {"title", "results": [the report of each run, and "settings": {those that differ}]}, and "failed"
// where a row did
json to_json(const comparison &compared);

}  // namespace moorage::core
