// cpu_model.cpp - the forward pass: residual stream, norms and MLPs around the attention block.
#include "core/execute/cpu/cpu_model.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "core/execute/cpu/attention.h"
#include "core/execute/cpu/kernels.h"
#include "core/model/segment.h"

namespace moorage::core {
namespace {

// Floats of scratch of a pass besides those of attention.
double scratch_floats(const model_config &config, const compute_limits &limits) {
    const double hidden = config.hidden, tokens = limits.tokens_max;
    const double per_token = hidden * 4 + hidden * config.top_k + 2.0 * config.experts + 1 +
                             static_cast<double>(attention_block::scratch_values(config));
    const double predicted = limits.predict ? 2 * hidden * tokens : 0;
    const double kept = limits.keep_hidden ? (config.layers + 1.0) * hidden * tokens : 0;
    return per_token * tokens + predicted + kept +
           limits.outputs_max * (hidden + config.vocabulary);
}

status check_memory(const model_config &config, const compute_limits &limits) {
    const double caches = kv_cache::bytes_wanted(config, {limits.streams, limits.context_max});
    const double scratch = scratch_floats(config, limits) * sizeof(float);
    const auto available = static_cast<double>(memory_available_bytes());
    if (caches + scratch <= available) return success();
    return error{
        format("key and value caches of {} requests x {} positions take {} and the "
               "scratch of passes of {} tokens takes {}, but {} of memory are available; "
               "lower the batch, the context or the tokens of a pass",
               limits.streams, limits.context_max, human_bytes(caches), limits.tokens_max,
               human_bytes(scratch), human_bytes(available))};
}

}  // namespace

struct cpu_model::state {
    state(const model &model, thread_pool &threads, const compute_limits &limits, kv_cache cache)
        : source_model(model),
          config(model.config()),
          weights(model.weights()),
          pool(threads),
          limits(limits),
          moe_layers(model.config().moe_layers()),
          attention(model, threads, std::move(cache), limits.tokens_max),
          mlp(threads) {}

    const model &source_model;
    const model_config &config;
    const model_weights &weights;
    thread_pool &pool;
    const compute_limits limits;
    const std::vector<uint32_t> moe_layers;
    attention_block attention;
    mlp_kernel mlp;

    uint32_t tokens = 0;
    uint32_t layer = 0;             // of all layers: the next one to compute
    bool shared_due = false;        // the shared expert of the layer before is not computed yet
    bool pending = false;           // the experts of the layer before are not in the residual yet
    std::vector<uint32_t> outputs;  // tokens of the pass with logits
    std::vector<float> residual, normed, branch;    // [tokens, hidden]; branch: a block's output
    std::vector<float> ahead, ahead_normed;         // as residual and normed, of a prediction
    std::vector<float> shared, shared_gate;         // [tokens, hidden], [tokens]
    std::vector<float> router_logits, next_logits;  // [tokens, experts]
    std::vector<float> output_states, logits;       // [outputs, hidden], [outputs, vocabulary]
    std::vector<float> hidden_states;               // [layers + 1, tokens, hidden]

    // The layer's choice. Outputs of an expert lie together, in the order of its tokens.
    uint32_t ranks = 0;
    std::vector<float> route_weights;     // [tokens, ranks]
    std::vector<uint32_t> row_of;         // [tokens, ranks] in expert_outputs
    std::vector<uint32_t> expert_begins;  // [experts + 1] first row of each
    std::vector<uint32_t> gathered;       // [rows] token of each row
    std::vector<uint8_t> computed;        // [rows]
    std::vector<uint8_t> counted;         // [rows] that a prediction takes
    std::vector<float> expert_outputs;    // [rows, hidden]
    std::vector<mlp_call> calls;          // of one loop
    std::vector<mlp_weights> parts;       // [experts] views that calls point to

    rows hidden_rows(std::vector<float> &values) const { return {values.data(), config.hidden}; }
    void reserve();
    void keep_hidden(uint32_t index);
    void add_branch(std::vector<float> &stream);
    void normalise_all(const norm_weights &norm, const std::vector<float> &source,
                       std::vector<float> &target);
    void attend(uint32_t layer_index, std::vector<float> &stream, std::vector<float> &input);
    void run_dense(uint32_t layer_index, std::vector<float> &stream, std::vector<float> &input);
    void run_dense_until(uint32_t end);
    void finish_experts();
    void add_experts(const std::vector<uint8_t> &included, std::vector<float> &stream);
    void gate();
    void finish_shared(uint32_t layer_index);
    void predict(uint32_t layer, std::span<const uint32_t> ready_experts);
    void add_shared(uint32_t layer_index);
    mlp_call call_of(const mlp_weights &projections, uint32_t intermediate,
                     std::vector<float> &input) const;
    // Rows [first, first + count) of an expert that was chosen; `part` keeps a view of them.
    mlp_call call_of_expert(uint32_t layer, const expert_call &request, mlp_weights &part);
    bool is_chosen(uint32_t expert) const {
        return ranks != 0 && expert_begins[expert] != expert_begins[expert + 1];
    }
};

void cpu_model::state::reserve() {
    const size_t tokens_max = limits.tokens_max, hidden = config.hidden;
    const size_t rows_max = tokens_max * config.top_k;
    for (auto *list : {&residual, &normed, &branch}) list->resize(tokens_max * hidden);
    if (config.shared_intermediate != 0) shared.resize(tokens_max * hidden);
    if (config.shared_gate) shared_gate.resize(tokens_max);
    router_logits.resize(tokens_max * config.experts);
    if (limits.predict) {
        next_logits.resize(tokens_max * config.experts);
        ahead.resize(tokens_max * hidden);
        ahead_normed.resize(tokens_max * hidden);
        counted.reserve(rows_max);
    }
    output_states.resize(limits.outputs_max * hidden);
    logits.resize(size_t{limits.outputs_max} * config.vocabulary);
    if (limits.keep_hidden) hidden_states.resize((config.layers + size_t{1}) * tokens_max * hidden);
    outputs.reserve(limits.outputs_max);
    route_weights.reserve(rows_max);
    row_of.reserve(rows_max);
    gathered.reserve(rows_max);
    computed.reserve(rows_max);
    expert_outputs.reserve(rows_max * hidden);
    expert_begins.resize(config.experts + size_t{1});
    calls.reserve(config.experts + 1);
    parts.resize(config.experts);
}

void cpu_model::state::keep_hidden(uint32_t index) {
    if (!limits.keep_hidden) return;
    const size_t values = size_t{tokens} * config.hidden;
    const std::vector<float> &source = index == config.layers ? normed : residual;
    std::copy_n(source.begin(), values,
                hidden_states.begin() + static_cast<ptrdiff_t>(index * values));
}

void cpu_model::state::add_branch(std::vector<float> &stream) {
    const size_t hidden = config.hidden;
    const auto multiplier = static_cast<float>(config.residual_multiplier);
    each_token(pool, tokens, [&](uint32_t token) {
        float *target = &stream[token * hidden];
        const float *add = &branch[token * hidden];
        for (size_t i = 0; i < hidden; ++i) target[i] += multiplier * add[i];
    });
}

void cpu_model::state::normalise_all(const norm_weights &norm, const std::vector<float> &source,
                                     std::vector<float> &target) {
    const size_t hidden = config.hidden;
    const auto epsilon = static_cast<float>(config.norm_epsilon);
    each_token(pool, tokens, [&](uint32_t token) {
        normalise(config.norm, norm, epsilon, 1, config.hidden, {&source[token * hidden], hidden},
                  {&target[token * hidden], hidden});
    });
}

// Adds the attention of layer `layer_index` to the residual stream, and writes the input of the
// layer's MLP to `input`.
void cpu_model::state::attend(uint32_t layer_index, std::vector<float> &stream,
                              std::vector<float> &input) {
    const layer_weights &norms = weights.layers[layer_index];
    normalise_all(norms.attention_norm, stream, input);
    attention(layer_index, hidden_rows(input), hidden_rows(branch));
    add_branch(stream);
    normalise_all(norms.mlp_norm, stream, input);
}

mlp_call cpu_model::state::call_of(const mlp_weights &projections, uint32_t intermediate,
                                   std::vector<float> &input) const {
    mlp_call call{};
    call.weights = &projections;
    call.intermediate = call.count = intermediate;
    call.unit = part_unit_of(projections.down);
    call.activation = config.activation;
    call.limit = static_cast<float>(config.activation_limit);
    call.tokens = tokens;
    call.input = {input.data(), config.hidden};
    return call;
}

void cpu_model::state::run_dense(uint32_t layer_index, std::vector<float> &stream,
                                 std::vector<float> &input) {
    attend(layer_index, stream, input);
    mlp_call call = call_of(weights.layers[layer_index].dense, config.dense_intermediate, input);
    call.output = hidden_rows(branch);
    mlp(call);
    add_branch(stream);
}

void cpu_model::state::run_dense_until(uint32_t end) {
    for (; layer < end; ++layer) {
        keep_hidden(layer);
        run_dense(layer, residual, normed);
    }
}

// The layer before ends: the outputs of its experts and of its shared expert are added to the
// residual.
void cpu_model::state::finish_experts() {
    if (!pending) return;
    pending = false;
    finish_shared(layer - 1);
    add_experts(computed, residual);
}

void cpu_model::state::finish_shared(uint32_t layer_index) {
    calls.clear();
    add_shared(layer_index);
    if (!calls.empty()) mlp(calls);
}

// Adds the results of the rows of `included` and of the shared expert to the stream. Ranks are
// added in their order, whatever the order of computing.
void cpu_model::state::add_experts(const std::vector<uint8_t> &included,
                                   std::vector<float> &stream) {
    const size_t hidden = config.hidden;
    const auto multiplier = static_cast<float>(config.residual_multiplier);
    each_token(pool, tokens, [&](uint32_t token) {
        float *sum = &branch[token * hidden], *target = &stream[token * hidden];
        std::fill_n(sum, hidden, 0.0F);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            const size_t choice = size_t{token} * ranks + rank;
            const uint32_t row = row_of[choice];
            if (row >= included.size() || included[row] == 0) continue;
            const float weight = route_weights[choice];
            const float *expert_output = &expert_outputs[row * hidden];
            for (size_t i = 0; i < hidden; ++i) sum[i] += weight * expert_output[i];
        }
        if (config.shared_intermediate != 0) {
            // Added: 0, unless the logit is no finite number, which the sigmoid would hide.
            const float logit = config.shared_gate ? shared_gate[token] : 0.0F;
            const float gate =
                config.shared_gate ? 1 / (1 + std::exp(-logit)) + (logit - logit) : 1.0F;
            const float *shared_output = &shared[token * hidden];
            for (size_t i = 0; i < hidden; ++i) sum[i] += gate * shared_output[i];
        }
        for (size_t i = 0; i < hidden; ++i) target[i] += multiplier * sum[i];
    });
}

// Router logits of the layer at hand, and of the next one as a prediction.
void cpu_model::state::gate() {
    const layer_weights &current = weights.layers[layer];
    const const_rows input = hidden_rows(normed);
    product products[3];
    size_t count = 0;
    products[count++] = {
        &current.router, input, {router_logits.data(), config.experts}, current.router_bias};
    if (limits.predict) {
        const auto position = std::ranges::find(moe_layers, layer);
        const bool last = position + 1 == moe_layers.end();
        const layer_weights &next = weights.layers[last ? moe_layers.front() : *(position + 1)];
        products[count++] = {
            &next.router, input, {next_logits.data(), config.experts}, next.router_bias};
    }
    if (config.shared_gate)
        products[count++] = {&current.shared_gate, input, {shared_gate.data(), 1}};
    multiply(pool, tokens, {products, count});
    shared_due = config.shared_intermediate != 0;
}

// Computes as if the layer ended with the experts that are there: the same arithmetic up to the
// next router, on a residual stream of its own. It leaves keys and values of a guess at positions
// of this pass, in the caches of its layers. Nobody reads them before those layers' own attention
// has written the true ones there.
void cpu_model::state::predict(uint32_t moe_layer, std::span<const uint32_t> ready_experts) {
    finish_shared(moe_layers[moe_layer]);
    counted.assign(computed.size(), 0);
    for (const uint32_t expert : ready_experts) {
        if (!is_chosen(expert)) continue;
        for (uint32_t row = expert_begins[expert]; row < expert_begins[expert + 1]; ++row)
            counted[row] = computed[row];
    }
    const size_t values = size_t{tokens} * config.hidden;
    std::copy_n(residual.begin(), values, ahead.begin());
    add_experts(counted, ahead);
    const uint32_t next = moe_layers[moe_layer + 1];
    for (uint32_t dense_layer = moe_layers[moe_layer] + 1; dense_layer < next; ++dense_layer)
        run_dense(dense_layer, ahead, ahead_normed);
    attend(next, ahead, ahead_normed);
    const product gate{&weights.layers[next].router,
                       hidden_rows(ahead_normed),
                       {next_logits.data(), config.experts},
                       weights.layers[next].router_bias};
    multiply(pool, tokens, {&gate, 1});
}

// The shared expert waits for the routed ones: one parallel loop for all of them.
void cpu_model::state::add_shared(uint32_t layer_index) {
    if (!shared_due) return;
    shared_due = false;
    calls.push_back(
        call_of(weights.layers[layer_index].shared, config.shared_intermediate, normed));
    calls.back().output = hidden_rows(shared);
}

result<std::unique_ptr<cpu_model>> cpu_model::create(const model &model, thread_pool &pool,
                                                     const compute_limits &limits) {
    if (const status enough = check_memory(model.config(), limits); !enough)
        return enough.failure();
    auto cache = kv_cache::create(model.config(), {limits.streams, limits.context_max});
    if (!cache) return cache.failure();
    auto new_state = std::make_unique<state>(model, pool, limits, std::move(*cache));
    new_state->reserve();
    return std::unique_ptr<cpu_model>(new cpu_model(std::move(new_state)));
}

cpu_model::cpu_model(std::unique_ptr<state> new_state) : state_(std::move(new_state)) {}
cpu_model::~cpu_model() = default;

void cpu_model::begin(const pass &tokens) {
    state &s = *state_;
    s.tokens = static_cast<uint32_t>(tokens.tokens.size());
    assert(s.tokens <= s.limits.tokens_max);
    s.layer = 0;
    s.pending = s.shared_due = false;
    s.outputs.clear();
    const size_t hidden = s.config.hidden;
    const auto multiplier = static_cast<float>(s.config.embedding_multiplier);
    for (uint32_t t = 0; t < s.tokens; ++t) {
        const pass_token &token = tokens.tokens[t];
        assert(token.token_id >= 0 && static_cast<uint32_t>(token.token_id) < s.config.vocabulary);
        assert(token.stream < s.limits.streams && token.position < s.limits.context_max);
        if (token.output) s.outputs.push_back(t);
        float *values = &s.residual[t * hidden];
        widen(s.weights.embedding, static_cast<uint32_t>(token.token_id), values);
        for (size_t i = 0; i < hidden; ++i) values[i] *= multiplier;
    }
    assert(s.outputs.size() <= s.limits.outputs_max);
    s.attention.begin(tokens);
}

void cpu_model::run_attention(uint32_t layer) {
    state &s = *state_;
    assert(layer < s.moe_layers.size() && s.layer <= s.moe_layers[layer]);
    s.finish_experts();
    s.run_dense_until(s.moe_layers[layer]);
    s.keep_hidden(s.layer);
    s.attend(s.layer, s.residual, s.normed);
    s.gate();
    s.ranks = 0;
    s.computed.clear();
    s.pending = true;
    ++s.layer;
}

void cpu_model::route(std::span<const uint32_t> chosen, std::span<const float> weights) {
    state &s = *state_;
    assert(s.pending && s.tokens != 0 && chosen.size() % s.tokens == 0);
    assert(chosen.size() == weights.size() && chosen.size() <= s.row_of.capacity());
    s.ranks = static_cast<uint32_t>(chosen.size() / s.tokens);
    s.route_weights.assign(weights.begin(), weights.end());
    s.row_of.assign(chosen.size(), UINT32_MAX);
    // Sorts rows by expert, then by token, with a counting sort. A choice that names no expert gets
    // no row.
    std::ranges::fill(s.expert_begins, 0);
    for (const uint32_t expert : chosen)
        if (expert < s.config.experts) ++s.expert_begins[expert + 1];
    for (uint32_t expert = 0; expert < s.config.experts; ++expert)
        s.expert_begins[expert + 1] += s.expert_begins[expert];
    const uint32_t rows_all = s.expert_begins.back();
    s.gathered.resize(rows_all);
    s.computed.assign(rows_all, 0);
    s.expert_outputs.resize(size_t{rows_all} * s.config.hidden);
    for (size_t choice = 0; choice < chosen.size(); ++choice) {
        if (chosen[choice] >= s.config.experts) continue;
        const uint32_t row = s.expert_begins[chosen[choice]]++;
        s.gathered[row] = static_cast<uint32_t>(choice / s.ranks);
        s.row_of[choice] = row;
    }
    // The counters ran to the ends of their experts, which are the begins of the next ones.
    std::copy_backward(s.expert_begins.begin(), s.expert_begins.end() - 1, s.expert_begins.end());
    s.expert_begins.front() = 0;
}

mlp_call cpu_model::state::call_of_expert(uint32_t moe_layer, const expert_call &request,
                                          mlp_weights &part) {
    assert(moe_layer < moe_layers.size() && request.expert < config.experts);
    assert(request.count != 0 && request.first + request.count <= config.moe_intermediate);
    const mlp_weights &whole = weights.layers[moe_layers[moe_layer]].experts[request.expert];
    const mlp_weights *source = request.weights != nullptr ? request.weights : &whole;
    if (request.weights == nullptr && request.count != config.moe_intermediate) {
        part = segment_image(whole, request.first, request.count).in_place();
        source = &part;
    }
    mlp_call call = call_of(*source, config.moe_intermediate, normed);
    call.unit = request.unit != 0 ? request.unit : config.part_unit;
    call.first = request.first;
    call.count = request.count;
    const uint32_t begin = expert_begins[request.expert], end = expert_begins[request.expert + 1];
    call.tokens = end - begin;
    call.gathered = gathered.data() + begin;
    call.output = {expert_outputs.data() + size_t{begin} * config.hidden, config.hidden};
    call.add = computed[begin] != 0;
    std::fill(computed.begin() + begin, computed.begin() + end, uint8_t{1});
    return call;
}

void cpu_model::expert(uint32_t layer, uint32_t expert, uint32_t first, uint32_t count,
                       const mlp_weights *part_weights) {
    state &s = *state_;
    if (!s.is_chosen(expert)) return;
    mlp_weights part;
    s.mlp(s.call_of_expert(layer, {expert, first, count, part_weights}, part));
}

void cpu_model::run_experts(uint32_t layer, std::span<const expert_call> calls) {
    state &s = *state_;
    assert(calls.size() <= s.parts.size());
    s.calls.clear();
    for (const expert_call &call : calls)
        if (s.is_chosen(call.expert))
            s.calls.push_back(s.call_of_expert(layer, call, s.parts[s.calls.size()]));
    s.add_shared(s.moe_layers[layer]);
    if (!s.calls.empty()) s.mlp(s.calls);
}

void cpu_model::run_experts(uint32_t layer, std::span<const uint32_t> expert_ids) {
    state &s = *state_;
    mlp_weights unused;
    s.calls.clear();
    for (const uint32_t expert : expert_ids)
        if (s.is_chosen(expert))
            s.calls.push_back(
                s.call_of_expert(layer, {expert, 0, s.config.moe_intermediate, nullptr}, unused));
    s.add_shared(s.moe_layers[layer]);
    if (!s.calls.empty()) s.mlp(s.calls);
}

std::span<const float> cpu_model::expert_input() const {
    return {state_->normed.data(), size_t{state_->tokens} * state_->config.hidden};
}

std::span<const uint32_t> cpu_model::rows_of(uint32_t expert) const {
    const state &s = *state_;
    assert(s.pending && expert < s.config.experts);
    if (!s.is_chosen(expert)) return {};
    return std::span(s.gathered)
        .subspan(s.expert_begins[expert], s.expert_begins[expert + 1] - s.expert_begins[expert]);
}

std::span<float> cpu_model::outputs_of(uint32_t expert) {
    state &s = *state_;
    const size_t begin = s.expert_begins[expert], rows = rows_of(expert).size();
    std::fill_n(s.computed.begin() + static_cast<ptrdiff_t>(begin), rows, uint8_t{1});
    return std::span(s.expert_outputs).subspan(begin * s.config.hidden, rows * s.config.hidden);
}

void cpu_model::predict(uint32_t layer, std::span<const uint32_t> ready_experts) {
    state &s = *state_;
    assert(s.limits.predict && s.pending && s.ranks != 0);
    assert(layer + 1 < s.moe_layers.size() && s.layer == s.moe_layers[layer] + 1);
    s.predict(layer, ready_experts);
}

void cpu_model::run_head() {
    state &s = *state_;
    s.finish_experts();
    s.run_dense_until(s.config.layers);
    const auto epsilon = static_cast<float>(s.config.norm_epsilon);
    const size_t hidden = s.config.hidden;
    if (s.limits.keep_hidden) {
        s.normalise_all(s.weights.final_norm, s.residual, s.normed);
        s.keep_hidden(s.config.layers);
    }
    const auto count = static_cast<uint32_t>(s.outputs.size());
    if (count == 0) return;
    for (uint32_t i = 0; i < count; ++i)
        normalise(s.config.norm, s.weights.final_norm, epsilon, 1, s.config.hidden,
                  {&s.residual[s.outputs[i] * hidden], hidden},
                  {&s.output_states[i * hidden], hidden});
    const product projection{.weights = &s.weights.head,
                             .input = s.hidden_rows(s.output_states),
                             .output = {s.logits.data(), s.config.vocabulary},
                             .bias = s.weights.head_bias,
                             .finely = true};
    multiply(s.pool, count, {&projection, 1});
    if (s.config.logits_divisor == 1) return;
    const auto divisor = static_cast<float>(s.config.logits_divisor);
    for (size_t i = 0; i < size_t{count} * s.config.vocabulary; ++i) s.logits[i] /= divisor;
}

std::span<const float> cpu_model::router_logits() const {
    return {state_->router_logits.data(), size_t{state_->tokens} * state_->config.experts};
}

std::span<const float> cpu_model::router_input() const {
    return {state_->normed.data(), size_t{state_->tokens} * state_->config.hidden};
}

std::span<const float> cpu_model::next_router_logits() const {
    if (!state_->limits.predict) return {};
    return {state_->next_logits.data(), size_t{state_->tokens} * state_->config.experts};
}

std::span<const float> cpu_model::logits() const {
    return {state_->logits.data(), state_->outputs.size() * state_->config.vocabulary};
}

std::span<const float> cpu_model::hidden_states() const {
    if (!state_->limits.keep_hidden) return {};
    return {state_->hidden_states.data(),
            (state_->config.layers + size_t{1}) * state_->tokens * state_->config.hidden};
}

thread_pool &cpu_model::pool() const { return state_->pool; }

uint64_t cpu_model::memory_bytes() const {
    const double scratch = scratch_floats(state_->config, state_->limits) * sizeof(float);
    const double attention_scratch = static_cast<double>(
        attention_block::scratch_values(state_->config) * state_->limits.tokens_max);
    return state_->attention.memory_bytes() +
           static_cast<uint64_t>(scratch - attention_scratch * sizeof(float));
}

}  // namespace moorage::core
