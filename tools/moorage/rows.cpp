// rows.cpp - rows under supervision; the first byte that a child sends says what follows.
#include "tools/moorage/rows.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/json.h"
#include "core/host/ending.h"
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
    if (!how.died()) return received(std::move(how.bytes));
    row_end died;
    died.failure = failed_row{"", how.text(), to_json(how), false};
    return died;
}

}  // namespace

void run_rows(size_t count, uint32_t at_once,
              const std::function<result<std::string>(size_t)> &work,
              const std::function<void(size_t, row_end)> &ended) {
    const char *one = std::getenv("MOORAGE_ONE_PROCESS");
    if (one && std::string_view(one) == "1") {
        for (size_t i = 0; i < count; ++i) ended(i, received(sent(work(i))));
        return;
    }
    if (at_once == 0) at_once = std::max(1u, std::thread::hardware_concurrency());
    const auto child = [&](size_t index, const sender &out) {
        out(sent(work(index)));
        return exit_ok;
    };
    supervise_all(count, at_once, child, {},
                  [&](size_t index, ending how) { ended(index, end_of(std::move(how))); });
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
