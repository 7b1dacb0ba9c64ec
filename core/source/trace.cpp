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
void widen_ids(const std::byte *data, uint64_t first, uint64_t count, uint32_t last,
               uint32_t *ids) {
    const auto limit = static_cast<Id>(std::min<uint32_t>(last, std::numeric_limits<Id>::max()));
    for (uint64_t i = 0; i < count; ++i) ids[i] = std::min(element<Id>(data, first + i), limit);
}

uint64_t largest_id(const tensor &tensor) {
    uint64_t largest = 0;
    const bool wide = tensor.type == dtype::u16;
    for (uint64_t i = 0; i < tensor.elements(); ++i)
        largest = std::max<uint64_t>(largest, wide ? element<uint16_t>(tensor.bytes.data(), i)
                                                   : element<uint8_t>(tensor.bytes.data(), i));
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
    trace &target;
    const safetensors &source;

    status format_of() const {
        const auto found = source.metadata.find("format");
        if (found == source.metadata.end())
            return error{"metadata format is missing; a trace has moorage.trace there"};
        if (found->second != "moorage.trace")
            return error{format("metadata format is {}, not moorage.trace: not a routing trace",
                                printable(found->second))};
        const auto version = source.metadata.find("version");
        if (version == source.metadata.end() || version->second != "1")
            return error{
                format("metadata version is {}, this reader knows 1",
                       version == source.metadata.end() ? "missing" : printable(version->second))};
        return success();
    }

    // The tensor; null: it is optional and missing. shape: 0 means any size above 0.
    result<const tensor *> take(const char *name, bool optional, std::initializer_list<dtype> types,
                                std::initializer_list<uint64_t> shape) const {
        const tensor *found = source.find(name);
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
        const auto found = source.metadata.find(key);
        if (found == source.metadata.end()) return uint64_t{0};
        const std::string &text = found->second;
        uint64_t value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (code != std::errc() || end != text.data() + text.size() || value == 0)
            return error{format("metadata {} is {}, not a whole number above 0 in 64 bits", key,
                                printable(text))};
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
        target.tokens_ = shape[0];
        target.layers_ = static_cast<uint32_t>(shape[1]);
        target.top_k_ = static_cast<uint32_t>(shape[2]);
        target.experts_data_ = (*chosen)->bytes.data();
        target.experts_wide_ = (*chosen)->type == dtype::u16;
        if (status agreed = agree("layers", target.layers_, "experts"); !agreed) return agreed;
        if (status agreed = agree("top_k", target.top_k_, "experts"); !agreed) return agreed;
        return expert_count(**chosen);
    }

    status expert_count(const tensor &chosen) const {
        const result<uint64_t> said = count("experts");
        if (!said) return said.failure();
        uint64_t experts = *said;
        const char *origin = "metadata experts";
        const tensor *scores = source.find("gate_scores");
        if (experts == 0 && scores != nullptr && scores->shape.size() == 3)
            experts = scores->shape[2], origin = "tensor gate_scores";
        if (experts == 0) experts = largest_id(chosen) + 1, origin = "the largest id";
        if (experts > trace_experts_max || experts * target.layers_ > trace_pages_max)
            return error{
                format("{} experts in each of {} layers, by {}, are above the limit of {} a "
                       "layer and {} in all",
                       experts, target.layers_, origin, trace_experts_max, trace_pages_max)};
        if (target.top_k_ > experts)
            return error{
                format("tensor experts: {} experts a token and layer, but a layer has {} by "
                       "{}",
                       target.top_k_, experts, origin)};
        target.experts_ = static_cast<uint32_t>(experts);
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
        if (requests > target.tokens_)
            return error{
                format("tensor request_offsets: {} requests for {} tokens; a request has "
                       "at least one",
                       requests, target.tokens_)};
        target.request_offsets_.reserve(requests + 1);
        int64_t previous = -1;
        for (uint64_t i = 0; i <= requests; ++i) {
            const int64_t offset = element<int64_t>(offsets.bytes.data(), i);
            if (i == 0 && offset != 0)
                return error{format("tensor request_offsets: value {} at index 0, not 0", offset)};
            if (i > 0 && offset == previous)
                return error{
                    format("tensor request_offsets: value {} at index {} equals the one "
                           "before: request {} is empty",
                           offset, i, i - 1)};
            if (offset < previous)
                return error{
                    format("tensor request_offsets: value {} at index {} is below {}, the "
                           "one before",
                           offset, i, previous)};
            if (static_cast<uint64_t>(offset) > target.tokens_)
                return error{
                    format("tensor request_offsets: value {} at index {} is above the limit "
                           "of {} tokens",
                           offset, i, target.tokens_)};
            target.request_offsets_.push_back(static_cast<uint64_t>(offset));
            previous = offset;
        }
        if (target.request_offsets_.back() != target.tokens_)
            return error{
                format("tensor request_offsets: the last value, at index {}, is {}, not the "
                       "{} tokens of tensor experts",
                       requests, previous, target.tokens_)};
        return success();
    }

    status request_domains() const {
        const auto named = source.metadata.find("domains");
        if (named != source.metadata.end() && !named->second.empty())
            target.domains_ = split(named->second, ',');
        const result<const tensor *> found =
            take("request_domain", true, {dtype::i32}, {target.requests()});
        if (!found) return found.failure();
        if (*found == nullptr) return success();
        for (uint64_t i = 0; i < target.requests(); ++i) {
            const int32_t domain = element<int32_t>((*found)->bytes.data(), i);
            if (domain < 0 || static_cast<size_t>(domain) >= target.domains_.size())
                return error{
                    format("tensor request_domain: value {} at request {} is out of range, "
                           "metadata domains names {}",
                           domain, i, target.domains_.size())};
            target.request_domain_.push_back(domain);
        }
        return success();
    }

    status scores(const char *name, uint64_t width, floats &stored) const {
        const result<const tensor *> found =
            take(name, true, {dtype::f16, dtype::f32}, {target.tokens_, target.layers_, width});
        if (!found) return found.failure();
        if (*found == nullptr) return success();
        stored = {(*found)->bytes.data(), (*found)->type == dtype::f16};
        return success();
    }

    status optional_tensors() const {
        if (status taken = scores("weights", target.top_k_, target.weights_); !taken) return taken;
        if (status taken = scores("gate_scores", target.experts_, target.gate_scores_); !taken)
            return taken;
        const result<const tensor *> ids = take("token_ids", true, {dtype::i32}, {target.tokens_});
        if (!ids) return ids.failure();
        if (*ids != nullptr) target.token_ids_data_ = (*ids)->bytes.data();

        const result<const tensor *> predicted = take("pred_experts", true, {dtype::u8, dtype::u16},
                                                      {target.tokens_, target.layers_, 0});
        if (!predicted) return predicted.failure();
        if (*predicted == nullptr) {
            if (source.find("pred_scores") == nullptr) return success();
            return error{"tensor pred_scores is there, but pred_experts is missing"};
        }
        const uint64_t width = (*predicted)->shape[2];
        if (width > target.experts_)
            return error{
                format("tensor pred_experts: {} experts predicted a layer, the limit is {} "
                       "experts",
                       width, target.experts_)};
        target.predictions_ = static_cast<uint32_t>(width);
        target.pred_data_ = (*predicted)->bytes.data();
        target.pred_wide_ = (*predicted)->type == dtype::u16;
        return scores("pred_scores", width, target.pred_scores_);
    }

    // Checks the values of the large tensors. Requires: everything else is checked.
    status values() const {
        const checked_up_to done = [this](const std::byte *begin, const std::byte *end) {
            target.mapping_->release(begin, end);
        };
        for (const char *name : {"experts", "pred_experts"})
            if (const tensor *ids = source.find(name))
                if (status right = check_ids(*ids, target.experts_, done); !right) return right;
        for (const char *name : {"weights", "gate_scores", "pred_scores"})
            if (const tensor *floats = source.find(name))
                if (status right = check_finite(*floats, done); !right) return right;
        for (const char *name :
             {"experts", "weights", "gate_scores", "pred_experts", "pred_scores", "token_ids"})
            if (const tensor *held = source.find(name))
                target.mapping_->token_tensors.push_back(held->bytes);
        return success();
    }

    status load_all() const {
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
    auto mapped = std::make_unique<mapping>();
    mapped->file = std::move(*file);
    mapped->path = path;
    return load(std::move(mapped));
}

result<trace> trace::from_bytes(std::string name, std::vector<std::byte> bytes) {
    auto mapped = std::make_unique<mapping>();
    mapped->owned = std::move(bytes);
    mapped->path = std::move(name);
    return load(std::move(mapped));
}

result<trace> trace::load(std::unique_ptr<mapping> mapped) {
    const std::string name = mapped->path.string();
    result<safetensors> parsed = parse_safetensors(mapped->bytes(), name);
    if (!parsed) return parsed.failure();
    trace trace;
    trace.mapping_ = std::move(mapped);
    const status loaded = loader{trace, *parsed}.load_all();
    if (!loaded) return error{format("{}: {}", name, loaded.failure().text)};
    trace.metadata_ = std::move(parsed->metadata);
    return trace;
}

const std::filesystem::path &trace::path() const { return mapping_->path; }
uint64_t trace::file_bytes() const { return mapping_->bytes().size(); }

std::string trace::meta(const std::string &key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? "" : found->second;
}

void trace::read_experts(uint64_t first, uint64_t count, uint32_t *ids) const {
    const uint64_t row = uint64_t{layers_} * top_k_, first_id = first * row, total = count * row;
    if (experts_wide_)
        widen_ids<uint16_t>(experts_data_, first_id, total, experts_ - 1, ids);
    else
        widen_ids<uint8_t>(experts_data_, first_id, total, experts_ - 1, ids);
}

float trace::read_float(const floats &values, uint64_t index) {
    return values.half ? float_of_half(element<uint16_t>(values.data, index))
                       : element<float>(values.data, index);
}

float trace::weight(uint64_t token, uint32_t layer, uint32_t rank) const {
    const uint64_t row = token * layers_ + layer;
    if (weights_.data != nullptr) return read_float(weights_, row * top_k_ + rank);
    return read_float(gate_scores_, row * experts_ + expert(token, layer, rank));
}

void trace::gate_scores(uint64_t token, uint32_t layer, float *scores) const {
    const uint64_t first_score = (token * layers_ + layer) * experts_;
    for (uint32_t i = 0; i < experts_; ++i) scores[i] = read_float(gate_scores_, first_score + i);
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
