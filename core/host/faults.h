// faults.h - the account of wrong advice: counted per policy, logged once, ends the run or is
// replaced.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace moorage::core {

enum class on_fault { abort, replace };

class fault_log {
public:
    explicit fault_log(on_fault action = on_fault::abort) : action_(action) {}

    // Records one piece of wrong advice of `policy`; `what` says which, e.g. "victim 17 (layer 2
    // expert 1) is pinned". Logs the first of each policy that is replaced. Returns true when the
    // default may replace it, false when the run has to end.
    // Not `replaced`: it is no advice that the default could stand in for.
    bool report(std::string_view policy, std::string_view what, bool replaced = true);

    // The policy was asked and left it to the default: not wrong, but to be known.
    void no_advice(std::string_view policy);

    uint64_t count(std::string_view policy) const;
    const std::map<std::string, uint64_t, std::less<>> &counts() const { return counts_; }
    // How often policies gave no advice.
    const std::map<std::string, uint64_t, std::less<>> &without_advice() const {
        return without_advice_;
    }
    // The fault that ends the run; empty while none has.
    const std::string &fatal() const { return fatal_; }
    bool ended() const { return !fatal_.empty(); }

private:
    on_fault action_;
    std::map<std::string, uint64_t, std::less<>> counts_, without_advice_;
    std::string fatal_;
};

}  // namespace moorage::core
