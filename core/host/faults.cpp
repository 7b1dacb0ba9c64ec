// faults.cpp - counts wrong advice per policy.
#include "core/host/faults.h"

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

bool fault_log::report(std::string_view policy, std::string_view what, bool replaced) {
    auto at = counts_.find(policy);
    if (at == counts_.end()) at = counts_.emplace(std::string(policy), 0).first;
    ++at->second;
    if (action_ == on_fault::abort) {
        if (fatal_.empty()) fatal_ = format("policy {}: {}", policy, what);
        return false;  // the code that ends the run logs the reason
    }
    if (at->second == 1)
        log_warning(format("policy {}: {}{}; further faults of it are only counted", policy, what,
                           replaced ? "; the default replaces it" : ""));
    return true;
}

void fault_log::no_advice(std::string_view policy) {
    auto at = without_advice_.find(policy);
    if (at == without_advice_.end())
        at = without_advice_.emplace(std::string(policy), uint64_t{0}).first;
    ++at->second;
}

uint64_t fault_log::count(std::string_view policy) const {
    const auto at = counts_.find(policy);
    return at == counts_.end() ? 0 : at->second;
}

}  // namespace moorage::core
