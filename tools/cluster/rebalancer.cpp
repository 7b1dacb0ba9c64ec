// rebalancer.cpp - decides, and sends copies on their way.
#include "tools/cluster/rebalancer.h"

namespace moorage::core {

rebalancer::rebalancer(scene &scene, live_cluster &cluster, placement_stage *policy,
                       const plan &first, const cluster_config &config,
                       const migration_options &moving)
    : scene_(scene),
      cluster_(cluster),
      policy_(policy),
      config_(config),
      moving_(moving),
      window_(scene.demand, config.window_s),
      copies_(first.copies) {
    if (!policy || config.interval_s <= 0) return;
    decide_ns_ = static_cast<uint64_t>(config.interval_s * 1e9);
    cluster.watch(this);
}

status rebalancer::act() {
    decide_ns_ += static_cast<uint64_t>(config_.interval_s * 1e9);
    return order_ ? success() : decide(decision_mode::weigh);  // one migration at a time
}

status rebalancer::decide(decision_mode mode) {
    if (asked_) window_.fill(scene_.demand, cluster_.now_ns());
    const auto candidate = policy_->make(scene_, copies_);
    if (!candidate) return candidate.failure();
    facts_ = candidate->facts;
    const call_figures calls = cluster_.calls();
    const double call_s = calls.experts == 0 ? 0
                                             : static_cast<double>(calls.ns) / 1e9 /
                                                   static_cast<double>(calls.experts);
    const weighed_move move(scene_, copies_, candidate->copies, call_s, config_.interval_s);
    const moorage_move &table = move.table();
    cluster_report::migration decision;
    decision.at_s = static_cast<double>(cluster_.now_ns()) / 1e9;
    decision.done_s = -1;
    decision.added_copies = table.added_copies;
    decision.added_bytes = table.added_bytes;
    decision.remote_per_s_current = table.remote_per_s_current;
    decision.remote_per_s_candidate = table.remote_per_s_candidate;
    decision.adopted = mode != decision_mode::say &&
                       (table.added_copies != 0 || table.removed_copies != 0) &&
                       (mode == decision_mode::adopt || policy_->adopt(move));
    decisions_.push_back(decision);
    if (!decision.adopted) return success();
    const auto drop = [this](const moorage_copy &copy) { return cluster_.take(copy); };
    order_ = std::make_unique<migration_order>(scene_.cluster, scene_.demand, copies_,
                                               candidate->copies, drop, moving_);
    start_copies();
    return success();
}

void rebalancer::look_again() {
    if (order_ && order_->blocked()) start_copies();
}

void rebalancer::start_copies() {
    while (const auto step = order_->next()) cluster_.bring(*step);
    if (!order_->done()) return;
    copies_ = order_->copies();
    decisions_.back().done_s = static_cast<double>(cluster_.now_ns()) / 1e9;
    decisions_.back().given_up = order_->given_up().size();
    order_.reset();
}

void rebalancer::brought(uint32_t step) {
    order_->arrived(step);
    start_copies();
}

}  // namespace moorage::core
