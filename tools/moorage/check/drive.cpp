// drive.cpp - one step after the other, in the order of a run.
#include "tools/moorage/check/drive.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/text.h"

namespace moorage::check {

using core::format;

namespace {

size_t tokens_max(const world &test_world) { return test_world.limits.tokens_max; }
size_t chosen_max(const world &test_world) {
    return tokens_max(test_world) * test_world.options.top_k;
}

}  // namespace

driver::driver(actor &policy, world &test_world, const drive_options &options)
    : policy_(policy),
      world_(test_world),
      options_(options),
      draw_(test_world.options.seed * 2 + 2),
      streams_(tokens_max(test_world), test_world.options.arrays),
      chosen_(chosen_max(test_world), test_world.options.arrays),
      distinct_(test_world.options.experts, test_world.options.arrays),
      distinct_tokens_(test_world.options.experts, test_world.options.arrays),
      predicted_(test_world.options.predictions, test_world.options.arrays),
      route_experts_(chosen_max(test_world), test_world.options.arrays),
      requests_(tokens_max(test_world), test_world.options.arrays),
      positions_(tokens_max(test_world), test_world.options.arrays),
      token_ids_(tokens_max(test_world), test_world.options.arrays),
      weights_(chosen_max(test_world), test_world.options.arrays),
      gate_scores_(tokens_max(test_world) * test_world.options.experts, test_world.options.arrays),
      distinct_scores_(test_world.options.experts, test_world.options.arrays),
      route_weights_(chosen_max(test_world), test_world.options.arrays),
      classes_(chosen_max(test_world), test_world.options.arrays),
      route_classes_(chosen_max(test_world), test_world.options.arrays),
      victims_(test_world.page_count(), test_world.options.arrays),
      budget_slots_(test_world.options.layers, test_world.options.arrays),
      target_layers_(test_world.options.layers, test_world.options.arrays),
      target_offsets_(test_world.options.layers + 1, test_world.options.arrays),
      target_experts_(test_world.options.layers * test_world.options.predictions,
                      test_world.options.arrays),
      orders_(test_world.options.buffer_slots, test_world.options.arrays),
      world_slots_now_(test_world.options.layers, test_world.options.arrays),
      forecast_experts_(test_world.options.predictions, test_world.options.arrays),
      budget_split_(test_world.options.layers, test_world.options.arrays),
      target_scores_(test_world.options.layers * test_world.options.predictions,
                     test_world.options.arrays),
      world_split_now_(test_world.options.layers, test_world.options.arrays),
      forecast_scores_(test_world.options.predictions, test_world.options.arrays),
      order_segments_(test_world.options.buffer_slots, test_world.options.arrays),
      order_places_(test_world.options.buffer_slots, test_world.options.arrays),
      order_versions_(test_world.options.buffer_slots, test_world.options.arrays),
      item_experts_(test_world.options.experts, test_world.options.arrays),
      item_tokens_(test_world.options.experts, test_world.options.arrays),
      item_device_(test_world.options.experts, test_world.options.arrays),
      devices_(test_world.options.experts, test_world.options.arrays),
      device_order_(test_world.options.experts, test_world.options.arrays),
      item_missing_(test_world.options.experts, test_world.options.arrays),
      item_scores_(test_world.options.experts, test_world.options.arrays),
      item_load_(test_world.options.experts, test_world.options.arrays),
      item_gpu_(test_world.options.experts, test_world.options.arrays),
      item_cpu_(test_world.options.experts, test_world.options.arrays),
      item_remote_(test_world.options.experts * test_world.options.servers,
                   test_world.options.arrays),
      item_once_(test_world.options.experts * test_world.options.servers,
                 test_world.options.arrays),
      item_remote_first_(test_world.options.experts + 1, test_world.options.arrays),
      item_remote_devices_(test_world.options.experts * test_world.options.servers,
                           test_world.options.arrays),
      tokens_of_expert_(test_world.options.experts),
      plan_slots_(test_world.options.layers),
      plan_split_(test_world.options.layers, 1.0f),
      transfers_(test_world.options.transfers) {}

void driver::run() {
    const uint32_t rounds =
        options_.rounds ? std::min(options_.rounds, world_.options.rounds) : world_.options.rounds;
    step_ = {};
    step_.size = sizeof(step_);
    step_.experts = world_.options.experts;
    step_.top_k = world_.options.top_k;
    if (policy_.prefetch && policy_.prefetch->horizon) {
        control(core::entry_point::prefetch_horizon,
                [&] { horizon_ = policy_.prefetch->horizon(policy_.plugin); });
        if (horizon_ > world_.options.layers)
            blame(fault::range,
                  format("horizon is {} layers, of {} there are", horizon_, world_.options.layers));
        horizon_ = std::min(horizon_, world_.options.layers);
    }
    if (policy_.prefetch && policy_.prefetch->prediction) {
        uint32_t source_kind = 0;
        control(core::entry_point::prefetch_prediction,
                [&] { source_kind = policy_.prefetch->prediction(policy_.plugin); });
        if (source_kind > MOORAGE_FROM_RESIDENT)
            blame(fault::range, format("prediction is {}, the last kind is {}", source_kind,
                                       uint32_t{MOORAGE_FROM_RESIDENT}));
    }
    if (policy_.placement && !options_.steps_only) plan_placements();
    for (uint32_t round = 0; round < rounds; ++round) {
        if (policy_.budget) plan_budget();
        if (round == 0) fill_pools();
        if (world_.options.disturb) resize_pools();
        for (uint32_t layer = 0; layer < world_.options.layers; ++layer) {
            run_step(round, layer);
            ++step_.index, ++step_.visit;
            if (options_.check_fences && !has_intact_fences())
                blame(fault::canary,
                      format("something was written outside an array in step {}", step_.index - 1));
        }
        step_.token += world_.tokens_of(round);
    }
    if (policy_.transport) drain_transfers();
    if (policy_.facts && !policy_.placement) collect_facts(world_.options.arrays);
}

void driver::run_step(uint32_t round, uint32_t layer) {
    world_.clock_ns += 1000 + draw_.below(1000);
    fill_step(round, layer);
    if (policy_.router) route();
    make_distinct();
    complete_loads();
    const uint32_t first = layer * world_.options.experts;
    for (uint32_t i = 0; i < step_.distinct_count; ++i)
        world_.state[first + step_.host_distinct[i]] |= MOORAGE_STATE_PINNED;
    if (policy_.observer)
        call(core::entry_point::observer_observe,
             [&] { policy_.observer->observe(policy_.plugin, &step_); });
    if (policy_.dispatch) dispatch();
    if (policy_.cache) load_missing();
    for (uint32_t i = 0; i < step_.distinct_count; ++i)
        world_.state[first + step_.host_distinct[i]] &= ~MOORAGE_STATE_PINNED;
    if (policy_.cache && policy_.cache->give_up) give_up();
    drop_unused_prefetches();
    if (policy_.prefetch)
        prefetch();
    else if (world_.options.disturb)
        prefetch_randomly();
    if (policy_.transport) transport_events();
}

void driver::fill_step(uint32_t round, uint32_t layer) {
    const uint32_t tokens = world_.tokens_of(round), k = step_.top_k, experts = step_.experts;
    const bool extras = world_.options.extras;
    step_.layer = layer;
    step_.phase = round == 0 && world_.options.prefill ? MOORAGE_PREFILL : MOORAGE_DECODE;
    step_.token_count = tokens;
    for (uint32_t b = 0; b < tokens; ++b) {
        streams_.last(tokens)[b] = b;
        requests_.last(tokens)[b] = round / 16 * world_.limits.tokens_max + b;
        positions_.last(tokens)[b] = round % 16;
        token_ids_.last(tokens)[b] = static_cast<int32_t>(draw_.below(1000));
    }
    const size_t count = size_t{tokens} * k;
    std::copy_n(world_.chosen(round, layer), count, chosen_.last(count));
    for (uint32_t b = 0; b < tokens && extras; ++b) {
        // Scores fall from the first choice to the last. The others get lower noise.
        float *scores = gate_scores_.last(size_t{tokens} * experts) + size_t{b} * experts;
        for (uint32_t e = 0; e < experts; ++e)
            scores[e] = draw_.unit() / static_cast<float>(2 * experts);
        for (uint32_t i = 0; i < k; ++i) {
            const float score = static_cast<float>(k - i) / static_cast<float>(k * (k + 1)) +
                                0.5f / static_cast<float>(experts);
            scores[chosen_.last(count)[size_t{b} * k + i]] = score;
            weights_.last(count)[size_t{b} * k + i] = score;
        }
    }
    step_.host_streams = streams_.last(tokens);
    step_.host_requests = requests_.last(tokens);
    step_.host_positions = extras ? positions_.last(tokens) : nullptr;
    step_.host_token_ids = extras ? token_ids_.last(tokens) : nullptr;
    step_.host_chosen = chosen_.last(count);
    step_.host_weights = extras ? weights_.last(count) : nullptr;
    step_.host_gate_scores = extras ? gate_scores_.last(size_t{tokens} * experts) : nullptr;
    step_.host_classes = nullptr;
    step_.host_distinct = step_.host_distinct_tokens = nullptr;
    step_.host_distinct_scores = nullptr;
    step_.distinct_count = 0;
    const uint32_t predictions = extras ? std::min(world_.options.predictions, experts) : 0;
    step_.prediction_count = predictions;
    step_.host_predicted = predictions ? predicted_.last(predictions) : nullptr;
    if (predictions) draw_.distinct(experts, predictions, predicted_.last(predictions));
}

// Asks the router, and uses its choice if it is sound.
void driver::route() {
    const size_t count = size_t{step_.token_count} * step_.top_k;
    std::copy_n(step_.host_chosen, count, route_experts_.last(count));
    std::fill_n(route_weights_.last(count), count, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(route_classes_.last(count), count, uint8_t{MOORAGE_CLASS_TOP});
    moorage_route routing{sizeof(routing), 0, route_experts_.last(count),
                          route_weights_.last(count), route_classes_.last(count)};
    uint32_t got = 0;
    call(core::entry_point::router_select,
         [&] { got = policy_.router->select(policy_.plugin, &step_, &routing); });
    record_decision(got);
    if (got == 0) return;
    if (got != step_.token_count)
        return blame(fault::capacity,
                     format("select returned {} for {} tokens", got, step_.token_count));
    const uint32_t *experts = route_experts_.last(count);
    for (size_t i = 0; i < count; ++i) {
        record_decision(experts[i]), record_decision(route_classes_.last(count)[i]);
        const uint32_t *row = experts + i / step_.top_k * step_.top_k;
        if (experts[i] >= step_.experts)
            return blame(fault::range, format("select chose expert {}, of {} there are", experts[i],
                                              step_.experts));
        if (std::find(row, experts + i, experts[i]) != experts + i)
            return blame(fault::range,
                         format("select chose expert {} twice for one token", experts[i]));
        if (route_classes_.last(count)[i] > MOORAGE_CLASS_SMALL)
            return blame(fault::range,
                         format("select gave class {}", route_classes_.last(count)[i]));
        const float weight = route_weights_.last(count)[i];
        record_decision(std::isnan(weight) ? 0 : static_cast<uint64_t>(weight * 1e6f));
        if (std::isinf(weight)) return blame(fault::range, "select gave an infinite weight");
    }
    for (uint32_t b = 0; b < step_.token_count; ++b) {
        const uint8_t *row = route_classes_.last(count) + size_t{b} * step_.top_k;
        if (std::count(row, row + step_.top_k, MOORAGE_CLASS_DROPPED) == step_.top_k)
            return blame(fault::range, format("select dropped all experts of token {}", b));
    }
    record_decision(routing.flags);
    if (routing.flags & ~uint32_t{MOORAGE_ROUTE_RENORMALISE})
        blame(fault::range, format("select set flags {:#x}, which nobody knows", routing.flags));
    if (!policy_.lossy) judge_lossless(experts, route_classes_.last(count));
    std::copy_n(experts, count, chosen_.last(count));
    std::copy_n(route_classes_.last(count), count, classes_.last(count));
    step_.host_classes = classes_.last(count);
}

// A lossless router must give each token the same experts, in any order. It must not drop one or
// lower its weight.
void driver::judge_lossless(const uint32_t *experts, const uint8_t *classes) {
    for (size_t i = 0; i < size_t{step_.token_count} * step_.top_k; ++i) {
        const uint32_t *model_experts = step_.host_chosen + i / step_.top_k * step_.top_k;
        if (std::find(model_experts, model_experts + step_.top_k, experts[i]) ==
            model_experts + step_.top_k)
            return blame(fault::range,
                         format("select chose expert {}, which the model did not, and the policy "
                                "does not declare MOORAGE_POLICY_LOSSY",
                                experts[i]));
        if (classes[i] == MOORAGE_CLASS_DROPPED || classes[i] == MOORAGE_CLASS_SMALL)
            return blame(fault::range,
                         format("select gave class {}, and the policy does not declare "
                                "MOORAGE_POLICY_LOSSY",
                                classes[i]));
    }
}

void driver::make_distinct() {
    const size_t count = size_t{step_.token_count} * step_.top_k;
    std::fill(tokens_of_expert_.begin(), tokens_of_expert_.end(), 0u);
    uint32_t found = 0;
    const auto dropped = [&](size_t i) {
        return step_.host_classes && step_.host_classes[i] == MOORAGE_CLASS_DROPPED;
    };
    for (size_t i = 0; i < count; ++i)
        if (!dropped(i)) found += tokens_of_expert_[step_.host_chosen[i]]++ == 0;
    uint32_t *experts = distinct_.last(found), *tokens = distinct_tokens_.last(found);
    float *scores = distinct_scores_.last(found);
    uint32_t n = 0;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t expert = step_.host_chosen[i];
        if (dropped(i) || std::find(experts, experts + n, expert) != experts + n) continue;
        experts[n] = expert;
        tokens[n] = tokens_of_expert_[expert];
        scores[n++] = 1.0f / static_cast<float>(1 + i);
    }
    step_.distinct_count = found;
    step_.host_distinct = experts;
    step_.host_distinct_tokens = tokens;
    step_.host_distinct_scores = world_.options.extras ? scores : nullptr;
}

// Lets loads in flight arrive, most of them at the next step.
void driver::complete_loads() {
    std::erase_if(in_flight_, [&](uint32_t page) {
        uint32_t &state = world_.state[page];
        const uint32_t moving = state & MOORAGE_STATE_IN_FLIGHT;
        if (moving && draw_.one_in(4)) return false;
        state = (state & ~MOORAGE_STATE_IN_FLIGHT) | moving >> MOORAGE_STATE_IN_FLIGHT_SHIFT;
        return true;
    });
}

void driver::blame(fault kind, const std::string &text) {
    finding &record = findings_[static_cast<size_t>(kind)];
    if (record.count++ == 0) record.first_text = format("{} (step {})", text, step_.index);
}

bool driver::has_intact_fences() {
    return streams_.intact() && chosen_.intact() && distinct_.intact() &&
           distinct_tokens_.intact() && predicted_.intact() && route_experts_.intact() &&
           requests_.intact() && weights_.intact() && gate_scores_.intact() &&
           distinct_scores_.intact() && route_weights_.intact() && classes_.intact() &&
           route_classes_.intact() && victims_.intact() && budget_slots_.intact() &&
           target_layers_.intact() && target_offsets_.intact() && target_experts_.intact() &&
           orders_.intact() && budget_split_.intact() && target_scores_.intact() &&
           order_segments_.intact() && item_experts_.intact() && item_tokens_.intact() &&
           order_places_.intact() && order_versions_.intact() && positions_.intact() &&
           token_ids_.intact() && item_device_.intact() && devices_.intact() &&
           device_order_.intact() && item_missing_.intact() && item_scores_.intact() &&
           item_load_.intact() && item_gpu_.intact() && item_cpu_.intact() &&
           item_remote_.intact() && item_once_.intact() && item_remote_first_.intact() &&
           item_remote_devices_.intact() && world_.state.intact() && world_.slots.intact() &&
           world_.used.intact() && world_.split.intact() && world_.stores.intact() &&
           world_.devices.intact() && world_.links.intact() && world_slots_now_.intact() &&
           world_split_now_.intact() && forecast_experts_.intact() && forecast_scores_.intact();
}

// Checksum over the read-only memory of a policy: the step's arrays and the residency view.
uint64_t driver::lent_checksum() {
    uint64_t sum = 0xcbf29ce484222325u;
    const auto add = [&](const auto &array) {
        for (const auto &element :
             const_cast<std::remove_cvref_t<decltype(array)> &>(array).span()) {
            uint64_t bits = 0;
            std::memcpy(&bits, &element, sizeof(element));
            sum = (sum ^ bits) * 0x100000001b3u;
        }
    };
    add(streams_), add(chosen_), add(distinct_), add(distinct_tokens_), add(predicted_),
        add(requests_), add(positions_), add(token_ids_);
    add(weights_), add(gate_scores_), add(distinct_scores_), add(classes_);
    add(world_slots_now_), add(world_split_now_);
    add(target_layers_), add(target_offsets_), add(item_experts_), add(item_tokens_),
        add(item_missing_);
    add(item_scores_), add(item_load_), add(item_gpu_), add(item_cpu_), add(item_remote_);
    add(item_once_), add(item_remote_first_), add(item_remote_devices_), add(item_device_);
    add(world_.state), add(world_.slots), add(world_.used), add(world_.split);
    return sum;
}

}  // namespace moorage::check
