// rows.cpp - rows under supervision. The first byte that a child sends gives the kind of the rest.
#include "tools/moorage/rows.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/machine_limits.h"
#include "core/host/ending.h"
#include "core/host/library.h"
#include "core/host/supervise.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

constexpr char value_mark = '+', error_mark = '-', usage_mark = '?';

std::string encode_result(const result<std::string> &outcome) {
    if (outcome) return value_mark + *outcome;
    return (outcome.failure().usage ? usage_mark : error_mark) + outcome.failure().text;
}

row_end decode_result(std::string bytes) {
    row_end finished_row;
    const char kind = bytes.empty() ? error_mark : bytes[0];
    if (!bytes.empty()) bytes.erase(0, 1);
    if (kind == value_mark)
        finished_row.bytes = std::move(bytes);
    else
        finished_row.failure = failed_row{"", std::move(bytes), {}, kind == usage_mark};
    return finished_row;
}

row_end to_row_end(ending process_end) {
    if (!process_end.forked.empty())
        log_warning(
            format("{} made a second process of this one, which was ended", process_end.forked));
    if (!process_end.died()) return decode_result(std::move(process_end.bytes));
    row_end died;
    died.failure = failed_row{"", process_end.text(), to_json(process_end), false};
    return died;
}

bool in_one_process() {
    const char *value = std::getenv("MOORAGE_ONE_PROCESS");
    return value && std::string_view(value) == "1";
}

}  // namespace

int run_rows(size_t count, const rows_options &options,
             const std::function<result<std::string>(size_t)> &work,
             const std::function<void(size_t, row_end)> &ended) {
    std::vector<size_t> missing;
    std::vector<row_identity> identities(options.kept ? count : 0);
    for (size_t i = 0; i < count; ++i) {
        if (options.kept) {
            identities[i] = options.identity(i);
            if (auto known = options.kept->find(identities[i].hash)) {
                ended(i, {std::move(*known), {}});
                continue;
            }
        }
        missing.push_back(i);
    }
    const auto end = [&](size_t index, row_end finished_row) {
        if (options.kept && !finished_row.failure)
            options.kept->add(identities[index], options.figures(finished_row.bytes),
                              finished_row.bytes);
        ended(index, std::move(finished_row));
    };
    if (in_one_process()) {
        for (const size_t i : missing) end(i, decode_result(encode_result(work(i))));
        return 0;
    }
    const uint32_t at_once = options.at_once != 0 ? options.at_once : usable_processors();
    const auto child = [&](size_t job, const sender &send) {
        if (options.kept) options.kept->close_in_worker();
        send(encode_result(work(missing[job])));
        return exit_ok;
    };
    supervision process_rules;
    process_rules.may_go_on = options.is_measured ? [] { return false; } : libraries_are_as_opened;
    return supervise_all(
        missing.size(), at_once, child, process_rules,
        [&](size_t job, ending ending) { end(missing[job], to_row_end(std::move(ending))); });
}

int exit_code_of(size_t finished, std::span<const failed_row> failures) {
    if (failures.empty()) return exit_ok;
    const auto wrong = [](const failed_row &failure) { return failure.usage; };
    if (finished == 0 && std::ranges::all_of(failures, wrong))
        return fail({failures[0].reason, true});
    for (const failed_row &failure : failures)
        fail({failure.label.empty() ? failure.reason : failure.label + ": " + failure.reason});
    return exit_failed;
}

}  // namespace moorage::tool
