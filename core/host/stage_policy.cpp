// stage_policy.cpp - looks names of a configuration up.
#include "core/host/stage_policy.h"

namespace moorage::core {

result<const policy *> find_policy(const registry &known, const stage_config &stage,
                                   std::string_view kind) {
    for (const auto &[name, place] : stage.other_tables)
        if (const auto other = known.find(name, kind); !other)
            return error{place + ": " + other.failure().text, true};
    const auto found = known.find(stage.plugin, kind);
    if (!found) return error{stage.place + ": " + found.failure().text, true};
    return *found;
}

}  // namespace moorage::core
