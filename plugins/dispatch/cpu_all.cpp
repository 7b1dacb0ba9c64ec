// cpu_all.cpp - every absent expert is computed on the CPU, and nothing is loaded on demand.

#include <moorage/moorage.hpp>

namespace {

class cpu_all {
public:
    static constexpr moorage::about about{
        .name = "cpu_all",
        .summary = "computes every absent expert on the CPU",
    };

    explicit cpu_all(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}

    uint32_t assign(const moorage::step &, const moorage::items &items, std::span<uint32_t> sites,
                    std::span<uint32_t>) {
        for (uint32_t i = 0; i < items.count; ++i)
            sites[i] = items.host_missing[i] ? MOORAGE_SITE_CPU : MOORAGE_SITE_GPU;
        return items.count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.cpu_all", "1.0.0", cpu_all)
