// host_emulator.cpp - takes turns between one computation and one copy, as cpu_executor does.
#include "core/execute/host_emulator.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace moorage::core {

void host_emulator::attention(uint32_t layer, const pass &tokens) {
    layer_ = layer;
    expert_work none;
    none.page = MOORAGE_NONE;
    gpu_queue_.push_back(
        {event_kind::gate, none,
         costs_.attention_ns(tokens.tokens.size(), tokens.context()) + costs_.sync_ns()});
}

void host_emulator::predict(uint32_t, const pass &tokens, std::span<const uint32_t>) {
    expert_work none;
    none.page = MOORAGE_NONE;
    gpu_queue_.push_back(
        {event_kind::prediction, none,
         costs_.attention_ns(tokens.tokens.size(), tokens.context()) + costs_.sync_ns()});
}

void host_emulator::head(uint32_t tokens) {
    expert_work none;
    none.page = MOORAGE_NONE;
    gpu_queue_.push_back({event_kind::head, none, costs_.head_ns(tokens)});
}

void host_emulator::expert_on_gpu(const expert_work &work) {
    gpu_queue_.push_back(
        {event_kind::gpu_expert, work, costs_.gpu_expert_ns(work.tokens, work.share)});
}

void host_emulator::move_top(const expert_work &work, uint64_t) {
    gpu_queue_.push_back({event_kind::moved, work, costs_.move_ns(work.share)});
}

// The same kernels on the same cores, wherever the weights lie: the device's figures hold.
void host_emulator::expert_on_cpu(const expert_work &work) {
    cpu_queue_.push_back(
        {event_kind::cpu_expert, work, costs_.gpu_expert_ns(work.tokens, work.share)});
}

void host_emulator::send(const link_piece &piece) {
    assert(idle(piece.link) && piece.bytes > 0);
    const link_profile &profile = costs_.hardware().link;
    const double rate = piece.link == link_h2d ? profile.h2d_bytes_per_s : profile.d2h_bytes_per_s;
    const double alone_ns =
        static_cast<double>(profile.issue_ns) + static_cast<double>(piece.bytes) / rate * 1e9;
    links_[piece.link] = {true, in_place_, piece.page, now_, now_, in_place_ ? 0 : alone_ns};
    if (!in_place_) give_up_core();
}

// One thread copies; the direction to the device goes first.
host_emulator::link_state *host_emulator::copying() {
    for (link_state &link : links_)
        if (link.busy && !link.copied) return &link;
    return nullptr;
}

void host_emulator::end_copy(link_state &link) {
    link.copied = true;
    link.left_ns = 0;
    link.ended_ns = now_;
    const bool in = &link == &links_[link_h2d];
    if (sink_)
        sink_->span(in ? span_sink::h2d : span_sink::d2h, "copy", layer_, link.page,
                    link.started_ns, now_);
}

// Time moves until `work_ns` of computing alone are done, copies going on beside it.
void host_emulator::pass_time(double work_ns) {
    const device_profile &device = costs_.hardware().device;
    const uint64_t begin_ns = now_;
    double elapsed_ns = 0;
    while (work_ns > 0) {
        link_state *link = copying();
        if (!link) {
            elapsed_ns += work_ns;
            break;
        }
        const double until_computed = work_ns / device.compute_share;
        const double until_copied = link->left_ns / device.copy_share;
        const double step_ns = std::min(until_computed, until_copied);
        elapsed_ns += step_ns;
        work_ns -= step_ns * device.compute_share;
        link->left_ns -= step_ns * device.copy_share;
        if (until_copied > until_computed) break;
        now_ = begin_ns + rounded_up(elapsed_ns);
        end_copy(*link);
    }
    now_ = begin_ns + rounded_up(elapsed_ns);
}

// The thread that computes hands a piece over, and where cores are few the copy begins on its own.
void host_emulator::give_up_core() {
    const uint64_t until_ns = now_ + costs_.hardware().device.load_ns;
    if (link_state *link = copying()) {
        const double until_copied =
            std::min<double>(link->left_ns, static_cast<double>(until_ns - now_));
        link->left_ns -= until_copied;
        if (link->left_ns <= 0) {
            now_ += rounded_up(until_copied);
            end_copy(*link);
        }
    }
    now_ = until_ns;
}

bool host_emulator::take_piece(completion &out) {
    for (uint32_t which = 0; which < link_count; ++which) {
        link_state &link = links_[which];
        if (!link.busy || !link.copied) continue;
        const uint64_t duration_ns = link.ended_ns - link.started_ns;
        link = {};
        (which == link_h2d ? busy_.h2d : busy_.d2h) += duration_ns;
        out = {event_kind::piece, which, duration_ns, 0};
        return true;
    }
    return false;
}

completion host_emulator::wait() {
    for (;;) {
        completion out{};
        if (take_piece(out)) return out;
        if (!done_.empty()) {
            out = done_.front();
            done_.pop_front();
            return out;
        }
        if (!gpu_queue_.empty() && runnable(gpu_queue_.front())) {
            compute(gpu_queue_);
        } else if (!cpu_queue_.empty()) {
            compute(cpu_queue_);
        } else {
            link_state *link = copying();
            assert(link && "something must be under way");
            const uint64_t wait_ns = rounded_up(link->left_ns);
            if (!gpu_queue_.empty()) busy_.stall += wait_ns;
            now_ += wait_ns;
            end_copy(*link);
        }
    }
}

void host_emulator::compute(std::deque<operation> &from) {
    const operation next = from.front();
    const uint64_t begin_ns = now_;
    const bool expert = next.kind == event_kind::gpu_expert || next.kind == event_kind::cpu_expert;
    if (expert) {
        pass_time(static_cast<double>(take_loop(from)));
    } else {
        from.pop_front();
        done_.push_back({next.kind, next.work.tag, 0, 0});
        pass_time(static_cast<double>(next.duration_ns));
    }
    const uint64_t duration_ns = now_ - begin_ns;
    const bool on_cpu = next.kind == event_kind::cpu_expert;
    (on_cpu ? busy_.cpu : busy_.gpu) += duration_ns;
    for (completion &one : done_) one.duration_ns = duration_ns / done_.size();
    if (!sink_) return;
    const char *kind = expert                                ? "expert"
                       : next.kind == event_kind::gate       ? "attention"
                       : next.kind == event_kind::moved      ? "move"
                       : next.kind == event_kind::prediction ? "prediction"
                                                             : "head";
    sink_->span(on_cpu ? span_sink::cpu : span_sink::gpu, kind, layer_, next.work.page, begin_ns,
                now_);
}

// All experts at the front that can run; how long their loop takes alone.
uint64_t host_emulator::take_loop(std::deque<operation> &from) {
    const event_kind kind = from.front().kind;
    uint64_t loop_ns = 0;
    std::vector<uint32_t> pages;
    while (!from.empty() && from.front().kind == kind && runnable(from.front())) {
        const operation &next = from.front();
        // A bottom segment adds to what its top wrote, so it begins a loop of its own.
        if (next.work.segments == MOORAGE_BOTTOM &&
            std::ranges::find(pages, next.work.page) != pages.end())
            break;
        loop_ns += next.duration_ns - (pages.empty() ? 0 : costs_.expert_loop_ns());
        pages.push_back(next.work.page);
        done_.push_back({kind, next.work.tag, 0, next.work.segments});
        from.pop_front();
    }
    return loop_ns;
}

}  // namespace moorage::core
