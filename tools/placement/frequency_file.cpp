// frequency_file.cpp - reads and checks activation shares per subject.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "tools/placement/activation.h"

namespace moorage::core {

namespace {

// Values are stored little-endian, as on every supported machine.
static_assert(std::endian::native == std::endian::little);

template <class Value>
Value value_at(const tensor &values, size_t index) {
    Value value;
    std::memcpy(&value, values.bytes.data() + index * sizeof(Value), sizeof(Value));
    return value;
}

uint32_t count_of(const safetensors &file, const char *key) {
    const auto found = file.metadata.find(key);
    uint32_t count = 0;
    if (found == file.metadata.end()) return 0;
    const char *end = found->second.data() + found->second.size();
    const auto parsed = std::from_chars(found->second.data(), end, count);
    return parsed.ec == std::errc() && parsed.ptr == end ? count : 0;
}

}  // namespace

result<frequency_file> frequency_file::open(const std::filesystem::path &path) {
    const result<mapped_file> file = mapped_file::open(path);
    if (!file) return file.failure();
    return from_bytes(file->bytes(), path.string());
}

result<frequency_file> frequency_file::from_bytes(std::span<const std::byte> bytes,
                                                  const std::string &name) {
    const result<safetensors> parsed = parse_safetensors(bytes, name);
    if (!parsed) return parsed.failure();
    const auto wrong = [&](std::string_view problem) {
        return error{
            format("{}: {}; moorage.frequency files are described in "
                   "tools/placement/activation.h",
                   name, problem)};
    };
    const auto form = parsed->metadata.find("format");
    if (form == parsed->metadata.end() || form->second != "moorage.frequency")
        return wrong("it is no file of frequencies");
    frequency_file file;
    file.name_ = name;
    const tensor *shares = parsed->find("frequency"), *requests = parsed->find("requests");
    if (!shares || shares->type != dtype::f32 || shares->shape.size() != 3)
        return wrong("frequency [subjects, layers, experts] in F32 is needed");
    file.layers_ = count_of(*parsed, "layers");
    file.experts_ = count_of(*parsed, "experts");
    file.top_k_ = count_of(*parsed, "top_k");
    const uint64_t count = shares->shape[0];
    if (file.layers_ == 0 || file.experts_ == 0 || shares->shape[1] != file.layers_ ||
        shares->shape[2] != file.experts_ || file.top_k_ == 0 || file.top_k_ > file.experts_)
        return wrong(format("its frequency {} does not fit its layers {}, experts {} and top_k {}",
                            shape_text(shares->shape), file.layers_, file.experts_, file.top_k_));
    if (const auto found = parsed->metadata.find("subjects"); found != parsed->metadata.end())
        file.subjects_ = split(found->second, ',');
    if (count == 0 || file.subjects_.size() != count)
        return wrong(format("it has {} subjects and names {}", count, file.subjects_.size()));
    if (requests && (requests->type != dtype::i32 || requests->elements() != count))
        return wrong("requests is not I32, one of each subject");
    for (size_t n = 0; n < count; ++n) {
        const int32_t weight = requests ? value_at<int32_t>(*requests, n) : 1;
        if (weight <= 0) return wrong(format("requests of subject {} is {}", n, weight));
        file.weights_.push_back(weight);
    }
    file.shares_.resize(shares->elements());
    for (size_t row = 0; row < file.shares_.size() / file.experts_; ++row) {
        double sum = 0;
        for (size_t n = row * file.experts_; n < (row + 1) * file.experts_; ++n) {
            file.shares_[n] = value_at<float>(*shares, n);
            // At most one of top_k activations belongs to an expert.
            if (!(file.shares_[n] >= 0 &&
                  file.shares_[n] * static_cast<float>(file.top_k_) <= 1.001f))
                return wrong(format("frequency {} is {}, from 0 to 1 / top_k is needed", n,
                                    file.shares_[n]));
            sum += file.shares_[n];
        }
        if (std::fabs(sum - 1) > 1e-3)
            return wrong(format("the shares of subject {} layer {} sum to {:#.6g}, and 1 is needed",
                                row / file.layers_, row % file.layers_, sum));
    }
    return file;
}

result<activation> frequency_file::read(const std::vector<std::string> &subjects) const {
    std::vector<size_t> chosen;
    for (const std::string &subject : subjects) {
        const auto found = std::find(subjects_.begin(), subjects_.end(), subject);
        if (found == subjects_.end()) {
            const std::string hint = did_you_mean(subject, subjects_);
            return error{
                format("{} has no subject {}{}", name_, subject,
                       hint.empty() ? format("; it has {}", fmt::join(subjects_, ", ")) : hint),
                true};
        }
        chosen.push_back(static_cast<size_t>(found - subjects_.begin()));
    }
    if (chosen.empty())
        for (size_t n = 0; n < subjects_.size(); ++n) chosen.push_back(n);
    activation mixed;
    const size_t row = size_t{layers_} * experts_;
    mixed.frequency.assign(row, 0.0);
    for (const size_t subject : chosen)
        for (size_t n = 0; n < row; ++n)
            mixed.frequency[n] += weights_[subject] * shares_[subject * row + n];
    // Converts shares of activations to frequencies of tokens, which have top_k activations.
    // Removes the file's rounding.
    for (size_t layer = 0; layer < layers_; ++layer) {
        double sum = 0;
        for (size_t n = layer * experts_; n < (layer + 1) * experts_; ++n)
            sum += mixed.frequency[n];
        for (size_t n = layer * experts_; n < (layer + 1) * experts_; ++n)
            mixed.frequency[n] = std::min(mixed.frequency[n] / sum * top_k_, 1.0);
    }
    if (top_k_ > 1) return mixed;
    mixed.share = mixed.frequency;
    for (uint32_t layer = 0; layer <= layers_; ++layer)
        mixed.layer_group.push_back(uint64_t{layer} * experts_);
    for (size_t n = 0; n < row; ++n)
        mixed.group_experts.push_back(static_cast<uint32_t>(n % experts_));
    return mixed;
}

}  // namespace moorage::core
