// server_demand.hpp - activations of each expert by server, and memory as slots of whole experts.
//
// The placement policies of this folder read a cluster and a demand in this form. Activations are
// per second, of all homes that enter through a server. If no home has a rate, all homes have the
// same rate. An expert that a home holds itself does not count for its server. If several models
// share devices, every device's memory is divided first. Model m gets the share of the policy's
// weights, in whole experts. Slots move between models only if one of them could otherwise not hold
// all its experts. From then on each model is placed by itself. With one model a device has
// floor(bytes / expert bytes) slots.
#pragma once

#include <moorage/moorage.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace moorage::placement {

// One model that is requested.
struct model {
    uint32_t id, first, layers, experts, groups;
    uint64_t expert_bytes;
    uint32_t count() const { return layers * experts; }
};

struct scene {
    uint32_t servers = 0, devices = 0;
    uint32_t experts = 0;  // X, of all models
    bool cover = true;     // every expert of `models` needs a copy
    std::vector<model> models;
    std::vector<uint32_t> device_server;
    std::vector<uint32_t> first_device;  // [servers + 1]
    std::vector<uint64_t> device_bytes, server_bytes;
    std::vector<double> rate;    // [servers, X] activations per second
    std::vector<double> tokens;  // [servers, models] tokens per second

    double total_rate(uint32_t expert) const {
        double sum = 0;
        for (uint32_t server = 0; server < servers; ++server)
            sum += rate[size_t{server} * experts + expert];
        return sum;
    }
};

// The models that count, by the shares that homes give them.
inline std::vector<model> asked_models(const moorage_demand &demand) {
    std::vector<model> asked;
    for (uint32_t m = 0; m < demand.models; ++m) {
        bool wanted = false;
        for (uint32_t home = 0; home < demand.homes; ++home)
            wanted |= demand.host_home_model[size_t{home} * demand.models + m] > 0;
        if (wanted)
            asked.push_back({m, demand.host_model_first[m], demand.host_model_layers[m],
                             demand.host_model_experts[m], demand.host_model_groups[m],
                             demand.host_expert_bytes[m]});
    }
    return asked;
}

inline scene read_scene(const moorage_cluster &cluster, const moorage_demand &demand,
                        bool always_cover) {
    scene scene;
    scene.servers = cluster.servers, scene.devices = cluster.devices;
    scene.experts = demand.host_model_first[demand.models];
    scene.cover = always_cover || cluster.host_cloud_s == nullptr;
    scene.models = asked_models(demand);
    scene.device_server.assign(cluster.host_device_server,
                               cluster.host_device_server + cluster.devices);
    scene.device_bytes.assign(cluster.host_device_bytes,
                              cluster.host_device_bytes + cluster.devices);
    scene.first_device.assign(scene.servers + 1, 0);
    scene.server_bytes.assign(scene.servers, 0);
    for (uint32_t device = 0; device < scene.devices; ++device) {
        ++scene.first_device[scene.device_server[device] + 1];
        scene.server_bytes[scene.device_server[device]] += scene.device_bytes[device];
    }
    std::partial_sum(scene.first_device.begin(), scene.first_device.end(),
                     scene.first_device.begin());
    scene.rate.assign(size_t{scene.servers} * scene.experts, 0);
    scene.tokens.assign(size_t{scene.servers} * scene.models.size(), 0);
    const double *tokens = demand.host_home_tokens_per_s;
    const bool counted = std::any_of(tokens, tokens + demand.homes, [](double t) { return t > 0; });
    for (uint32_t home = 0; home < demand.homes; ++home) {
        const uint32_t server = cluster.host_home_server[home];
        const double tokens_per_s = counted ? tokens[home] : 1;
        const double *frequency = demand.host_frequency + size_t{home} * scene.experts;
        const uint8_t *holds = demand.host_home_holds;
        if (holds != nullptr) holds += size_t{home} * scene.experts;
        double *rate = scene.rate.data() + size_t{server} * scene.experts;
        for (uint32_t expert = 0; expert < scene.experts; ++expert)
            if (holds == nullptr || holds[expert] == 0)
                rate[expert] += tokens_per_s * frequency[expert];
        for (size_t m = 0; m < scene.models.size(); ++m)
            scene.tokens[server * scene.models.size() + m] +=
                tokens_per_s *
                demand.host_home_model[size_t{home} * demand.models + scene.models[m].id];
    }
    return scene;
}

// Slots of whole experts, [devices, models].
struct device_slots {
    uint32_t models = 0;
    std::vector<uint32_t> count;
    uint32_t at(uint32_t device, size_t model) const {
        return count[size_t{device} * models + model];
    }
    std::vector<uint32_t> sum_by_server(const scene &scene, size_t model) const {
        std::vector<uint32_t> sums(scene.servers, 0);
        for (uint32_t device = 0; device < scene.devices; ++device)
            sums[scene.device_server[device]] += at(device, model);
        return sums;
    }
};

// The division of memory between models; one object a plan.
class memory_division {
public:
    // `weight`: [servers, models], 0 or more. A server of zeros gives its models equal shares.
    memory_division(const scene &scene, std::span<const double> weight)
        : scene_(scene), models_(scene.models.size()), left_(scene.device_bytes) {
        slots_.models = static_cast<uint32_t>(models_);
        slots_.count.assign(scene.devices * models_, 0);
        on_server_.assign(scene.servers * models_, 0);
        total_.assign(models_, 0);
        target_.assign(scene.devices * models_, 0);
        for (uint32_t device = 0; device < scene.devices; ++device) {
            const double *row = weight.data() + scene.device_server[device] * models_;
            const double sum = std::accumulate(row, row + models_, 0.0);
            for (size_t m = 0; m < models_; ++m)
                target_[device * models_ + m] =
                    static_cast<double>(scene.device_bytes[device]) *
                    (sum > 0 ? row[m] / sum : 1.0 / static_cast<double>(models_));
        }
    }

    device_slots divide() {
        if (models_ == 1) {
            for (uint32_t device = 0; device < scene_.devices; ++device)
                slots_.count[device] = static_cast<uint32_t>(std::min<uint64_t>(
                    scene_.device_bytes[device] / scene_.models[0].expert_bytes, UINT32_MAX / 2));
            check_one();
            return slots_;
        }
        for (uint32_t device = 0; device < scene_.devices; ++device) {
            for (size_t m = 0; m < models_; ++m) give_target(device, m);
            give_rest(device);
        }
        if (scene_.cover && !repair()) first_fit();
        return slots_;
    }

private:
    uint64_t bytes(size_t m) const { return scene_.models[m].expert_bytes; }
    size_t server_place(uint32_t device, size_t m) const {
        return scene_.device_server[device] * models_ + m;
    }
    // On one server a model needs at most one copy of each expert.
    uint64_t wanted(uint32_t device, size_t m) const {
        return scene_.models[m].count() - on_server_[server_place(device, m)];
    }
    bool lacks(size_t m) const { return total_[m] < scene_.models[m].count(); }
    void add(uint32_t device, size_t m, uint64_t count) {
        slots_.count[device * models_ + m] += static_cast<uint32_t>(count);
        on_server_[server_place(device, m)] += count;
        total_[m] += count;
        left_[device] -= count * bytes(m);
    }
    void take(uint32_t device, size_t m, uint64_t count) {
        slots_.count[device * models_ + m] -= static_cast<uint32_t>(count);
        on_server_[server_place(device, m)] -= count;
        total_[m] -= count;
        left_[device] += count * bytes(m);
    }
    void give_target(uint32_t device, size_t m) {
        const double share = target_[device * models_ + m] / static_cast<double>(bytes(m));
        const auto count = static_cast<uint64_t>(std::min(share + 1e-9, 4e9));
        add(device, m, std::min({count, wanted(device, m), left_[device] / bytes(m)}));
    }
    // The room that the floors left goes to the model that is furthest below its share and fits.
    void give_rest(uint32_t device) {
        for (;;) {
            size_t best = models_;
            double most = 0;
            for (size_t m = 0; m < models_; ++m) {
                if (left_[device] < bytes(m) || wanted(device, m) == 0) continue;
                const double lacking =
                    target_[device * models_ + m] -
                    static_cast<double>(slots_.at(device, m)) * static_cast<double>(bytes(m));
                if (best != models_ && lacking <= most) continue;
                best = m;
                most = lacking;
            }
            if (best == models_) return;
            add(device, best, 1);
        }
    }
    std::vector<size_t> largest_first() const {
        std::vector<size_t> order(models_);
        std::iota(order.begin(), order.end(), size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return bytes(a) > bytes(b); });
        return order;
    }
    // Returns whether every model can hold all its experts.
    bool repair() {
        for (const size_t m : largest_first())
            for (uint32_t device = 0; device < scene_.devices; ++device)
                while (lacks(m) && wanted(device, m) > 0 && make_room(device, m)) add(device, m, 1);
        for (size_t m = 0; m < models_; ++m)
            if (lacks(m)) return false;
        return true;
    }
    // The donor is the model with the most bytes beyond what it needs.
    bool make_room(uint32_t device, size_t m) {
        if (left_[device] >= bytes(m)) return true;
        size_t donor = models_;
        uint64_t most = 0, number = 0;
        for (size_t candidate = 0; candidate < models_; ++candidate) {
            if (candidate == m || lacks(candidate)) continue;
            const uint64_t spare = total_[candidate] - scene_.models[candidate].count();
            const uint64_t gone =
                (bytes(m) - left_[device] + bytes(candidate) - 1) / bytes(candidate);
            if (spare < gone || slots_.at(device, candidate) < gone) continue;
            if (donor != models_ && spare * bytes(candidate) <= most) continue;
            donor = candidate;
            most = spare * bytes(candidate);
            number = gone;
        }
        if (donor == models_) return false;
        take(device, donor, number);
        return true;
    }
    // Places all experts once, largest first, then fills by shares.
    void first_fit() {
        std::fill(slots_.count.begin(), slots_.count.end(), 0u);
        std::fill(on_server_.begin(), on_server_.end(), 0u);
        std::fill(total_.begin(), total_.end(), 0u);
        left_ = scene_.device_bytes;
        for (const size_t m : largest_first()) {
            for (uint32_t device = 0; device < scene_.devices && lacks(m); ++device)
                add(device, m,
                    std::min<uint64_t>(scene_.models[m].count() - total_[m],
                                       left_[device] / bytes(m)));
            if (lacks(m))
                throw std::invalid_argument(
                    "the devices hold " + std::to_string(total_[m]) + " of the " +
                    std::to_string(scene_.models[m].count()) + " experts of model " +
                    std::to_string(scene_.models[m].id) +
                    " beside the larger ones; give them more " + "memory or a cloud");
        }
        for (uint32_t device = 0; device < scene_.devices; ++device) give_rest(device);
    }
    void check_one() const {
        uint64_t places = 0;
        const std::vector<uint32_t> servers = slots_.sum_by_server(scene_, 0);
        for (const uint32_t slots : servers)
            places += std::min<uint64_t>(slots, scene_.models[0].count());
        if (scene_.cover && places < scene_.models[0].count())
            throw std::invalid_argument("the devices hold " + std::to_string(places) + " of the " +
                                        std::to_string(scene_.models[0].count()) +
                                        " experts; give them more memory or a cloud");
    }

    const scene &scene_;
    const size_t models_;
    device_slots slots_;
    std::vector<uint64_t> left_;       // [devices] bytes
    std::vector<uint64_t> on_server_;  // [servers, models] slots
    std::vector<uint64_t> total_;      // [models] slots
    std::vector<double> target_;       // [devices, models] bytes
};

// A parameter of every policy here.
inline constexpr param cover_parameter = text(
    "cover", "auto", "auto|always", "every expert gets a copy where there is no cloud, or always");

}  // namespace moorage::placement
