// faults.cpp - counts wrong advice per policy.
#include "core/host/faults.h"

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

bool fault_log::report(std::string_view policy, std::string_view what) {
    auto at = counts_.find(policy);
    if (at == counts_.end()) at = counts_.emplace(std::string(policy), 0).first;
    ++at->second;
    if (action_ == on_fault::abort) {
        if (fatal_.empty()) fatal_ = format("policy {}: {}", policy, what);
        return false;  // whoever ends the run says why
    }
    if (at->second == 1)
        log_warning(
            format("policy {}: {}; the default replaces it; further faults of it are only counted",
                   policy, what));
    return true;
}

uint64_t fault_log::count(std::string_view policy) const {
    const auto at = counts_.find(policy);
    return at == counts_.end() ? 0 : at->second;
}

}  // namespace moorage::core
