// scripted.cpp - cache policies that misbehave to order, for the tests of the cache stage and
// replay.
//
// `scripted` evicts the page with the smallest number. The host puts the same in place of wrong
// advice, so with faults replaced a run must count the same as a run without faults. `liar` is
// right step by step but its replay function is not. `refuser` does not admit all. `by_score` and
// `predicted` need data that not every trace or replay has.

#include <moorage/moorage.hpp>

#include <vector>

namespace {

class scripted {
public:
    static constexpr moorage::about about{.name = "scripted", .summary = "faults to order"};
    static constexpr moorage::param params[] = {
        moorage::text("fault", "none", "none|absent|pinned|range|twice|pool|few|many",
                      "what is wrong with the advice"),
        moorage::integer("from_call", 0, 0, 1'000'000, "first call of victims that is wrong"),
    };

    explicit scripted(const moorage::setup &setup)
        : host_(setup.host),
          fault_(setup.text("fault")),
          from_call_(static_cast<uint64_t>(setup.integer("from_call"))) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pages_ = limits.layers * limits.experts;
        pools_ = limits.pools;
        state_ = host_.residency()->host_state;
        reset();
    }
    void reset() { calls_ = 0; }

    void victims(const moorage::room &room, moorage::pages &victims) {
        wrong_ = fault_ != "none" && calls_++ >= from_call_;
        if (wrong_ && fault_ == "few") return;
        const uint32_t begin = pools_ == 1 ? 0 : room.pool * experts_;
        const uint32_t end = pools_ == 1 ? pages_ : begin + experts_;
        if (wrong_) name_wrong(begin, end, victims);
        for (uint32_t page = begin; page < end && !victims.full(); ++page)
            if (moorage::evictable(state_[page])) victims.push(page);
    }

    bool overcounts() const { return wrong_ && fault_ == "many"; }

private:
    void name_wrong(uint32_t begin, uint32_t end, moorage::pages &victims) {
        if (fault_ == "range") return victims.push(pages_ + 7);
        for (uint32_t page = begin; page < end && !victims.full(); ++page) {
            if (fault_ == "absent" && state_[page] == 0) return victims.push(page);
            if (fault_ == "pinned" && (state_[page] & MOORAGE_STATE_PINNED))
                return victims.push(page);
            if (fault_ == "twice" && moorage::evictable(state_[page])) {
                victims.push(page);
                if (!victims.full()) victims.push(page);
                return;
            }
        }
        if (fault_ != "pool") return;
        for (uint32_t page = 0; page < pages_; ++page)
            if ((page < begin || page >= end) && state_[page]) return victims.push(page);
    }

    moorage::host host_;
    std::string fault_;
    uint64_t from_call_, calls_ = 0;
    bool wrong_ = false;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pages_ = 0, pools_ = 1;
};

// Caches pages of even number only.
class refuser : public scripted {
public:
    static constexpr moorage::about about{.name = "refuser",
                                          .summary = "refuses pages of odd number"};
    using scripted::scripted;
    bool admit(const moorage::admission &asked) { return asked.page % 2 == 0; }
};

class liar : public scripted {
public:
    static constexpr moorage::about about{.name = "liar",
                                          .summary = "its replay function is wrong"};
    static constexpr moorage::param params[] = {
        moorage::text("lie", "kept", "kept|hit|elsewhere|state|bypass", "which outcome is wrong"),
        moorage::text("fault", "none", "none", ""), moorage::integer("from_call", 0, 0, 1, "")};
    explicit liar(const moorage::setup &setup) : scripted(setup), lie(setup.text("lie")) {}
    std::string lie;
};

// Evicts the resident page whose gate score was lowest when its layer was last visited.
class by_score {
public:
    static constexpr moorage::about about{
        .name = "by_score",
        .summary = "keeps what scored high",
        .needs = MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS};
    explicit by_score(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &limits) {
        score_.resize(limits.layers * limits.experts);
        state_ = host_.residency()->host_state;
        reset();
    }
    void reset() { score_.assign(score_.size(), 0); }
    void observe(const moorage::step &step) {
        const auto scores = step.gate_scores(0);
        for (uint32_t expert = 0; expert < step.experts; ++expert)
            score_[step.page(expert)] = scores[expert];
        for (uint32_t i = 0; i < step.top_k; ++i)
            score_[step.page(step.host_chosen[i])] += step.host_weights[i];
    }
    void victims(const moorage::room &, moorage::pages &victims) {
        uint32_t lowest = moorage::none;
        for (uint32_t page = 0; page < score_.size(); ++page)
            if (moorage::evictable(state_[page]) &&
                (lowest == moorage::none || score_[page] < score_[lowest]))
                lowest = page;
        if (lowest != moorage::none) victims.push(lowest);
    }

private:
    moorage::host host_;
    const uint32_t *state_ = nullptr;
    std::vector<float> score_;
};

class predicted : public scripted {
public:
    static constexpr moorage::about about{
        .name = "predicted", .summary = "needs predictions", .needs = MOORAGE_NEEDS_PREDICTIONS};
    using scripted::scripted;
};

void lying_replay(moorage_plugin *plugin, const moorage_replay *run) noexcept {
    moorage::detail::tables<liar>::replay(plugin, run);
    const std::string &lie = moorage::detail::self<liar>(plugin).lie;
    const uint32_t layers = 2,
                   requests = run->token_count * run->rounds * layers * run->repeats * run->width;
    for (uint32_t i = requests; i-- > 0;) {
        uint32_t &outcome = run->host_outcomes[i];
        if (lie == "state")
            return void(run->host_state[run->host_experts[i]] ^= MOORAGE_STATE_RESIDENT);
        if (lie == "bypass" && outcome == MOORAGE_REPLAY_KEPT)
            return void(outcome = MOORAGE_REPLAY_BYPASS);
        if (lie == "hit" && outcome == MOORAGE_REPLAY_KEPT) return void(outcome = 0);
        if (outcome >= MOORAGE_REPLAY_BYPASS) continue;
        if (lie == "kept") return void(outcome = MOORAGE_REPLAY_KEPT);
        if (lie == "elsewhere") return void(outcome = 0x7fffffff);
    }
}

const void *lying_interface(moorage_plugin *plugin, const char *id) noexcept {
    static const moorage_replayer table{sizeof(table), 0, lying_replay};
    if (std::string_view(id) == MOORAGE_INTERFACE_REPLAY) return &table;
    return moorage::detail::holder<liar>::get_interface(plugin, id);
}

// The wrapper's list of victims cannot overflow, so a count that is too large is made here.
uint32_t overcounting_victims(moorage_plugin *plugin, const moorage_room *room,
                              uint32_t *pages) noexcept {
    const uint32_t count = moorage::detail::tables<scripted>::victims(plugin, room, pages);
    return count + (moorage::detail::self<scripted>(plugin).overcounts() ? 1 : 0);
}

const void *scripted_interface(moorage_plugin *plugin, const char *id) noexcept {
    static const moorage_cache table = [] {
        moorage_cache result = moorage::detail::tables<scripted>::cache_table();
        result.victims = overcounting_victims;
        return result;
    }();
    if (std::string_view(id) == MOORAGE_INTERFACE_CACHE) return &table;
    return moorage::detail::holder<scripted>::get_interface(plugin, id);
}

using all = moorage::detail::module<scripted, refuser, liar, by_score, predicted>;

int32_t create(const char *name, const moorage_host *host, const moorage_value *values,
               uint32_t count, moorage_plugin **instance) noexcept {
    const int32_t status = all::create(name, host, values, count, instance);
    if (status != MOORAGE_OK) return status;
    if (std::string_view(name) == "liar") (*instance)->get_interface = lying_interface;
    if (std::string_view(name) == "scripted") (*instance)->get_interface = scripted_interface;
    return status;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const moorage_module *moorage_module_v2(void);
extern "C" const moorage_module *moorage_module_v2(void) {
    static constexpr moorage_module record{sizeof(moorage_module),
                                           0,
                                           MOORAGE_ABI_MAJOR,
                                           MOORAGE_ABI_MINOR,
                                           "org.moorage.test.scripted",
                                           "1.0.0",
                                           5,
                                           0,
                                           nullptr,
                                           nullptr,
                                           all::descriptor,
                                           create};
    return &record;
}
