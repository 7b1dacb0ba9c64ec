// dispatch_disorder.cpp - breaks a rule: its order of the items names the first one only.
#include <moorage/moorage.hpp>

#include <cstdint>

namespace {

class dispatch_disorder {
public:
    static constexpr moorage::about about{.name = "dispatch_disorder", .summary = "breaks a rule"};
    explicit dispatch_disorder(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    uint32_t assign(const moorage::step &, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t> order) {
        for (uint32_t i = 0; i < items.count; ++i) item_devices[i] = items.own(i), order[i] = 0;
        return items.count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.dispatch_disorder", "1.0.0", dispatch_disorder)
