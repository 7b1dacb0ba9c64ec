// outside.cpp - a cache policy of another project: evicts the smallest page number that may go.
#if __has_include("core/base/result.h") || __has_include(<core/base/result.h>)
#error "moorage's core is on the include path of a policy"
#endif

#include <moorage/moorage.hpp>

namespace {

class outside {
public:
    static constexpr moorage::about about{.name = "outside", .summary = "evicts the smallest page"};
    explicit outside(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &limits) {
        pages_ = limits.layers * limits.experts;
        state_ = host_.residency()->host_state;
    }
    void reset() {}
    void victims(const moorage::room &, moorage::pages &victims) {
        for (uint32_t page = 0; page < pages_ && !victims.full(); ++page)
            if (moorage::evictable(state_[page])) victims.push(page);
    }

private:
    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t pages_ = 0;
};

}  // namespace

MOORAGE_POLICIES("com.example.outside", "0.1.0", outside)
