// latency_block.inl - gains of one expert on several devices at once, for latency.hpp.
#pragma once

#include "latency.hpp"

namespace moorage {

// gain() of an expert on neighbouring devices, if the sets are unknown. Each device has its own sum
// in gain()'s order, so the bits are equal. The data of an expert is read once for all devices.
class latency_model::gain_block {
public:
    static constexpr uint32_t width = 16;
    using gains = std::array<double, width>;

    // Requires: !model.grouped(). The model lives as long as this object.
    explicit gain_block(const latency_model &model) : model_(model) {
        const uint32_t blocks = (model.devices_ + width - 1) / width;
        const uint32_t entries = model.entries_;
        alone_.assign(size_t{model.cluster_.models} * blocks * entries,
                      filled(std::numeric_limits<double>::infinity()));
        for (uint32_t m = 0; m < model.cluster_.models; ++m)
            for (uint32_t d = 0; d < model.devices_; ++d)
                for (uint32_t e = 0; e < entries; ++e)
                    alone_[(size_t{m} * blocks + d / width) * entries + e][d % width] =
                        model.alone_s_[(size_t{m} * model.devices_ + d) * entries + e];
        for (const gains &times : alone_) {
            const auto [least, most] = std::minmax_element(times.begin(), times.end());
            least_.push_back(*least);
            reach_.push_back(*most < std::numeric_limits<double>::infinity() ? 1 : 0);
        }
        blocks_ = blocks;
    }
    // Gains of the expert on devices block * width and following.
    gains compute_gains(uint32_t expert, uint32_t block) const {
        const uint32_t m = model_.model_of(expert), entries = model_.entries_;
        const double *weight = model_.single_weight_.data() + size_t{expert} * entries;
        const double *now = model_.single_s_.data() + size_t{expert} * entries;
        const uint8_t *found = model_.single_found_.data() + size_t{expert} * entries;
        const gains *alone = alone_.data() + (size_t{m} * blocks_ + block) * entries;
        const uint8_t *reach = reach_.data() + (size_t{m} * blocks_ + block) * entries;
        const double *least = least_.data() + (size_t{m} * blocks_ + block) * entries;
        gains sum = filled(0);
        for (uint32_t e = 0; e < entries; ++e) {
            if (weight[e] <= 0) continue;
            const uint32_t own_server = model_.entry_server_[e], first = block * width;
            const uint32_t begin = std::max(model_.server_device_[own_server], first);
            const uint32_t end = std::min(model_.server_device_[own_server + 1], first + width);
            if (begin >= end) {
                add_others(found[e], weight[e], now[e], least[e], reach[e] != 0, alone[e], sum);
                continue;
            }
            // The entry's own devices count whatever served the expert before.
            const gains old_sum = sum;
            add_others(found[e], weight[e], now[e], least[e], reach[e] != 0, alone[e], sum);
            for (uint32_t i = begin - first; i < end - first; ++i) {
                sum[i] = old_sum[i];
                add(weight[e], now[e], alone[e][i], sum[i]);
            }
        }
        for (uint32_t d = block * width; d < std::min(model_.devices_, (block + 1) * width); ++d) {
            const uint32_t serving =
                model_.serving_[size_t{expert} * model_.servers_ + model_.server_of(d)];
            if (!model_.better(d, serving, m)) sum[d % width] = 0;
        }
        return sum;
    }

private:
    static gains filled(double value) {
        gains filled_gains;
        filled_gains.fill(value);
        return filled_gains;
    }
    // Adds an entry for all devices, none of which is its own. In most cases none is nearer than
    // the device that serves now, and there is nothing to add.
    static void add_others(uint8_t found, double weight, double now, double least, bool all_reach,
                           const gains &alone, gains &sum) {
        if (found == found_far && now > least)
            for (uint32_t i = 0; i < width; ++i) sum[i] += weight * (now - std::min(now, alone[i]));
        else if (found == not_found && all_reach)
            for (uint32_t i = 0; i < width; ++i) sum[i] += weight * (now - alone[i]);
        else if (found == not_found)
            for (uint32_t i = 0; i < width; ++i) add(weight, now, alone[i], sum[i]);
    }
    static void add(double weight, double now, double new_s, double &sum) {
        const double saved = weight * (now - new_s);
        sum += new_s < std::numeric_limits<double>::infinity() ? saved : 0;
    }

    const latency_model &model_;
    uint32_t blocks_ = 0;
    std::vector<gains> alone_;    // [M, blocks, entries]
    std::vector<double> least_;   // the same: least time over the block's devices
    std::vector<uint8_t> reach_;  // the same: whether all devices can be called
};

}  // namespace moorage
