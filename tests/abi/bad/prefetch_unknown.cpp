// prefetch_unknown.cpp - breaks a rule: orders a page beyond the last one.
#include <moorage/moorage.hpp>

#include <cstdint>

namespace {

class prefetch_unknown {
public:
    static constexpr moorage::about about{.name = "prefetch_unknown", .summary = "breaks a rule"};
    explicit prefetch_unknown(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &limits) { pages_ = limits.layers * limits.experts; }
    uint32_t horizon() { return 1; }
    void plan(const moorage::step &, const moorage::forecast &, moorage::orders &orders) {
        if (!orders.full()) orders.push(pages_);
    }

private:
    uint32_t pages_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.prefetch_unknown", "1.0.0", prefetch_unknown)
