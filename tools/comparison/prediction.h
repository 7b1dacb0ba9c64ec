// prediction.h - compares an emulated run with a real one of the same work, term by term, and
// divides the difference by the causes of time.
//
//   const prediction found = compare_runs(emulated, real);
//   std::fputs(to_text(found).c_str(), stdout);
#pragma once

#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/report/report.h"

namespace moorage::core {

enum class term_unit : uint8_t { ms, share, bytes };

struct term {
    std::string name;     // as in the report: "tpot", "hit_rate", "compute"
    std::string meaning;  // for the table
    term_unit unit = term_unit::ms;
    double emulated = 0, real = 0;
    // (emulated - real) / real. 0 if both are 0, infinite if only the real one is.
    double relative() const;
};

// The time of a phase by causes, in both runs: the causes that either run had, and their sum.
struct phase_terms {
    std::string name;  // "prefill", "decode"
    std::vector<term> causes;
    term sum;
};

struct prediction {
    std::string profile, executor;  // of the emulated run; of the real one
    uint64_t tokens = 0;
    std::vector<term> terms;
    std::vector<phase_terms> phases;  // phases that took time
    // The cause whose times are furthest apart, in milliseconds. There the model of costs has its
    // largest error ("decode.link"). Empty: there is none.
    std::string worst;
    std::vector<std::string> warnings;  // why the runs are not of the same work, if so
};

// `real` is for the run and for decoding, `prompted` for the prompt. If there were several runs,
// each is the fastest in its phase.
prediction compare_runs(const run_report &emulated, const run_report &real,
                        const run_report &prompted);
inline prediction compare_runs(const run_report &emulated, const run_report &real) {
    return compare_runs(emulated, real, real);
}

// For a terminal, at most 80 columns.
std::string to_text(const prediction &found);
// {"profile", "executor", "tokens", "worst", "terms": {name: {"emulated", "real", "relative"}},
// "causes": {phase: {cause: the same}}}
json to_json(const prediction &found);

}  // namespace moorage::core
