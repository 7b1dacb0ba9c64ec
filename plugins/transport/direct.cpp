// direct.cpp - sends one whole transfer after the other: demand first, then the others in order.
//
// A prefetch under way is not interrupted; a demand load waits for its end. Cost per call: O(1)
// amortised.

#include <moorage/moorage.hpp>
#include <moorage/transfer_queue.hpp>

namespace {

class direct {
public:
    static constexpr moorage::about about{
        .name = "direct",
        .summary = "sends each transfer whole, demand first",
    };

    explicit direct(const moorage::setup &) {}
    void activate(const moorage::limits &limits) {
        queue_.resize(limits.transfers_max, limits.links);
    }
    void reset() { queue_.clear(); }
    void submit(const moorage::transfer &transfer) { queue_.submit(transfer); }
    void cancel(uint32_t id) { queue_.remove(id); }
    void promote(uint32_t id, int32_t cause) { queue_.promote(id, cause); }

    bool next(uint32_t link, moorage::piece &piece) {
        const uint32_t id = queue_.first(link);
        if (id == moorage::none) return false;
        piece.id = id;
        piece.bytes = queue_.left_bytes(id);
        queue_.remove(id);
        return true;
    }

private:
    moorage::transfer_queue queue_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.direct", "1.0.0", direct)
