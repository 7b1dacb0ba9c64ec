// segments.cpp - policies that order and divide to a script, for the tests of split experts.
//
// `orders` prefetches by its list, `LAYER:PAGES` ("0:12t 1:7b" - at every step of layer 0 the top
// of page 12, of layer 1 the bottom of page 7, w: the whole). `seesaw` gives a slot of the first
// layer to the last at every second plan, and takes it back at the others.

#include <moorage/moorage.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

class orders {
public:
    static constexpr moorage::about about{.name = "orders", .summary = "prefetches to a script"};
    static constexpr moorage::param params[] = {
        moorage::text("list", "", nullptr, "LAYER:PAGE and t, b or w, separated by spaces"),
    };

    explicit orders(const moorage::setup &setup) {
        const std::string list(setup.text("list"));
        const char *cursor = list.c_str();
        while (*cursor != 0) {
            char *end = nullptr;
            const auto layer = static_cast<uint32_t>(std::strtoul(cursor, &end, 10));
            const auto page = static_cast<uint32_t>(std::strtoul(end + 1, &end, 10));
            const uint8_t segments = *end == 't'   ? MOORAGE_SEGMENT(0, 2)
                                     : *end == 'b' ? MOORAGE_SEGMENT(1, 2)
                                                   : MOORAGE_WHOLE;
            list_.push_back({layer, page, segments});
            cursor = end + 1;
            while (*cursor == ' ') ++cursor;
        }
    }
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t horizon() { return 1; }
    void plan(const moorage::step &step, const moorage::forecast &, moorage::orders &orders) {
        for (const order &entry : list_)
            if (entry.layer == step.layer) orders.push(entry.page, entry.segments);
    }

private:
    struct order {
        uint32_t layer, page;
        uint8_t segments;
    };
    std::vector<order> list_;
};

class seesaw {
public:
    static constexpr moorage::about about{.name = "seesaw", .summary = "moves slots to and fro"};

    explicit seesaw(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() { plans_ = 0; }
    bool plan(const moorage::budget_request &request, moorage::budget_plan &plan) {
        const uint32_t layer_slots =
            static_cast<uint32_t>(request.slots / double{request.host_split[0]} + 1e-4) /
            request.layers;
        for (uint32_t layer = 0; layer < request.layers; ++layer)
            plan.host_slots[layer] = std::min(layer_slots, request.experts - 1);
        if (plans_++ % 2 == 1 && plan.host_slots[0] > 0) {
            --plan.host_slots[0];
            ++plan.host_slots[request.layers - 1];
        }
        return true;
    }
    uint64_t interval() { return 1; }

private:
    uint32_t plans_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.segments", "1.0.0", orders, seesaw)
