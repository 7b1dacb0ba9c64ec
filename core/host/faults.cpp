// faults.cpp - counts wrong advice per policy.
#include "core/host/faults.h"

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

bool fault_log::report(std::string_view policy, std::string_view what) {
    auto at = counts_.find(policy);
    if (at == counts_.end()) at = counts_.emplace(std::string(policy), 0).first;
    const bool goes_on = action_ == on_fault::replace;
    if (at->second++ == 0)
        log_warning(format(
            "policy {}: {}; {}", policy, what,
            goes_on ? "the default replaces it; further faults of it are only counted"
                    : "the run ends ([plugins] on_fault = \"replace\" goes on with the default)"));
    if (!goes_on && fatal_.empty()) fatal_ = format("policy {}: {}", policy, what);
    return goes_on;
}

uint64_t fault_log::count(std::string_view policy) const {
    const auto at = counts_.find(policy);
    return at == counts_.end() ? 0 : at->second;
}

}  // namespace moorage::core
