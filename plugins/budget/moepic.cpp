// moepic.cpp - MoEpic's budget (slots and split ratio of each layer) and its speculative prefetch.
//
// Source: MoEpic, sections 3.2 and 3.4. As a budget it keeps H(C), P(y) and PH(y, C) of every layer
// (moepic_statistics.h). Every tau tokens it allots the memory anew (moepic_allocation.h), at the
// next moment when no request is running. Until then all layers get the same, with experts split in
// half. The times come from the host's costs, for one token. A plan that would not lower the
// exposed latency by its own figures is not applied. If splits may not change, only the slots are
// allotted. A batch counts as its tokens one after the other, each with the predictions of the
// batch.
//
// As a prefetch it orders the source's predictions for the next layer, best first: the bottom if
// the top is cached, else the whole expert, as many as the transfer buffer takes. The host stops
// them when the layer is routed. Each stage works without the other. Cost: O(experts) a token and
// layer for the statistics; a plan O(moves * layers * experts).

#include <moorage/moorage.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "moepic_allocation.h"
#include "moepic_statistics.h"

namespace {

class moepic_policy {
public:
    static constexpr moorage::about about{
        .name = "moepic",
        .summary = "slots and split ratio by expected exposed latency; fetches missing segments",
        .source = "MoEpic, sections 3.2 and 3.4, Algorithm 1",
        .flags = MOORAGE_POLICY_SEGMENTS,
        .needs = MOORAGE_NEEDS_PER_LAYER,
    };
    static constexpr moorage::param params[] = {
        moorage::integer("tau", 5000, 1, 1LL << 40,
                         "tokens between two configurations (Algorithm 1; section 4.1: 5,000)"),
        moorage::integer("first_tokens", 0, 0, 1LL << 40,
                         "tokens before the first configuration; 0: tau"),
        moorage::text("when", "idle", "idle|due",
                      "configure when no request is under way (Algorithm 1), or as soon as due"),
        moorage::real("zeta", 0.01, 0.0001, 0.5,
                      "share of all memory that one move takes from a layer (Algorithm 1)"),
        moorage::real("first_split", 0.5, 0.01, 1,
                      "top share of an expert before the first configuration (Algorithm 1)"),
        moorage::real("min_gain", 0, 0, 1,
                      "share of the expected exposed latency that a new configuration must save"),
        moorage::text("statistics", "sim", "sim|rank",
                      "cache of size C: an lcp cache that serves all tokens, or the C experts of "
                      "highest priority"),
        moorage::integer("omega", 128, 1, 1 << 30,
                         "observation window of that cache, in tokens (Eq. 4)"),
        moorage::real("rho", 0.25, 0.0001, 0.999999,
                      "decay of its priority over omega tokens (Eq. 4)"),
    };

    explicit moepic_policy(const moorage::setup &setup)
        : host_(setup.host),
          tau_(static_cast<uint64_t>(setup.integer("tau"))),
          first_tokens_(static_cast<uint64_t>(setup.integer("first_tokens"))),
          waits_for_idle_(setup.text("when") == "idle"),
          zeta_(setup.real("zeta")),
          first_split_(setup.real("first_split")),
          min_gain_(setup.real("min_gain")),
          statistics_(static_cast<uint64_t>(setup.integer("omega")), setup.real("rho"),
                      setup.text("statistics") == "rank") {}

    void activate(const moorage::limits &limits) {
        top_k_ = limits.top_k;
        state_ = host_.residency()->host_state;
        statistics_.assign(limits.layers, limits.experts, limits.top_k);
        memory_.assign(limits.layers, limits.experts, limits.top_k);
        allotment_.slots.resize(limits.layers);
        for (auto *per_layer : {&allotment_.split, &allotment_.room})
            per_layer->resize(limits.layers);
        rounded_.resize(limits.layers);
        reset();
    }
    void reset() {
        statistics_.clear();
        tokens_ = 0;
        due_token_ = first_tokens_ ? first_tokens_ : tau_;
    }

    void observe(const moorage::step &step) {
        tokens_ = std::max(tokens_, step.token + step.token_count);
        for (uint32_t i = 0; i < step.token_count; ++i) {
            const auto chosen = step.chosen(i);
            statistics_.count(step.layer, chosen.first(std::min<size_t>(chosen.size(), top_k_)),
                              step.predicted());
        }
    }

    // Asks again after every token while a plan is due and the device is not idle.
    uint64_t interval() { return tokens_ >= due_token_ ? 1 : due_token_ - tokens_; }

    bool plan(const moorage::budget_request &request, moorage::budget_plan &plan) {
        tokens_ = std::max(tokens_, request.token);
        const std::span<const uint32_t> slots(request.host_slots, request.layers);
        if (std::all_of(slots.begin(), slots.end(), [](uint32_t n) { return n == 0; }))
            return divide_evenly(request, plan);
        if (tokens_ < due_token_ || (waits_for_idle_ && !idle(request))) return false;
        due_token_ = tokens_ - tokens_ % tau_ + tau_;
        const moorage_costs *costs = host_.costs();
        for (uint32_t layer = 0; layer < statistics_.layers(); ++layer)
            if (statistics_.tokens(layer) == 0) return false;
        return costs != nullptr && configure(request, *costs, plan);
    }

    uint32_t horizon() { return 1; }
    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        if (forecast.target_count == 0) return;
        for (const uint32_t expert : forecast.experts(0)) {
            if (orders.full() || orders.size() == forecast.buffer_free) break;
            const uint32_t page = forecast.host_layers[0] * step.experts + expert;
            const uint8_t missing = moorage::missing(state_[page]);
            if (missing != 0) orders.push(page, missing);
        }
    }

private:
    struct allotment {
        std::vector<uint32_t> slots;
        std::vector<double> split;
        std::vector<double> room;  // memory allotted to each layer, in whole experts
    };

    // `idle` is newer than the first version of the request.
    static bool idle(const moorage::budget_request &request) {
        return !MOORAGE_HAS(&request, moorage_budget_request, idle) || request.idle != 0;
    }
    static double split_step(const moorage::budget_request &request) {
        const bool known = MOORAGE_HAS(&request, moorage_budget_request, split_step);
        return known ? double{request.split_step} : 0;
    }

    // All layers get the same (Algorithm 1, line 4).
    bool divide_evenly(const moorage::budget_request &request, moorage::budget_plan &plan) {
        const double room = static_cast<double>(request.slots) / request.layers;
        for (uint32_t layer = 0; layer < request.layers; ++layer) {
            const double share =
                request.segments == 1 ? double{request.host_split[layer]} : first_share(request);
            const double count = room / share + 1e-9;
            allotment_.slots[layer] =
                count >= request.experts ? request.experts : static_cast<uint32_t>(count);
            allotment_.split[layer] = share;
            allotment_.room[layer] = room;
        }
        spend_rest(request, allotment_);
        return write(request, plan);
    }
    // Half, or more if there is room for more than half of every expert.
    double first_share(const moorage::budget_request &request) const {
        const double room = static_cast<double>(request.slots) / request.layers;
        const double share = std::max(first_split_, room / request.experts);
        if (share >= 1) return 1;
        if (!(split_step(request) > 0)) return share;
        const double steps = std::floor(share / split_step(request) + 5e-7);
        return std::max(steps, 1.0) * split_step(request);
    }

    bool configure(const moorage::budget_request &request, const moorage_costs &costs,
                   moorage::budget_plan &plan) {
        const moepic::times times{static_cast<double>(costs.attention_ns),
                                  static_cast<double>(costs.gpu_expert_ns) * top_k_,
                                  static_cast<double>(costs.head_ns),
                                  static_cast<double>(costs.load_ns)};
        const std::span<const float> split(request.host_split, request.layers);
        moepic::allocation_options options{
            static_cast<double>(request.slots), zeta_, split_step(request), {}};
        if (request.segments == 1 && options.slots > 0) {
            // Only whole slots count, so a smaller move would neither gain nor lose anything.
            options.fixed_split = split;
            const double slot = *std::max_element(split.begin(), split.end());
            options.granularity = std::max(zeta_, slot / options.slots);
        }
        memory_.read(statistics_, times, options);
        const double old_ns =
            memory_.total(memory_.cost_of({request.host_slots, request.layers}, split));
        const moepic::layer_plans &solved = memory_.solve();
        for (uint32_t layer = 0; layer < request.layers; ++layer) {
            allotment_.slots[layer] = solved[layer].best.slots;
            allotment_.split[layer] = solved[layer].best.split;
            allotment_.room[layer] = memory_.memory(layer);
        }
        // Rounding leaves some room.
        if (request.segments == 1 || split_step(request) > 0) spend_rest(request, allotment_);
        std::copy(allotment_.split.begin(), allotment_.split.end(), rounded_.begin());
        const double new_ns = memory_.total(memory_.cost_of(allotment_.slots, rounded_));
        const bool better = old_ns - new_ns > std::max(min_gain_, 1e-6) * old_ns;
        const bool changed = better && write(request, plan);
        plan.gain_ns = changed ? old_ns - new_ns : 0;
        report(request, old_ns, new_ns, changed);
        return changed;
    }

    // Gives the memory that is left to slots one by one. Each goes to the layer that has the least
    // of its allotment.
    static void spend_rest(const moorage::budget_request &request, allotment &allotment) {
        double left = request.slots;
        for (uint32_t layer = 0; layer < request.layers; ++layer)
            left -= allotment.slots[layer] * allotment.split[layer];
        for (;;) {
            uint32_t next = moorage::none;
            double most = 0;
            for (uint32_t layer = 0; layer < request.layers; ++layer) {
                if (allotment.slots[layer] == request.experts ||
                    allotment.split[layer] > left + 1e-9)
                    continue;
                const double lacking =
                    allotment.room[layer] - allotment.slots[layer] * allotment.split[layer];
                if (next != moorage::none && lacking <= most) continue;
                next = layer;
                most = lacking;
            }
            if (next == moorage::none) return;
            ++allotment.slots[next];
            left -= allotment.split[next];
        }
    }

    // Single precision must neither lose a step of the split nor exceed the memory. Returns whether
    // the result differs from the plan in force.
    bool write(const moorage::budget_request &request, moorage::budget_plan &plan) const {
        bool changed = false;
        for (uint32_t layer = 0; layer < request.layers; ++layer) {
            const double exact = allotment_.split[layer];
            auto split = static_cast<float>(exact);
            if (request.segments == 1)
                split = request.host_split[layer];
            else if (split_step(request) > 0 && split < exact)
                split = std::nextafter(split, 1.0f);
            else if (split_step(request) <= 0 && split > exact)
                split = std::nextafter(split, 0.0f);
            changed = changed || allotment_.slots[layer] != request.host_slots[layer] ||
                      std::abs(split - request.host_split[layer]) > 1e-6f;
            plan.host_slots[layer] = allotment_.slots[layer];
            plan.host_split[layer] = split;
        }
        return changed;
    }

    void report(const moorage::budget_request &request, double old_ns, double new_ns,
                bool changed) const {
        const auto [fewest, most] =
            std::minmax_element(allotment_.slots.begin(), allotment_.slots.end());
        const auto [least, largest] =
            std::minmax_element(allotment_.split.begin(), allotment_.split.end());
        char line[256];
        std::snprintf(line, sizeof line,
                      "moepic: after %llu tokens: expected exposed load latency %.3f ms a token, "
                      "with %u to %u slots a layer and splits %.3f to %.3f it is %.3f ms: %s",
                      static_cast<unsigned long long>(request.token), old_ns * 1e-6, *fewest, *most,
                      *least, *largest, new_ns * 1e-6, changed ? "changed" : "left as it is");
        host_.log(MOORAGE_LOG_INFO, line);
    }

    moorage::host host_;
    const uint64_t tau_, first_tokens_;
    const bool waits_for_idle_;
    const double zeta_, first_split_, min_gain_;
    moepic::statistics statistics_;
    moepic::allocation memory_;
    allotment allotment_;         // for the running call of plan
    std::vector<float> rounded_;  // [layers] splits of allotment_, rounded
    const uint32_t *state_ = nullptr;
    uint32_t top_k_ = 1;
    uint64_t tokens_ = 0, due_token_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.moepic", "1.0.0", moepic_policy)
