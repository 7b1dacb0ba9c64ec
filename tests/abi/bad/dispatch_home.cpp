// dispatch_home.cpp - breaks a rule: computes everything here, even experts that only other servers
// have.
#include <moorage/moorage.hpp>

#include <cstdint>

namespace {

class dispatch_home {
public:
    static constexpr moorage::about about{.name = "dispatch_home", .summary = "breaks a rule"};
    explicit dispatch_home(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    uint32_t assign(const moorage::step &, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        for (uint32_t i = 0; i < items.count; ++i) item_devices[i] = items.own(i);
        return items.count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.dispatch_home", "1.0.0", dispatch_home)
