// policy.hpp - the base of a C++ policy: description, parameters, host, views (Apache-2.0).
//
//   #include <moorage/moorage.hpp>
//
//   class mine {  // evicts the first page that may go
//   public:
//       static constexpr moorage::about about{.name = "mine", .summary = "evicts the first"};
//       explicit mine(const moorage::setup &setup) : host_(setup.host) {}
//       void activate(const moorage::limits &limits) { pages_ = limits.layers * limits.experts; }
//       void reset() {}  // as right after activate, which is where memory is taken
//       void observe(const moorage::step &) {}  // optional, of any kind
//       void victims(const moorage::room &room, moorage::pages &out) {  // makes it a cache policy
//           const moorage::residency *view = host_.residency();
//           for (uint32_t page = 0; page < pages_ && !out.full(); ++page)
//               if (view->pools == 1 || page / view->experts == room.pool)
//                   if (moorage::evictable(view->host_state[page])) out.push(page);
//       }
//
//   private:
//       moorage::host host_;
//       uint32_t pages_ = 0;
//   };
//   MOORAGE_POLICIES("org.example.mine", "0.1.0", mine)
//
// A policy answers for a kind if it has that kind's functions; calls.hpp lists them. create and
// activate may throw; the wrapper turns that into a status and a text. No other function may throw.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "budget.h"
#include "cache.h"
#include "dispatch.h"
#include "placement.h"
#include "prefetch.h"
#include "router.h"
#include "transport.h"
#include "wire.hpp"

namespace moorage {

using limits = moorage_limits;
using residency = moorage_residency;
using costs = moorage_costs;

inline constexpr uint32_t none = MOORAGE_NONE;
inline constexpr uint64_t never = MOORAGE_NEVER;

// Description of a policy; the class's member `about`. Texts are string literals.
struct about {
    const char *name;
    const char *summary = "";
    const char *source = "";  // paper, section, equation
    const char *version = "1.0.0";
    uint32_t flags = 0;  // MOORAGE_POLICY_*
    uint32_t needs = 0;  // MOORAGE_NEEDS_*
    // Parameters, "alpha|beta", that should be equal in all policies of this name.
    const char *method_params = "";
};

// Declarations of parameters: static constexpr moorage::param params[] = {integer(...), ...};
using param = moorage_param;

constexpr param integer(const char *key, int64_t value, int64_t min, int64_t max,
                        const char *help) {
    param p{};
    p.size = sizeof(param);
    p.type = MOORAGE_PARAM_INTEGER;
    p.plugin_key = key, p.plugin_help = help;
    p.integer_default = value, p.integer_min = min, p.integer_max = max;
    return p;
}
constexpr param real(const char *key, double value, double min, double max, const char *help) {
    param p{};
    p.size = sizeof(param);
    p.type = MOORAGE_PARAM_REAL;
    p.plugin_key = key, p.plugin_help = help;
    p.real_default = value, p.real_min = min, p.real_max = max;
    return p;
}
constexpr param flag(const char *key, bool value, const char *help) {
    param p = integer(key, value ? 1 : 0, 0, 1, help);
    p.type = MOORAGE_PARAM_FLAG;
    return p;
}
constexpr param text(const char *key, const char *value, const char *choices, const char *help) {
    param p{};
    p.size = sizeof(param);
    p.type = MOORAGE_PARAM_TEXT;
    p.plugin_key = key, p.plugin_help = help;
    p.plugin_text_default = value, p.plugin_text_choices = choices;
    return p;
}

// The host's services. Cheap to copy; valid as long as the instance.
class host {
public:
    host() = default;
    explicit host(const moorage_host *table)
        : host_(table),
          log_(service<moorage_log>(MOORAGE_SERVICE_LOG)),
          clock_(service<moorage_clock>(MOORAGE_SERVICE_CLOCK)),
          random_(service<moorage_random>(MOORAGE_SERVICE_RANDOM)),
          residency_(service<moorage_residency_service>(MOORAGE_SERVICE_RESIDENCY)),
          costs_(service<moorage_costs_service>(MOORAGE_SERVICE_COSTS)),
          future_(service<moorage_future>(MOORAGE_SERVICE_FUTURE)) {}

    template <class Table>
    const Table *service(const char *id) const {
        return static_cast<const Table *>(host_->get_service(host_, id));
    }
    const moorage_host *table() const { return host_; }
    // Sets the text of the refusal that follows; copied.
    void refuse(const char *text) const { host_->set_error(host_, text); }
    void log(int32_t level, const char *line) const {
        if (log_) log_->write(host_, level, line);
    }
    uint64_t now_ns() const { return clock_->now_ns(host_); }
    uint64_t random() const { return random_->next(host_); }
    // Uniform in [0, bound), bound >= 1, by multiplication (bias below bound / 2^32).
    uint32_t random_below(uint32_t bound) const {
        return static_cast<uint32_t>(((random() >> 32) * bound) >> 32);
    }
    bool has_future() const { return future_ != nullptr; }
    uint64_t next_use(uint32_t page, uint64_t step, uint64_t *token = nullptr) const {
        return future_->next_use(host_, page, step, token);
    }
    // Valid from activate on.
    const moorage_residency *residency() const { return residency_->view(host_); }
    const moorage_costs *costs() const { return costs_ ? costs_->view(host_) : nullptr; }

private:
    const moorage_host *host_ = nullptr;
    const moorage_log *log_ = nullptr;
    const moorage_clock *clock_ = nullptr;
    const moorage_random *random_ = nullptr;
    const moorage_residency_service *residency_ = nullptr;
    const moorage_costs_service *costs_ = nullptr;
    const moorage_future *future_ = nullptr;
};

// Argument of a policy's constructor: the host and the checked parameter values.
class setup {
public:
    setup(const moorage_host *table, std::span<const param> declared, const moorage_value *values)
        : host(table), declared_(declared), values_(values) {}

    int64_t integer(std::string_view key) const { return value(key).integer; }
    double real(std::string_view key) const { return value(key).real; }
    bool flag(std::string_view key) const { return value(key).integer != 0; }
    std::string_view text(std::string_view key) const { return value(key).host_text; }

    moorage::host host;

private:
    const moorage_value &value(std::string_view key) const {
        for (size_t i = 0; i < declared_.size(); ++i)
            if (key == declared_[i].plugin_key) return values_[i];
        throw std::logic_error("parameter " + std::string(key) + " is read but not declared");
    }
    std::span<const param> declared_;
    const moorage_value *values_;
};

// A layer step (step.h) with its arrays as spans. A span is empty if the host has no such array.
struct step : moorage_step {
    uint32_t page(uint32_t expert) const { return layer * experts + expert; }
    std::span<const uint32_t> distinct() const { return {host_distinct, distinct_count}; }
    std::span<const uint32_t> chosen(uint32_t token_index) const {
        return {host_chosen + size_t{token_index} * top_k, top_k};
    }
    std::span<const float> gate_scores(uint32_t token_index) const {
        if (!host_gate_scores) return {};
        return {host_gate_scores + size_t{token_index} * experts, experts};
    }
    std::span<const uint32_t> predicted() const { return {host_predicted, prediction_count}; }
    std::span<const uint64_t> requests() const { return {host_requests, token_count}; }
    std::span<const uint32_t> streams() const { return {host_streams, token_count}; }
    // Empty if the source has none. The hidden state is also empty if the policy did not ask for
    // it.
    std::span<const int32_t> token_ids() const {
        return {host_token_ids, host_token_ids ? token_count : 0};
    }
    std::span<const uint32_t> positions() const {
        return {host_positions, host_positions ? token_count : 0};
    }
    std::span<const float> hidden(uint32_t token_index) const {
        if (!host_hidden) return {};
        return {host_hidden + size_t{token_index} * hidden_size, hidden_size};
    }
};

using room = moorage_room;
using admission = moorage_admission;
using transfer = moorage_transfer;
using piece = moorage_piece;
using dispatched = moorage_dispatched;
using prefetch_outcome = moorage_prefetch_outcome;
using budget_request = moorage_budget_request;
using budget_plan = moorage_budget_plan;

// The victims, in order of eviction. full() tells when enough are named; further ones are dropped.
class pages {
public:
    pages(uint32_t *data, uint32_t capacity) : data_(data), capacity_(capacity) {}
    void push(uint32_t page) {
        if (!full()) data_[count_++] = page;
    }
    bool full() const { return count_ == capacity_; }
    uint32_t size() const { return count_; }

private:
    uint32_t *data_;
    uint32_t capacity_;
    uint32_t count_ = 0;
};

struct route : moorage_route {};
struct items : moorage_items {
    uint32_t own(uint32_t item) const { return host_device[item]; }
    uint32_t cpu() const { return gpus; }
};
struct forecast : moorage_forecast {
    std::span<const uint32_t> experts(uint32_t target) const {
        return {host_experts + host_offsets[target],
                host_offsets[target + 1] - host_offsets[target]};
    }
    std::span<const float> scores(uint32_t target) const {
        if (!host_scores) return {};
        return {host_scores + host_offsets[target],
                host_offsets[target + 1] - host_offsets[target]};
    }
    // Experts of one token for target 0, best first; empty if not known.
    std::span<const uint32_t> token_experts(uint32_t token) const {
        if (!host_token_experts) return {};
        const uint32_t *list = host_token_experts + size_t{token} * token_predictions;
        uint32_t count = 0;
        while (count < token_predictions && list[count] != none) ++count;
        return {list, count};
    }
    std::span<const float> token_scores(uint32_t token) const {
        if (!host_token_scores) return {};
        return {host_token_scores + size_t{token} * token_predictions, token_experts(token).size()};
    }
};

// The prefetch orders, first to go first. Orders beyond the capacity are dropped.
class orders {
public:
    explicit orders(moorage_orders *table) : table_(table) {}
    void push(uint32_t page, uint8_t segments = MOORAGE_WHOLE,
              uint8_t place = MOORAGE_PLACE_BUFFER) {
        if (full()) return;
        table_->host_pages[count_] = page;
        table_->host_segments[count_] = segments;
        table_->host_places[count_++] = place;
    }
    // The layer of target 0 waits for all orders for it.
    void complete() { table_->flags |= MOORAGE_ORDERS_COMPLETE; }
    bool full() const { return count_ == table_->capacity; }
    uint32_t size() const { return count_; }

private:
    moorage_orders *table_;
    uint32_t count_ = 0;
};

// The copies of a plan, in any order. There is room for each expert on each device. A copy that
// occurs twice is wrong advice.
class copies {
public:
    copies(moorage_copy *data, uint64_t capacity) : data_(data), capacity_(capacity) {}
    void push(uint32_t expert, uint32_t device) {
        if (count_ < capacity_) data_[count_++] = {expert, device};
    }
    uint64_t size() const { return count_; }
    std::span<const moorage_copy> all() const { return {data_, count_}; }

private:
    moorage_copy *data_;
    uint64_t capacity_, count_ = 0;
};

// Reads of the residency view that every cache policy needs.
inline bool resident(uint32_t state) { return (state & MOORAGE_STATE_RESIDENT) != 0; }
// Segments that are neither resident nor in flight.
inline uint8_t missing(uint32_t state) {
    return static_cast<uint8_t>(
        ~(state | state >> MOORAGE_STATE_IN_FLIGHT_SHIFT | state >> MOORAGE_STATE_BUFFERED_SHIFT));
}
// The page is in a cache slot, where its bytes may still be arriving, and may be evicted.
inline bool evictable(uint32_t state) {
    return (state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) != 0 &&
           (state & (MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED)) == 0;
}

// Free slots in the pool of `layer`.
inline uint32_t free_slots(const residency &view, uint32_t layer) {
    const uint32_t pool = view.pools == 1 ? 0 : layer;
    return view.host_slots[pool] > view.host_used[pool]
               ? view.host_slots[pool] - view.host_used[pool]
               : 0;
}

}  // namespace moorage
