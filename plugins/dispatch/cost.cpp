// cost.cpp - each absent expert goes where it alone is done sooner: loaded to the GPU, or on the
// CPU.
//
// The choice per expert is Fiddler's: time to load and compute it on the GPU against time to
// compute it on the CPU. A tie loads. Waiting for earlier experts of the step is not weighed
// (balance does that). Loading also fills the cache, which the comparison does not see: with `keep`
// at 1 a load has to be faster by itself; above 1 it may take that many times as long. Cost per
// call: O(items).

#include <moorage/moorage.hpp>

namespace {

class cost {
public:
    static constexpr moorage::about about{
        .name = "cost",
        .summary = "loads or computes on the CPU, whichever is faster for the expert alone",
        .source = "Fiddler (arXiv 2402.07033), Section 3.2",
    };
    static constexpr moorage::param params[] = {
        moorage::real("keep", 1.0, 0.0, 1e6, "load up to this many times the CPU's time"),
    };

    explicit cost(const moorage::setup &setup) : keep_(setup.real("keep")) {}
    void activate(const moorage::limits &) {}
    void reset() {}

    uint32_t assign(const moorage::step &, const moorage::items &items, std::span<uint32_t> sites,
                    std::span<uint32_t>) {
        for (uint32_t i = 0; i < items.count; ++i) {
            if (items.host_missing[i] == 0) continue;  // resident: stays on the GPU
            const double gpu_ns = static_cast<double>(items.host_load_ns[i] + items.host_gpu_ns[i]);
            const double cpu_ns = static_cast<double>(items.host_cpu_ns[i]);
            sites[i] = gpu_ns <= cpu_ns * keep_ ? MOORAGE_SITE_GPU : MOORAGE_SITE_CPU;
        }
        return items.count;
    }

private:
    double keep_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.cost", "1.0.0", cost)
