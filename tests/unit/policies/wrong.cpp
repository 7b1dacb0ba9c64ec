// wrong.cpp - a dispatch that breaks a rule, for advice_test.cpp.

#include <moorage/moorage.hpp>

namespace {

// Says that it has assigned one item less than there are.
class partial_dispatch {
public:
    static constexpr moorage::about about{.name = "partial_dispatch", .summary = "leaves one out"};
    explicit partial_dispatch(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t assign(const moorage::step &, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        for (uint32_t &device : item_devices) device = items.cpu();
        return items.count - 1;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wrong", "1.0.0", partial_dispatch)
