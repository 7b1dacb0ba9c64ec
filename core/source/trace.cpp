// trace.cpp - opens a trace: finds its tensors, checks them against each other, then checks their
// values.
#include "core/source/trace.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <utility>

#include "core/base/half.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/source/trace_check.h"
#include "moorage/module.h"

namespace moorage::core {

namespace {

// Limits ids to `last` in their own width, which vector units do at no cost beside reading.
template <class Id>
void widen_ids(const std::byte *data, uint64_t from, uint64_t count, uint32_t last, uint32_t *out) {
    const auto limit = static_cast<Id>(std::min<uint32_t>(last, std::numeric_limits<Id>::max()));
    for (uint64_t i = 0; i < count; ++i) out[i] = std::min(element<Id>(data, from + i), limit);
}

uint64_t largest_id(const tensor &from) {
    uint64_t largest = 0;
    const bool wide = from.type == dtype::u16;
    for (uint64_t i = 0; i < from.elements(); ++i)
        largest = std::max<uint64_t>(largest, wide ? element<uint16_t>(from.bytes.data(), i)
                                                   : element<uint8_t>(from.bytes.data(), i));
    return largest;
}

}  // namespace

// The bytes: a mapped file or, for tests, memory.
struct trace::mapping {
    mapped_file file;
    std::vector<std::byte> owned;
    std::filesystem::path path;
    std::vector<std::span<const std::byte>>
        token_tensors;  // tensors [tokens, ...], one after the other

    std::span<const std::byte> bytes() const { return owned.empty() ? file.bytes() : owned; }
    void release(const std::byte *begin, const std::byte *end) const {
        if (!owned.empty() || begin == end) return;
        const std::byte *start = file.bytes().data();
        file.release(static_cast<uint64_t>(begin - start), static_cast<uint64_t>(end - start));
    }
};

// Fills a trace from the tensors of its file. Each function checks what it reads.
struct trace::loader {
    trace &to;
    const safetensors &from;

    status format_of() const {
        const auto found = from.metadata.find("format");
        if (found == from.metadata.end())
            return error{"metadata format is missing; a trace has moorage.trace there"};
        if (found->second != "moorage.trace")
            return error{format("metadata format is {}, not moorage.trace: not a routing trace",
                                shown(found->second))};
        const auto version = from.metadata.find("version");
        if (version == from.metadata.end() || version->second != "1")
            return error{
                format("metadata version is {}, this reader knows 1",
                       version == from.metadata.end() ? "missing" : shown(version->second))};
        return success();
    }

    // The tensor; null: it is optional and missing. shape: 0 means any size above 0.
    result<const tensor *> take(const char *name, bool optional, std::initializer_list<dtype> types,
                                std::initializer_list<uint64_t> shape) const {
        const tensor *found = from.find(name);
        if (found == nullptr && optional) return found;
        if (found == nullptr) return error{format("tensor {} is missing", name)};
        if (std::ranges::find(types, found->type) == types.end()) {
            std::string known;
            for (const dtype type : types)
                known += format("{}{}", known.empty() ? "" : " or ", name_of(type));
            return error{
                format("tensor {}: dtype is {}, not {}", name, name_of(found->type), known)};
        }
        bool fits = found->shape.size() == shape.size();
        for (size_t i = 0; fits && i < shape.size(); ++i) {
            const uint64_t wanted = shape.begin()[i];
            fits = wanted == 0 ? found->shape[i] > 0 : found->shape[i] == wanted;
        }
        if (fits) return found;
        std::string wanted;
        for (const uint64_t size : shape)
            wanted += format("{}{}", wanted.empty() ? "" : ", ",
                             size == 0 ? std::string("above 0") : format("{}", size));
        return error{
            format("tensor {}: shape is {}, not [{}]", name, shape_text(found->shape), wanted)};
    }

    // A count in the metadata; 0: missing.
    result<uint64_t> count(const char *key) const {
        const auto found = from.metadata.find(key);
        if (found == from.metadata.end()) return uint64_t{0};
        const std::string &text = found->second;
        uint64_t value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (code != std::errc() || end != text.data() + text.size() || value == 0)
            return error{format("metadata {} is {}, not a whole number above 0 in 64 bits", key,
                                shown(text))};
        return value;
    }

    // Checks that metadata `key`, if present, agrees with tensor `name`.
    status agree(const char *key, uint64_t value, const char *name) const {
        const result<uint64_t> said = count(key);
        if (!said) return said.failure();
        if (*said != 0 && *said != value)
            return error{
                format("metadata {} is {}, but tensor {} has {}", key, *said, name, value)};
        return success();
    }

    status sizes() const {
        const result<const tensor *> chosen =
            take("experts", false, {dtype::u8, dtype::u16}, {0, 0, 0});
        if (!chosen) return chosen.failure();
        const std::vector<uint64_t> &shape = (*chosen)->shape;
        if (shape[1] > trace_pages_max || shape[2] > trace_experts_max)
            return error{
                format("tensor experts: shape {} is above the limit of {} layers and {} "
                       "ranks",
                       shape_text(shape), trace_pages_max, trace_experts_max)};
        to.tokens_ = shape[0];
        to.layers_ = static_cast<uint32_t>(shape[1]);
        to.top_k_ = static_cast<uint32_t>(shape[2]);
        to.experts_data_ = (*chosen)->bytes.data();
        to.experts_wide_ = (*chosen)->type == dtype::u16;
        if (status agreed = agree("layers", to.layers_, "experts"); !agreed) return agreed;
        if (status agreed = agree("top_k", to.top_k_, "experts"); !agreed) return agreed;
        return expert_count(**chosen);
    }

    status expert_count(const tensor &chosen) const {
        const result<uint64_t> said = count("experts");
        if (!said) return said.failure();
        uint64_t experts = *said;
        const char *by = "metadata experts";
        const tensor *scores = from.find("gate_scores");
        if (experts == 0 && scores != nullptr && scores->shape.size() == 3)
            experts = scores->shape[2], by = "tensor gate_scores";
        if (experts == 0) experts = largest_id(chosen) + 1, by = "the largest id";
        if (experts > trace_experts_max || experts * to.layers_ > trace_pages_max)
            return error{
                format("{} experts in each of {} layers, by {}, are above the limit of {} a "
                       "layer and {} in all",
                       experts, to.layers_, by, trace_experts_max, trace_pages_max)};
        if (to.top_k_ > experts)
            return error{
                format("tensor experts: {} experts a token and layer, but a layer has {} by "
                       "{}",
                       to.top_k_, experts, by)};
        to.experts_ = static_cast<uint32_t>(experts);
        return success();
    }

    status requests() const {
        const result<const tensor *> found = take("request_offsets", false, {dtype::i64}, {0});
        if (!found) return found.failure();
        const tensor &offsets = **found;
        const uint64_t requests = offsets.elements() - 1;
        if (requests == 0)
            return error{"tensor request_offsets: shape is [1], which holds no request"};
        // Ascending offsets up to T are at most T + 1. Checked before they are copied.
        if (requests > to.tokens_)
            return error{
                format("tensor request_offsets: {} requests for {} tokens; a request has "
                       "at least one",
                       requests, to.tokens_)};
        to.request_offsets_.reserve(requests + 1);
        int64_t before = -1;
        for (uint64_t i = 0; i <= requests; ++i) {
            const int64_t offset = element<int64_t>(offsets.bytes.data(), i);
            if (i == 0 && offset != 0)
                return error{format("tensor request_offsets: value {} at index 0, not 0", offset)};
            if (i > 0 && offset == before)
                return error{
                    format("tensor request_offsets: value {} at index {} equals the one "
                           "before: request {} is empty",
                           offset, i, i - 1)};
            if (offset < before)
                return error{
                    format("tensor request_offsets: value {} at index {} is below {}, the "
                           "one before",
                           offset, i, before)};
            if (static_cast<uint64_t>(offset) > to.tokens_)
                return error{
                    format("tensor request_offsets: value {} at index {} is above the limit "
                           "of {} tokens",
                           offset, i, to.tokens_)};
            to.request_offsets_.push_back(static_cast<uint64_t>(offset));
            before = offset;
        }
        if (to.request_offsets_.back() != to.tokens_)
            return error{
                format("tensor request_offsets: the last value, at index {}, is {}, not the "
                       "{} tokens of tensor experts",
                       requests, before, to.tokens_)};
        return success();
    }

    status request_domains() const {
        const auto named = from.metadata.find("domains");
        if (named != from.metadata.end() && !named->second.empty())
            to.domains_ = split(named->second, ',');
        const result<const tensor *> found =
            take("request_domain", true, {dtype::i32}, {to.requests()});
        if (!found) return found.failure();
        if (*found == nullptr) return success();
        for (uint64_t i = 0; i < to.requests(); ++i) {
            const int32_t domain = element<int32_t>((*found)->bytes.data(), i);
            if (domain < 0 || static_cast<size_t>(domain) >= to.domains_.size())
                return error{
                    format("tensor request_domain: value {} at request {} is out of range, "
                           "metadata domains names {}",
                           domain, i, to.domains_.size())};
            to.request_domain_.push_back(domain);
        }
        return success();
    }

    status scores(const char *name, uint64_t width, floats &into) const {
        const result<const tensor *> found =
            take(name, true, {dtype::f16, dtype::f32}, {to.tokens_, to.layers_, width});
        if (!found) return found.failure();
        if (*found == nullptr) return success();
        into = {(*found)->bytes.data(), (*found)->type == dtype::f16};
        return success();
    }

    status optional_tensors() const {
        if (status taken = scores("weights", to.top_k_, to.weights_); !taken) return taken;
        if (status taken = scores("gate_scores", to.experts_, to.gate_scores_); !taken)
            return taken;
        const result<const tensor *> ids = take("token_ids", true, {dtype::i32}, {to.tokens_});
        if (!ids) return ids.failure();
        if (*ids != nullptr) to.token_ids_data_ = (*ids)->bytes.data();

        const result<const tensor *> predicted =
            take("pred_experts", true, {dtype::u8, dtype::u16}, {to.tokens_, to.layers_, 0});
        if (!predicted) return predicted.failure();
        if (*predicted == nullptr) {
            if (from.find("pred_scores") == nullptr) return success();
            return error{"tensor pred_scores is there, but pred_experts is missing"};
        }
        const uint64_t width = (*predicted)->shape[2];
        if (width > to.experts_)
            return error{
                format("tensor pred_experts: {} experts predicted a layer, the limit is {} "
                       "experts",
                       width, to.experts_)};
        to.predictions_ = static_cast<uint32_t>(width);
        to.pred_data_ = (*predicted)->bytes.data();
        to.pred_wide_ = (*predicted)->type == dtype::u16;
        return scores("pred_scores", width, to.pred_scores_);
    }

    // Checks the values of the large tensors. Requires: everything else is checked.
    status values() const {
        const checked_up_to done = [this](const std::byte *begin, const std::byte *end) {
            to.mapping_->release(begin, end);
        };
        for (const char *name : {"experts", "pred_experts"})
            if (const tensor *ids = from.find(name))
                if (status right = check_ids(*ids, to.experts_, done); !right) return right;
        for (const char *name : {"weights", "gate_scores", "pred_scores"})
            if (const tensor *floats = from.find(name))
                if (status right = check_finite(*floats, done); !right) return right;
        for (const char *name :
             {"experts", "weights", "gate_scores", "pred_experts", "pred_scores", "token_ids"})
            if (const tensor *held = from.find(name))
                to.mapping_->token_tensors.push_back(held->bytes);
        return success();
    }

    status all() const {
        for (const auto part :
             {&loader::format_of, &loader::sizes, &loader::requests, &loader::request_domains,
              &loader::optional_tensors, &loader::values})
            if (status done = (this->*part)(); !done) return done;
        return success();
    }
};

trace::trace() = default;
trace::trace(trace &&) noexcept = default;
trace &trace::operator=(trace &&) noexcept = default;
trace::~trace() = default;

result<trace> trace::open(const std::filesystem::path &path) {
    result<mapped_file> file = mapped_file::open(path);
    if (!file) return file.failure();
    auto from = std::make_unique<mapping>();
    from->file = std::move(*file);
    from->path = path;
    return load(std::move(from));
}

result<trace> trace::from_bytes(std::string name, std::vector<std::byte> bytes) {
    auto from = std::make_unique<mapping>();
    from->owned = std::move(bytes);
    from->path = std::move(name);
    return load(std::move(from));
}

result<trace> trace::load(std::unique_ptr<mapping> from) {
    const std::string name = from->path.string();
    result<safetensors> parsed = parse_safetensors(from->bytes(), name);
    if (!parsed) return parsed.failure();
    trace made;
    made.mapping_ = std::move(from);
    const status loaded = loader{made, *parsed}.all();
    if (!loaded) return error{format("{}: {}", name, loaded.failure().text)};
    made.metadata_ = std::move(parsed->metadata);
    return made;
}

const std::filesystem::path &trace::path() const { return mapping_->path; }
uint64_t trace::file_bytes() const { return mapping_->bytes().size(); }

std::string trace::meta(const std::string &key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? "" : found->second;
}

void trace::read_experts(uint64_t first, uint64_t count, uint32_t *out) const {
    const uint64_t row = uint64_t{layers_} * top_k_, from = first * row, total = count * row;
    if (experts_wide_)
        widen_ids<uint16_t>(experts_data_, from, total, experts_ - 1, out);
    else
        widen_ids<uint8_t>(experts_data_, from, total, experts_ - 1, out);
}

float trace::read_float(const floats &from, uint64_t index) {
    return from.half ? float_of_half(element<uint16_t>(from.data, index))
                     : element<float>(from.data, index);
}

float trace::weight(uint64_t token, uint32_t layer, uint32_t rank) const {
    const uint64_t row = token * layers_ + layer;
    if (weights_.data != nullptr) return read_float(weights_, row * top_k_ + rank);
    return read_float(gate_scores_, row * experts_ + expert(token, layer, rank));
}

void trace::gate_scores(uint64_t token, uint32_t layer, float *out) const {
    const uint64_t from = (token * layers_ + layer) * experts_;
    for (uint32_t i = 0; i < experts_; ++i) out[i] = read_float(gate_scores_, from + i);
}

float trace::prediction_score(uint64_t token, uint32_t layer, uint32_t rank) const {
    return read_float(pred_scores_, (token * layers_ + layer) * predictions_ + rank);
}

int32_t trace::token_id(uint64_t token) const { return element<int32_t>(token_ids_data_, token); }

bool trace::scores_are_half(const std::string &name) const {
    if (name == "weights") return weights_.half;
    return name == "gate_scores" ? gate_scores_.half : pred_scores_.half;
}

uint32_t trace::offers() const {
    uint32_t needs = MOORAGE_NEEDS_FUTURE;
    if (has_gate_scores()) needs |= MOORAGE_NEEDS_GATE_SCORES;
    if (has_weights()) needs |= MOORAGE_NEEDS_WEIGHTS;
    if (has_predictions()) needs |= MOORAGE_NEEDS_PREDICTIONS;
    return needs;
}

const char *trace::tensor_of(uint32_t need) {
    switch (need) {
        case MOORAGE_NEEDS_GATE_SCORES:
            return "gate_scores";
        case MOORAGE_NEEDS_WEIGHTS:
            return "weights";
        case MOORAGE_NEEDS_PREDICTIONS:
            return "pred_experts";
        default:
            return "experts";
    }
}

void trace::release_before(uint64_t token) const {
    for (const std::span<const std::byte> tensor : mapping_->token_tensors) {
        const uint64_t row = tensor.size() / tokens_;
        mapping_->release(tensor.data(), tensor.data() + row * std::min(token, tokens_));
    }
}

}  // namespace moorage::core
