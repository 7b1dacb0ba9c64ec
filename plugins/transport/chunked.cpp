// chunked.cpp - sends transfers in pieces of a fixed size, so demand overtakes prefetch.
//
// A demand load waits for at most one piece of a prefetch. The cost is the link's constant per
// piece. Cost per call: O(1) amortised.

#include <moorage/moorage.hpp>
#include <moorage/transfer_queue.hpp>

#include <algorithm>

namespace {

class chunked {
public:
    static constexpr moorage::about about{
        .name = "chunked",
        .summary = "sends transfers in pieces; demand overtakes prefetch between them",
    };
    static constexpr moorage::param params[] = {
        moorage::integer("chunk_bytes", 4 << 20, 4096, int64_t{1} << 40, "size of a piece"),
        moorage::flag("demand_whole", true,
                      "send demand loads in one piece: nothing may overtake them"),
    };

    explicit chunked(const moorage::setup &setup)
        : chunk_bytes_(static_cast<uint64_t>(setup.integer("chunk_bytes"))),
          demand_whole_(setup.flag("demand_whole")) {}

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
        const bool whole = demand_whole_ && queue_.cause(id) == MOORAGE_DEMAND;
        piece.id = id;
        piece.bytes = whole ? queue_.left_bytes(id) : std::min(queue_.left_bytes(id), chunk_bytes_);
        queue_.sent(id, piece.bytes);
        return true;
    }

private:
    uint64_t chunk_bytes_;
    bool demand_whole_;
    moorage::transfer_queue queue_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.chunked", "1.0.0", chunked)
