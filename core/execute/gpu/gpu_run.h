// gpu_run.h - the executor on a GPU: when work is launched, what it waits for, and when it has
// ended.
//
// With several GPUs (decision 0025), the first computes everything but the experts that belong to
// others. Other GPUs get the layer's hidden states before their experts. Their outputs come back
// behind their last expert, to the place where the first GPU would have put them. Sums are equal to
// those of one GPU, to the bit.
//
// The caller's thread makes every call to the device. No call waits for the whole device: wait()
// asks the events in turn, at the end of each batch of launches, each piece of a link and each copy
// of activations. The decode loop allocates nothing on the device.
//
// Device: the interface of a GPU (README.md lists its functions).
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/text.h"
#include "core/execute/gpu/forward.h"
#include "core/execute/gpu/gpu_beside.h"
#include "core/execute/gpu/gpu_executor.h"
#include "core/execute/gpu/gpu_lane.h"
#include "core/execute/gpu/gpu_memory.h"
#include "core/execute/load_link.h"
#include "core/execute/stream_executor.h"

namespace moorage::core::gpu {

template <class Device>
class gpu_run final : public stream_executor<gpu_run<Device>>, public pass_results {
    using base = stream_executor<gpu_run<Device>>;
    using lane = gpu_lane<Device>;
    using batch = typename lane::batch;

public:
    // Opens the device, takes the memory, packs the experts that it holds.
    static result<gpu_machine> create(const gpu_executor_options &options) {
        if (const status checked = check_model(*options.source_model, Device::executor_name);
            !checked)
            return checked.failure();
        const forward_limits limits = limits_of(options, Device::workspace_bytes);
        if (const status checked = check_pass(limits, Device::executor_name); !checked)
            return checked.failure();
        std::unique_ptr<gpu_run> run(new gpu_run(options));
        if (const status prepared = run->prepare(); !prepared) return prepared.failure();
        gpu_machine machine;
        machine.results = run.get();
        for (const auto &lane : run->lanes_)
            machine.device += (machine.device.empty() ? "" : " + ") + lane->gpu->name();
        machine.device_bytes = run->device_bytes_;
        machine.pinned_bytes = run->pinned_bytes_;
        machine.device_executor = std::move(run);
        return machine;
    }
    ~gpu_run() override {
        beside_.reset();                                      // reads pinned memory
        disk_.reset();                                        // writes pinned memory
        for (const auto &lane : lanes_) lane->gpu->finish();  // a failed run leaves work behind
        while (!lanes_.empty()) lanes_.pop_back();  // the first one last: it notes failures
    }

    const uint64_t *clock() const override { return &now_; }
    bool virtual_time() const override { return false; }
    bool unified_memory() const override { return false; }
    std::string failure() const override { return gpu_->notes().text(); }

    void begin_run() override { begun_ = std::chrono::steady_clock::now(); }
    void begin(const pass &tokens) override {
        now_ = elapsed_ns();
        discard_ahead();
        routed_ = false;
        compute_->begin(tokens);
        failed_ = gpu_->notes().failed();
    }
    void attention(uint32_t layer, const pass &tokens) override {
        now_ = elapsed_ns();
        layer_ = layer;
        beside_->begin_layer();
        if (!adopt_ahead()) base::attention(layer, tokens);
    }
    void head(uint32_t tokens) override {
        if (!adopt_ahead()) base::head(tokens);
    }
    bool predicts() const override { return options_.limits.predict; }
    busy_ns busy_of(uint32_t device) const override { return lanes_[device]->busy; }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override {
        predict_from_.assign(experts.begin(), experts.end());
        base::predict(layer, tokens, experts);
    }
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override {
        if (weights.empty())
            weights_.assign(chosen.size(),
                            1.0f / static_cast<float>(options_.source_model->config().top_k));
        else
            weights_.assign(weights.begin(), weights.end());
        chosen_.assign(chosen.begin(), chosen.end());
        compute_->route(chosen_, weights_);
        expected_ = queued_ = 0;
        routed_ = true;
        for (uint32_t e = 0; e < experts_count_; ++e)
            expected_ += compute_->assignment_count(e) != 0;
        failed_ = gpu_->notes().failed();
    }
    // An expert that waits for its weights does not hold back others.
    void expert_on_device(const expert_work &work) override {
        if (work.transfer != MOORAGE_NONE) flush();
        queued_ +=
            work.segments != first_segment || !options_.places.arena_of(work.page).is_split(layer_);
        base::template queue_work<event_kind::device_expert>(lanes_[work.device]->queue, work);
    }
    void move_top(const expert_work &work, uint64_t to_row) override {
        lane &lane = *lanes_[options_.places.device_of(work.page)];
        base::template queue_work<event_kind::moved>(lane.queue, work, to_row);
    }
    void hidden_states(uint32_t device, uint32_t, bool back) override {
        operation &request = lanes_[device]->queue.queue.push();
        request = {};
        request.kind = event_kind::hidden_states;
        request.segments = back;
        request.tag = device;
        request.transfer = request.page = MOORAGE_NONE;
        request.layer = layer_;
    }
    void expert_on_cpu(const expert_work &work) override {
        beside_->add(work.page, work.page % experts_count_, work.tag);
        ++queued_;
        base::expert_on_cpu(work);
        failed_ = gpu_->notes().failed();
    }
    void divided() override {
        if (!experts_.divide()) failed_ = true;
    }
    void send(const link_piece &piece) override {
        this->begin_piece(piece.link);
        if (piece.link == link_disk)
            return disk_->send(piece, experts_.rows(piece.page, 0),
                               {experts_.image(piece.page, 0), experts_.image(piece.page, 1)});
        // Nothing is brought the other way: the host has the experts, too.
        if (!is_h2d(piece.link)) return this->end_piece(piece.link, 0, done_.push());
        lanes_[device_of_link(piece.link)]->send(piece, piece.page / experts_count_ == layer_);
        failed_ = gpu_->notes().failed();
    }
    uint32_t pieces_at_once(uint32_t link) const override {
        return is_h2d(link) ? lane::pieces_max : 1;
    }

    void policies_took(uint64_t ns) override {
        if (is_computing())
            decided_ns_ += ns;
        else
            this->account_policies(ns, elapsed_ns());
    }
    completion wait() override {
        uint64_t waiting_since_ns = elapsed_ns();
        if (!is_computing())
            account(cause::host, waiting_since_ns);
        else
            host_ns_ += waiting_since_ns - std::max(returned_ns_, accounted_ns());
        flush();
        launch_ahead();
        completion completed{event_kind::head, 0, 0, 0};
        for (uint32_t asked = 1; !gpu_->notes().failed() && !poll(completed); ++asked) {
            assert((is_computing() || is_loading() || !cpu_.queue.empty() || has_side_work()) &&
                   "something must be under way");
            if (!is_computing()) account_idle();
            if (has_side_work()) std::this_thread::yield();  // other threads may need this core
            if (asked % 1024 == 0) check_hang(waiting_since_ns);
            flush();
            launch_ahead();
        }
        failed_ = gpu_->notes().failed();
        now_ = returned_ns_ = elapsed_ns();
        return completed;
    }

    std::span<const float> router_logits() const override { return compute_->router(layer_); }
    // Brought on demand: few policies look at hidden states, and experts on the CPU need the same.
    std::span<const float> router_input() const override {
        uint64_t since_ns = elapsed_ns(), asked = 0;
        return beside_->inputs([&]() {
            if (++asked % 1024 == 0) check_hang(since_ns);
            return !gpu_->notes().failed();
        });
    }
    std::span<const float> next_router_logits() const override {
        if (!options_.limits.predict) return {};
        return compute_->next_router(layer_);
    }
    std::span<const float> logits() const override {
        return {lanes_[0]->buffers.pinned_logits,
                size_t{compute_->outputs()} * options_.source_model->config().vocabulary};
    }

private:
    friend base;
    // Looks at the GPU's words to the host, for each question to the driver. The driver knows of
    // failures.
    static constexpr uint32_t looks_max = 256;
    using base::account;
    using base::accounted_ns;
    using base::busy_;
    using base::cpu_;
    using base::device_;
    using base::failed_;
    using base::layer_;

    explicit gpu_run(const gpu_executor_options &options)
        : base(options.transfers_max, nullptr),
          options_(options),
          moe_layers_(options.source_model->config().moe_layers()),
          experts_count_(options.source_model->config().experts),
          experts_(*options.source_model, options.places, options.host_places) {}

    status prepare() {
        for (uint32_t number = 0; number < options_.places.arenas.size(); ++number)
            if (const status opened = open(number); !opened) return opened;
        lane &first = *lanes_[0];
        compute_ = first.compute.get();
        for (const auto &lane : lanes_)
            lane->reached = !lane->first() && first.gpu->reach(*lane->gpu);
        pinned_bytes_ += experts_.bytes();
        if (const status enough = check_pinned(options_, pinned_bytes_); !enough) return enough;
        if (options_.host_places) {
            auto link = load_link::create(*options_.source_model, /*from_disk=*/true);
            if (!link) return link.failure();
            disk_ = std::move(*link);
        }
        beside_ = std::make_unique<gpu_side_experts<Device>>(
            first, experts_, *options_.source_model, options_.threads);
        if (!experts_.fill([this](uint64_t bytes) { return gpu_->take_pinned(bytes); }) ||
            !beside_->prepare())
            return gpu_->notes().failure();
        // Weights and images were uploaded through the default stream. The other streams do not
        // wait for it.
        for (const auto &lane : lanes_) lane->gpu->finish();
        begin_run();
        return gpu_->notes().failed() ? status(gpu_->notes().failure()) : success();
    }
    // Opens a GPU and its resources, after the check that there is enough.
    status open(uint32_t number) {
        auto opened = Device::create(options_.device + static_cast<int32_t>(number), gpu_);
        if (!opened) return opened.failure();
        lanes_.push_back(std::make_unique<lane>(std::move(*opened), number,
                                                *options_.places.arenas[number], experts_,
                                                number == 0 ? &device_ : nullptr));
        lane &lane = *lanes_.back();
        if (number == 0) gpu_ = lane.gpu.get();
        const forward_limits limits = limits_of(options_, Device::workspace_bytes);
        const gpu_needs needs = needs_of(*options_.source_model, limits, lane.first());
        const gpu_capacity offer{display_name(lane), lane.gpu->free_bytes(), Device::reserved_bytes,
                                 lane.gpu->shared_bytes_max()};
        if (gpu_->notes().failed()) return gpu_->notes().failure();
        if (const status room = check_room(options_, limits, number, needs, offer, experts_); !room)
            return room;
        if (!lane.prepare(*options_.source_model, limits, needs)) return gpu_->notes().failure();
        device_bytes_ += needs.weights_bytes + needs.buffers_bytes + lane.arena_bytes();
        pinned_bytes_ += needs.pinned_bytes;
        return success();
    }
    uint64_t elapsed_ns() const {
        return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                         std::chrono::steady_clock::now() - begun_)
                                         .count());
    }
    // The name in messages.
    std::string display_name(const lane &lane) const {
        if (options_.places.arenas.size() == 1) return lane.gpu->name();
        return format("GPU {}, {},", static_cast<uint32_t>(options_.device) + lane.number,
                      lane.gpu->name());
    }
    bool is_computing() const {
        return std::ranges::any_of(lanes_, [](const auto &lane) { return !lane->batches.empty(); });
    }
    bool is_loading() const {
        return std::ranges::any_of(lanes_, [](const auto &lane) { return !lane->pieces.empty(); });
    }
    // Operations that are not launched.
    bool has_waiting_work() const {
        return std::ranges::any_of(lanes_,
                                   [](const auto &lane) { return !lane->queue.queue.empty(); });
    }
    // Work whose end the GPU does not report.
    bool has_side_work() const { return beside_->busy() || (disk_ && disk_->busy()); }

    // Work at the end of a queue waits for the rest of the layer's work: they share launches.
    void queued(stream &) {
        if (!routed_ || queued_ >= expected_) flush();
    }
    // Launches the work at the front of each queue that can run, in order.
    void flush() {
        for (const auto &lane : lanes_)
            while (!lane->queue.queue.empty() && lane->batches.has_room(3) &&
                   this->ready(lane->queue.queue.front()))
                launch_front(*lane);
        failed_ = gpu_->notes().failed();
    }
    void launch_front(lane &lane) {
        const operation front = lane.queue.queue.front();
        if (front.kind == event_kind::device_expert) return launch_experts(lane);
        lane.queue.pop();
        if (front.kind == event_kind::moved) return launch_move(lane, front);
        if (front.kind == event_kind::hidden_states) return launch_states(lane, front);
        launch_operation(front.kind, front.layer);
    }
    void launch_operation(event_kind kind, uint32_t layer) {
        // A prediction does not include the CPU's experts.
        if (kind != event_kind::prediction) beside_->join();
        batch &launched_batch = lanes_[0]->launch([&](batch &new_batch) {
            if (kind == event_kind::gate)
                compute_->run_attention(layer);
            else if (kind == event_kind::prediction)
                compute_->predict(layer, predict_from_);
            else
                compute_->run_head();
            new_batch.done.push_back({kind, 0, 0, 0});
        });
        launched_batch.ahead = ahead_;
        launched_batch.gate = kind == event_kind::gate;
        // The first attention is awaited to its end, so that its time is known.
        if (kind == event_kind::prediction || (launched_batch.gate && gate_ns_ != 0))
            launched_batch.notification_number = compute_->notification_number();
        // After the event, because the host routes meanwhile.
        if (launched_batch.gate) compute_->run_shared(layer);
    }
    // In the stream of the computations, so after those that read the old place.
    void launch_move(lane &lane, const operation &move) {
        lane.launch([&](batch &new_batch) {
            lane.gpu->copy(lane.row(move.to_row), lane.slot(move.page, 0),
                           experts_.image_bytes(move.page, 0), lane.gpu->compute());
            new_batch.done.push_back({event_kind::moved, move.tag, 0, move.segments});
        });
    }
    // The gate has completed, so its outputs are there.
    void launch_states(lane &lane, const operation &request) {
        lane.launch([&](batch &new_batch) {
            new_batch.done.push_back({event_kind::hidden_states, request.tag, 0, request.segments});
            if (request.segments) return beside_->fetch_outputs(lane);
            beside_->send_inputs(lane);
            lane.compute->begin_experts(compute_->tokens());
            lane.compute->route(chosen_, weights_);
        });
    }
    // Launches all experts at the front that can run. Top segments and whole experts come in one
    // batch. The bottom segments follow, because they add to the outputs of their tops.
    void launch_experts(lane &lane) {
        run_.clear();
        this->gather(lane.queue, run_, [](const operation &) { return true; });
        for (const bool bottom : {false, true}) {
            const auto in_turn = [&](const operation &work) {
                return (work.segments == last_segment) == bottom;
            };
            if (std::ranges::none_of(run_, in_turn)) continue;
            lane.launch([&](batch &new_batch) {
                in_slots_.clear();
                for (const operation &expert : run_) {
                    if (!in_turn(expert)) continue;
                    in_slots_.push_back(
                        {expert.page % experts_count_, experts_.first_row(expert.page, bottom),
                         experts_.rows(expert.page, bottom), lane.slot(expert.page, bottom)});
                    if (!bottom && !lane.first())
                        lane.computed.push_back(expert.page % experts_count_);
                    new_batch.done.push_back(
                        {event_kind::device_expert, expert.tag, 0, expert.segments});
                }
                lane.compute->run_experts(run_.front().layer, in_slots_);
            });
        }
    }

    // Once all experts of a layer are launched and none is left to the CPU, the next part is known.
    // It is launched behind them, so the GPU need not wait until the host has seen their end. Now
    // the host waits instead. Called from wait() alone: by then everything of the layer is queued.
    void launch_ahead() {
        if (!routed_ || ahead_ || queued_ < expected_ || has_waiting_work() ||
            !cpu_.queue.empty() || !lanes_[0]->batches.has_room(3))
            return;
        const bool last = layer_ + 1 == moe_layers_.size();
        ahead_ = true;
        launch_operation(last ? event_kind::head : event_kind::gate, last ? layer_ : layer_ + 1);
    }
    // For a pass that was given up.
    void discard_ahead() {
        for (batch &batch : lanes_[0]->batches.values())
            if (ahead_ && batch.ahead) batch.done.clear();
        early_.clear();
        ahead_ = false;
    }
    // The requested part has been launched before. From now on its end is handed out.
    bool adopt_ahead() {
        routed_ = false;
        if (!ahead_) return false;
        ahead_ = false;
        for (batch &batch : lanes_[0]->batches.values()) batch.ahead = false;
        for (const completion &completed : early_) done_.push() = completed;
        early_.clear();
        return true;
    }

    bool poll(completion &completed) {
        for (const auto &lane : lanes_)
            if (poll_h2d(*lane, completed)) return true;
        if (poll_disk(completed)) return true;
        beside_->poll([&](uint32_t tag, uint64_t duration_ns) {
            busy_.cpu += duration_ns;
            done_.push() = {event_kind::cpu_expert, tag, duration_ns, MOORAGE_WHOLE};
            cpu_.pop();
        });
        for (size_t i = 0; i < lanes_.size() && done_.empty(); ++i) poll_batch(*lanes_[i]);
        if (done_.empty()) return false;
        completed = done_.front();
        done_.pop();
        return true;
    }
    bool poll_h2d(lane &lane, completion &completed) {
        if (lane.pieces.empty() || !lane.pieces.front().events.end.passed()) return false;
        this->end_piece(h2d_of(lane.number), lane.pieces.front().events.ns(), completed);
        lane.busy.h2d += completed.duration_ns;
        lane.pieces.pop();
        return true;
    }
    bool poll_disk(completion &completed) {
        if (!disk_ || !disk_->try_finish()) return false;
        if (!disk_->failure().empty()) gpu_->notes().note(disk_->failure());
        this->end_piece(link_disk, disk_->duration_ns(), completed);
        return true;
    }
    // Hands out the results of the oldest batch. Scores that the host has been told of are there
    // before the batch has ended. They go with the duration of the attention before, which is good
    // enough for learning.
    void poll_batch(lane &lane) {
        if (lane.batches.empty()) return;
        batch &oldest = lane.batches.front();
        if (oldest.notification_number != 0) {
            const bool arrived = compute_->has_arrived(oldest.notification_number);
            if (!arrived && ++polls_ % looks_max != 0) return;
            if (arrived) {
                oldest.notification_number = 0;
                return hand_out(oldest, gate_ns_);
            }
        }
        if (!oldest.events.end.passed()) return;
        const uint64_t duration_ns = oldest.events.ns();
        account_batch(duration_ns);
        if (oldest.done.empty() || oldest.done.front().kind != event_kind::hidden_states) {
            busy_.gpu += duration_ns;
            lane.busy.gpu += duration_ns;
        }
        if (oldest.gate) gate_ns_ = duration_ns;
        hand_out(oldest, duration_ns);
        lane.batches.pop();
    }
    void hand_out(batch &batch, uint64_t duration_ns) {
        for (completion &completed : batch.done) {
            completed.duration_ns = duration_ns / batch.done.size();
            (batch.ahead ? early_.emplace_back() : done_.push()) = completed;
        }
        batch.done.clear();
    }
    // Ends the run if the GPU has completed nothing for longer than the limit. The CPU's experts
    // and the disk may take their time.
    void check_hang(uint64_t &waiting_since_ns) const {
        const uint64_t now_ns = elapsed_ns();
        if (has_side_work()) waiting_since_ns = now_ns;
        const double waited_s = static_cast<double>(now_ns - waiting_since_ns) / 1e9;
        if (waited_s <= options_.patience_s) return;
        const auto hangs = std::ranges::find_if(lanes_, [](const auto &candidate) {
            return !candidate->batches.empty() || !candidate->pieces.empty();
        });
        const lane &hanging_lane = hangs == lanes_.end() ? *lanes_[0] : **hangs;
        for (const auto &lane : lanes_)
            lane->gpu->abandon(format(
                "{} has completed nothing for {:.0f} s while {} batches of launches and {} copies "
                "were under way; it hangs, or another program holds it (nvidia-smi shows)",
                display_name(hanging_lane), waited_s, hanging_lane.batches.size(),
                hanging_lane.pieces.size()));
    }

    // Accounts the time until now. While the GPU has work, the host's work is beside it.
    void settle() {
        host_ns_ = decided_ns_ = 0;
        account(is_computing() ? cause::compute : cause::host, now_);
    }
    // Neither the GPU nor the host has anything under way.
    void account_idle() {
        const uint64_t now_ns = elapsed_ns();
        if (has_waiting_work()) busy_.stall += now_ns - accounted_ns();
        for (const auto &lane : lanes_)
            if (!lane->queue.queue.empty()) lane->busy.stall += now_ns - accounted_ns();
        account(this->waits_for(has_waiting_work(), is_loading()), now_ns);
    }
    // A batch that took the GPU so long has been seen to end. The time before it counts as host
    // time, as far as the host had other work. The rest counts as launching and noticing.
    void account_batch(uint64_t duration_ns) {
        const uint64_t now_ns = elapsed_ns(), since_ns = now_ns - accounted_ns();
        const uint64_t computed_ns = std::min(duration_ns, since_ns);
        const uint64_t host_ns = std::min(since_ns - computed_ns, host_ns_);
        const uint64_t launching_ns = accounted_ns() + host_ns;
        this->account_policies(decided_ns_, launching_ns);
        account(cause::host, launching_ns);
        account(cause::launch, now_ns - computed_ns);
        account(cause::compute, now_ns);
        host_ns_ = decided_ns_ = 0;
    }

    const gpu_executor_options options_;
    const std::vector<uint32_t> moe_layers_;
    const uint32_t experts_count_;
    pinned_experts experts_;
    std::vector<std::unique_ptr<lane>> lanes_;  // of each GPU
    Device *gpu_ = nullptr;                     // of the first GPU
    forward<Device> *compute_ = nullptr;        // the same
    uint64_t device_bytes_ = 0, pinned_bytes_ = 0;
    std::unique_ptr<gpu_side_experts<Device>> beside_;
    std::unique_ptr<load_link> disk_;  // null: host memory holds everything

    std::chrono::steady_clock::time_point begun_;
    // now_: time as policies see it. returned_ns_: when wait() returned. host_ns_: the host's work
    // while the GPU had work.
    uint64_t now_ = 0, returned_ns_ = 0, host_ns_ = 0, decided_ns_ = 0;
    ring<completion> done_;                 // not yet handed out
    std::vector<operation> run_;            // scratch of launch_experts()
    std::vector<expert_in_slot> in_slots_;  // the same
    uint32_t expected_ = 0, queued_ = 0;    // experts of the layer, once it is routed
    bool routed_ = false;                   // they may be queued
    bool ahead_ = false;             // the part after the layer is launched, but not yet asked for
    std::vector<completion> early_;  // completions of that part, if it has ended
    uint64_t gate_ns_ = 0;           // duration of the last attention that has ended; 0: none has
    uint32_t polls_ = 0;             // looks at the host's word since the last event was asked
    std::vector<uint32_t> chosen_;   // choices of the layer, once it is routed
    std::vector<float> weights_;     // weights of these choices
    std::vector<uint32_t> predict_from_;  // experts of the queued prediction
};

// The GPU memory that such a run leaves for expert slots, in bytes.
template <class Device>
result<uint64_t> room_for_experts(const gpu_executor_options &options) {
    auto opened = Device::create(options.device);
    if (!opened) return opened.failure();
    const gpu_needs needs =
        needs_of(*options.source_model, limits_of(options, Device::workspace_bytes));
    const uint64_t fixed = needs.weights_bytes + needs.buffers_bytes + Device::reserved_bytes;
    const uint64_t free_bytes = (*opened)->free_bytes();
    if ((*opened)->notes().failed()) return (*opened)->notes().failure();
    return free_bytes - std::min(free_bytes, fixed);
}

}  // namespace moorage::core::gpu
