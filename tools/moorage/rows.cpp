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

constexpr char is_value = '+', is_error = '-', is_usage = '?';

std::string sent(const result<std::string> &made) {
    if (made) return is_value + *made;
    return (made.failure().usage ? is_usage : is_error) + made.failure().text;
}

row_end received(std::string bytes) {
    row_end how;
    const char kind = bytes.empty() ? is_error : bytes[0];
    if (!bytes.empty()) bytes.erase(0, 1);
    if (kind == is_value)
        how.bytes = std::move(bytes);
    else
        how.failure = failed_row{"", std::move(bytes), {}, kind == is_usage};
    return how;
}

row_end end_of(ending how) {
    if (!how.forked.empty())
        log_warning(format("{} made a second process of this one, which was ended", how.forked));
    if (!how.died()) return received(std::move(how.bytes));
    row_end died;
    died.failure = failed_row{"", how.text(), to_json(how), false};
    return died;
}

bool in_one_process() {
    const char *one = std::getenv("MOORAGE_ONE_PROCESS");
    return one && std::string_view(one) == "1";
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
    const auto end = [&](size_t index, row_end how) {
        if (options.kept && !how.failure)
            options.kept->add(identities[index], options.figures(how.bytes), how.bytes);
        ended(index, std::move(how));
    };
    if (in_one_process()) {
        for (const size_t i : missing) end(i, received(sent(work(i))));
        return 0;
    }
    const uint32_t at_once = options.at_once != 0 ? options.at_once : usable_processors();
    const auto child = [&](size_t job, const sender &out) {
        if (options.kept) options.kept->close_in_worker();
        out(sent(work(missing[job])));
        return exit_ok;
    };
    supervision how;
    how.may_go_on = options.is_measured ? [] { return false; } : libraries_are_as_opened;
    return supervise_all(missing.size(), at_once, child, how, [&](size_t job, ending ending) {
        end(missing[job], end_of(std::move(ending)));
    });
}

int exit_code_of(size_t finished, std::span<const failed_row> failures) {
    if (failures.empty()) return exit_ok;
    const auto wrong = [](const failed_row &one) { return one.usage; };
    if (finished == 0 && std::ranges::all_of(failures, wrong)) return fail({failures[0].why, true});
    for (const failed_row &one : failures)
        fail({one.label.empty() ? one.why : one.label + ": " + one.why});
    return exit_failed;
}

}  // namespace moorage::tool
