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
        : first_list_(setup.text("list")),
          later_list_(setup.text("then")),
          interval_(static_cast<uint64_t>(setup.integer("at"))) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint64_t interval() { return interval_; }
    bool plan(const moorage::budget_request &request, moorage::budget_plan &plan) {
        if (request.token != 0 && (request.token != interval_ || later_list_.empty())) return false;
        const char *cursor = (request.token == 0 ? first_list_ : later_list_).c_str();
        for (uint32_t layer = 0; layer < request.layers; ++layer) {
            char *end = nullptr;
            plan.host_slots[layer] = static_cast<uint32_t>(std::strtoul(cursor, &end, 10));
            plan.host_split[layer] = std::strtof(end + 1, &end);
            cursor = end;
        }
        return true;
    }

private:
    std::string first_list_, later_list_;
    uint64_t interval_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.splits", "1.0.0", splits)
