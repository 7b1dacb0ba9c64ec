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

    // An expert that cannot be loaded runs on the server that takes least. The order stays as it
    // comes.
    uint32_t assign(const moorage::step &, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        for (uint32_t i = 0; i < items.count; ++i) {
            item_devices[i] = items.own(i);
            if (!items.host_remote_first || items.host_load_ns[i] != MOORAGE_NEVER) continue;
            uint64_t least_ns = MOORAGE_NEVER;
            for (uint32_t r = items.host_remote_first[i]; r < items.host_remote_first[i + 1]; ++r) {
                if (items.host_remote_ns[r] >= least_ns) continue;
                least_ns = items.host_remote_ns[r];
                item_devices[i] = items.host_remote_devices[r];
            }
        }
        return items.count;
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.load_all", "1.0.0", load_all)
