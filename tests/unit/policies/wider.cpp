// wider.cpp - policies that use the additions of ABI 2, for wider_test.cpp: a cache that holds and
// gives up, a router that uses fewer experts, a prefetch that names places. Each states facts.

#include <moorage/moorage.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace {

// Evicts the first page that may go but `hold`; gives up all there is after each step.
class keeper {
public:
    static constexpr moorage::about about{.name = "keeper", .summary = "holds, and gives up"};
    static constexpr moorage::param params[] = {
        moorage::integer("hold", -1, -1, 1000, "page that is held; -1: none"),
        moorage::flag("silent", false, "name no victim, so that the host has to"),
        moorage::flag("give_up", false, "give up all pages after each step"),
    };

    explicit keeper(const moorage::setup &setup)
        : host_(setup.host),
          hold_(setup.integer("hold")),
          silent_(setup.flag("silent")),
          gives_up_(setup.flag("give_up")) {}
    void activate(const moorage::limits &limits) { pages_ = limits.layers * limits.experts; }
    void reset() { given_up_ = 0; }
    bool hold(uint32_t page) { return page == hold_; }
    void victims(const moorage::room &, moorage::pages &victims) {
        const uint32_t *state = host_.residency()->host_state;
        for (uint32_t page = 0; page < pages_ && !silent_; ++page)
            if (moorage::evictable(state[page]) && page != hold_) victims.push(page);
    }
    void give_up(const moorage::room &, moorage::pages &victims) {
        const uint32_t *state = host_.residency()->host_state;
        for (uint32_t page = 0; page < pages_ && gives_up_; ++page)
            if (moorage::evictable(state[page])) victims.push(page);
    }
    void on_evict(uint32_t, int32_t cause) { given_up_ += cause == MOORAGE_ADVICE; }
    uint32_t facts(std::span<moorage_fact> facts) {
        facts[0] = {"given_up", static_cast<double>(given_up_)};
        return 1;
    }

private:
    moorage::host host_;
    const int64_t hold_;
    const bool silent_, gives_up_;
    uint32_t pages_ = 0, given_up_ = 0;
};

// Drops the last `count` of every token's experts, and reports its view of hidden states.
class dropper {
public:
    static constexpr moorage::about about{.name = "dropper",
                                          .summary = "uses fewer experts",
                                          .flags = MOORAGE_POLICY_LOSSY | MOORAGE_POLICY_HIDDEN,
                                          .needs = MOORAGE_NEEDS_WEIGHTS};
    static constexpr moorage::param params[] = {
        moorage::integer("count", 1, 0, 64, "experts of a token that are dropped"),
        moorage::flag("renormalise", false, "leave their weight to the others"),
    };

    explicit dropper(const moorage::setup &setup)
        : count_(static_cast<uint32_t>(setup.integer("count"))),
          renormalise_(setup.flag("renormalise")) {}
    void activate(const moorage::limits &) {}
    void reset() { hidden_ = weighted_ = 0; }
    uint32_t select(const moorage::step &step, moorage::route &route) {
        for (uint32_t token = 0; token < step.token_count; ++token)
            for (const float value : step.hidden(token))
                weighted_ += value * static_cast<double>(++hidden_);
        std::copy_n(step.host_chosen, size_t{step.token_count} * step.top_k, route.host_experts);
        if (renormalise_) route.flags |= MOORAGE_ROUTE_RENORMALISE;
        for (uint32_t token = 0; token < step.token_count; ++token)
            for (uint32_t rank = step.top_k - std::min(count_, step.top_k); rank < step.top_k;
                 ++rank)
                route.host_classes[token * step.top_k + rank] = MOORAGE_CLASS_DROPPED;
        return step.token_count;
    }
    uint32_t facts(std::span<moorage_fact> facts) {
        facts[0] = {"hidden", static_cast<double>(hidden_)};
        facts[1] = {"weighted", weighted_};
        return 2;
    }

private:
    const uint32_t count_;
    const bool renormalise_;
    uint64_t hidden_ = 0;
    double weighted_ = 0;
};

// Orders one page after every step, to a given place; reports its view of steps and machine.
class placer {
public:
    static constexpr moorage::about about{
        .name = "placer", .summary = "orders to places", .flags = MOORAGE_POLICY_HIDDEN};
    static constexpr moorage::param params[] = {
        moorage::integer("page", 0, 0, 1000, "page that is ordered"),
        moorage::integer("place", 0, 0, 255, "MOORAGE_PLACE_*"),
    };

    explicit placer(const moorage::setup &setup)
        : page_(static_cast<uint32_t>(setup.integer("page"))),
          place_(static_cast<uint8_t>(setup.integer("place"))) {}
    void activate(const moorage::limits &limits) {
        stores_ = limits.stores, devices_ = limits.devices, links_ = limits.links;
        for (uint32_t id = 0; id < limits.links; ++id) {
            const moorage_link &link = limits.host_links[id];
            sound_ &= limits.host_stores[link.from].kind > limits.host_stores[link.to].kind;
            sound_ &= link.bytes_per_s > 0;
        }
        for (uint32_t id = 0; id < limits.devices; ++id)
            sound_ &= limits.host_devices[id].store == id;
        reset();
    }
    void reset() { ids_ = positions_ = hidden_ = weighted_ = scale_ = 0; }
    uint32_t horizon() { return 1; }
    void observe(const moorage::step &step) {
        for (const int32_t id : step.token_ids()) ids_ += id;
        for (const uint32_t position : step.positions()) positions_ += position;
        for (uint32_t token = 0; token < step.token_count; ++token) {
            const auto values = step.hidden(token);
            hidden_ += static_cast<double>(values.size());
            for (size_t i = 0; i < values.size(); ++i) {
                const double weight = (1.0 + step.layer) * (1.0 + token) * double(1 + i % 7);
                weighted_ += weight * values[i], scale_ += weight * std::abs(values[i]);
            }
        }
    }
    void plan(const moorage::step &, const moorage::forecast &, moorage::orders &orders) {
        orders.push(page_, MOORAGE_WHOLE, place_);
    }
    uint32_t facts(std::span<moorage_fact> facts) {
        const moorage_fact values[] = {
            {"token_ids", ids_},         {"positions", positions_},     {"hidden", hidden_},
            {"stores", double(stores_)}, {"devices", double(devices_)}, {"links", double(links_)},
            {"sound", double(sound_)},   {"weighted", weighted_},       {"scale", scale_}};
        std::copy(std::begin(values), std::end(values), facts.begin());
        return static_cast<uint32_t>(std::size(values));
    }

private:
    const uint32_t page_;
    const uint8_t place_;
    uint32_t stores_ = 0, devices_ = 0, links_ = 0;
    bool sound_ = true;
    double ids_ = 0, positions_ = 0, hidden_ = 0;
    double weighted_ = 0, scale_ = 0;  // of hidden values by layer, token and place
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wider", "1.0.0", keeper, dropper, placer)
