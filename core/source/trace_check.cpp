// trace_check.cpp - fast checks of ids and scores, and the slow search for the wrong value.
#include "core/source/trace_check.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/finite.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t chunk_bytes = 256 * 1024;

// "token 3, layer 1, rank 0" for an index into [tokens, layers, width].
std::string place_text(const tensor &tensor, uint64_t index) {
    const uint64_t width = tensor.shape[2], layers = tensor.shape[1];
    return format("token {}, layer {}, rank {}", index / width / layers, index / width % layers,
                  index % width);
}

// Checks ids of whole groups. The scratch marks which experts the group has.
template <class Id>
class id_checker {
public:
    id_checker(uint64_t width, uint32_t experts)
        : width_(width), experts_(experts), last_(experts, 0) {}

    // Requires: a whole number of groups.
    bool right(const std::byte *ids, uint64_t count) {
        Id largest = 0;
        for (uint64_t i = 0; i < count; ++i) largest = std::max(largest, element<Id>(ids, i));
        if (largest >= experts_) return false;
        if (width_ == 1) return true;
        if (width_ == 2) return pairs_differ(ids, count);
        return experts_ <= 64 ? distinct_by_mask(ids, count) : distinct_by_stamp(ids, count);
    }

    // The first wrong id of a wrong chunk, as an error.
    error culprit(const tensor &tensor, uint64_t first, uint64_t count) const {
        for (uint64_t i = first; i < first + count; ++i) {
            const Id id = element<Id>(tensor.bytes.data(), i);
            if (id >= experts_)
                return {
                    format("tensor {}: expert {} at {} is out of range, the limit is {} experts "
                           "a layer",
                           tensor.name, id, place_text(tensor, i), experts_)};
            for (uint64_t j = i / width_ * width_; j < i; ++j)
                if (element<Id>(tensor.bytes.data(), j) == id)
                    return {
                        format("tensor {}: expert {} at {} is there at rank {} already; the "
                               "experts of a token and layer are distinct",
                               tensor.name, id, place_text(tensor, i), j % width_)};
        }
        return {format("tensor {}: wrong expert ids", tensor.name)};
    }

private:
    static bool pairs_differ(const std::byte *ids, uint64_t count) {
        uint32_t equal = 0;
        for (uint64_t i = 0; i < count; i += 2)
            equal |= element<Id>(ids, i) == element<Id>(ids, i + 1) ? 1u : 0u;
        return equal == 0;
    }

    bool distinct_by_mask(const std::byte *ids, uint64_t count) const {
        uint64_t twice = 0;
        for (uint64_t group = 0; group < count; group += width_) {
            uint64_t seen = 0;
            for (uint64_t rank = 0; rank < width_; ++rank) {
                const uint64_t bit = uint64_t{1} << (element<Id>(ids, group + rank) & 63);
                twice |= seen & bit;
                seen |= bit;
            }
        }
        return twice == 0;
    }

    bool distinct_by_stamp(const std::byte *ids, uint64_t count) {
        bool twice = false;
        for (uint64_t group = 0; group < count; group += width_) {
            ++stamp_;
            for (uint64_t rank = 0; rank < width_; ++rank) {
                uint64_t &last = last_[element<Id>(ids, group + rank)];
                twice |= last == stamp_;
                last = stamp_;
            }
        }
        return !twice;
    }

    uint64_t width_;
    uint32_t experts_;
    uint64_t stamp_ = 0;
    std::vector<uint64_t> last_;  // [experts] the latest group with the expert
};

template <class Id>
status check_ids_of(const tensor &tensor, uint32_t experts, const checked_up_to &done) {
    const uint64_t width = tensor.shape[2], total = tensor.elements();
    const uint64_t step = std::max<uint64_t>(1, chunk_bytes / sizeof(Id) / width) * width;
    id_checker<Id> checker(width, experts);
    const std::byte *begin = tensor.bytes.data();
    for (uint64_t first = 0; first < total; first += step) {
        const uint64_t count = std::min(step, total - first);
        if (!checker.right(begin + first * sizeof(Id), count))
            return checker.culprit(tensor, first, count);
        done(begin, begin + (first + count) * sizeof(Id));
    }
    return success();
}

}  // namespace

status check_ids(const tensor &tensor, uint32_t experts, const checked_up_to &done) {
    return tensor.type == dtype::u8 ? check_ids_of<uint8_t>(tensor, experts, done)
                                    : check_ids_of<uint16_t>(tensor, experts, done);
}

status check_finite(const tensor &tensor, const checked_up_to &done) {
    const uint64_t total = tensor.elements(), size = bytes_of(tensor.type),
                   step = chunk_bytes / size;
    for (uint64_t first = 0; first < total; first += step) {
        const uint64_t end = std::min(first + step, total),
                       odd = first_non_finite(tensor, first, end);
        if (odd != end)
            return error{format("tensor {}: value {} at {} is not finite", tensor.name,
                                value_at(tensor, odd), place_text(tensor, odd))};
        done(tensor.bytes.data(), tensor.bytes.data() + end * size);
    }
    return success();
}

}  // namespace moorage::core
