// policy_caller.cpp - handles a call that changed the process.
#include "core/host/policy_caller.h"

#include "core/base/text.h"

namespace moorage::core {

void policy_caller::check_surroundings(entry_point which, bool whole_state) {
    const std::string changes = restore_surroundings(whole_state);
    if (changes.empty()) return;
    const std::string text = format(
        "{} changed {} of the process, which was put back; a policy leaves the process as it "
        "found it",
        name_of(which), changes);
    if (faults)
        faults->report(name, text, /*replaced=*/false);
    else
        disturbance = text;
}

}  // namespace moorage::core
