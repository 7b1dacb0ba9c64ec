// load_all.cpp - every absent expert is loaded and computed on the GPU.

#include <moorage/moorage.hpp>

namespace {

class load_all {
public:
    static constexpr moorage::about about{
        .name = "load_all",
        .summary = "loads every absent expert to the GPU",
    };

    explicit load_all(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}

    // No advice: the host's default is this policy.
    uint32_t assign(const moorage::step &, const moorage::items &, std::span<uint32_t>,
                    std::span<uint32_t>) {
        return 0;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.load_all", "1.0.0", load_all)
