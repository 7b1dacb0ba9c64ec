// stream_executor.h - the common part of executors: queues in order, gated by transfers, and the
// accounts of time. A device adds only how long an operation takes, or how it is done.
//
//   class my_device final : public stream_executor<my_device> {
//       uint64_t price_of_attention(const pass &) ...    known before it runs
//       void queued(stream &) ...                        one more stands at its end
//       void opened() ...                                a transfer has arrived
//       void settle() ...                                until *clock() time went where it went
//
// Calls to the device are resolved at compile time, because emulated runs consist of them. For
// functions that a device does not define, the ones below apply. Experts for the CPU have a queue
// of their own, `cpu_`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/execute/links.h"
#include "core/execute/operations.h"

namespace moorage::core {

template <class Device, class Base = executor>
class stream_executor : public Base {
public:
    void attention(uint32_t layer, const pass &tokens) override {
        layer_ = layer;
        queue_part(event_kind::gate, layer, self().price_of_attention(tokens));
    }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t>) override {
        queue_part(event_kind::prediction, layer, self().price_of_attention(tokens));
    }
    void head(uint32_t tokens) override {
        queue_part(event_kind::head, layer_, self().price_of_head(tokens));
    }
    void expert_on_device(const expert_work &work) override {
        queue_work<event_kind::device_expert>(device_, work);
    }
    void expert_on_cpu(const expert_work &work) override {
        queue_work<event_kind::cpu_expert>(cpu_, work);
    }
    void move_top(const expert_work &work, uint64_t to_row) override {
        queue_work<event_kind::moved>(device_, work, to_row);
    }
    void expect(uint32_t transfer) final { arrived_[transfer] = 0; }
    void arrived(uint32_t transfer) final {
        arrived_[transfer] = 1;
        self().opened();
    }
    busy_ns busy() const final { return busy_; }
    uint64_t stall_ns() const final { return busy_.stall; }
    void policies_took(uint64_t ns) override { decided_ns_ += ns; }
    void charge(time_causes &causes) final {
        self().settle();
        charged_ = &causes;
    }

protected:
    // transfers_max: ids of transfers are below it. `sink` may be null. The rest goes to the base.
    template <class... Args>
    stream_executor(uint32_t transfers_max, span_sink *sink, Args &&...args)
        : Base(std::forward<Args>(args)...), sink_(sink), arrived_(transfers_max, 0) {}

    uint64_t price_of_attention(const pass &) { return 0; }
    uint64_t price_of_head(uint32_t) { return 0; }
    uint64_t price_of(event_kind, const expert_work &) { return 0; }
    void queued(stream &) {}
    void opened() {}

    bool ready(const operation &next) const {
        return next.transfer == MOORAGE_NONE || arrived_[next.transfer];
    }
    // Appends the experts at the front that can run, as long as each goes with those before it.
    // Requires: there is one.
    template <class GoesWith>
    void gather(stream &stream, std::vector<operation> &gathered, GoesWith &&goes_with) {
        const event_kind kind = stream.queue.front().kind;
        while (!stream.queue.empty()) {
            const operation &next = stream.queue.front();
            if (next.kind != kind || !ready(next) || !goes_with(next)) return;
            gathered.push_back(next);
            stream.pop();
        }
    }

    uint64_t accounted_ns() const { return accounted_ns_; }
    // Since the last call, the time went to `spent_on`.
    void account(cause spent_on, uint64_t now_ns) {
        (*charged_)[spent_on] += now_ns - accounted_ns_;
        accounted_ns_ = now_ns;
    }
    // The same for the real time of policies, as far as it has not been accounted elsewhere.
    void account_policies(uint64_t ns, uint64_t now_ns) {
        account(cause::policy, std::min(accounted_ns_ + ns, now_ns));
    }
    // The time was the device's. It waited for policies, launched, and then computed. At the end
    // the host drew a token from the results.
    void account_device(const stream &stream, uint64_t now_ns) {
        uint64_t begin_ns = accounted_ns_;
        accounted_ns_ = now_ns;
        const auto charge_until = [&](uint64_t end_ns, cause spent_on) {
            end_ns = std::min(end_ns, now_ns);
            if (begin_ns >= end_ns) return;
            (*charged_)[spent_on] += end_ns - begin_ns;
            begin_ns = end_ns;
        };
        charge_until(stream.decided_until_ns, cause::policy);
        charge_until(stream.launched_until_ns, cause::launch);
        charge_until(stream.computed_until_ns, cause::compute);
        charge_until(now_ns, cause::host);
    }
    // The cause of waiting while the device computes nothing.
    cause waits_for() const {
        return waits_for(!device_.queue.empty(), pieces_under_way_[link_h2d] != 0);
    }
    // The same while no device computes. waiting: one has operations. copying: copies go on.
    cause waits_for(bool waiting, bool copying) const {
        const bool computing = !cpu_.queue.empty();
        // While the CPU computes or a copy goes on, the disk is not the cause of waiting.
        if (pieces_under_way_[link_disk] != 0 && !computing && !(waiting && copying))
            return cause::disk;
        if (waiting) return cause::link;
        return computing ? cause::cpu : copying ? cause::link : remote_wait_cause_;
    }

    void begin_piece(uint32_t link) { ++pieces_under_way_[link]; }
    void end_piece(uint32_t link, uint64_t duration_ns, completion &done) {
        --pieces_under_way_[link];
        (is_h2d(link) ? busy_.h2d : busy_.disk) += duration_ns;
        done = {event_kind::piece, link, duration_ns, 0};
    }
    // The expert at the front of the CPU's queue.
    void end_on_cpu(uint64_t started_ns, uint64_t now_ns, completion &done) {
        const operation &work = cpu_.queue.front();  // stays valid until something is queued
        cpu_.pop();
        busy_.cpu += now_ns - started_ns;
        show(work, started_ns, now_ns);
        done = {work.kind, work.tag, now_ns - started_ns, work.segments};
    }
    void show_piece(uint32_t link, uint32_t page, uint64_t start_ns, uint64_t end_ns) {
        if (!sink_) return;
        const span_sink::track track_id =
            link == link_disk ? span_sink::disk
                              : span_sink::of_device(span_sink::h2d, device_of_link(link));
        sink_->span(track_id, link == link_disk ? "read" : "copy", layer_, page, start_ns, end_ns);
    }
    void show(const operation &work, uint64_t start_ns, uint64_t end_ns, uint32_t device = 0) {
        if (!sink_) return;
        sink_->span(work.kind == event_kind::cpu_expert
                        ? span_sink::cpu
                        : span_sink::of_device(span_sink::gpu, device),
                    name_of(work.kind), work.layer, work.page, start_ns, end_ns);
    }

    using Base::charged_;
    using Base::remote_wait_cause_;
    stream device_, cpu_;
    uint32_t layer_ = 0;
    busy_ns busy_;

    Device &self() { return static_cast<Device &>(*this); }

    void queue_part(event_kind kind, uint32_t layer, uint64_t price_ns) {
        const uint64_t decided_ns = std::exchange(decided_ns_, 0);
        price_ns += decided_ns;
        operation &next = device_.queue.push();
        next.kind = kind;
        next.segments = 0;
        next.tag = 0;
        next.transfer = next.page = MOORAGE_NONE;
        next.layer = layer;
        next.price_ns = price_ns;
        next.decided_ns = decided_ns;
        device_.backlog_ns += price_ns;
        self().queued(device_);
    }
    template <event_kind kind>
    void queue_work(stream &stream, const expert_work &work, uint64_t to_row = 0) {
        const uint64_t price_ns = self().price_of(kind, work);
        operation &next = stream.queue.push();
        next.kind = kind;
        next.segments = work.segments;
        next.version = work.version;
        next.tag = work.tag;
        next.transfer = work.transfer;
        next.page = work.page;
        next.layer = layer_;
        if (kind == event_kind::cpu_expert) next.share = work.share;
        if (kind == event_kind::moved) next.to_row = to_row;
        next.price_ns = price_ns;
        next.decided_ns = 0;
        stream.backlog_ns += price_ns;
        self().queued(stream);
    }

private:
    span_sink *sink_;
    std::vector<uint8_t> arrived_;
    uint32_t pieces_under_way_[links_max] = {};  // pieces under way
    uint64_t accounted_ns_ = 0;
    uint64_t decided_ns_ = 0;  // time of policies that no part accounts for yet
};

}  // namespace moorage::core
