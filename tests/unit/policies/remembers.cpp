// remembers.cpp - cache policies whose advice depends on earlier uses of the library in the
// process. One counts in a static variable, the other on the heap of a static variable.
#include <moorage/moorage.hpp>

#include <vector>

namespace {

int uses = 0;
std::vector<int> &list = *new std::vector<int>{0};

// Evicts the first page that may go, or the last one after an odd number of uses.
class by_uses {
public:
    void start(const moorage::limits &limits, const moorage_residency *view, int used) {
        pages_ = limits.layers * limits.experts;
        view_ = view;
        is_late_ = used % 2 != 0;
    }
    void choose(moorage::pages &pages) const {
        for (uint32_t i = 0; i < pages_ && !pages.full(); ++i) {
            const uint32_t page = is_late_ ? pages_ - 1 - i : i;
            if (moorage::evictable(view_->host_state[page])) pages.push(page);
        }
    }

private:
    const moorage_residency *view_ = nullptr;
    uint32_t pages_ = 0;
    bool is_late_ = false;
};

class remembers {
public:
    static constexpr moorage::about about{.name = "remembers", .summary = "counts its uses"};
    explicit remembers(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &limits) {
        order_.start(limits, host_.residency(), uses++);
    }
    void reset() {}
    void victims(const moorage::room &, moorage::pages &victims) { order_.choose(victims); }

private:
    moorage::host host_;
    by_uses order_;
};

class remembers_on_heap {
public:
    static constexpr moorage::about about{.name = "remembers_on_heap",
                                          .summary = "counts its uses elsewhere"};
    explicit remembers_on_heap(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &limits) {
        order_.start(limits, host_.residency(), list.front()++);
    }
    void reset() {}
    void victims(const moorage::room &, moorage::pages &victims) { order_.choose(victims); }

private:
    moorage::host host_;
    by_uses order_;
};

}  // namespace

MOORAGE_POLICIES("test.remembers", "1.0.0", remembers, remembers_on_heap)
