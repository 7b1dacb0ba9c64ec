// validation.h - compares the emulator with published figures: by row, by class and by pair.
#pragma once

#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "tools/validate/setting.h"

namespace moorage::core {

struct validated_row {
    measurement figure;
    std::string reason;  // why it was not emulated; empty: it was
    figure_class kind = figure_class::resident;
    std::vector<std::string> assumed;
    double emulated_ms = 0;  // comparable with measurement::time_ms()

    bool is_emulated() const { return reason.empty(); }
    double ratio() const {
        return figure.time_ms() / emulated_ms;
    }  // emulated speed / published speed
};

struct validated_pair {
    measured_pair pair;
    std::string reason;
    double emulated = 0;  // emulated slowdown
    bool is_emulated() const { return reason.empty(); }
    double ratio() const { return emulated / pair.slowdown; }
};

// Statistics of the errors |ratio - 1|.
struct error_summary {
    std::string name;
    size_t rows = 0;
    double median = 0, ninth_tenth = 0, worst = 0, median_ratio = 1;
    std::string worst_id;
};

struct validation {
    std::string file, pairs_file;
    std::string against = "published";  // name of the figures that the emulated ones are compared
                                        // with
    std::vector<validated_row> rows;
    std::vector<validated_pair> pairs;

    size_t emulated_count() const;
    // Each class that has rows, then all rows together.
    std::vector<error_summary> summaries() const;
    // Emulated rows whose ratio differs from 1 by more than `share`, the worst first.
    std::vector<const validated_row *> rows_beyond(double share) const;
    // The errors of the slowdowns of pairs, in either direction.
    error_summary pair_summary() const;
};

result<validation> validate(const csv_table &rows, const csv_table *pairs,
                            const setting_sources &sources);

json to_json(const validation &report);
std::string to_text(const validation &report);
// A page with the scatter plot by class, and tables. `command`: makes the page again.
std::string to_html(const validation &report, const std::string &command);

}  // namespace moorage::core
