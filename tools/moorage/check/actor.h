// actor.h - the policy under test as the driver sees it: its tables, and its life.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/host/instance.h"
#include "core/host/services.h"
#include "tools/moorage/check/fenced.h"

namespace moorage::check {

class actor : public core::policy_tables {
public:
    virtual ~actor() = default;
    virtual core::status activate(const moorage_limits &limits) = 0;
    virtual void deactivate() = 0;
    virtual void reset() = 0;
    // A [control] call that may fail; the status comes with the policy's text.
    virtual core::status control(core::entry_point which,
                                 const std::function<int32_t(moorage_plugin *)> &work) = 0;

    moorage_plugin *plugin = nullptr;
    uint32_t owner = 0;  // on the board of calls
    bool lossy = false;  // MOORAGE_POLICY_LOSSY
};

// An instance as every run makes it.
core::result<std::unique_ptr<actor>> hosted_actor(const core::policy &policy,
                                                  const core::settings &params,
                                                  const core::environment &environment);

// An instance made by a host of version 2.0. It has no optional services. Every table and the host
// itself have the size of 2.0, and memory that cannot be touched follows them.
core::result<std::unique_ptr<actor>> first_host_actor(const core::policy &policy,
                                                      const core::settings &params,
                                                      const core::environment &environment);

}  // namespace moorage::check
