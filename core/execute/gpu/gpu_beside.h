// gpu_beside.h - experts that the CPU computes while the GPU works: their inputs come down and
// their outputs go up on a stream of their own.
#pragma once

#include <vector>

#include "core/execute/gpu/cpu_experts.h"
#include "core/execute/gpu/forward.h"

namespace moorage::core::gpu {

template <class Device>
class gpu_beside {
public:
    // Borrowed.
    gpu_beside(Device &gpu, forward<Device> &compute, const forward_buffers &buffers,
               const pinned_experts &experts, const model &of, uint32_t threads)
        : gpu_(gpu),
          compute_(compute),
          b_(buffers),
          hidden_(of.config().hidden),
          helper_(of, experts, threads) {}
    // Once, before what follows; false: a call has failed.
    bool prepare() { return inputs_ready_.make(gpu_) && outputs_ready_.make(gpu_); }

    bool busy() const { return helper_.busy(); }
    // A layer has been routed.
    void begin_layer() { inputs_copied_ = false; }
    // Requires: the gate has completed, so that the inputs are there.
    void add(uint32_t page, uint32_t expert, uint32_t tag) {
        if (!inputs_copied_) {
            inputs_copied_ = true;
            gpu_.copy(b_.pinned_inputs, b_.moe_input, compute_.tokens() * hidden_ * sizeof(float),
                      gpu_.side());
            inputs_ready_.record(gpu_.side());
        }
        float *output = b_.pinned_outputs + compute_.assignment_first(expert) * hidden_;
        tasks_.push_back({page, tag, compute_.assignment_tokens(expert), output});
    }
    // Sends up what is computed, of which it tells ended(tag, ns), and starts what has been added
    // since once its inputs are on the host.
    template <class Ended>
    void poll(Ended &&ended) {
        if (helper_.done()) {
            for (const cpu_task &task : helper_.tasks()) {
                gpu_.copy(b_.expert_outputs + (task.output - b_.pinned_outputs), task.output,
                          task.tokens.size() * hidden_ * sizeof(float), gpu_.side());
                ended(task.tag, helper_.duration_ns());
            }
            outputs_ready_.record(gpu_.side());
            outputs_pending_ = true;
        }
        if (tasks_.empty() || helper_.busy() || !inputs_ready_.passed()) return;
        helper_.start(tasks_, b_.pinned_inputs);
        tasks_.clear();
    }
    // What the CPU computed is on its way to the GPU: what is launched next waits for it there.
    void join() {
        if (!outputs_pending_) return;
        outputs_pending_ = false;
        outputs_ready_.hold(gpu_.compute());
    }

private:
    Device &gpu_;
    forward<Device> &compute_;
    const forward_buffers &b_;
    const uint64_t hidden_;
    typename Device::event inputs_ready_, outputs_ready_;
    bool inputs_copied_ = false, outputs_pending_ = false;
    std::vector<cpu_task> tasks_;  // not handed over yet
    cpu_experts helper_;
};

}  // namespace moorage::core::gpu
