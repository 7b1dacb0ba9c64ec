// cuda_run.cpp - launches what can run, hands out what has ended, and says what time went to.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cuda_run.h"

#include <algorithm>
#include <cassert>
#include <thread>

#include "core/base/text.h"

namespace moorage::core::cuda {

// Looks at what the GPU tells the host for a question to the driver, which knows of failures.
static constexpr uint32_t looks_max = 256;

uint64_t cuda_run::elapsed_ns() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now() - begun_)
                                     .count());
}

cuda_run::~cuda_run() {
    helper_.reset();           // it reads pinned memory
    disk_.reset();             // and this writes there
    if (gpu_) gpu_->finish();  // a run that failed leaves work behind
}

std::byte *cuda_run::slot_address(uint32_t page, uint32_t segment) const {
    const uint64_t row = options_.places->row_of(page, segment == 0 ? MOORAGE_TOP : MOORAGE_BOTTOM);
    assert(row != MOORAGE_NEVER);
    return slots_ + row * experts_.row_bytes();
}

void cuda_run::begin(const pass &tokens) {
    now_ = elapsed_ns();
    leave_ahead();
    routed_ = false;
    compute_->begin(tokens);
    failed_ = gpu_->notes().failed();
}

void cuda_run::attention(uint32_t layer, const pass &tokens) {
    now_ = elapsed_ns();
    routed_ = false;
    layer_ = layer;
    expected_ = queued_ = 0;
    if (!adopt()) stream_executor::attention(layer, tokens);
}

void cuda_run::head(uint32_t tokens) {
    routed_ = false;
    expected_ = queued_ = 0;
    if (!adopt()) stream_executor::head(tokens);
}

void cuda_run::predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) {
    predict_from_.assign(experts.begin(), experts.end());
    stream_executor::predict(layer, tokens, experts);
}

void cuda_run::divided() {
    if (const status packed = experts_.divide(*gpu_, packing_threads()); !packed) failed_ = true;
}

void cuda_run::route(std::span<const uint32_t> chosen, std::span<const float> weights) {
    if (weights.empty()) {
        equal_weights_.assign(chosen.size(),
                              1.0f / static_cast<float>(options_.of->config().top_k));
        weights = equal_weights_;
    }
    compute_->route(chosen, weights);
    expected_ = queued_ = 0;
    routed_ = true;
    for (uint32_t e = 0; e < experts_count_; ++e) expected_ += compute_->assignment_count(e) != 0;
    inputs_copied_ = false;
    failed_ = gpu_->notes().failed();
}

// One that waits for its weights holds nothing back that does not.
void cuda_run::expert_on_gpu(const expert_work &work) {
    if (work.transfer != MOORAGE_NONE) flush();
    queued_ += work.segments != MOORAGE_TOP || !options_.places->split(layer_);
    stream_executor::expert_on_gpu(work);
}

void cuda_run::expert_on_cpu(const expert_work &work) {
    const uint32_t expert = work.page % experts_count_;
    if (!inputs_copied_) {
        // The gate has completed, so the inputs are there.
        inputs_copied_ = true;
        gpu_->copy(cpu_inputs_, buffers_.moe_input, compute_->tokens() * hidden() * sizeof(float),
                   cudaMemcpyDeviceToHost, gpu_->side());
        inputs_ready_.record(gpu_->side());
    }
    float *output = cpu_outputs_ + compute_->assignment_first(expert) * hidden();
    tasks_.push_back({work.page, work.tag, compute_->assignment_tokens(expert), output});
    ++queued_;
    stream_executor::expert_on_cpu(work);
    failed_ = gpu_->notes().failed();
}

void cuda_run::send(const link_piece &sent) {
    begin_piece(sent.link);
    if (sent.link == link_disk)
        return disk_->send(sent, experts_.rows(sent.page, 0),
                           {experts_.image(sent.page, 0), experts_.image(sent.page, 1)});
    // The other way nothing is brought: experts are on the host, too.
    if (sent.link != link_h2d) return end_piece(sent.link, 0, done_.push());
    assert(piece_count_ < pieces_max);
    sent_piece &own = piece(piece_count_);
    // What the layer under way asks for goes before what later ones will.
    const bool now = sent.page / experts_count_ == layer_;
    own.stream = now ? gpu_->demand() : gpu_->prefetch();
    // The one before may belong to a transfer that was cancelled, and its slot be this one's now.
    if (piece_count_ != 0 && piece(piece_count_ - 1).stream != own.stream)
        piece(piece_count_ - 1).events.end.hold(own.stream);
    own.events.begin.record(own.stream);
    if (sent.page != MOORAGE_NONE) copy_piece(sent, own.stream);
    own.events.end.record(own.stream);
    ++piece_count_;
    failed_ = gpu_->notes().failed();
}

void cuda_run::copy_piece(const link_piece &sent, cudaStream_t stream) {
    const auto parts =
        sent.parts(experts_.image_bytes(sent.page, 0), experts_.image_bytes(sent.page, 1));
    for (uint32_t segment = 0; segment < parts.size(); ++segment) {
        const auto [begin, end] = parts[segment];
        if (begin != end)
            gpu_->copy(slot_address(sent.page, segment) + begin,
                       experts_.image(sent.page, segment) + begin, end - begin,
                       cudaMemcpyHostToDevice, stream);
    }
}

// Until now: while the GPU has work the host's is beside it.
void cuda_run::settle() {
    beside_ns_ = 0;
    account(batch_count_ == 0 ? cause::host : cause::compute, now_);
}

// The GPU has nothing under way, and neither has the host.
void cuda_run::account_idle() {
    const uint64_t now_ns = elapsed_ns();
    if (!device_.queue.empty()) busy_.stall += now_ns - accounted_ns();
    account(waits_for(), now_ns);
}

// A batch that took the GPU so long has been seen to end. What came before it was the host's, as
// far as that had something else to do, else launches and their notice.
void cuda_run::account_batch(uint64_t duration_ns) {
    const uint64_t now_ns = elapsed_ns(), since_ns = now_ns - accounted_ns();
    const uint64_t computed_ns = std::min(duration_ns, since_ns);
    account(cause::host, accounted_ns() + std::min(since_ns - computed_ns, beside_ns_));
    account(cause::launch, now_ns - computed_ns);
    account(cause::compute, now_ns);
    beside_ns_ = 0;
}

// Launches from the front of the queue what can run, in order.
void cuda_run::flush() {
    while (!device_.queue.empty() && batch_count_ + 2 < batches_max &&
           ready(device_.queue.front())) {
        const operation front = device_.queue.front();
        if (front.kind == event_kind::gpu_expert) {
            launch_experts();
            continue;
        }
        device_.pop();
        front.kind == event_kind::moved ? launch_move(front) : launch_part(front.kind, front.layer);
    }
    failed_ = gpu_->notes().failed();
}

template <class Body>
cuda_run::batch &cuda_run::launch(Body &&body) {
    batch &own = batches_[(batch_first_ + batch_count_) % batches_max];
    own.done.clear();
    own.ahead = own.gate = false;
    own.telling = 0;
    own.events.begin.record(gpu_->compute());
    body(own);
    own.events.end.record(gpu_->compute());
    ++batch_count_;
    return own;
}

void cuda_run::launch_part(event_kind kind, uint32_t layer) {
    // A prediction is without the CPU's experts.
    if (kind != event_kind::prediction) join_cpu();
    batch &own = launch([&](batch &into) {
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
void cuda_run::launch_move(const operation &move) {
    launch([&](batch &into) {
        gpu_->copy(slots_ + move.to_row * experts_.row_bytes(), slot_address(move.page, 0),
                   experts_.image_bytes(move.page, 0), cudaMemcpyDeviceToDevice, gpu_->compute());
        into.done.push_back({event_kind::moved, move.tag, 0, move.segments});
    });
}

// All experts at the front that can run: top segments and whole experts in one batch, then the
// bottom segments, which add to what their tops put out.
void cuda_run::launch_experts() {
    run_.clear();
    gather(device_, run_, [](const operation &) { return true; });
    for (const bool bottom : {false, true}) {
        const auto in_turn = [&](const operation &one) {
            return (one.segments == MOORAGE_BOTTOM) == bottom;
        };
        if (std::ranges::none_of(run_, in_turn)) continue;
        launch([&](batch &into) {
            in_slots_.clear();
            for (const operation &one : run_) {
                if (!in_turn(one)) continue;
                in_slots_.push_back(
                    {one.page % experts_count_, experts_.first_row(one.page, bottom),
                     experts_.rows(one.page, bottom), slot_address(one.page, bottom)});
                into.done.push_back({event_kind::gpu_expert, one.tag, 0, one.segments});
            }
            compute_->experts(run_.front().layer, in_slots_);
        });
    }
}

// Once all experts of a layer are launched, and nothing of it is left to the CPU, what comes next
// is known: it is launched behind them, so that the GPU need not wait for the host to see their
// end. It is the host that waits to be asked. From wait() alone: by then all of the layer is
// queued.
void cuda_run::run_ahead() {
    if (!routed_ || ahead_ || queued_ < expected_ || !device_.queue.empty() ||
        !cpu_.queue.empty() || batch_count_ + 2 >= batches_max)
        return;
    const bool last = layer_ + 1 == moe_layers_.size();
    ahead_ = true;
    launch_part(last ? event_kind::head : event_kind::gate, last ? layer_ : layer_ + 1);
}

// Of a pass that was given up.
void cuda_run::leave_ahead() {
    for (batch &one : batches_)
        if (ahead_ && one.ahead) one.done.clear();
    early_.clear();
    ahead_ = false;
}

// What is asked for now has been launched before; its end is handed out from now on.
bool cuda_run::adopt() {
    if (!ahead_) return false;
    ahead_ = false;
    for (batch &one : batches_) one.ahead = false;
    for (const completion &one : early_) done_.push() = one;
    early_.clear();
    return true;
}

// What the CPU computed is on its way to the GPU: the next layer waits for it there.
void cuda_run::join_cpu() {
    if (!outputs_pending_) return;
    outputs_pending_ = false;
    outputs_ready_.hold(gpu_->compute());
}

bool cuda_run::poll_h2d(completion &out) {
    if (piece_count_ == 0 || !piece(0).events.end.passed()) return false;
    end_piece(link_h2d, piece(0).events.ns(), out);
    piece_first_ = (piece_first_ + 1) % pieces_max;
    --piece_count_;
    return true;
}

bool cuda_run::poll_disk(completion &out) {
    if (!disk_ || !disk_->ended()) return false;
    if (!disk_->failure().empty()) gpu_->notes().note(disk_->failure());
    end_piece(link_disk, disk_->duration_ns(), out);
    return true;
}

void cuda_run::hand_out(batch &of, uint64_t duration_ns) {
    for (completion &one : of.done) {
        one.duration_ns = duration_ns / of.done.size();
        (of.ahead ? early_.emplace_back() : done_.push()) = one;
    }
    of.done.clear();
}

// Hands out what the oldest batch computed. Scores that the host has been told of are there before
// the batch has ended: they go with the time of the attention before, which what is learnt from
// them can do with.
void cuda_run::poll_batch() {
    if (batch_count_ == 0) return;
    batch &oldest = batches_[batch_first_];
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
    batch_first_ = (batch_first_ + 1) % batches_max;
    --batch_count_;
}

// Starts queued experts once their inputs are on the host; sends up what is computed.
void cuda_run::poll_cpu() {
    if (helper_->done()) {
        for (const cpu_task &task : helper_->tasks()) {
            gpu_->copy(buffers_.expert_outputs + (task.output - cpu_outputs_), task.output,
                       task.tokens.size() * hidden() * sizeof(float), cudaMemcpyHostToDevice,
                       gpu_->side());
            busy_.cpu += helper_->duration_ns();
            done_.push() = {event_kind::cpu_expert, task.tag, helper_->duration_ns(),
                            MOORAGE_WHOLE};
            cpu_.pop();
        }
        outputs_ready_.record(gpu_->side());
        outputs_pending_ = true;
    }
    if (!tasks_.empty() && !helper_->busy() && inputs_ready_.passed()) {
        helper_->start(tasks_, cpu_inputs_);
        tasks_.clear();
    }
}

bool cuda_run::poll(completion &out) {
    if (poll_h2d(out) || poll_disk(out)) return true;
    poll_cpu();
    if (done_.empty()) poll_batch();
    if (done_.empty()) return false;
    out = done_.front();
    done_.pop();
    return true;
}

// Ends the run when the GPU has completed nothing for longer than anybody waits. The CPU's experts
// and the disk may take their time.
void cuda_run::watch(uint64_t &waiting_since_ns) {
    const uint64_t now_ns = elapsed_ns();
    if (others_work()) waiting_since_ns = now_ns;
    const double waited_s = static_cast<double>(now_ns - waiting_since_ns) / 1e9;
    if (waited_s <= options_.patience_s) return;
    gpu_->abandon(
        format("{} has completed nothing for {:.0f} s while {} batches of launches and {} copies "
               "were under way; it hangs, or another program holds it (nvidia-smi shows)",
               gpu_->name(), waited_s, batch_count_, piece_count_));
}

completion cuda_run::wait() {
    uint64_t waiting_since_ns = elapsed_ns();
    if (batch_count_ == 0)
        account(cause::host, waiting_since_ns);
    else
        beside_ns_ += waiting_since_ns - std::max(returned_ns_, accounted_ns());
    flush();
    run_ahead();
    completion out{event_kind::head, 0, 0, 0};
    for (uint32_t asked = 1; !gpu_->notes().failed() && !poll(out); ++asked) {
        assert((batch_count_ + piece_count_ != 0 || !cpu_.queue.empty() || others_work()) &&
               "something must be under way");
        if (batch_count_ == 0) account_idle();
        if (others_work()) std::this_thread::yield();  // they may need this core
        if (asked % 1024 == 0) watch(waiting_since_ns);
        flush();
        run_ahead();
    }
    failed_ = gpu_->notes().failed();
    now_ = returned_ns_ = elapsed_ns();
    return out;
}

std::span<const float> cuda_run::next_router_logits() const {
    if (!options_.limits.predict) return {};
    return compute_->next_router(layer_);
}

std::span<const float> cuda_run::logits() const {
    return {buffers_.pinned_logits, size_t{compute_->outputs()} * options_.of->config().vocabulary};
}

}  // namespace moorage::core::cuda

#endif
