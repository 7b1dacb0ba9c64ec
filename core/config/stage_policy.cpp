// stage_policy.cpp - looks names of a configuration up.
#include "core/config/stage_policy.h"

namespace moorage::core {

result<const policy *> find_policy(const registry &known, const stage_config &stage,
                                   std::string_view kind) {
    for (const auto &[name, place] : stage.other_tables)
        if (!known.knows(name, kind))
            return error{place + ": " + known.find(name, kind).failure().text, true};
    const auto found = known.find(stage.plugin, kind, stage.library);
    if (!found) return error{stage.place + ": " + found.failure().text, true};
    return *found;
}

}  // namespace moorage::core
