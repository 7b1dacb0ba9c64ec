// executor_drive.cpp - the calls of a pass in the order in which the pipeline makes them.
#include "core/execute/executor_drive.h"

#include <algorithm>

namespace moorage::core {

status executor_drive::run(const pass &tokens) {
    const std::vector<uint32_t> layers = model_.config().moe_layers();
    executor_->begin(tokens);
    for (uint32_t layer = 0; layer < layers.size(); ++layer) {
        executor_->attention(layer, tokens);
        layer_ = layer;
        if (!wait_for(event_kind::gate)) return error{executor_->failure()};
        choose(tokens, layer, layers[layer]);
        executor_->route(chosen_, weights_);
        if (!run_experts(tokens, layer)) return error{executor_->failure()};
    }
    executor_->head(static_cast<uint32_t>(tokens.tokens.size()));
    if (!wait_for(event_kind::head)) return error{executor_->failure()};
    return success();
}

void executor_drive::choose(const pass &tokens, uint32_t layer, uint32_t model_layer) {
    const uint32_t k = model_.config().top_k, experts = model_.config().experts;
    chosen_.resize(tokens.tokens.size() * k);
    weights_.resize(chosen_.size());
    const std::span<const float> logits = results_->router_logits();
    for (size_t t = 0; t < tokens.tokens.size(); ++t) {
        const std::span<uint32_t> chosen(chosen_.data() + t * k, k);
        const std::span<float> weights(weights_.data() + t * k, k);
        if (!options_.random_routing) {
            rule_.choose(logits.subspan(t * experts, experts),
                         model_.weights().layers[model_layer].correction_bias, chosen, weights);
            continue;
        }
        std::fill(weights.begin(), weights.end(), 1.0f / static_cast<float>(k));
        for (uint32_t i = 0; i < k; ++i) do {
                chosen[i] = static_cast<uint32_t>(random_() % experts);
            } while (std::find(chosen.begin(), chosen.begin() + i, chosen[i]) !=
                     chosen.begin() + i);
    }
    if (options_.on_choice) options_.on_choice(layer, chosen_);
    distinct_ = chosen_;
    std::sort(distinct_.begin(), distinct_.end());
    distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
    for (uint32_t &page : distinct_) page += layer * experts;
}

// Resident experts come first, then loaded ones, in the order of their transfers.
bool executor_drive::run_experts(const pass &tokens, uint32_t layer) {
    std::vector<uint32_t> missing;
    tag_ = 0;
    for (const uint32_t page : distinct_) {
        if (is_loaded(page)) {
            ++hits;
            queue(page, MOORAGE_NONE, MOORAGE_NONE);
        } else {
            missing.push_back(page);
        }
    }
    if (options_.predict && layer + 1 < model_.config().moe_layers().size()) predict(tokens, layer);
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
        executor_->expert_on_cpu({page, 0, 1, MOORAGE_NONE, tag_++, MOORAGE_WHOLE});
    }
    misses += loads.size();
    // Slots are few: as many loads at a time as there is room beside what computes.
    for (size_t next = 0; next < loads.size();) {
        const size_t begin = next;
        for (; next < loads.size() && make_room(); ++next) load(loads[next]);
        if (next == begin || next < loads.size()) {
            if (!wait_all()) return false;
        }
    }
    return wait_all();
}

void executor_drive::predict(const pass &tokens, uint32_t layer) {
    std::vector<uint32_t> queued_experts;
    for (const uint32_t page : busy_) queued_experts.push_back(page % model_.config().experts);
    ++open_;
    executor_->predict(layer, tokens, queued_experts);
}

// A free slot for one expert, taken from pages that nothing under way uses.
bool executor_drive::make_room() {
    if (order_.size() < options_.slots) return true;
    for (size_t i = 0; i < order_.size(); ++i) {
        const uint32_t page = order_.front();
        order_.pop_front();
        const bool used = std::find(busy_.begin(), busy_.end(), page) != busy_.end();
        if (used) {
            order_.push_back(page);
            continue;
        }
        places.release(page, whole());
        ++evicted;
        return true;
    }
    return false;
}

void executor_drive::load(uint32_t page) {
    places.take(page, whole(), false);
    order_.push_back(page);
    uint32_t ids[2] = {MOORAGE_NONE, MOORAGE_NONE};
    const mlp_weights &expert =
        model_.weights()
            .layers[model_.config().moe_layers()[page / model_.config().experts]]
            .experts[page % model_.config().experts];
    for (uint32_t segment = 0; segment < (split() ? 2u : 1u); ++segment) {
        const uint32_t first = segment == 0 ? 0 : top_rows_;
        const uint32_t rows =
            segment == 0 ? top_rows_ : model_.config().moe_intermediate - top_rows_;
        ids[segment] = next_id_++ % transfers_max();
        executor_->expect(ids[segment]);
        const uint8_t mask = !split() ? MOORAGE_WHOLE : segment == 0 ? first_segment : last_segment;
        const uint64_t bytes = segment_image(expert, first, rows).bytes();
        // In pieces, so that offsets within an image are used too.
        const uint64_t piece_bytes = std::max<uint64_t>(bytes / 3 / 64 * 64, 64);
        for (uint64_t offset_bytes = 0; offset_bytes < bytes; offset_bytes += piece_bytes) {
            const uint64_t count = std::min(piece_bytes, bytes - offset_bytes);
            pieces_.push_back({{link_h2d, page, mask, offset_bytes, count},
                               offset_bytes + count == bytes ? ids[segment] : MOORAGE_NONE});
        }
    }
    queue(page, ids[0], ids[1]);
    send_next();
}

void executor_drive::queue(uint32_t page, uint32_t top_id, uint32_t bottom_id) {
    busy_.push_back(page);
    if (!split()) {
        ++open_;
        executor_->expert_on_device({page, 0, 1, top_id, tag_++, MOORAGE_WHOLE});
        return;
    }
    open_ += 2;
    executor_->expert_on_device({page, 0, options_.theta, top_id, tag_, first_segment});
    executor_->expert_on_device({page, 0, 1 - options_.theta, bottom_id, tag_++, last_segment});
}

void executor_drive::send_next() {
    while (!pieces_.empty() && under_way_.size() < executor_->pieces_at_once(link_h2d)) {
        under_way_.push_back(pieces_.front().second);
        executor_->send(pieces_.front().first);
        pieces_.pop_front();
    }
}

bool executor_drive::handle_completion() {
    const completion done = executor_->wait();
    if (executor_->failed()) return false;
    if (done.kind == event_kind::piece) {
        if (under_way_.front() != MOORAGE_NONE) executor_->arrived(under_way_.front());
        under_way_.pop_front();
        send_next();
    } else if (done.kind == event_kind::device_expert || done.kind == event_kind::cpu_expert) {
        --open_;
    } else {
        if (done.kind == event_kind::prediction) --open_;
        if (options_.on_scores) options_.on_scores(done.kind, layer_);
        last_ = done.kind;
        seen_ = true;
    }
    return true;
}

bool executor_drive::wait_all() {
    while (open_ != 0)
        if (!handle_completion()) return false;
    busy_.clear();
    return true;
}

bool executor_drive::wait_for(event_kind kind) {
    seen_ = false;
    while (!seen_ || last_ != kind)
        if (!handle_completion()) return false;
    return true;
}

}  // namespace moorage::core
