// executor_drive.h - drives an executor through passes as the pipeline does, without policies: the
// model's own routing, an arena filled in the order of need, some experts on the CPU.
#pragma once

#include <deque>
#include <functional>
#include <random>

#include "core/execute/cuda/cuda_executor.h"
#include "core/model/routing.h"
#include "core/model/segment.h"

namespace moorage::core {

struct drive_options {
    uint32_t top_slots = 0, bottom_slots = 0;  // bottom: experts are split
    double theta = 1;                          // of the split
    double cpu_share = 0;                      // of missing experts that the CPU computes
    bool random_routing = false;               // instead of the model's
    uint64_t seed = 0;
};

class executor_drive {
public:
    executor_drive(const model &of, const drive_options &options)
        : places(static_cast<uint32_t>(of.config().moe_layers().size()) * of.config().experts,
                 options.top_slots, options.bottom_slots),
          of_(of),
          options_(options),
          top_rows_(top_rows(of.config().moe_intermediate, options.theta)),
          rule_(of.config()),
          random_(options.seed) {}

    uint32_t top() const { return top_rows_; }
    uint32_t transfers_max() const { return 4 * of_.config().experts; }
    void use(executor &where, const pass_results &results) {
        where_ = &where;
        results_ = &results;
    }

    // An error text, empty when all is well.
    std::string run(const pass &tokens) {
        const std::vector<uint32_t> layers = of_.config().moe_layers();
        where_->begin(tokens);
        for (uint32_t layer = 0; layer < layers.size(); ++layer) {
            where_->attention(layer, tokens);
            if (!wait_for(event_kind::gate)) return where_->failure();
            choose(tokens, layer, layers[layer]);
            where_->route(chosen_, weights_);
            if (!run_experts()) return where_->failure();
        }
        where_->head(static_cast<uint32_t>(tokens.tokens.size()));
        return wait_for(event_kind::head) ? std::string() : where_->failure();
    }

    arena places;
    uint64_t hits = 0, misses = 0, on_cpu = 0;

private:
    void choose(const pass &tokens, uint32_t layer, uint32_t model_layer) {
        const uint32_t k = of_.config().top_k, experts = of_.config().experts;
        chosen_.resize(tokens.tokens.size() * k);
        weights_.resize(chosen_.size());
        const std::span<const float> logits = results_->router_logits();
        for (size_t t = 0; t < tokens.tokens.size(); ++t) {
            const std::span<uint32_t> chosen(chosen_.data() + t * k, k);
            const std::span<float> weights(weights_.data() + t * k, k);
            if (!options_.random_routing) {
                rule_.choose(logits.subspan(t * experts, experts),
                             of_.weights().layers[model_layer].correction_bias, chosen, weights);
                continue;
            }
            std::fill(weights.begin(), weights.end(), 1.0f / static_cast<float>(k));
            for (uint32_t i = 0; i < k; ++i) do {
                    chosen[i] = static_cast<uint32_t>(random_() % experts);
                } while (std::find(chosen.begin(), chosen.begin() + i, chosen[i]) !=
                         chosen.begin() + i);
        }
        distinct_ = chosen_;
        std::sort(distinct_.begin(), distinct_.end());
        distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
        for (uint32_t &one : distinct_) one += layer * experts;
    }

    bool split() const { return places.split(); }
    uint8_t whole() const { return split() ? MOORAGE_WHOLE : MOORAGE_TOP; }
    bool held(uint32_t page) const { return places.slot(page, MOORAGE_TOP) != MOORAGE_NONE; }

    // Resident experts first, then what is loaded, in the order of its transfers.
    bool run_experts() {
        std::vector<uint32_t> missing;
        tag_ = 0;
        for (const uint32_t page : distinct_) {
            if (held(page)) {
                ++hits;
                queue(page, MOORAGE_NONE, MOORAGE_NONE);
            } else {
                missing.push_back(page);
            }
        }
        std::vector<uint32_t> loads;
        for (const uint32_t page : missing) {
            const bool to_cpu =
                std::uniform_real_distribution<double>(0, 1)(random_) < options_.cpu_share;
            if (!to_cpu) {
                loads.push_back(page);
                continue;
            }
            ++on_cpu;
            ++open_;
            where_->expert_on_cpu({page, 0, 1, MOORAGE_NONE, tag_++, MOORAGE_WHOLE});
        }
        misses += loads.size();
        // Slots are few: as many loads at a time as there is room beside what computes.
        for (size_t next = 0; next < loads.size();) {
            const size_t before = next;
            for (; next < loads.size() && make_room(); ++next) load(loads[next]);
            if (next == before || next < loads.size()) {
                if (!wait_all()) return false;
            }
        }
        return wait_all();
    }

    // A free slot for one expert, taken from pages that nothing under way uses.
    bool make_room() {
        if (order_.size() < options_.top_slots) return true;
        for (size_t i = 0; i < order_.size(); ++i) {
            const uint32_t page = order_.front();
            order_.pop_front();
            const bool used = std::find(busy_.begin(), busy_.end(), page) != busy_.end();
            if (used) {
                order_.push_back(page);
                continue;
            }
            places.release(page, whole());
            return true;
        }
        return false;
    }

    void load(uint32_t page) {
        places.take(page, whole());
        order_.push_back(page);
        uint32_t ids[2] = {MOORAGE_NONE, MOORAGE_NONE};
        const mlp_weights &expert =
            of_.weights()
                .layers[of_.config().moe_layers()[page / of_.config().experts]]
                .experts[page % of_.config().experts];
        for (uint32_t segment = 0; segment < (split() ? 2u : 1u); ++segment) {
            const uint32_t first = segment == 0 ? 0 : top_rows_;
            const uint32_t rows =
                segment == 0 ? top_rows_ : of_.config().moe_intermediate - top_rows_;
            ids[segment] = next_id_++ % transfers_max();
            where_->expect(ids[segment]);
            const uint8_t mask = !split()       ? MOORAGE_WHOLE
                                 : segment == 0 ? MOORAGE_TOP
                                                : MOORAGE_BOTTOM;
            const uint64_t bytes = segment_image(expert, first, rows).bytes();
            // In pieces, so that offsets within an image are used too.
            const uint64_t piece = std::max<uint64_t>(bytes / 3 / 64 * 64, 64);
            for (uint64_t at = 0; at < bytes; at += piece) {
                const uint64_t count = std::min(piece, bytes - at);
                pieces_.push_back({{link_h2d, page, mask, at, count},
                                   at + count == bytes ? ids[segment] : MOORAGE_NONE});
            }
        }
        queue(page, ids[0], ids[1]);
        send_next();
    }

    void queue(uint32_t page, uint32_t top_id, uint32_t bottom_id) {
        busy_.push_back(page);
        if (!split()) {
            ++open_;
            where_->expert_on_gpu({page, 0, 1, top_id, tag_++, MOORAGE_WHOLE});
            return;
        }
        open_ += 2;
        where_->expert_on_gpu({page, 0, options_.theta, top_id, tag_, MOORAGE_TOP});
        where_->expert_on_gpu({page, 0, 1 - options_.theta, bottom_id, tag_++, MOORAGE_BOTTOM});
    }

    void send_next() {
        if (pieces_.empty() || !where_->idle(link_h2d)) return;
        current_ = pieces_.front().second;
        where_->send(pieces_.front().first);
        pieces_.pop_front();
    }

    bool handle() {
        const completion done = where_->wait();
        if (where_->failed()) return false;
        if (done.kind == event_kind::piece) {
            if (current_ != MOORAGE_NONE) where_->arrived(current_);
            send_next();
        } else if (done.kind == event_kind::gpu_expert || done.kind == event_kind::cpu_expert) {
            --open_;
        } else {
            last_ = done.kind;
            seen_ = true;
        }
        return true;
    }
    bool wait_all() {
        while (open_ != 0)
            if (!handle()) return false;
        busy_.clear();
        return true;
    }
    bool wait_for(event_kind kind) {
        seen_ = false;
        while (!seen_ || last_ != kind)
            if (!handle()) return false;
        return true;
    }

    const model &of_;
    drive_options options_;
    uint32_t top_rows_;
    routing_rule rule_;
    std::mt19937_64 random_;
    executor *where_ = nullptr;
    const pass_results *results_ = nullptr;
    std::vector<uint32_t> chosen_, distinct_;
    std::vector<uint32_t> busy_;  // pages of what is under way
    std::vector<float> weights_;
    std::deque<uint32_t> order_;
    std::deque<std::pair<link_piece, uint32_t>> pieces_;
    uint32_t current_ = MOORAGE_NONE, next_id_ = 0, tag_ = 0, open_ = 0;
    event_kind last_ = event_kind::piece;
    bool seen_ = false;
};

}  // namespace moorage::core
