// rebalancer.cpp - decides, and sends copies on their way.
#include "core/cluster/rebalancer.h"

#include <algorithm>
#include <cmath>

namespace moorage::core {

rebalancer::rebalancer(scene &of, cluster_emulator &all, placement_stage *policy, const plan &first,
                       const cluster_config &config)
    : scene_(of),
      all_(all),
      policy_(policy),
      config_(config),
      window_(of.demand, config.window_s),
      copies_(first.copies),
      device_free_ns_(of.cluster.devices(), 0) {
    if (policy && config.interval_s > 0)
        decide_ns_ = static_cast<uint64_t>(config.interval_s * 1e9);
    if (decide_ns_ == MOORAGE_NEVER) return;
    all.on_migration = [this](const delivery &done) { arrived(done); };
    all.on_activation = [this](uint32_t home, uint32_t expert, uint32_t tokens) {
        window_.add(home, expert, tokens, all_.now_ns());
    };
}

uint64_t rebalancer::next_ns() const {
    uint64_t first = decide_ns_;
    for (const writing &one : writing_) first = std::min(first, one.at_ns);
    return first;
}

status rebalancer::act() {
    const uint64_t now_ns = all_.now_ns();
    for (size_t i = 0; i < writing_.size();) {
        if (writing_[i].at_ns > now_ns) {
            ++i;
            continue;
        }
        const writing one = writing_[i];
        writing_.erase(writing_.begin() + static_cast<ptrdiff_t>(i));
        written(one);
    }
    if (decide_ns_ > now_ns) return success();
    decide_ns_ += static_cast<uint64_t>(config_.interval_s * 1e9);
    return order_ ? success() : decide();  // one migration at a time
}

status rebalancer::decide() {
    window_.fill(scene_.demand, all_.now_ns());
    const auto candidate = policy_->make(scene_, copies_);
    if (!candidate) return candidate.failure();
    const double call_s = all_.remote_experts() == 0
                              ? 0
                              : static_cast<double>(all_.remote_ns()) / 1e9 /
                                    static_cast<double>(all_.remote_experts());
    const weighed_move move(scene_, copies_, candidate->copies, call_s, config_.interval_s);
    const moorage_move &table = move.table();
    cluster_report::migration said;
    said.at_s = static_cast<double>(all_.now_ns()) / 1e9;
    said.done_s = -1;
    said.added_copies = table.added_copies;
    said.added_bytes = table.added_bytes;
    said.remote_per_s_current = table.remote_per_s_current;
    said.remote_per_s_candidate = table.remote_per_s_candidate;
    said.adopted = (table.added_copies != 0 || table.removed_copies != 0) && policy_->adopt(move);
    decisions_.push_back(said);
    if (!said.adopted) return success();
    const auto drop = [this](const moorage_copy &copy) { return all_.take(copy); };
    order_ = std::make_unique<migration_order>(scene_.cluster, scene_.demand, copies_,
                                               candidate->copies, drop);
    start_copies();
    return success();
}

void rebalancer::look_again() {
    if (order_ && order_->blocked()) start_copies();
}

void rebalancer::start_copies() {
    while (const auto step = order_->next()) {
        if (step->id >= steps_.size()) steps_.resize(step->id + 1);
        steps_[step->id] = *step;
        network &links = all_.links();
        const uint32_t from = step->from == MOORAGE_NONE
                                  ? links.cloud()
                                  : links.server(scene_.cluster.device_server[step->from]);
        const uint32_t to = links.server(scene_.cluster.device_server[step->to]);
        links.send(links.channel(from, to), {traffic::migration, step->bytes, step->id, step->to},
                   all_.now_ns());
    }
    if (!order_->done()) return;
    copies_ = order_->copies();
    decisions_.back().done_s = static_cast<double>(all_.now_ns()) / 1e9;
    decisions_.back().given_up = order_->given_up().size();
    order_.reset();
    steps_.clear();
}

// Of one device one copy after another.
void rebalancer::arrived(const delivery &done) {
    const migration_step &step = steps_[done.what.tag];
    const double rate = scene_.cluster.device_load_bytes_per_s[step.to];
    const double ns =
        std::isfinite(rate) ? std::ceil(static_cast<double>(step.bytes) / rate * 1e9) : 0;
    uint64_t &free_ns = device_free_ns_[step.to];
    free_ns = std::max(free_ns, all_.now_ns()) + static_cast<uint64_t>(ns);
    writing_.push_back({free_ns, step.id, {step.expert, step.to}});
}

void rebalancer::written(const writing &one) {
    all_.put(one.copy);
    order_->arrived(one.step);
    start_copies();
}

}  // namespace moorage::core
