// faults.cpp - counts wrong advice per policy.
#include "core/host/faults.h"

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

bool fault_log::report(std::string_view policy, std::string_view problem, bool replaced) {
    auto entry = counts_.find(policy);
    if (entry == counts_.end()) entry = counts_.emplace(std::string(policy), 0).first;
    ++entry->second;
    if (action_ == on_fault::abort) {
        if (fatal_.empty()) fatal_ = format("policy {}: {}", policy, problem);
        return false;  // the code that ends the run logs the reason
    }
    if (entry->second == 1)
        log_warning(format("policy {}: {}{}; further faults of it are only counted", policy,
                           problem, replaced ? "; the default replaces it" : ""));
    return true;
}

void fault_log::note_no_advice(std::string_view policy) {
    auto entry = without_advice_.find(policy);
    if (entry == without_advice_.end())
        entry = without_advice_.emplace(std::string(policy), uint64_t{0}).first;
    ++entry->second;
}

uint64_t fault_log::count(std::string_view policy) const {
    const auto entry = counts_.find(policy);
    return entry == counts_.end() ? 0 : entry->second;
}

}  // namespace moorage::core
