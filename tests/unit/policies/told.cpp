// told.cpp - a policy of three kinds that writes down all that it is told, for told_test.cpp.
//
// As a cache it evicts the smallest allowed page. As a prefetch it orders by `list` (LAYER:PAGE, at
// every step of the layer). As a dispatch it leaves all but the first `behind` absent experts to
// the GPU. Every call is a line of the file `log`. `told_more` declares that it needs weights and
// predictions, `told_gates` the scores of every expert.

#include <moorage/moorage.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

const char *name_of(int32_t cause) {
    return cause == MOORAGE_DEMAND     ? "demand"
           : cause == MOORAGE_PREFETCH ? "prefetch"
           : cause == MOORAGE_BUDGET   ? "budget"
                                       : "other";
}

class told {
public:
    static constexpr moorage::about about{.name = "told", .summary = "writes down what it is told"};
    static constexpr moorage::param params[] = {
        moorage::text("log", "", nullptr, "file that gets a line for each call"),
        moorage::integer("fill", -1, -1, 1 << 20, "page that the first pool begins with"),
        moorage::integer("behind", 0, 0, 1 << 20,
                         "absent experts that the CPU takes, loaded besides"),
        moorage::text("list", "", nullptr, "LAYER:PAGE to prefetch, separated by spaces"),
    };

    explicit told(const moorage::setup &setup)
        : host_(setup.host),
          list_(setup.text("list")),
          fill_(setup.integer("fill")),
          behind_(setup.integer("behind")),
          log_(std::fopen(std::string(setup.text("log")).c_str(), "a")) {
        std::setvbuf(log_, nullptr, _IOLBF, 1 << 12);
    }
    ~told() { std::fclose(log_); }
    told(const told &) = delete;

    void activate(const moorage::limits &limits) {
        pages_ = limits.layers * limits.experts;
        state_ = host_.residency()->host_state;
    }
    void reset() {}

    void observe(const moorage::step &step) {
        std::fprintf(log_, "step %llu visit %llu token %llu layer %u:",
                     static_cast<unsigned long long>(step.index),
                     static_cast<unsigned long long>(step.visit),
                     static_cast<unsigned long long>(step.token), step.layer);
        if (step.phase == MOORAGE_PREFILL) std::fprintf(log_, " prefill");
        if (step.host_requests[0] != 0)
            std::fprintf(log_, " request %llu",
                         static_cast<unsigned long long>(step.host_requests[0]));
        for (uint32_t i = 0; i < step.distinct_count; ++i) {
            std::fprintf(log_, " %u", step.host_distinct[i]);
            if (step.host_distinct_tokens) std::fprintf(log_, " x%u", step.host_distinct_tokens[i]);
            if (step.host_distinct_scores)
                std::fprintf(log_, " @%g", static_cast<double>(step.host_distinct_scores[i]));
        }
        if (step.prediction_count != 0) std::fprintf(log_, " predicted");
        for (const uint32_t expert : step.predicted()) std::fprintf(log_, " %u", expert);
        std::fprintf(log_, "\n");
    }

    void fill(const moorage::room &room, moorage::pages &pages) {
        std::fprintf(log_, "may fill %u in pool %u: %s\n", room.count, room.pool,
                     name_of(room.cause));
        if (fill_ >= 0 && room.pool == 0) pages.push(static_cast<uint32_t>(fill_));
    }
    void victims(const moorage::room &room, moorage::pages &victims) {
        std::fprintf(log_, "room %u in pool %u for layer %u: %s\n", room.count, room.pool,
                     room.layer, name_of(room.cause));
        for (uint32_t page = 0; page < pages_ && !victims.full(); ++page)
            if (moorage::evictable(state_[page])) victims.push(page);
    }
    void on_load(uint32_t page, uint32_t segments, int32_t cause) {
        std::fprintf(log_, "loads %u (%u): %s\n", page, segments, name_of(cause));
    }
    void on_evict(uint32_t page, int32_t cause) {
        std::fprintf(log_, "evicts %u: %s\n", page, name_of(cause));
    }

    uint32_t horizon() { return list_.empty() ? 0 : 1; }
    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        std::fprintf(log_, "plan layer %u after %u: window %llu backlog %llu room %u\n",
                     forecast.host_layers[0], step.layer,
                     static_cast<unsigned long long>(forecast.window_ns),
                     static_cast<unsigned long long>(forecast.backlog_ns), forecast.buffer_free);
        for (const char *cursor = list_.c_str(); *cursor != 0;) {
            char *end = nullptr;
            const auto layer = static_cast<uint32_t>(std::strtoul(cursor, &end, 10));
            const auto page = static_cast<uint32_t>(std::strtoul(end + 1, &end, 10));
            if (layer == step.layer) orders.push(page, MOORAGE_WHOLE);
            cursor = end;
        }
    }
    void outcome(const moorage::prefetch_outcome &result) {
        std::fprintf(log_, "came to layer %u: used %u late %u wasted %u cut %u bytes %llu\n",
                     result.layer, result.used, result.late, result.wasted, result.cut_off,
                     static_cast<unsigned long long>(result.wasted_bytes));
    }

    uint32_t assign(const moorage::step &step, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        std::fprintf(log_, "items layer %u behind %llu", step.layer,
                     static_cast<unsigned long long>(items.load_backlog_ns));
        if (items.behind_backlog_ns != 0)
            std::fprintf(log_, " and %llu",
                         static_cast<unsigned long long>(items.behind_backlog_ns));
        std::fprintf(log_, ":");
        for (uint32_t i = 0; i < items.count && behind_ > 0; ++i)
            if (items.host_missing[i] != 0)
                item_devices[i] = items.cpu() | MOORAGE_AND_LOAD, --behind_;
        for (uint32_t i = 0; i < items.count; ++i)
            std::fprintf(log_, " %u x%u lacks %u load %llu gpu %llu cpu %llu;",
                         items.host_experts[i], items.host_tokens[i], items.host_missing[i],
                         static_cast<unsigned long long>(items.host_load_ns[i]),
                         static_cast<unsigned long long>(items.host_gpu_ns[i]),
                         static_cast<unsigned long long>(items.host_cpu_ns[i]));
        std::fprintf(log_, "\n");
        return items.count;
    }

    void outcome(const moorage::dispatched &result) {
        std::fprintf(log_, "took %u x%u of layer %u at %u: load %llu run %llu\n", result.expert,
                     result.tokens, result.layer, result.device,
                     static_cast<unsigned long long>(result.load_ns),
                     static_cast<unsigned long long>(result.run_ns));
    }

private:
    moorage::host host_;
    const std::string list_;
    const int64_t fill_;
    int64_t behind_;
    std::FILE *log_;
    uint32_t pages_ = 0;
    const uint32_t *state_ = nullptr;
};

class told_more : public told {
public:
    static constexpr moorage::about about{
        .name = "told_more",
        .summary = "the same with weights and predictions",
        .needs = MOORAGE_NEEDS_WEIGHTS | MOORAGE_NEEDS_PREDICTIONS,
    };
    using told::told;
};

class told_gates : public told {
public:
    static constexpr moorage::about about{
        .name = "told_gates",
        .summary = "the same with gate scores",
        .needs = MOORAGE_NEEDS_GATE_SCORES,
    };
    using told::told;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.told", "1.0.0", told, told_more, told_gates)
