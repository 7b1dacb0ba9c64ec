// prism.cpp - servers compute what the GPU lacks, so that the step ends first.
//
// Source: Prism, Section III-A. A server computes its resident experts and calls another server for
// the rest. The paper leaves open which of several holders it calls, and whether it may load
// instead of calling. Here absent experts are taken one by one, most tokens first (ties: smaller
// expert). Each goes to the place that would be done with it first, given what went there before
// (list scheduling; Graham 1969). The places are the servers that have it, with T = once + the sum
// of what each item adds, and this host's own GPU if the expert can be loaded. The GPU starts after
// earlier loads and after its other work. Ties: the own GPU, then the smaller server.
//
// If servers are called one after another (MOORAGE_ITEMS_SERIAL), they are one place. A call adds
// the least that any holder would add. In the end the called servers are chosen for the least sum
// (cover.hpp). `load` = never keeps the cache as it was placed: only experts that no server has are
// loaded. Cost per call: O(items x servers that have it x servers called); serial calls as
// cover.hpp says.

#include "cover.hpp"

namespace {

class prism {
public:
    static constexpr moorage::about about{
        .name = "prism",
        .summary = "calls absent experts where they are done first, on servers or after a load",
        .source = "Prism, Section III-A",
        .needs = MOORAGE_NEEDS_SERVERS,
    };
    static constexpr moorage::param params[] = {
        moorage::text("load", "auto", "auto|never",
                      "auto: loads what is done sooner so; never: only what no server has"),
    };

    explicit prism(const moorage::setup &setup) : loads_(setup.text("load") == "auto") {}
    void activate(const moorage::limits &limits) {
        absent_.reserve(limits.experts);
        called_.reserve(limits.experts);
        calls_.reserve(limits.experts);
        cover_.reserve(limits);
    }
    void reset() {}

    uint32_t assign(const moorage::step &, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t> order) {
        const bool serial = (items.flags & MOORAGE_ITEMS_SERIAL) != 0;
        uint32_t placed = 0;
        uint64_t gpu_ns = 0, link_ns = items.load_backlog_ns;
        absent_.clear();
        called_.clear();
        calls_.clear();
        for (uint32_t i = 0; i < items.count; ++i) {
            item_devices[i] = items.own(i);
            if (items.host_missing[i] != 0) {
                absent_.push_back(i);
                continue;
            }
            order[placed++] = i;
            gpu_ns += items.host_gpu_ns[i];
        }
        remote::sort_by_tokens(items, absent_);
        for (const uint32_t i : absent_) {
            order[placed++] = i;
            const uint32_t entry = calls_.best(items, i, remote::any_distance);
            if (entry == moorage::none || (loads_ && remote::runs_here(items, i))) {
                const uint64_t arrives_ns =
                    link_ns + std::min(items.host_load_ns[i], remote::longest_ns);
                const uint64_t here_ns = std::max(gpu_ns, arrives_ns) + items.host_gpu_ns[i];
                if (entry == moorage::none || here_ns <= call_ns(items, entry, serial)) {
                    link_ns = arrives_ns;
                    gpu_ns = here_ns;
                    continue;
                }
            }
            calls_.add(items, entry);
            called_.push_back(i);
            item_devices[i] = items.host_remote_devices[entry];
        }
        if (serial) cover_.assign(items, called_, remote::any_distance, item_devices);
        return items.count;
    }

private:
    // When all calls are done that the entry belongs to.
    uint64_t call_ns(const moorage::items &items, uint32_t entry, bool serial) const {
        const remote::calls::change change = calls_.after_adding(items, entry);
        return serial ? calls_.total_ns() + change.adds_ns() : change.after_ns;
    }

    const bool loads_;
    std::vector<uint32_t> absent_, called_;
    remote::calls calls_;
    remote::cover cover_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.prism_dispatch", "1.0.0", prism)
