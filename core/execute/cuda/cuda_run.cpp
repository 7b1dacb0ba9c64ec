// cuda_run.cpp - queues operations, launches what can run, hands out what has ended.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/cuda_run.h"

#include <algorithm>
#include <cassert>
#include <thread>

#include "core/base/text.h"

namespace moorage::core::cuda {

namespace {

constexpr size_t batches_max = 64;  // under way at one time; more wait in the queue

bool is_expert(event_kind kind) { return kind == event_kind::gpu_expert; }

}  // namespace

uint64_t cuda_run::elapsed_ns() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now() - begun_)
                                     .count());
}

bool cuda_run::make_events() {
    const auto make = [&](cudaEvent_t &event) {
        return MOORAGE_CUDA_CHECK(device_->notes(), cudaEventCreate(&event));
    };
    batches_.resize(batches_max);
    for (batch &one : batches_)
        if (!make(one.events.begin) || !make(one.events.end)) return false;
    for (link_state &one : links_)
        if (!make(one.events.begin) || !make(one.events.end)) return false;
    return make(inputs_ready_) && make(outputs_ready_);
}

cuda_run::~cuda_run() {
    cpu_.reset();                    // it reads pinned memory
    if (device_) device_->finish();  // a run that failed leaves work behind
    for (const batch &one : batches_)
        for (const cudaEvent_t event : {one.events.begin, one.events.end})
            if (event) (void)cudaEventDestroy(event);
    for (const link_state &one : links_)
        for (const cudaEvent_t event : {one.events.begin, one.events.end})
            if (event) (void)cudaEventDestroy(event);
    for (const cudaEvent_t event : {inputs_ready_, outputs_ready_})
        if (event) (void)cudaEventDestroy(event);
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
    failed_ = device_->notes().failed();
}

void cuda_run::attention(uint32_t layer, const pass &) {
    now_ = elapsed_ns();
    layer_ = layer;
    routed_ = false;
    if (adopt()) return;
    queue_.push_back({event_kind::gate, {}, layer});
    flush();
}

void cuda_run::head(uint32_t) {
    routed_ = false;
    if (adopt()) return;
    queue_.push_back({event_kind::head, {}, layer_});
    flush();
}

// Once all experts of a layer are launched, and nothing of it is left to the CPU, what comes next
// is known: it is launched behind them, so that the GPU need not wait for the host to see their
// end. It is the host that waits to be asked. From wait() alone: by then all of the layer is
// queued.
void cuda_run::run_ahead() {
    if (!routed_ || ahead_ || queued_ < expected_ || !queue_.empty() || !cpu_queue_.empty() ||
        cpu_->busy() || batch_count_ + 2 >= batches_max)
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
    done_.insert(done_.end(), early_.begin(), early_.end());
    early_.clear();
    return true;
}

void cuda_run::predict(uint32_t layer, const pass &, std::span<const uint32_t> experts) {
    predict_from_.assign(experts.begin(), experts.end());
    queue_.push_back({event_kind::prediction, {}, layer});
    flush();
}

void cuda_run::move_top(const expert_work &work, uint64_t to_row) {
    queue_.push_back({event_kind::moved, work, layer_, to_row});
    flush();
}

void cuda_run::divided() {
    if (const status packed = experts_.divide(*device_, packing_threads()); !packed) failed_ = true;
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
    failed_ = device_->notes().failed();
}

// Launches wait until the layer's last expert is queued, or one that cannot run yet: experts that
// run together share their launches.
void cuda_run::expert_on_gpu(const expert_work &work) {
    queue_.push_back({event_kind::gpu_expert, work, layer_});
    queued_ += work.segments != MOORAGE_TOP || !options_.places->split(layer_);
    if (!ready(queue_.back()) || queued_ >= expected_) flush();
}

void cuda_run::expert_on_cpu(const expert_work &work) {
    ++queued_;
    const uint32_t expert = work.page % experts_count_;
    if (!inputs_copied_) {
        // The gate has completed, so the inputs are there.
        inputs_copied_ = true;
        const uint64_t bytes =
            uint64_t{compute_->tokens()} * options_.of->config().hidden * sizeof(float);
        MOORAGE_CUDA_CHECK(device_->notes(),
                           cudaMemcpyAsync(cpu_inputs_, buffers_.moe_input, bytes,
                                           cudaMemcpyDeviceToHost, device_->side()));
        MOORAGE_CUDA_CHECK(device_->notes(), cudaEventRecord(inputs_ready_, device_->side()));
    }
    float *output =
        cpu_outputs_ + uint64_t{compute_->assignment_first(expert)} * options_.of->config().hidden;
    cpu_queue_.push_back({work.page, work.tag, compute_->assignment_tokens(expert), output, 0});
    if (queued_ >= expected_) flush();
    failed_ = device_->notes().failed();
}

void cuda_run::send(const link_piece &piece) {
    link_state &link = links_[piece.link];
    assert(!link.busy);
    link.busy = true;
    link.nothing = piece.page == MOORAGE_NONE || piece.link != link_h2d;
    if (link.nothing) return;
    // What the layer under way asks for goes before what later ones will.
    const bool now = piece.page / experts_count_ == layer_;
    const cudaStream_t stream = now ? device_->demand() : device_->prefetch();
    MOORAGE_CUDA_CHECK(device_->notes(), cudaEventRecord(link.events.begin, stream));
    copy_piece(piece, stream);
    MOORAGE_CUDA_CHECK(device_->notes(), cudaEventRecord(link.events.end, stream));
    failed_ = device_->notes().failed();
}

// The piece's bytes of the image of the whole transfer: those of the top segment, then the
// bottom's.
void cuda_run::copy_piece(const link_piece &piece, cudaStream_t stream) {
    uint64_t begin = piece.offset_bytes, left = piece.bytes;
    for (uint32_t segment = 0; segment < 2 && left != 0; ++segment) {
        if (!(piece.segments & (segment == 0 ? MOORAGE_TOP : MOORAGE_BOTTOM)) ||
            experts_.rows(piece.page, segment) == 0)
            continue;
        const uint64_t bytes = experts_.image_bytes(piece.page, segment);
        if (begin >= bytes) {
            begin -= bytes;
            continue;
        }
        const uint64_t count = std::min(left, bytes - begin);
        MOORAGE_CUDA_CHECK(device_->notes(),
                           cudaMemcpyAsync(slot_address(piece.page, segment) + begin,
                                           experts_.image(piece.page, segment) + begin, count,
                                           cudaMemcpyHostToDevice, stream));
        left -= count;
        begin = 0;
    }
}

bool cuda_run::ready(const operation &next) const {
    return next.work.transfer == MOORAGE_NONE || arrived_[next.work.transfer];
}

cuda_run::batch &cuda_run::open_batch() {
    batch &out = batches_[(batch_first_ + batch_count_) % batches_max];
    out.done.clear();
    out.ahead = false;
    MOORAGE_CUDA_CHECK(device_->notes(), cudaEventRecord(out.events.begin, device_->compute()));
    return out;
}

void cuda_run::close_batch(batch &of) {
    MOORAGE_CUDA_CHECK(device_->notes(), cudaEventRecord(of.events.end, device_->compute()));
    ++batch_count_;
}

// Launches from the front of the queue what can run, in order.
void cuda_run::flush() {
    while (!queue_.empty() && batch_count_ + 2 < batches_max && ready(queue_.front())) {
        if (stalled_since_ != MOORAGE_NEVER) {
            busy_.stall += elapsed_ns() - stalled_since_;
            stalled_since_ = MOORAGE_NEVER;
        }
        const operation front = queue_.front();
        if (is_expert(front.kind)) {
            launch_experts();
            continue;
        }
        queue_.pop_front();
        if (front.kind == event_kind::moved) {
            launch_move(front);
            continue;
        }
        launch_part(front.kind, front.layer);
    }
    failed_ = device_->notes().failed();
}

void cuda_run::launch_part(event_kind kind, uint32_t layer) {
    // A prediction is without the CPU's experts.
    if (kind != event_kind::prediction) join_cpu();
    batch &own = open_batch();
    own.ahead = ahead_;
    if (kind == event_kind::gate)
        compute_->attention(layer);
    else if (kind == event_kind::prediction)
        compute_->predict(layer, predict_from_);
    else
        compute_->head();
    own.done.push_back({kind, 0, 0, 0});
    close_batch(own);
    // After the event: the host routes meanwhile.
    if (kind == event_kind::gate) compute_->shared(layer);
}

// Within the stream of the computations, so after those that read the old place.
void cuda_run::launch_move(const operation &move) {
    batch &own = open_batch();
    MOORAGE_CUDA_CHECK(
        device_->notes(),
        cudaMemcpyAsync(slots_ + move.to_row * experts_.row_bytes(),
                        slot_address(move.work.page, 0), experts_.image_bytes(move.work.page, 0),
                        cudaMemcpyDeviceToDevice, device_->compute()));
    own.done.push_back({event_kind::moved, move.work.tag, 0, move.work.segments});
    close_batch(own);
}

// All experts at the front that can run: top segments and whole experts in one batch, then the
// bottom segments, which add to what their tops put out.
void cuda_run::launch_experts() {
    run_.clear();
    while (!queue_.empty() && is_expert(queue_.front().kind) && ready(queue_.front())) {
        run_.push_back(queue_.front());
        queue_.pop_front();
    }
    for (const bool bottom : {false, true}) {
        picked_.clear();
        for (const operation &one : run_)
            if ((one.work.segments == MOORAGE_BOTTOM) == bottom) picked_.push_back(one);
        if (!picked_.empty()) launch_batch(run_.front().layer, picked_);
    }
}

void cuda_run::launch_batch(uint32_t layer, std::span<const operation> work) {
    batch &own = open_batch();
    in_slots_.clear();
    for (const operation &one : work) {
        const uint32_t segment = one.work.segments == MOORAGE_BOTTOM ? 1 : 0;
        const uint32_t page = one.work.page;
        in_slots_.push_back({page % experts_count_, experts_.first_row(page, segment),
                             experts_.rows(page, segment), slot_address(page, segment)});
        own.done.push_back({event_kind::gpu_expert, one.work.tag, 0, one.work.segments});
    }
    compute_->experts(layer, in_slots_);
    close_batch(own);
}

// What the CPU computed is on its way to the GPU: the next layer waits for it there.
void cuda_run::join_cpu() {
    if (!outputs_pending_) return;
    outputs_pending_ = false;
    MOORAGE_CUDA_CHECK(device_->notes(),
                       cudaStreamWaitEvent(device_->compute(), outputs_ready_, 0));
}

bool cuda_run::passed(cudaEvent_t event) {
    const cudaError_t code = cudaEventQuery(event);
    if (code == cudaErrorNotReady) return false;
    return device_->notes().check(code, "cudaEventQuery(event)", __FILE__, __LINE__);
}

uint64_t cuda_run::between_ns(const event_pair &events) {
    float milliseconds = 0;
    MOORAGE_CUDA_CHECK(device_->notes(),
                       cudaEventElapsedTime(&milliseconds, events.begin, events.end));
    return static_cast<uint64_t>(static_cast<double>(milliseconds) * 1e6);
}

bool cuda_run::poll_link(uint32_t which, completion &out) {
    link_state &link = links_[which];
    if (!link.busy || (!link.nothing && !passed(link.events.end))) return false;
    link.busy = false;
    const uint64_t duration_ns = link.nothing ? 0 : between_ns(link.events);
    (which == link_h2d ? busy_.h2d : busy_.d2h) += duration_ns;
    out = {event_kind::piece, which, duration_ns, 0};
    return true;
}

// Moves what the oldest batch computed to done_.
bool cuda_run::poll_batch() {
    if (batch_count_ == 0) return false;
    batch &oldest = batches_[batch_first_];
    if (!passed(oldest.events.end)) return false;
    const uint64_t duration_ns = between_ns(oldest.events);
    busy_.gpu += duration_ns;
    for (completion &one : oldest.done) {
        one.duration_ns = duration_ns / oldest.done.size();
        oldest.ahead ? early_.push_back(one) : done_.push_back(one);
    }
    batch_first_ = (batch_first_ + 1) % batches_max;
    --batch_count_;
    return true;
}

// Starts queued experts once their inputs are on the host; sends up what is computed.
void cuda_run::poll_cpu() {
    if (cpu_->done()) {
        const uint64_t hidden = options_.of->config().hidden;
        for (const cpu_task &task : cpu_->tasks()) {
            const auto at = static_cast<uint64_t>(task.output - cpu_outputs_);
            MOORAGE_CUDA_CHECK(device_->notes(),
                               cudaMemcpyAsync(buffers_.expert_outputs + at, task.output,
                                               task.tokens.size() * hidden * sizeof(float),
                                               cudaMemcpyHostToDevice, device_->side()));
            busy_.cpu += task.duration_ns;
            done_.push_back({event_kind::cpu_expert, task.tag, task.duration_ns, MOORAGE_WHOLE});
        }
        MOORAGE_CUDA_CHECK(device_->notes(), cudaEventRecord(outputs_ready_, device_->side()));
        outputs_pending_ = true;
    }
    if (!cpu_queue_.empty() && !cpu_->busy() && passed(inputs_ready_)) {
        cpu_->start(cpu_queue_, cpu_inputs_);
        cpu_queue_.clear();
    }
}

bool cuda_run::poll(completion &out) {
    for (uint32_t which = 0; which < link_count; ++which)
        if (poll_link(which, out)) return true;
    poll_cpu();
    if (done_.empty()) poll_batch();
    if (done_.empty()) return false;
    out = done_.front();
    done_.pop_front();
    return true;
}

// Ends the run when the GPU has completed nothing for longer than anybody waits. What the CPU
// computes may take its time.
void cuda_run::watch(uint64_t &waiting_since_ns) {
    const uint64_t now_ns = elapsed_ns();
    if (cpu_->busy()) waiting_since_ns = now_ns;
    const double waited_s = static_cast<double>(now_ns - waiting_since_ns) / 1e9;
    if (waited_s <= options_.patience_s) return;
    device_->abandon(
        format("{} has completed nothing for {:.0f} s while {} batches of launches and {} copies "
               "were under way; it hangs, or another program holds it (nvidia-smi shows)",
               device_->name(), waited_s, batch_count_,
               std::count_if(std::begin(links_), std::end(links_),
                             [](const link_state &one) { return one.busy; })));
}

completion cuda_run::wait() {
    flush();
    run_ahead();
    completion out{event_kind::head, 0, 0, 0};
    uint64_t waiting_since_ns = elapsed_ns();
    uint32_t asked = 0;
    while (!device_->notes().failed() && !poll(out)) {
        assert((batch_count_ != 0 || links_[link_h2d].busy || links_[link_d2h].busy ||
                !cpu_queue_.empty() || cpu_->busy()) &&
               "something must be under way");
        if (stalled_since_ == MOORAGE_NEVER && batch_count_ == 0 && !queue_.empty())
            stalled_since_ = elapsed_ns();
        // The CPU's experts may need this core.
        if (cpu_->busy()) std::this_thread::yield();
        if (++asked % 1024 == 0) watch(waiting_since_ns);
        flush();
        run_ahead();
    }
    failed_ = device_->notes().failed();
    now_ = elapsed_ns();
    return out;
}

std::span<const float> cuda_run::router_logits() const { return compute_->router(layer_); }

std::span<const float> cuda_run::next_router_logits() const {
    if (!options_.limits.predict) return {};
    return compute_->next_router(layer_);
}

std::span<const float> cuda_run::logits() const {
    return {buffers_.pinned_logits, size_t{compute_->outputs()} * options_.of->config().vocabulary};
}

}  // namespace moorage::core::cuda

#endif
