// policy_tables.h - the tables of a policy: where they are, and copies of them;
// made from sdk/include/moorage by tools/abi_tables; do not edit.
#pragma once

#include "moorage/budget.h"
#include "moorage/cache.h"
#include "moorage/dispatch.h"
#include "moorage/module.h"
#include "moorage/placement.h"
#include "moorage/prefetch.h"
#include "moorage/router.h"
#include "moorage/step.h"
#include "moorage/transport.h"
#include "moorage/wire.h"

namespace moorage::core {

// Null: the policy is not of this kind. Optional functions in a table may be null.
struct policy_tables {
    const moorage_router *router = nullptr;
    const moorage_cache *cache = nullptr;
    const moorage_budget *budget = nullptr;
    const moorage_prefetch *prefetch = nullptr;
    const moorage_dispatch *dispatch = nullptr;
    const moorage_placement *placement = nullptr;
    const moorage_transport *transport = nullptr;
    const moorage_wire *wire = nullptr;
    const moorage_facts *facts = nullptr;
    const moorage_observer *observer = nullptr;
    const moorage_replayer *replayer = nullptr;
};

struct table_copies {
    moorage_router router{};
    moorage_cache cache{};
    moorage_budget budget{};
    moorage_prefetch prefetch{};
    moorage_dispatch dispatch{};
    moorage_placement placement{};
    moorage_transport transport{};
    moorage_wire wire{};
    moorage_facts facts{};
    moorage_observer observer{};
    moorage_replayer replayer{};
};

}  // namespace moorage::core
