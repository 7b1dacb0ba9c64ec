// host_emulator.cpp - takes turns between one computation and one copy, as cpu_executor does.
#include "core/execute/host_emulator.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace moorage::core {

void host_emulator::send(const link_piece &piece) {
    assert(!links_[piece.link].busy && piece.bytes > 0);
    const link_profile &profile = costs_.hardware().link;
    const double alone_ns = static_cast<double>(profile.issue_ns) +
                            static_cast<double>(piece.bytes) / profile.h2d_bytes_per_s * 1e9;
    begin_piece(piece.link);
    const device_profile &device = costs_.hardware().device;
    const auto wakes_ns = static_cast<double>(device.wake_ns);
    links_[piece.link] = {
        true, in_place_, piece.page, now_, now_, wakes_ns, in_place_ ? 0 : alone_ns};
    if (!in_place_) pass_software_time(device.load_ns);
}

// One thread copies.
host_emulator::link_state *host_emulator::copying_link() {
    for (link_state &link : links_)
        if (link.busy && !link.copied) return &link;
    return nullptr;
}

void host_emulator::end_copy(link_state &link) {
    link.copied = true;
    link.copy_left_ns = 0;
    link.ended_ns = now_;
    show_piece(static_cast<uint32_t>(&link - links_), link.page, link.started_ns, now_);
}

// Time moves until `work_ns` of computing alone are done, copies going on beside it.
void host_emulator::pass_time(double work_ns) {
    const device_profile &device = costs_.hardware().device;
    const uint64_t begin_ns = now_;
    double elapsed_ns = 0;
    while (work_ns > 0) {
        link_state *link = copying_link();
        if (!link) {
            elapsed_ns += work_ns;
            break;
        }
        if (link->wake_left_ns > 0) {
            const double alone_ns = std::min(work_ns, link->wake_left_ns);
            elapsed_ns += alone_ns;
            work_ns -= alone_ns;
            link->wake_left_ns -= alone_ns;
            link->started_ns = begin_ns + rounded_up(elapsed_ns);
            continue;
        }
        const double until_computed_ns = work_ns / device.compute_share;
        const double until_copied_ns = link->copy_left_ns / device.copy_share;
        const double step_ns = std::min(until_computed_ns, until_copied_ns);
        elapsed_ns += step_ns;
        work_ns -= step_ns * device.compute_share;
        link->copy_left_ns -= step_ns * device.copy_share;
        if (until_copied_ns > until_computed_ns) break;
        now_ = begin_ns + rounded_up(elapsed_ns);
        end_copy(*link);
    }
    now_ = begin_ns + rounded_up(elapsed_ns);
}

// Policies, hand-overs, a thread woken: copies go on, nothing is computed.
void host_emulator::pass_software_time(uint64_t ns) {
    const uint64_t until_ns = now_ + ns;
    if (link_state *link = copying_link()) {
        const double woken_ns = std::min(link->wake_left_ns, static_cast<double>(ns));
        const double copied_ns = std::min(link->copy_left_ns, static_cast<double>(ns) - woken_ns);
        link->wake_left_ns -= woken_ns;
        link->started_ns += rounded_up(woken_ns);
        link->copy_left_ns -= copied_ns;
        if (link->copy_left_ns <= 0) {
            now_ += rounded_up(woken_ns + copied_ns);
            end_copy(*link);
        }
    }
    now_ = until_ns;
}

bool host_emulator::take_piece(completion &done) {
    for (uint32_t link_index = 0; link_index < link_count; ++link_index) {
        link_state &link = links_[link_index];
        if (!link.busy || !link.copied) continue;
        end_piece(link_index, link.ended_ns - link.started_ns, done);
        link = {};
        return true;
    }
    return false;
}

void host_emulator::wait_for_piece() {
    link_state *link = copying_link();
    assert(link && "something must be under way");
    if (std::exchange(link->wake_left_ns, 0) > 0) link->started_ns = now_;
    now_ += rounded_up(link->copy_left_ns);
    end_copy(*link);
}

// One parallel loop, which pays its entry once.
void host_emulator::compute(std::span<const operation> experts) {
    uint64_t loop_ns = 0;
    for (const operation &expert : experts) loop_ns += expert.price_ns;
    pass_time(static_cast<double>(loop_ns - (experts.size() - 1) * costs_.expert_loop_ns()));
}

}  // namespace moorage::core
