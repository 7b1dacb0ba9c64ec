// slim.cpp - looks for absent experts at the own server, at other servers, then in the cloud.
//
// Source: SlimCaching, Section III-C. A token looks for an expert at the user, at the user's
// server, at the other servers and in the cloud, in this order. It takes the first stop that has
// it, even if a later one is cheaper. Among several holders at one stop, those serve for which the
// layer takes least (Equation 7 and the sentence before it). If servers are called one after
// another, as in the paper, that is the least sum over the called servers. Otherwise it is the
// least maximum, then the least sum. The choice is exact up to 12 and 8 experts (cover.hpp). Beyond
// that the experts go one by one, most tokens first (ties: smaller expert), each where it adds
// least.
//
// The paper loads nothing. Experts that neither a server nor the cloud has are loaded if possible.
// Cost per call: O(items x servers that have it), and for each stop as cover.hpp says.

#include "cover.hpp"

namespace {

class slim {
public:
    static constexpr moorage::about about{
        .name = "slim",
        .summary = "asks the own server, then the others for the least time, then the cloud",
        .source = "SlimCaching, Section III-C, Equation 7",
        .needs = MOORAGE_NEEDS_SERVERS,
    };

    explicit slim(const moorage::setup &) {}
    void activate(const moorage::limits &limits) {
        absent_.reserve(limits.experts);
        found_.reserve(limits.experts);
        cover_.reserve(limits);
    }
    void reset() {}

    uint32_t assign(const moorage::step &, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        absent_.clear();
        for (uint32_t i = 0; i < items.count; ++i) {
            item_devices[i] = items.own(i);
            if (items.host_missing[i] != 0) absent_.push_back(i);
        }
        remote::sort_by_tokens(items, absent_);
        for (const uint32_t stop :
             {MOORAGE_DISTANCE_OWN, MOORAGE_DISTANCE_OTHER, MOORAGE_DISTANCE_CLOUD}) {
            if (absent_.empty()) break;
            found_.clear();
            size_t left = 0;
            for (const uint32_t i : absent_) {
                if (has(items, i, 1u << stop))
                    found_.push_back(i);
                else
                    absent_[left++] = i;
            }
            absent_.resize(left);
            cover_.assign(items, found_, 1u << stop, item_devices);
        }
        return items.count;
    }

private:
    static bool has(const moorage::items &items, uint32_t item, uint32_t distances) {
        const remote::entries holders = remote::entries_of(items, item);
        for (uint32_t entry = holders.begin; entry < holders.end; ++entry)
            if (remote::within(items, entry, distances)) return true;
        return false;
    }

    std::vector<uint32_t> absent_, found_;
    remote::cover cover_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.slim_dispatch", "1.0.0", slim)
