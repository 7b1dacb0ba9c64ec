// faults.h - records wrong advice: counts it per policy and logs it once. It ends the run or is
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

    // Records one piece of wrong advice of `policy`. `problem` describes it, for example "victim 17
    // (layer 2 expert 1) is pinned". Logs the first replaced one of each policy. True: the default
    // may replace it. False: the run must end. `replaced` is false if there is no advice that the
    // default could replace.
    bool report(std::string_view policy, std::string_view problem, bool replaced = true);

    // Records that the policy was asked and left the choice to the default. This is not wrong, but
    // is reported.
    void note_no_advice(std::string_view policy);

    uint64_t count(std::string_view policy) const;
    const std::map<std::string, uint64_t, std::less<>> &counts() const { return counts_; }
    // How often each policy gave no advice.
    const std::map<std::string, uint64_t, std::less<>> &without_advice() const {
        return without_advice_;
    }
    // The fault that ends the run; empty: none.
    const std::string &fatal() const { return fatal_; }
    bool ended() const { return !fatal_.empty(); }

private:
    on_fault action_;
    std::map<std::string, uint64_t, std::less<>> counts_, without_advice_;
    std::string fatal_;
};

}  // namespace moorage::core
