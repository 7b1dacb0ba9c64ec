// policy_caller.cpp - handles a call that changed the process.
#include "core/host/policy_caller.h"

#include "core/base/text.h"

namespace moorage::core {

void policy_caller::compare(entry_point which, bool all) {
    const std::string what = restore_surroundings(all);
    if (what.empty()) return;
    const std::string text = format(
        "{} changed {} of the process, which was put back; a policy leaves the process as it "
        "found it",
        name_of(which), what);
    if (faults)
        faults->report(name, text, /*replaced=*/false);
    else
        disturbance = text;
}

}  // namespace moorage::core
