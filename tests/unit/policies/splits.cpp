// splits.cpp - a budget that gives each layer slots and a split to a script, for the tests of both.
//
// `splits` gives out its list, `SLOTS:SPLIT` of each layer ("2:0.512 2:1"), and after `at` tokens
// the list of `then`.

#include <moorage/moorage.hpp>

#include <cstdlib>
#include <string>

namespace {

class splits {
public:
    static constexpr moorage::about about{.name = "splits", .summary = "divides to a script"};
    static constexpr moorage::param params[] = {
        moorage::text("list", "", nullptr, "SLOTS:SPLIT of every layer, separated by spaces"),
        moorage::text("then", "", nullptr, "the same after `at` tokens; empty: no change"),
        moorage::integer("at", 0, 0, 1 << 30, "tokens"),
    };

    explicit splits(const moorage::setup &setup)
        : list_(setup.text("list")),
          then_(setup.text("then")),
          at_(static_cast<uint64_t>(setup.integer("at"))) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint64_t interval() { return at_; }
    bool plan(const moorage::budget_request &request, moorage::budget_plan &plan) {
        if (request.token != 0 && (request.token != at_ || then_.empty())) return false;
        const char *at = (request.token == 0 ? list_ : then_).c_str();
        for (uint32_t layer = 0; layer < request.layers; ++layer) {
            char *end = nullptr;
            plan.host_slots[layer] = static_cast<uint32_t>(std::strtoul(at, &end, 10));
            plan.host_split[layer] = std::strtof(end + 1, &end);
            at = end;
        }
        return true;
    }

private:
    std::string list_, then_;
    uint64_t at_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.splits", "1.0.0", splits)
