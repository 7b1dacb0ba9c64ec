// placement_silent.cpp - breaks a rule: finds no plan though there is one, and gives no reason.
#include <moorage/moorage.hpp>

namespace {

class placement_silent {
public:
    static constexpr moorage::about about{.name = "placement_silent", .summary = "breaks a rule"};
    explicit placement_silent(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    void plan(const moorage_cluster &, const moorage_demand &, std::span<const moorage_copy>,
              moorage::copies &) {
        throw std::invalid_argument("");
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.placement_silent", "1.0.0", placement_silent)
