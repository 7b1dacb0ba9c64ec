// gpu_beside.h - experts that the CPU or another GPU computes while the first GPU works. Moves
// their inputs there and their outputs back, on a stream of its own.
#pragma once

#include <algorithm>
#include <vector>

#include "core/execute/gpu/cpu_experts.h"
#include "core/execute/gpu/forward.h"
#include "core/execute/gpu/gpu_lane.h"

namespace moorage::core::gpu {

template <class Device>
class gpu_side_experts {
public:
    // Borrowed.
    gpu_side_experts(const gpu_lane<Device> &first, const pinned_experts &experts,
                     const model &model, uint32_t threads)
        : gpu_(*first.gpu),
          forward_(*first.compute),
          buffers_(first.buffers),
          hidden_(model.config().hidden),
          helper_(model, experts, threads) {}
    // Call once, before the functions below. False: a call has failed.
    bool prepare() { return inputs_ready_.make(gpu_) && outputs_ready_.make(gpu_); }

    bool busy() const { return helper_.busy(); }
    // A layer begins.
    void begin_layer() { inputs_copied_ = false; }
    // The inputs of the layer's experts, [tokens, hidden] on the host. Asks `waits` until they are
    // there. Returns nothing once `waits` says no. Requires: as add().
    template <class Waits>
    std::span<const float> inputs(Waits &&waits) {
        bring_inputs();
        while (!inputs_ready_.passed())
            if (!waits()) return {};
        return {buffers_.pinned_inputs, forward_.tokens() * hidden_};
    }
    // Requires: the gate has completed, so that the inputs are there.
    void add(uint32_t page, uint32_t expert, uint32_t tag) {
        bring_inputs();
        float *output = buffers_.pinned_outputs + forward_.assignment_first(expert) * hidden_;
        tasks_.push_back({page, tag, forward_.assignment_tokens(expert), output});
    }
    // Sends computed outputs to the GPU, and calls ended(tag, ns) for each. Starts the experts
    // added since, once their inputs are on the host.
    template <class Ended>
    void poll(Ended &&ended) {
        if (helper_.done()) {
            for (const cpu_task &task : helper_.tasks()) {
                gpu_.copy(buffers_.expert_outputs + (task.output - buffers_.pinned_outputs),
                          task.output, task.tokens.size() * hidden_ * sizeof(float), gpu_.side());
                ended(task.tag, helper_.duration_ns());
            }
            outputs_ready_.record(gpu_.side());
            outputs_pending_ = true;
        }
        if (tasks_.empty() || helper_.busy() || !inputs_ready_.passed()) return;
        helper_.start(tasks_, buffers_.pinned_inputs);
        tasks_.clear();
    }
    // Sends hidden states to a device beyond the first, from the first device's memory or through
    // the host's. Requires: as add().
    void send_inputs(gpu_lane<Device> &lane) {
        if (!lane.reached) {
            bring_inputs();
            inputs_ready_.hold(lane.gpu->compute());
        }
        lane.gpu->copy(lane.buffers.moe_input,
                       lane.reached ? buffers_.moe_input : buffers_.pinned_inputs, inputs_bytes(),
                       lane.gpu->compute());
    }
    // Brings the outputs of the other device to the place where the first device would have put
    // them. One copy for each run of experts that lie side by side.
    void fetch_outputs(gpu_lane<Device> &lane) {
        const auto stream = lane.gpu->compute();
        std::ranges::sort(lane.computed);
        float *const target = lane.reached ? buffers_.expert_outputs : buffers_.pinned_outputs;
        for_each_run(lane.computed, [&](uint64_t first, uint64_t count) {
            lane.gpu->copy(target + first, lane.buffers.expert_outputs + first,
                           count * sizeof(float), stream);
        });
        lane.returned.record(stream);
        lane.returned.hold(gpu_.side());
        if (!lane.reached)
            for_each_run(lane.computed, [&](uint64_t first, uint64_t count) {
                gpu_.copy(buffers_.expert_outputs + first, target + first, count * sizeof(float),
                          gpu_.side());
            });
        lane.computed.clear();
        outputs_ready_.record(gpu_.side());
        outputs_pending_ = true;
    }
    // The outputs of other devices are on their way to the GPU. Later launches wait for them there.
    void join() {
        if (!outputs_pending_) return;
        outputs_pending_ = false;
        outputs_ready_.hold(gpu_.compute());
    }

private:
    uint64_t inputs_bytes() const { return forward_.tokens() * hidden_ * sizeof(float); }
    void bring_inputs() {
        if (inputs_copied_) return;
        inputs_copied_ = true;
        gpu_.copy(buffers_.pinned_inputs, buffers_.moe_input, inputs_bytes(), gpu_.side());
        inputs_ready_.record(gpu_.side());
    }
    // Places and counts of the runs of outputs, in values.
    template <class Visit>
    void for_each_run(std::span<const uint32_t> experts, Visit &&visit) const {
        for (size_t i = 0; i < experts.size();) {
            const uint32_t first = forward_.assignment_first(experts[i]);
            uint32_t end = first;
            for (; i < experts.size() && forward_.assignment_first(experts[i]) == end; ++i)
                end += forward_.assignment_count(experts[i]);
            visit(first * hidden_, (end - first) * hidden_);
        }
    }

    Device &gpu_;
    forward<Device> &forward_;
    const forward_buffers &buffers_;
    const uint64_t hidden_;
    typename Device::event inputs_ready_, outputs_ready_;
    bool inputs_copied_ = false, outputs_pending_ = false;
    std::vector<cpu_task> tasks_;  // not handed over yet
    cpu_experts helper_;
};

}  // namespace moorage::core::gpu
