// span_log.h - times of a node's work, by its own clock: requests of its home, calls to others,
// calls of others. Keeps the latest spans_max, in memory that is taken once. /spans returns them
// (cluster_timeline.h combines those of several nodes).
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tools/node/node_plan.h"

namespace moorage::core {

enum class span_kind : uint8_t {
    request,  // of this home: came, began, ended
    call,     // to `server`: sent, -, answered or given up
    served    // for `server`: came, began, computed
};
constexpr std::array<const char *, 3> span_kind_names = {"request", "call", "served"};

enum class span_end : uint8_t { done, late, lost, failed, wrong, cancelled };
constexpr std::array<const char *, 6> span_end_names = {"done",   "late",  "lost",
                                                        "failed", "wrong", "cancelled"};

struct node_span {
    span_kind kind = span_kind::request;
    span_end end = span_end::done;
    uint32_t server = no_server;
    uint32_t layer = 0, experts = 0, rows = 0;  // for a request: -, tokens written, tokens asked
    uint64_t request = 0;                       // the home's number for it; 0: not known
    uint64_t home = 0, id = 0;  // incarnation of the caller, and its number of the call
    uint64_t begun_ns = 0, started_ns = 0, ended_ns = 0;  // by the node's steady clock
    bool operator==(const node_span &) const = default;
};

class span_log {
public:
    static constexpr size_t spans_max = size_t{1} << 15;

    // Called from the node's loop.
    void add(const node_span &span) {
        const std::lock_guard lock(guard_);
        if (spans_.size() < spans_max) {
            if (spans_.empty()) spans_.reserve(spans_max);
            spans_.push_back(span);
        } else {
            spans_[added_ % spans_max] = span;
        }
        ++added_;
    }
    // From any thread. The oldest first.
    std::vector<node_span> latest() const {
        const std::lock_guard lock(guard_);
        std::vector<node_span> spans;
        spans.reserve(spans_.size());
        const size_t first = spans_.size() < spans_max ? 0 : added_ % spans_max;
        for (size_t i = 0; i < spans_.size(); ++i)
            spans.push_back(spans_[(first + i) % spans_.size()]);
        return spans;
    }

private:
    mutable std::mutex guard_;
    std::vector<node_span> spans_;
    uint64_t added_ = 0;
};

}  // namespace moorage::core
