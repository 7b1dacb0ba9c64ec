// none.cpp - no prefetch: the link carries demand loads only.

#include <moorage/moorage.hpp>

namespace {

class none {
public:
    static constexpr moorage::about about{.name = "none", .summary = "fetches nothing in advance"};

    explicit none(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t horizon() { return 0; }
    void plan(const moorage::step &, const moorage::forecast &, moorage::orders &) {}
};

}  // namespace

MOORAGE_POLICIES("org.moorage.none", "1.0.0", none)
