// executor_drive.h - drives an executor through passes as the pipeline does, but without policies.
// It uses the model's own routing, fills an arena in the order of need, and leaves some experts to
// the CPU.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/execute/executor.h"
#include "core/model/model.h"
#include "core/model/routing.h"
#include "core/model/segment.h"
#include "core/source/pass_results.h"
#include "core/store/arena.h"

namespace moorage::core {

struct drive_options {
    uint32_t slots = 0;           // each for a whole expert
    double theta = 1;             // share of an expert in its top segment; 1: not split
    double cpu_share = 0;         // share of missing experts that the CPU computes
    bool random_routing = false;  // instead of the model's
    uint64_t seed = 0;
    bool predict = false;  // predict the next layer's scores from the experts that are there
    // Called when a gate or a prediction of the layer has completed.
    std::function<void(event_kind, uint32_t)> on_scores{};
    // Called with the experts that the tokens of a pass chose in a layer, top_k of each.
    std::function<void(uint32_t layer, std::span<const uint32_t> chosen)> on_choice{};
};

class executor_drive {
public:
    executor_drive(const model &model, const drive_options &options)
        : places(static_cast<uint32_t>(model.config().moe_layers().size()), model.config().experts,
                 model.config().moe_intermediate, 0, options.slots),
          model_(model),
          options_(options),
          top_rows_(
              top_rows(model.config().moe_intermediate, options.theta, model.config().part_unit)),
          rule_(model.config()),
          random_(options.seed) {
        // The arena caches nothing: every expert is in a frame, top and bottom.
        places.divide(std::vector<uint32_t>(model.config().moe_layers().size(), top_rows_), {});
    }

    uint32_t transfers_max() const { return 4 * model_.config().experts; }
    void use(executor &executor, const pass_results &results) {
        executor_ = &executor;
        results_ = &results;
    }

    // Returns an error if the machine under the executor fails.
    status run(const pass &tokens);

    arena places;
    uint64_t hits = 0, misses = 0, on_cpu = 0, evicted = 0;

private:
    void choose(const pass &tokens, uint32_t layer, uint32_t model_layer);
    bool split() const { return places.is_split(0); }
    uint8_t whole() const { return split() ? MOORAGE_WHOLE : first_segment; }
    bool is_loaded(uint32_t page) const {
        return places.row_of(page, first_segment) != MOORAGE_NEVER;
    }
    bool run_experts(const pass &tokens, uint32_t layer);
    void predict(const pass &tokens, uint32_t layer);
    bool make_room();
    void load(uint32_t page);
    void queue(uint32_t page, uint32_t top_id, uint32_t bottom_id);
    void send_next();
    bool handle_completion();
    bool wait_all();
    bool wait_for(event_kind kind);

    const model &model_;
    drive_options options_;
    uint32_t top_rows_;
    routing_rule rule_;
    std::mt19937_64 random_;
    executor *executor_ = nullptr;
    const pass_results *results_ = nullptr;
    std::vector<uint32_t> chosen_, distinct_;
    std::vector<uint32_t> busy_;  // pages of the work under way
    std::vector<float> weights_;
    std::deque<uint32_t> order_;
    std::deque<std::pair<link_piece, uint32_t>> pieces_;
    std::deque<uint32_t> under_way_;  // pieces, by the transfer that ends with each
    uint32_t next_id_ = 0, tag_ = 0, open_ = 0;
    event_kind last_ = event_kind::piece;
    bool seen_ = false;
    uint32_t layer_ = 0;
};

}  // namespace moorage::core
