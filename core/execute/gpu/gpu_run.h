// gpu_run.h - the executor on a GPU: what is launched when, what waits for what, what has ended.
//
// The caller's thread makes every call to the device. Nothing waits for that as a whole: wait()
// asks the events at the end of each batch of launches, each piece of a link and each copy of
// activations in turn. In the decode loop nothing is allocated on the device.
//
// Device: what a GPU's interface has of its own (README.md lists it).
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
    // Opens the device, takes the memory, packs what experts it holds.
    static result<gpu_machine> create(const gpu_executor_options &options) {
        if (const status checked = check_model(*options.of, Device::executor_name); !checked)
            return checked.failure();
        std::unique_ptr<gpu_run> run(new gpu_run(options));
        if (const status prepared = run->prepare(); !prepared) return prepared.failure();
        gpu_machine made;
        made.results = run.get();
        made.device = run->gpu_->name();
        made.device_bytes =
            run->needs_.weights_bytes + run->needs_.buffers_bytes + run->first_->arena_bytes();
        made.pinned_bytes = run->needs_.pinned_bytes + run->experts_.bytes();
        made.where = std::move(run);
        return made;
    }
    ~gpu_run() override {
        beside_.reset();           // it reads pinned memory
        disk_.reset();             // and this writes there
        if (gpu_) gpu_->finish();  // a run that failed leaves work behind
    }

    const uint64_t *clock() const override { return &now_; }
    bool virtual_time() const override { return false; }
    bool unified_memory() const override { return false; }
    std::string failure() const override { return gpu_->notes().text(); }

    void begin(const pass &tokens) override {
        now_ = elapsed_ns();
        leave_ahead();
        routed_ = false;
        compute_->begin(tokens);
        failed_ = gpu_->notes().failed();
    }
    void attention(uint32_t layer, const pass &tokens) override {
        now_ = elapsed_ns();
        layer_ = layer;
        if (!adopt()) base::attention(layer, tokens);
    }
    void head(uint32_t tokens) override {
        if (!adopt()) base::head(tokens);
    }
    bool predicts() const override { return options_.limits.predict; }
    void predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) override {
        predict_from_.assign(experts.begin(), experts.end());
        base::predict(layer, tokens, experts);
    }
    void route(std::span<const uint32_t> chosen, std::span<const float> weights) override {
        if (weights.empty()) {
            equal_weights_.assign(chosen.size(),
                                  1.0f / static_cast<float>(options_.of->config().top_k));
            weights = equal_weights_;
        }
        compute_->route(chosen, weights);
        expected_ = queued_ = 0;
        routed_ = true;
        for (uint32_t e = 0; e < experts_count_; ++e)
            expected_ += compute_->assignment_count(e) != 0;
        beside_->begin_layer();
        failed_ = gpu_->notes().failed();
    }
    // One that waits for its weights holds nothing back that does not.
    void expert_on_gpu(const expert_work &work) override {
        if (work.transfer != MOORAGE_NONE) flush();
        queued_ += work.segments != MOORAGE_TOP || !options_.places->split(layer_);
        base::expert_on_gpu(work);
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
        // The other way nothing is brought: experts are on the host, too.
        if (piece.link != link_h2d) return this->end_piece(piece.link, 0, done_.push());
        first_->send(piece, piece.page / experts_count_ == layer_);
        failed_ = gpu_->notes().failed();
    }
    uint32_t pieces_at_once(uint32_t link) const override {
        return link == link_h2d ? lane::pieces_max : 1;
    }

    completion wait() override {
        uint64_t waiting_since_ns = elapsed_ns();
        if (first_->batches.empty())
            account(cause::host, waiting_since_ns);
        else
            host_ns_ += waiting_since_ns - std::max(returned_ns_, accounted_ns());
        flush();
        run_ahead();
        completion out{event_kind::head, 0, 0, 0};
        for (uint32_t asked = 1; !gpu_->notes().failed() && !poll(out); ++asked) {
            assert((!first_->batches.empty() || !first_->pieces.empty() || !cpu_.queue.empty() ||
                    others_work()) &&
                   "something must be under way");
            if (first_->batches.empty()) account_idle();
            if (others_work()) std::this_thread::yield();  // they may need this core
            if (asked % 1024 == 0) watch(waiting_since_ns);
            flush();
            run_ahead();
        }
        failed_ = gpu_->notes().failed();
        now_ = returned_ns_ = elapsed_ns();
        return out;
    }

    std::span<const float> router_logits() const override { return compute_->router(layer_); }
    std::span<const float> next_router_logits() const override {
        if (!options_.limits.predict) return {};
        return compute_->next_router(layer_);
    }
    std::span<const float> logits() const override {
        return {buffers_.pinned_logits,
                size_t{compute_->outputs()} * options_.of->config().vocabulary};
    }

private:
    friend base;
    // Looks at what the GPU tells the host for a question to the driver, which knows of failures.
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
          moe_layers_(options.of->config().moe_layers()),
          experts_count_(options.of->config().experts),
          experts_(*options.of, *options.places, options.host_places) {}

    status prepare() {
        auto opened = Device::create(options_.device);
        if (!opened) return opened.failure();
        first_ = std::make_unique<lane>(std::move(*opened), *options_.places, experts_);
        gpu_ = first_->gpu.get();
        const model &of = *options_.of;
        const forward_limits limits = limits_of(options_, Device::workspace_bytes);
        needs_ = needs_of(of, limits);
        const gpu_offer offer{gpu_->name(), gpu_->free_bytes(), Device::reserved_bytes,
                              gpu_->shared_bytes_max()};
        if (gpu_->notes().failed()) return gpu_->notes().failure();
        if (const status room = check_room(options_, limits, needs_, offer, experts_); !room)
            return room;
        if (options_.host_places) {
            auto link = load_link::create(of, /*from_disk=*/true);
            if (!link) return link.failure();
            disk_ = std::move(*link);
        }
        memory_plan weights(gpu_->take_memory(needs_.weights_bytes));
        memory_plan buffers(gpu_->take_memory(needs_.buffers_bytes));
        memory_plan pinned(gpu_->take_pinned(needs_.pinned_bytes, /*written=*/true));
        if (!first_->prepare() || gpu_->notes().failed()) return gpu_->notes().failure();
        weights_ = weights_loader(*gpu_, weights).load(of.weights(), of.config().expert_bias);
        buffers_ = lay_out(of.config(), limits, buffers, pinned);
        gpu_->use_scratch(buffers_.high, buffers_.low, buffers_.workspace);
        compute_ = std::make_unique<forward<Device>>(*gpu_, of, weights_, buffers_, limits);
        beside_ = std::make_unique<gpu_beside<Device>>(*gpu_, *compute_, buffers_, experts_, of,
                                                       options_.threads);
        if (!experts_.fill([this](uint64_t bytes) { return gpu_->take_pinned(bytes); }) ||
            !beside_->prepare())
            return gpu_->notes().failure();
        // Weights and images went up through the default stream, which the others do not wait for.
        gpu_->finish();
        begun_ = std::chrono::steady_clock::now();
        return gpu_->notes().failed() ? status(gpu_->notes().failure()) : success();
    }
    uint64_t elapsed_ns() const {
        return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                         std::chrono::steady_clock::now() - begun_)
                                         .count());
    }
    // Whose ends the GPU does not tell.
    bool others_work() const { return beside_->busy() || (disk_ && disk_->busy()); }

    // What stands at the end of a queue waits for the rest of the layer's: they share launches.
    void queued(stream &) {
        if (!routed_ || queued_ >= expected_) flush();
    }
    // Launches from the front of the queue what can run, in order.
    void flush() {
        while (!device_.queue.empty() && first_->batches.has_room(3) &&
               this->ready(device_.queue.front())) {
            const operation front = device_.queue.front();
            if (front.kind == event_kind::gpu_expert) {
                launch_experts();
                continue;
            }
            device_.pop();
            front.kind == event_kind::moved ? launch_move(front)
                                            : launch_part(front.kind, front.layer);
        }
        failed_ = gpu_->notes().failed();
    }
    void launch_part(event_kind kind, uint32_t layer) {
        // A prediction is without the CPU's experts.
        if (kind != event_kind::prediction) beside_->join();
        batch &own = first_->launch([&](batch &into) {
            if (kind == event_kind::gate)
                compute_->attention(layer);
            else if (kind == event_kind::prediction)
                compute_->predict(layer, predict_from_);
            else
                compute_->head();
            into.done.push_back({kind, 0, 0, 0});
        });
        own.ahead = ahead_;
        own.gate = kind == event_kind::gate;
        // The first attention is waited for to its end, so that there is a time to tell.
        if (kind == event_kind::prediction || (own.gate && gate_ns_ != 0))
            own.telling = compute_->telling();
        // After the event: the host routes meanwhile.
        if (own.gate) compute_->shared(layer);
    }
    // Within the stream of the computations, so after those that read the old place.
    void launch_move(const operation &move) {
        first_->launch([&](batch &into) {
            gpu_->copy(first_->row(move.to_row), first_->slot(move.page, 0),
                       experts_.image_bytes(move.page, 0), gpu_->compute());
            into.done.push_back({event_kind::moved, move.tag, 0, move.segments});
        });
    }
    // All experts at the front that can run: top segments and whole experts in one batch, then the
    // bottom segments, which add to what their tops put out.
    void launch_experts() {
        run_.clear();
        this->gather(device_, run_, [](const operation &) { return true; });
        for (const bool bottom : {false, true}) {
            const auto in_turn = [&](const operation &one) {
                return (one.segments == MOORAGE_BOTTOM) == bottom;
            };
            if (std::ranges::none_of(run_, in_turn)) continue;
            first_->launch([&](batch &into) {
                in_slots_.clear();
                for (const operation &one : run_) {
                    if (!in_turn(one)) continue;
                    in_slots_.push_back(
                        {one.page % experts_count_, experts_.first_row(one.page, bottom),
                         experts_.rows(one.page, bottom), first_->slot(one.page, bottom)});
                    into.done.push_back({event_kind::gpu_expert, one.tag, 0, one.segments});
                }
                compute_->experts(run_.front().layer, in_slots_);
            });
        }
    }

    // Once all experts of a layer are launched, and nothing of it is left to the CPU, what comes
    // next is known: it is launched behind them, so that the GPU need not wait for the host to see
    // their end. It is the host that waits to be asked. From wait() alone: by then all of the layer
    // is queued.
    void run_ahead() {
        if (!routed_ || ahead_ || queued_ < expected_ || !device_.queue.empty() ||
            !cpu_.queue.empty() || !first_->batches.has_room(3))
            return;
        const bool last = layer_ + 1 == moe_layers_.size();
        ahead_ = true;
        launch_part(last ? event_kind::head : event_kind::gate, last ? layer_ : layer_ + 1);
    }
    // Of a pass that was given up.
    void leave_ahead() {
        for (batch &one : first_->batches.all())
            if (ahead_ && one.ahead) one.done.clear();
        early_.clear();
        ahead_ = false;
    }
    // What is asked for now has been launched before; its end is handed out from now on.
    bool adopt() {
        routed_ = false;
        if (!ahead_) return false;
        ahead_ = false;
        for (batch &one : first_->batches.all()) one.ahead = false;
        for (const completion &one : early_) done_.push() = one;
        early_.clear();
        return true;
    }

    bool poll(completion &out) {
        if (poll_h2d(out) || poll_disk(out)) return true;
        beside_->poll([&](uint32_t tag, uint64_t duration_ns) {
            busy_.cpu += duration_ns;
            done_.push() = {event_kind::cpu_expert, tag, duration_ns, MOORAGE_WHOLE};
            cpu_.pop();
        });
        if (done_.empty()) poll_batch();
        if (done_.empty()) return false;
        out = done_.front();
        done_.pop();
        return true;
    }
    bool poll_h2d(completion &out) {
        auto &pieces = first_->pieces;
        if (pieces.empty() || !pieces.front().events.end.passed()) return false;
        this->end_piece(link_h2d, pieces.front().events.ns(), out);
        pieces.pop();
        return true;
    }
    bool poll_disk(completion &out) {
        if (!disk_ || !disk_->ended()) return false;
        if (!disk_->failure().empty()) gpu_->notes().note(disk_->failure());
        this->end_piece(link_disk, disk_->duration_ns(), out);
        return true;
    }
    // Hands out what the oldest batch computed. Scores that the host has been told of are there
    // before the batch has ended: they go with the time of the attention before, which what is
    // learnt from them can do with.
    void poll_batch() {
        if (first_->batches.empty()) return;
        batch &oldest = first_->batches.front();
        if (oldest.telling != 0) {
            const bool told = compute_->told(oldest.telling);
            if (!told && ++looked_ % looks_max != 0) return;
            if (told) {
                oldest.telling = 0;
                return hand_out(oldest, gate_ns_);
            }
        }
        if (!oldest.events.end.passed()) return;
        const uint64_t duration_ns = oldest.events.ns();
        account_batch(duration_ns);
        busy_.gpu += duration_ns;
        if (oldest.gate) gate_ns_ = duration_ns;
        hand_out(oldest, duration_ns);
        first_->batches.pop();
    }
    void hand_out(batch &of, uint64_t duration_ns) {
        for (completion &one : of.done) {
            one.duration_ns = duration_ns / of.done.size();
            (of.ahead ? early_.emplace_back() : done_.push()) = one;
        }
        of.done.clear();
    }
    // Ends the run when the GPU has completed nothing for longer than anybody waits. The CPU's
    // experts and the disk may take their time.
    void watch(uint64_t &waiting_since_ns) {
        const uint64_t now_ns = elapsed_ns();
        if (others_work()) waiting_since_ns = now_ns;
        const double waited_s = static_cast<double>(now_ns - waiting_since_ns) / 1e9;
        if (waited_s <= options_.patience_s) return;
        gpu_->abandon(format(
            "{} has completed nothing for {:.0f} s while {} batches of launches and {} copies were "
            "under way; it hangs, or another program holds it (nvidia-smi shows)",
            gpu_->name(), waited_s, first_->batches.size(), first_->pieces.size()));
    }

    // Until now: while the GPU has work the host's is beside it.
    void settle() {
        host_ns_ = 0;
        account(first_->batches.empty() ? cause::host : cause::compute, now_);
    }
    // The GPU has nothing under way, and neither has the host.
    void account_idle() {
        const uint64_t now_ns = elapsed_ns();
        if (!device_.queue.empty()) busy_.stall += now_ns - accounted_ns();
        account(this->waits_for(), now_ns);
    }
    // A batch that took the GPU so long has been seen to end. What came before it was the host's,
    // as far as that had something else to do, else launches and their notice.
    void account_batch(uint64_t duration_ns) {
        const uint64_t now_ns = elapsed_ns(), since_ns = now_ns - accounted_ns();
        const uint64_t computed_ns = std::min(duration_ns, since_ns);
        account(cause::host, accounted_ns() + std::min(since_ns - computed_ns, host_ns_));
        account(cause::launch, now_ns - computed_ns);
        account(cause::compute, now_ns);
        host_ns_ = 0;
    }

    const gpu_executor_options options_;
    const std::vector<uint32_t> moe_layers_;
    const uint32_t experts_count_;
    pinned_experts experts_;
    std::unique_ptr<lane> first_;
    Device *gpu_ = nullptr;  // its
    gpu_needs needs_;
    device_weights weights_;
    forward_buffers buffers_;
    std::unique_ptr<forward<Device>> compute_;
    std::unique_ptr<gpu_beside<Device>> beside_;
    std::unique_ptr<load_link> disk_;  // null: host memory holds everything

    std::chrono::steady_clock::time_point begun_;
    // Time as policies see it; when wait() returned; and what the host did while the GPU had work.
    uint64_t now_ = 0, returned_ns_ = 0, host_ns_ = 0;
    ring<completion> done_;                 // not handed out yet
    std::vector<operation> run_;            // scratch of launch_experts()
    std::vector<expert_in_slot> in_slots_;  // the same
    uint32_t expected_ = 0, queued_ = 0;    // experts of the layer, once it is routed
    bool routed_ = false;                   // they may be queued
    bool ahead_ = false;                // what comes after the layer is launched, not yet asked for
    std::vector<completion> early_;     // of that, if it has ended
    uint64_t gate_ns_ = 0;              // of the last attention that has ended; 0: none has
    uint32_t looked_ = 0;               // for what is told, since an event was asked for
    std::vector<float> equal_weights_;  // where the source has none
    std::vector<uint32_t> predict_from_;  // of the prediction that is queued
};

// What a GPU has left for expert slots beside everything else of such a run, in bytes.
template <class Device>
result<uint64_t> room_for_experts(const gpu_executor_options &options) {
    auto opened = Device::create(options.device);
    if (!opened) return opened.failure();
    const gpu_needs needs = needs_of(*options.of, limits_of(options, Device::workspace_bytes));
    const uint64_t fixed = needs.weights_bytes + needs.buffers_bytes + Device::reserved_bytes;
    const uint64_t free_bytes = (*opened)->free_bytes();
    if ((*opened)->notes().failed()) return (*opened)->notes().failure();
    return free_bytes - std::min(free_bytes, fixed);
}

}  // namespace moorage::core::gpu
