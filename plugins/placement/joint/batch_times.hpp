// batch_times.hpp - the time that batches add to each layer, for the joint policy.
//
// If tokens pass in batches, the latency of a token is its part of a pass: its time alone over the
// batch, and what the other tokens add (moorage/batch.hpp). A layer is computed again whenever one
// of its holders changes.
#pragma once

#include <vector>

#include "copy_table.hpp"
#include "entry_demand.hpp"

namespace moorage::joint {

// Empty if all tokens pass alone.
class batch_times {
public:
    // All are borrowed.
    batch_times(const latency_model &latency, const entry_demand &demand, const copy_table &copies,
                uint32_t entries)
        : latency_(latency), demand_(demand), copies_(copies), entries_(entries) {
        if (!demand.has_batches()) return;
        const moorage_demand &models = latency.demand();
        for (uint32_t model = 0; model < models.models; ++model)
            for (uint32_t layer = 0; layer < models.host_model_layers[model]; ++layer) {
                layer_first_.push_back(models.host_model_first[model] +
                                       layer * models.host_model_experts[model]);
                layer_.insert(layer_.end(), models.host_model_experts[model],
                              static_cast<uint32_t>(layer_first_.size() - 1));
            }
        extra_s_.assign(layer_first_.size() * entries_, 0);
    }

    bool is_empty() const { return extra_s_.empty(); }
    const std::vector<double> &extra_s() const { return extra_s_; }
    uint64_t steps() const { return steps_; }

    // The change of the added time in the expert's layer, seen from the entry.
    double change_s(const copy_change &change, uint32_t entry) {
        return compute(change, entry) - extra_s_[index(change.expert, entry)];
    }
    // Makes that change.
    double apply(const copy_change &change, uint32_t entry) {
        double &extra = extra_s_[index(change.expert, entry)];
        const double new_extra = compute(change, entry), added = new_extra - extra;
        extra = new_extra;
        return added;
    }
    // Computes all anew from the copies.
    void refresh() {
        for (size_t layer = 0; layer < layer_first_.size(); ++layer)
            for (uint32_t entry = 0; entry < entries_; ++entry)
                extra_s_[layer * entries_ + entry] = compute(unchanged(layer_first_[layer]), entry);
    }

private:
    // The placement after the change, in the form that moorage/batch.hpp reads.
    class holder_view {
    public:
        holder_view(const copy_table &copies, const copy_change &change)
            : copies_(copies), change_(change) {}
        uint32_t at(uint32_t expert, uint32_t server) const {
            return expert == change_.expert ? copies_.device_after(change_, server)
                                            : copies_.device_at(expert, server);
        }
        template <class Each>
        void each(uint32_t expert, Each call) const {
            copies_.each_holder(expert == change_.expert ? change_ : unchanged(expert), call);
        }

    private:
        const copy_table &copies_;
        const copy_change change_;
    };

    size_t index(uint32_t expert, uint32_t entry) const {
        return layer_[expert] * size_t{entries_} + entry;
    }
    double compute(const copy_change &change, uint32_t entry) {
        steps_ += latency_.demand().host_model_experts[latency_.model_of(change.expert)];
        return demand_.batches().extra_s(entry, layer_first_[layer_[change.expert]],
                                         holder_view(copies_, change));
    }

    const latency_model &latency_;
    const entry_demand &demand_;
    const copy_table &copies_;
    const uint32_t entries_;
    std::vector<uint32_t> layer_;        // [experts]
    std::vector<uint32_t> layer_first_;  // [layers] first expert
    std::vector<double> extra_s_;        // [layers, entries]
    uint64_t steps_ = 0;
};

}  // namespace moorage::joint
