// stage_policy.cpp - looks up the policies that a configuration names.
#include "core/config/stage_policy.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "core/base/text.h"
#include "core/config/executors.h"
#include "core/host/kinds.h"
#include "core/host/parameters.h"

namespace moorage::core {

result<const policy *> find_policy(const registry &known, const stage_config &stage,
                                   std::string_view kind) {
    for (const stage_config::other_table &table : stage.other_tables) {
        const auto named = known.find(table.policy, kind);
        if (!known.knows(table.policy, kind))
            return error{table.place + ": " + named.failure().text, true};
        if (!named) continue;  // two libraries have it, and none is chosen
        const auto sound = check_parameters(format("{} policy {}", kind, table.policy),
                                            (*named)->params, table.params);
        if (!sound) return error{sound.failure().text, true};
    }
    const auto found = known.find(stage.plugin, kind, stage.library);
    if (!found) return error{stage.place + ": " + found.failure().text, true};
    return *found;
}

stage_config::other_table &stage_config::table_of(const std::string &policy,
                                                  const std::string &place) {
    for (other_table &table : other_tables)
        if (table.policy == policy) return table;
    return other_tables.emplace_back(other_table{policy, place, {}});
}

const executor_kind &run_config::runs_on() const {
    const executor_kind *found = find_executor(executor);
    return found == nullptr ? executors[0] : *found;
}

stage_config &run_config::stage(std::string_view kind) {
    if (kind == host_cache_stage) return host_cache;
    stage_config *const stages[] = {&router,   &cache,     &budget,    &prefetch,
                                    &dispatch, &placement, &transport, &wire};
    static_assert(std::size(stages) == std::size(kinds));
    const auto found = std::ranges::find(kinds, kind);
    assert(found != std::end(kinds));
    return *stages[found - std::begin(kinds)];
}

const stage_config &run_config::stage(std::string_view kind) const {
    return const_cast<run_config *>(this)->stage(kind);
}

}  // namespace moorage::core
