// lossy_rows.cpp - shares and sentences about rows whose routes are not the model's own.
#include "tools/comparison/lossy_rows.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

double substituted_share(const comparison_row &row) {
    return mean_or(row, "shares.substituted",
                   substituted_share(row.report.routing, row.report.experts.substituted));
}

std::string perplexity_change(const comparison_row &row) {
    const text_report &text = row.report.text;
    return text.own_nll ? perplexity_change(mean_or(row, "text.nll_change", text.nll_change()))
                        : "-";
}

bool any_lossy(const comparison &compared) {
    return std::any_of(compared.rows.begin(), compared.rows.end(),
                       [](const comparison_row &row) { return row.report.lossy; });
}

std::string lossy_sentence(const comparison &compared, const comparison_view &view) {
    const auto share = [&](size_t i) { return substituted_share(compared.rows[i]); };
    size_t count = 0, most = 0;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        if (!compared.rows[i].report.lossy) continue;
        if (count++ == 0 || share(i) > share(most)) most = i;
    }
    if (count == 0) return "";
    const comparison_row &row = compared.rows[most];
    const routing_counts &routing = row.report.routing;
    const double unchanged =
        routing.rows == 0 ? 0 : double(routing.rows_unchanged) / double(routing.rows);
    std::string text = format(
        "lossy: {} of {} runs may change the model's routing; the most does {} with {} experts, "
        "{} of the choices substituted, {} of the rows unchanged",
        count, compared.rows.size(), view.labels[most], view.slots[most],
        fine_percent(share(most), 1),
        fine_percent(mean_or(row, "routing.rows_agreement", unchanged), routing.rows == 0 ? 0 : 1));
    if (row.report.text.own_nll)
        text += format(", perplexity {} against the model's own routing", perplexity_change(row));
    return text;
}

}  // namespace moorage::core
