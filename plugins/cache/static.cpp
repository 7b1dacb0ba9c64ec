// static.cpp - a content that is decided once and then stays: demand never evicts it.
//
// Some baselines place experts before they serve. llama.cpp keeps whole layers on the GPU
// (`first_layers`). Fiddler keeps the experts that a profile found popular (Kamahori et al., arXiv
// 2402.07033, Section 3.2): `popular`, or `listed` if the profile was made elsewhere. Pre-gated MoE
// keeps nothing from one token to the next (`nothing`). The policy names the content to the host
// through fill. If experts come by demand, it admits only those that belong to the content.
//
// `popular` watches the first `learn_tokens` tokens without keeping anything. Then it takes the
// most requested experts (ties: smaller page), as many as there are slots. They come in with their
// next use. After as many tokens again, any request may take a slot that is still free. So a
// dispatch policy that loads while slots are free comes to an end. Cost per call: observe O(experts
// of the step), and once a sort of all pages; a victim O(slots).

#include <moorage/moorage.hpp>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <vector>

namespace {

class static_cache {
public:
    static constexpr moorage::about about{
        .name = "static",
        .summary = "keeps a content that is decided once",
        .source = "llama.cpp (n-cpu-moe), Fiddler (arXiv 2402.07033), Section 3.2",
    };
    static constexpr moorage::param params[] = {
        moorage::text("which", "first_layers", "first_layers|popular|listed|nothing",
                      "what is kept: whole layers from the first on, what the first tokens asked "
                      "for most, `listed`, or nothing"),
        moorage::integer("learn_tokens", 64, 1, 1'000'000'000,
                         "tokens over which `popular` counts requests"),
        moorage::text("listed", "", nullptr,
                      "pages (layer * experts + expert), best first, separated by commas"),
    };

    explicit static_cache(const moorage::setup &setup)
        : host_(setup.host),
          which_(setup.text("which")),
          learn_tokens_(static_cast<uint64_t>(setup.integer("learn_tokens"))) {
        if (which_ == "listed") read_list(setup.text("listed"));
    }

    void activate(const moorage::limits &limits) {
        layers_ = limits.layers;
        experts_ = limits.experts;
        pools_ = limits.pools;
        view_ = host_.residency();
        const uint32_t pages = layers_ * experts_;
        for (const uint32_t page : listed_)
            if (page >= pages)
                throw std::invalid_argument("listed: page " + std::to_string(page) +
                                            " does not exist; there are " + std::to_string(pages));
        counts_.resize(pages);
        ranks_.resize(pages);
        order_.resize(pages);
        wanted_.resize(pools_);
        evictable_.reserve(pages);
        reset();
    }

    void reset() {
        std::fill(counts_.begin(), counts_.end(), 0);
        std::iota(order_.begin(), order_.end(), 0u);
        token_ = 0;
        decided_ = which_ != "popular";
        if (which_ == "listed") put_listed_first();
        const bool none = which_ == "nothing" || !decided_;
        std::fill(wanted_.begin(), wanted_.end(), none ? 0 : moorage::none);
        if (which_ == "listed") count_listed();
        rank();
    }

    void observe(const moorage::step &step) {
        token_ = step.token;
        if (decided_) return;
        if (token_ >= learn_tokens_) return decide();
        for (const uint32_t expert : step.distinct()) ++counts_[step.page(expert)];
    }

    bool admit(const moorage::admission &request) const {
        const bool stays = belongs(request.page);
        if (request.victim != moorage::none) return stays && !belongs(request.victim);
        const bool settled = which_ == "popular" && decided_ && token_ / 2 >= learn_tokens_;
        return stays || settled;
    }

    // The least wanted pages go first: for a shrinking budget, and for pages that do not belong.
    void victims(const moorage::room &room, moorage::pages &victims) {
        evictable_.clear();
        const uint32_t first = pools_ == 1 ? 0 : room.pool * experts_;
        const uint32_t last = pools_ == 1 ? layers_ * experts_ : first + experts_;
        for (uint32_t page = first; page < last; ++page)
            if (moorage::evictable(view_->host_state[page])) evictable_.push_back(page);
        const size_t count = std::min<size_t>(room.count, evictable_.size());
        std::partial_sort(evictable_.begin(), evictable_.begin() + static_cast<ptrdiff_t>(count),
                          evictable_.end(),
                          [this](uint32_t a, uint32_t b) { return ranks_[a] > ranks_[b]; });
        for (size_t i = 0; i < count; ++i) victims.push(evictable_[i]);
    }

    void fill(const moorage::room &room, moorage::pages &pages) {
        for (const uint32_t page : order_) {
            if (pages.full()) return;
            if (pool_of(page) != room.pool || !belongs(page)) continue;
            const uint32_t state = view_->host_state[page];
            const uint32_t slot_bits = MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT;
            if ((state & slot_bits) == 0) pages.push(page);
        }
    }

private:
    void read_list(std::string_view text) {
        while (!text.empty()) {
            uint32_t page = 0;
            const char *end = text.data() + text.size();
            const auto [next, fault] = std::from_chars(text.data(), end, page);
            if (fault != std::errc() || (next != end && *next != ','))
                throw std::invalid_argument("listed: `" + std::string(text) +
                                            "` does not begin with a page and a comma");
            if (std::find(listed_.begin(), listed_.end(), page) == listed_.end())
                listed_.push_back(page);
            text.remove_prefix(static_cast<size_t>(next - text.data()));
            if (!text.empty()) text.remove_prefix(1);
        }
    }

    void put_listed_first() {
        std::copy(listed_.begin(), listed_.end(), order_.begin());
        auto next = order_.begin() + static_cast<ptrdiff_t>(listed_.size());
        for (uint32_t page = 0; page < order_.size(); ++page)
            if (std::find(listed_.begin(), listed_.end(), page) == listed_.end()) *next++ = page;
    }
    void count_listed() {
        std::fill(wanted_.begin(), wanted_.end(), 0);
        for (const uint32_t page : listed_) ++wanted_[pool_of(page)];
    }

    // A page that was never requested is not popular. Its slot stays free for any request.
    void decide() {
        decided_ = true;
        std::sort(order_.begin(), order_.end(), [this](uint32_t a, uint32_t b) {
            return counts_[a] != counts_[b] ? counts_[a] > counts_[b] : a < b;
        });
        for (const uint32_t page : order_) wanted_[pool_of(page)] += counts_[page] > 0;
        rank();
    }

    // Computes the place of each page among those of its pool.
    void rank() {
        if (pools_ == 1) {
            for (uint32_t i = 0; i < order_.size(); ++i) ranks_[order_[i]] = i;
            return;
        }
        for (uint32_t pool = 0; pool < pools_; ++pool) {
            uint32_t place = 0;
            for (const uint32_t page : order_)
                if (pool_of(page) == pool) ranks_[page] = place++;
        }
    }

    uint32_t pool_of(uint32_t page) const { return pools_ == 1 ? 0 : page / experts_; }

    bool belongs(uint32_t page) const {
        const uint32_t pool = pool_of(page);
        uint32_t room = view_->host_slots[pool];
        if (which_ == "first_layers" && pools_ == 1) room -= room % experts_;
        return ranks_[page] < std::min(room, wanted_[pool]);
    }

    moorage::host host_;
    const std::string which_;
    const uint64_t learn_tokens_;
    const moorage_residency *view_ = nullptr;
    uint32_t layers_ = 0, experts_ = 0, pools_ = 1;
    uint64_t token_ = 0;
    bool decided_ = true;
    std::vector<uint64_t> counts_;         // [pages] requests while learning
    std::vector<uint32_t> order_, ranks_;  // pages by preference; [pages] place in its pool
    std::vector<uint32_t> wanted_;         // [pools] pages that are worth a slot
    std::vector<uint32_t> listed_, evictable_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.static", "1.0.0", static_cache)
