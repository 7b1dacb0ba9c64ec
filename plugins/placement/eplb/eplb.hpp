// eplb.hpp - DeepSeek's expert parallelism load balancer: copies of the most loaded experts.
//
// Copies are packed so that all devices have equally much to do. Source: the published EPLB
// (DeepSeek-V3, Section 3.4.1; algorithm.hpp), with servers as its nodes. The load of an expert is
// its activations by all servers. If the router's groups divide by the servers, groups are packed
// to servers first (hierarchical). Otherwise only devices count (global). Equal devices get the
// published result on `replicas` places of every layer: as many as each device's memory holds in
// all layers alike. A second copy of an expert on its device would have no use; its place goes to
// another expert (duplicates). `refine` exchanges copies between GPUs while that lowers the largest
// load. It is off, because the results should be as published.
//
// unequal.hpp handles unequal devices, and devices that hold too few for equal layers: places by
// memory, load by the speed of one call. The algorithm does not see which homes request an expert.
// Several models get memory in proportion to their activations times the size of their experts. The
// host's rule judges migration. Cost of a plan: O(layers * replicas * (log replicas + devices)).
//
// Results at DeepSeek-V3's size: 58 layers x 256 experts, 288 places a layer, 32 GPUs in 4 nodes;
// loads rank^-0.8, one core at 2.6 GHz, processor time, bin/placement_eplb_perf. The published code
// takes about 200 ms. The last two columns are largest / mean load, mean and worst over layers.
//
//                               all layers   whole plan   algorithm          plan
//   8 groups, hierarchical      0.7 ms       1.2 ms       1.167, 1.587 (1)   1.165, 1.587
//   the same, refine = 20       2.0 ms       2.5 ms       1.144, 1.545       1.146, 1.545
//   1 group, global             0.7 ms       1.4 ms       1.0008, 1.0008 (1) 1.0008, 1.0008
//   the same, refine = 20       2.3 ms       3.3 ms       1.0003, 1.0003     1.0002, 1.0002
//   slow half (2)                            4.0 ms                          1.155, 1.574
//   slow half (2), global                    4.6 ms                          1.001, 1.001
//
// (1) as published. (2) half of the GPUs half as fast, with less memory.
#pragma once

#include "algorithm.hpp"
#include "unequal.hpp"
#include "../server_demand.hpp"

namespace moorage::policies {

class eplb {
public:
    static constexpr moorage::about about{
        .name = "eplb",
        .summary = "copies of the most loaded experts, equal loads on the devices",
        .source = "EPLB as published (DeepSeek-V3, Section 3.4.1); Prism, Section IV-A",
    };
    static constexpr moorage::param params[] = {
        moorage::text("policy", "auto", "auto|hierarchical|global",
                      "groups go to servers first where they divide by them (auto, as published), "
                      "wherever they fit, or never"),
        moorage::integer("replicas", 0, 0, 1 << 24,
                         "places of a layer in all, rounded down to a multiple of equal devices; "
                         "0: what the devices hold"),
        moorage::text("leftover", "empty", "empty|fill",
                      "places that do not divide by the layers: empty (as published), or one more "
                      "for some layers"),
        moorage::text("duplicates", "exchange", "exchange|replace|drop",
                      "a second copy on a device changes places with an expert of another device, "
                      "or makes place for the largest load per copy that its device lacks (also "
                      "where no exchange helps), or for nothing"),
        moorage::integer("refine", 0, 0, 10000,
                         "exchanges a layer and server that may even out the published packing "
                         "further; 0: as published"),
        placement::cover_parameter,
    };

    explicit eplb(const moorage::setup &setup)
        : hierarchical_(setup.text("policy") != "global"),
          forced_(setup.text("policy") == "hierarchical"),
          fill_(setup.text("leftover") == "fill"),
          replace_(setup.text("duplicates") != "drop"),
          always_cover_(setup.text("cover") == "always"),
          replicas_(static_cast<uint32_t>(setup.integer("replicas"))),
          options_{setup.text("duplicates") == "exchange",
                   static_cast<uint32_t>(setup.integer("refine"))} {}

    void reset() { published_ = layers_ = copies_ = imbalance_sum_ = imbalance_max_ = 0; }

    void plan(const moorage_cluster &cluster, const moorage_demand &demand,
              std::span<const moorage_copy>, moorage::copies &copies) {
        reset();
        const placement::scene scene = placement::read_scene(cluster, demand, always_cover_);
        if (scene.models.empty()) return;
        const std::vector<double> rate = total_rates(scene);
        const placement::device_slots slots =
            placement::memory_division(scene, weights(scene, rate)).divide();
        for (size_t m = 0; m < scene.models.size(); ++m) {
            devices_.clear();
            for (uint32_t device = 0; device < scene.devices; ++device)
                devices_.push_back({scene.device_server[device],
                                    slots.at(device, m),
                                    speed(cluster, device, scene.models[m].id),
                                    {}});
            place_model(scene, scene.models[m], rate, copies);
        }
    }

    uint32_t facts(std::span<moorage_fact> target) {
        const double layers = layers_ > 0 ? layers_ : 1;
        const moorage_fact facts[] = {{"imbalance_mean", imbalance_sum_ / layers},
                                      {"imbalance_max", imbalance_max_},
                                      {"copies_per_layer", copies_ / layers},
                                      {"published_share", published_ / layers}};
        const size_t count = std::min(target.size(), std::size(facts));
        std::copy(facts, facts + count, target.begin());
        return static_cast<uint32_t>(count);
    }

private:
    static std::vector<double> total_rates(const placement::scene &scene) {
        std::vector<double> rate(scene.experts, 0);
        for (uint32_t server = 0; server < scene.servers; ++server)
            for (uint32_t expert = 0; expert < scene.experts; ++expert)
                rate[expert] += scene.rate[size_t{server} * scene.experts + expert];
        return rate;
    }
    static std::vector<double> weights(const placement::scene &scene,
                                       std::span<const double> rate) {
        const size_t models = scene.models.size();
        std::vector<double> weight(scene.servers * models, 0);
        for (size_t m = 0; m < models; ++m) {
            const auto model_rates = rate.subspan(scene.models[m].first, scene.models[m].count());
            const double sum = std::accumulate(model_rates.begin(), model_rates.end(), 0.0);
            for (uint32_t server = 0; server < scene.servers; ++server)
                weight[server * models + m] =
                    sum * static_cast<double>(scene.models[m].expert_bytes);
        }
        return weight;
    }
    // Speed of one call. Devices without a time are equal.
    static double speed(const moorage_cluster &cluster, uint32_t device, uint32_t model) {
        const double call_s = cluster.host_device_call_s[size_t{device} * cluster.models + model];
        return call_s > 0 && call_s < 1e30 ? 1 / call_s : 1;
    }

    // Equal devices with room for equal layers: the published algorithm applies.
    bool has_published_shape(const placement::scene &scene, const placement::model &model,
                             moorage::eplb::shape &shape) const {
        const moorage::eplb::device &first = devices_.front();
        for (const moorage::eplb::device &device : devices_)
            if (device.slots != first.slots || device.speed != first.speed) return false;
        const bool nodes = hierarchical_ && model.groups % scene.servers == 0;
        uint32_t places =
            std::min(first.slots / model.layers, model.experts / (nodes ? scene.servers : 1));
        if (replicas_ > 0) places = std::min(places, replicas_ / scene.devices);
        if (fill_ && places < model.experts && places * model.layers < first.slots &&
            replicas_ == 0)
            return false;
        shape = {model.experts, places * scene.devices, model.groups, scene.servers, scene.devices};
        if (!hierarchical_) shape.groups = shape.nodes = 1;
        if (forced_ && !shape.hierarchical()) return false;
        for (uint32_t server = 0; shape.hierarchical() && server < shape.nodes; ++server)
            if (shape.nodes > 1 &&
                (scene.first_device[server + 1] - scene.first_device[server]) * shape.nodes !=
                    scene.devices)
                return false;
        return shape.valid();
    }

    void place_model(const placement::scene &scene, const placement::model &model,
                     std::span<const double> rate, moorage::copies &copies) {
        if (replicas_ > 0 && replicas_ < model.experts && scene.cover)
            throw std::invalid_argument("replicas = " + std::to_string(replicas_) +
                                        " is below the " + std::to_string(model.experts) +
                                        " experts of a layer; raise it or set it to 0");
        moorage::eplb::shape shape{};
        const bool equal = has_published_shape(scene, model, shape);
        const std::vector<uint32_t> slots = device_slots();
        std::vector<float> weight(model.experts);
        for (uint32_t layer = 0; layer < model.layers; ++layer) {
            const uint32_t first = model.first + layer * model.experts;
            for (uint32_t expert = 0; expert < model.experts; ++expert)
                weight[expert] = static_cast<float>(rate[first + expert]);
            for (moorage::eplb::device &device : devices_) device.experts.clear();
            if (equal)
                place_published(weight, shape);
            else
                place_unequal(scene, model, weight, layer, slots);
            for (uint32_t device = 0; device < scene.devices; ++device)
                for (const uint32_t expert : devices_[device].experts)
                    copies.push(first + expert, device);
            judge(weight);
            published_ += equal;
        }
    }
    std::vector<uint32_t> device_slots() const {
        std::vector<uint32_t> slots;
        for (const moorage::eplb::device &device : devices_) slots.push_back(device.slots);
        return slots;
    }

    void place_published(std::span<const float> weight, const moorage::eplb::shape &shape) {
        place_expert_.resize(shape.replicas);
        counts_.resize(shape.experts);
        moorage::eplb::rebalance(weight, shape, place_expert_, counts_, work_, options_);
        const uint32_t places = shape.replicas / shape.gpus;
        if (all_distinct(shape, places)) {
            for (uint32_t gpu = 0; gpu < shape.gpus; ++gpu)
                devices_[gpu].experts.assign(place_expert_.begin() + gpu * places,
                                             place_expert_.begin() + (gpu + 1) * places);
            return;
        }
        moorage::eplb::unequal_layer layer(weight, devices_);
        for (uint32_t gpu = 0; gpu < shape.gpus; ++gpu) {
            devices_[gpu].slots = places;
            layer.take(gpu, std::span(place_expert_).subspan(size_t{gpu} * places, places));
        }
        if (!replace_) return;
        const uint32_t nodes = shape.hierarchical() ? shape.nodes : 1;
        const uint32_t node_places = shape.replicas / nodes, node_gpus = shape.gpus / nodes;
        for (uint32_t node = 0; node < nodes; ++node) {
            // Only from its own groups.
            std::vector<uint32_t> scope(place_expert_.begin() + node * node_places,
                                        place_expert_.begin() + (node + 1) * node_places);
            std::sort(scope.begin(), scope.end());
            scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
            layer.refill(scope, node * node_gpus, (node + 1) * node_gpus);
        }
    }
    bool all_distinct(const moorage::eplb::shape &shape, uint32_t places) {
        last_device_.assign(shape.experts, moorage::none);
        for (uint32_t place = 0; place < shape.replicas; ++place) {
            uint32_t &last = last_device_[place_expert_[place]];
            if (last == place / places) return false;
            last = place / places;
        }
        return true;
    }

    void place_unequal(const placement::scene &scene, const placement::model &model,
                       std::span<const float> weight, uint32_t layer,
                       std::span<const uint32_t> slots) {
        divide_slots(scene, model, layer, slots);
        moorage::eplb::unequal_layer placed(weight, devices_);
        const bool divides = model.groups % scene.servers == 0 || (forced_ && model.groups > 1);
        if (hierarchical_ && divides && model.experts % model.groups == 0 && scene.servers > 1 &&
            placed.place_by_groups(model.groups, scene.servers))
            return;
        placed.place_all();
    }
    // Places of this layer on each device: equally many in every layer. Places that do not divide
    // go to the layers in turn, if they may be used or are needed to cover all experts.
    void divide_slots(const placement::scene &scene, const placement::model &model, uint32_t layer,
                      std::span<const uint32_t> slots) {
        uint64_t even = 0;
        for (const uint32_t count : slots) even += std::min(count / model.layers, model.experts);
        const bool use_rest = fill_ || (scene.cover && even < model.experts);
        uint64_t sum = 0, turn = 0;
        for (uint32_t device = 0; device < scene.devices; ++device) {
            const uint32_t rest = slots[device] % model.layers;
            const auto place = static_cast<uint32_t>((layer + model.layers - turn) % model.layers);
            uint32_t &layer_slots = devices_[device].slots;
            layer_slots = slots[device] / model.layers + (use_rest && place < rest ? 1 : 0);
            layer_slots = std::min(layer_slots, model.experts);
            sum += layer_slots;
            turn = (turn + rest) % model.layers;
        }
        for (; replicas_ > 0 && sum > replicas_; --sum)
            --std::max_element(devices_.begin(), devices_.end(),
                               [](const moorage::eplb::device &a, const moorage::eplb::device &b) {
                                   return a.slots < b.slots;
                               })
                  ->slots;
    }

    // Loads if the copies of an expert share its activations equally.
    void judge(std::span<const float> weight) {
        counts_.assign(weight.size(), 0);
        for (const moorage::eplb::device &device : devices_)
            for (const uint32_t expert : device.experts) ++counts_[expert];
        double most = 0, sum = 0, speed = 0;
        for (const moorage::eplb::device &device : devices_) {
            double load = 0;
            for (const uint32_t expert : device.experts)
                load += double{weight[expert]} / counts_[expert];
            most = std::max(most, load / device.speed);
            sum += load;
            speed += device.speed;
            copies_ += static_cast<double>(device.experts.size());
        }
        const double imbalance = sum > 0 ? most / (sum / speed) : 1;
        imbalance_sum_ += imbalance;
        imbalance_max_ = std::max(imbalance_max_, imbalance);
        ++layers_;
    }

    const bool hierarchical_, forced_, fill_, replace_, always_cover_;
    const uint32_t replicas_;
    const moorage::eplb::packing_options options_;
    std::vector<moorage::eplb::device> devices_;
    std::vector<uint32_t> place_expert_, counts_, last_device_;
    moorage::eplb::workspace work_;
    double published_ = 0, layers_ = 0, copies_ = 0, imbalance_sum_ = 0, imbalance_max_ = 0;
};

}  // namespace moorage::policies
