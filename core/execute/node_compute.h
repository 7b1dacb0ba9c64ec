// node_compute.h - what a node computes with: a home's model, with places for experts that others
// compute, and experts for the rows of other nodes.
//
//   const node_arithmetic &numbers = node_arithmetic_of();      // executor_module.h
//   auto compute = numbers.compute(model, pool, limits);
//   auto executor = numbers.create({.compute = compute->get(), .beside = &caller, ...});
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/result.h"
#include "core/config/arithmetic.h"
#include "core/execute/executor.h"
#include "core/execute/model_compute.h"
#include "core/execute/side_work.h"
#include "core/execute/thread_pool.h"
#include "core/model/model.h"
#include "core/store/arena.h"

namespace moorage::core {

// A model of which others compute some experts.
class node_compute : public model_compute {
public:
    // For experts that somebody else computes, after route(). Their input is [tokens, hidden]. The
    // rows of an expert are numbers of its rows in this input; there are none if nobody chose it.
    // Their outputs go to the given places, in that order, all of them before the next layer
    // begins.
    virtual std::span<const float> expert_input() const = 0;
    virtual std::span<const uint32_t> rows_of(uint32_t expert) const = 0;
    virtual std::span<float> outputs_of(uint32_t expert) = 0;
};

// One expert for one caller; all borrowed.
struct batch_item {
    const mlp_weights *weights;
    const float *input;              // [.., hidden]
    std::span<const uint32_t> rows;  // of input; at least one
    float *outputs;                  // [rows, hidden]
};

// Computes experts for the rows of several callers at once. Every row gets the same bits as in a
// call by its caller alone.
class joined_experts {
public:
    virtual ~joined_experts() = default;
    // Computes the items in one parallel loop, or a few.
    virtual void compute(std::span<const batch_item> items) = 0;
};

// The executor of a home. Everything is borrowed. `compute` is from the same node_arithmetic.
struct home_request {
    const model *computed_model = nullptr;
    node_compute *compute = nullptr;
    const arena *places = nullptr;
    uint32_t transfers_max = 0;
    side_work *beside = nullptr;  // completes what others compute
};

struct node_arithmetic {
    // `model` and `pool` are borrowed. An error if the caches need more memory than there is.
    result<std::unique_ptr<node_compute>> (*compute)(const model &model, thread_pool &pool,
                                                     const compute_limits &limits);
    result<std::unique_ptr<executor>> (*create)(const home_request &request);
    // Borrowed. One caller of the pool at a time.
    std::unique_ptr<joined_experts> (*join)(const model_config &config, thread_pool &pool);
    // How experts with weights of this type are computed. Another text: other results.
    std::string (*describe)(weight_type type, arithmetic mode);
};

}  // namespace moorage::core
