// scene_demand.cpp - which homes use which experts, how often, and what users hold of them.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core/base/log.h"
#include "core/base/portable_math.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "tools/placement/activation.h"
#include "tools/placement/arrivals.h"
#include "tools/placement/scene_parts.h"

namespace moorage::core {

namespace {

// Limits of [homes, experts] values and of calls: 1 GiB and 192 MB. Further calls are thinned out.
constexpr uint64_t frequencies_max = uint64_t{1} << 27, calls_max = 16'000'000;
constexpr uint32_t groups_least = 64;

// The content of a workload's files.
struct workload_files {
    std::optional<trace> routing;
    std::vector<uint64_t> requests;  // chosen requests of the routing
    std::optional<frequency_file> frequency;
    double tokens_per_s = 1, batch = 1, single_share = 1;
};

// One model as a home uses it. Equal keys have equal statistics.
using statistics_key = std::tuple<uint32_t, uint32_t, uint32_t>;  // workload, model, shuffle

class demand_builder {
public:
    demand_builder(const cluster_config &config, scene &scene)
        : config_(config), scene_(scene), demand_(scene.demand) {
        for (uint32_t n = 0; n < scene.model_names.size(); ++n)
            model_numbers_.emplace(scene.model_names[n], n);
    }
    status build();
    // Only tokens, batches and models of the homes.
    status rates();

private:
    status open_files();
    status check_fits() const;
    std::vector<arrival> requests_of(const cluster_workload &workload,
                                     const workload_files &files) const;
    void set_rates(std::vector<arrival> requests, double mean_s, workload_files &files) const;
    void add_homes();
    void add_home_models(uint32_t home, const std::string &workload, uint32_t ordinal);
    status add_statistics(uint32_t groups_max);
    result<activation> statistics_of(const statistics_key &key, uint32_t groups_max) const;
    uint64_t count_calls() const;
    void fill_groups();
    void fill_frequencies(uint32_t home);
    void fill_holds();
    bool trace_fits(uint32_t workload, uint32_t model) const {
        return files_[workload].routing && fits(*files_[workload].routing, scene_.shapes[model]);
    }
    bool frequency_fits(uint32_t workload, uint32_t model) const {
        return files_[workload].frequency && files_[workload].frequency->fits(scene_.shapes[model]);
    }
    uint32_t model_number(const std::string &name) const { return model_numbers_.at(name); }

    const cluster_config &config_;
    scene &scene_;
    demand_arrays &demand_;
    std::map<std::string, uint32_t> model_numbers_;
    std::vector<workload_files> files_;
    std::vector<uint32_t> shuffle_;  // [homes] 0: the workload's
    std::map<statistics_key, activation> statistics_;
    std::map<statistics_key, uint64_t> group_offset_;
    bool has_groups_ = true;
};

status demand_builder::open_files() {
    for (const cluster_workload &workload : config_.workloads) {
        workload_files &files = files_.emplace_back();
        if (!workload.trace.empty()) {
            result<trace> opened = trace::open(workload.trace);
            if (!opened)
                return wrong(format("{}: [[cluster.workloads]] {}: {}", workload.place,
                                    workload.name, opened.failure().text));
            result<std::vector<uint64_t>> requests = chosen_requests(*opened, workload);
            if (!requests) return requests.failure();
            files.requests = std::move(*requests);
            files.routing = std::move(*opened);
        } else if (!workload.frequency.empty()) {
            result<frequency_file> opened = frequency_file::open(workload.frequency);
            if (!opened)
                return wrong(format("{}: [[cluster.workloads]] {}: {}", workload.place,
                                    workload.name, opened.failure().text));
            files.frequency = std::move(*opened);
        }
        if (!workload.arrivals.empty()) {
            const result<std::vector<arrival>> arrivals = read_arrivals(workload.arrivals);
            if (!arrivals)
                return wrong(format("{}: [[cluster.workloads]] {}: {}", workload.place,
                                    workload.name, arrivals.failure().text));
            const double span = arrivals->back().at_s - arrivals->front().at_s;
            const double gaps = static_cast<double>(arrivals->size() - 1);
            // n requests have n - 1 gaps. A single request gives no rate.
            const double mean_s = span > 0 ? span / gaps : 0;
            set_rates(*arrivals, mean_s, files);
        } else if (workload.poisson_s > 0 || workload.output_tokens > 0) {
            set_rates(requests_of(workload, files), workload.poisson_s, files);
        }
    }
    return success();
}

// The requests with lengths from the workload and its trace.
std::vector<arrival> demand_builder::requests_of(const cluster_workload &workload,
                                                 const workload_files &files) const {
    std::vector<arrival> requests;
    if (files.routing)
        for (const uint64_t request : files.requests) {
            const auto offsets = files.routing->request_offsets();
            requests.push_back({0, workload.input_tokens, workload.output_tokens});
            complete_lengths(static_cast<uint32_t>(offsets[request + 1] - offsets[request]),
                             requests.back());
        }
    else
        requests.push_back({0, workload.input_tokens, workload.output_tokens});
    return requests;
}

// Sets rate, batch and passes of one token from the lengths of requests, which arrive every
// `mean_s` on average; 0: unknown.
void demand_builder::set_rates(std::vector<arrival> requests, double mean_s,
                               workload_files &files) const {
    double tokens = 0, passes = 0, singles = 0;
    for (arrival &request : requests) {
        complete_lengths(0, request);
        tokens += static_cast<double>(request.input_tokens) + (request.output_tokens - 1.0);
        passes += static_cast<double>(passes_of(request));
        singles += (request.output_tokens - 1.0) + (request.input_tokens == 1);
    }
    files.batch = std::max(tokens / passes, 1.0);
    files.single_share = singles / passes;
    if (mean_s > 0) files.tokens_per_s = tokens / static_cast<double>(requests.size()) / mean_s;
}

// If a workload's file does not fit a model, routing is drawn, provided that the workload says how.
status demand_builder::check_fits() const {
    for (uint32_t w = 0; w < files_.size(); ++w) {
        const cluster_workload &workload = config_.workloads[w];
        const workload_files &files = files_[w];
        if (!files.routing && !files.frequency) continue;
        const uint32_t layers = files.routing ? files.routing->layers() : files.frequency->layers();
        const uint32_t experts =
            files.routing ? files.routing->experts() : files.frequency->experts();
        const uint32_t top_k = files.routing ? files.routing->top_k() : files.frequency->top_k();
        size_t fitting = 0;
        for (const auto &[name, share] : workload.models) {
            const uint32_t model = model_number(name);
            if (trace_fits(w, model) || frequency_fits(w, model)) {
                ++fitting;
                continue;
            }
            if (workload.zipf >= 0 && (fitting > 0 || name != workload.models.back().first))
                continue;
            const model_shape &shape = scene_.shapes[model];
            return wrong(format(
                "{}: [[cluster.workloads]] {}: {} has {} MoE layers, {} experts and top-{}, but "
                "model {} has {}, {} and top-{}; choose models that fit{}",
                workload.place, workload.name,
                (files.routing ? workload.trace : workload.frequency).string(), layers, experts,
                top_k, name, shape.moe_layers, shape.experts, shape.top_k,
                workload.zipf < 0 ? ", or give zipf for the others" : ""));
        }
        if (files.frequency)
            if (const auto read = files.frequency->read(workload.domains); !read)
                return wrong(format("{}: [[cluster.workloads]] {}: {}", workload.place,
                                    workload.name, read.failure().text));
    }
    return success();
}

// A home's set of models in the order of their popularity. The size of the set is drawn after the
// order, so that a larger set contains the smaller one.
void demand_builder::add_home_models(uint32_t home, const std::string &name, uint32_t ordinal) {
    uint32_t w = 0;
    while (w < config_.workloads.size() && config_.workloads[w].name != name) ++w;
    if (w == config_.workloads.size()) return;
    const cluster_workload &workload = config_.workloads[w];
    scene_.home_workload[home] = w;
    shuffle_[home] = workload.per_user ? ordinal + 1 : 0;
    demand_.home_tokens_per_s[home] = files_[w].tokens_per_s;
    demand_.home_batch[home] = files_[w].batch;
    demand_.home_single_share[home] = files_[w].single_share;
    double *shares = &demand_.home_model[size_t{home} * demand_.models];
    if (workload.models_per_user_max == 0) {
        for (const auto &[model, share] : workload.models) shares[model_number(model)] = share;
        return;
    }
    random_stream random(workload.model_seed, ordinal);
    std::vector<uint32_t> order(workload.models.size());
    for (uint32_t n = 0; n < order.size(); ++n) order[n] = model_number(workload.models[n].first);
    for (size_t index = 0; index + 1 < order.size(); ++index)
        std::swap(order[index], order[index + random.below(order.size() - index)]);
    const uint32_t least = workload.models_per_user_min;
    order.resize(least + random.below(workload.models_per_user_max - least + 1));
    double total = 0;
    for (size_t rank = 0; rank < order.size(); ++rank)
        total += shares[order[rank]] =
            portable_pow(static_cast<double>(rank + 1), -workload.model_zipf);
    for (const uint32_t model : order) shares[model] /= total;
}

void demand_builder::add_homes() {
    const uint32_t homes = scene_.cluster.homes;
    demand_.homes = homes;
    demand_.home_tokens_per_s.assign(homes, 0.0);
    demand_.home_batch.assign(homes, 1.0);
    demand_.home_single_share.assign(homes, 1.0);
    demand_.home_model.assign(size_t{homes} * demand_.models, 0.0);
    scene_.home_workload.assign(homes, no_workload);
    shuffle_.assign(homes, 0);
    std::map<std::string, uint32_t> ordinals;  // homes of each workload so far
    for (uint32_t home = 0; home < homes; ++home) {
        const size_t servers = config_.servers.size();
        const std::string &workload = home < servers ? config_.servers[home].workload
                                                     : config_.users[home - servers].workload;
        if (!workload.empty()) add_home_models(home, workload, ordinals[workload]++);
    }
}

result<activation> demand_builder::statistics_of(const statistics_key &key,
                                                 uint32_t groups_max) const {
    const auto [w, model, shuffle] = key;
    const cluster_workload &workload = config_.workloads[w];
    const uint32_t groups = std::min(workload.groups_max, groups_max);
    if (trace_fits(w, model))
        return trace_activation(*files_[w].routing, files_[w].requests, groups);
    if (frequency_fits(w, model)) return files_[w].frequency->read(workload.domains);
    const uint64_t stream = uint64_t{shuffle} << 32 | model;
    return draw_activation(scene_.shapes[model],
                           {workload.zipf, workload.draw_seed, stream, groups});
}

status demand_builder::add_statistics(uint32_t groups_max) {
    statistics_.clear();
    has_groups_ = groups_max > 0;
    for (uint32_t home = 0; home < demand_.homes; ++home) {
        const uint32_t workload = scene_.home_workload[home];
        if (workload == no_workload) continue;
        for (uint32_t model = 0; model < demand_.models; ++model) {
            if (demand_.home_model[size_t{home} * demand_.models + model] == 0) continue;
            const statistics_key key{workload, model, shuffle_[home]};
            if (statistics_.contains(key)) continue;
            result<activation> statistics = statistics_of(key, groups_max);
            if (!statistics) return statistics.failure();
            has_groups_ = has_groups_ && statistics->has_groups();
            statistics_.emplace(key, std::move(*statistics));
        }
    }
    return success();
}

uint64_t demand_builder::count_calls() const {
    uint64_t calls = 0;
    for (uint32_t home = 0; home < demand_.homes; ++home)
        for (uint32_t model = 0; model < demand_.models; ++model) {
            const auto found =
                statistics_.find({scene_.home_workload[home], model, shuffle_[home]});
            if (found != statistics_.end() &&
                demand_.home_model[size_t{home} * demand_.models + model] > 0)
                calls += found->second.share.size();
        }
    return calls;
}

// Fills the pool of groups: each of the statistics adds its groups once.
void demand_builder::fill_groups() {
    demand_.group_first.push_back(0);
    for (const auto &[key, statistics] : statistics_) {
        const uint32_t model = std::get<1>(key);
        const uint32_t top_k = demand_.model_top_k[model];
        group_offset_[key] = demand_.group_first.size() - 1;
        for (uint32_t layer = 0; layer < demand_.model_layers[model]; ++layer) {
            const uint32_t first =
                demand_.model_first[model] + layer * demand_.model_experts[model];
            for (uint64_t group = statistics.layer_group[layer];
                 group < statistics.layer_group[layer + 1]; ++group) {
                for (uint32_t n = 0; n < top_k; ++n)
                    demand_.group_experts.push_back(first +
                                                    statistics.group_experts[group * top_k + n]);
                demand_.group_first.push_back(demand_.group_experts.size());
            }
        }
    }
}

// Fills the home's calls, and frequencies as their sums.
void demand_builder::fill_frequencies(uint32_t home) {
    double *row = &demand_.frequency[size_t{home} * demand_.experts()];
    if (has_groups_) demand_.home_first_call.push_back(demand_.call_group.size());
    for (uint32_t model = 0; model < demand_.models; ++model) {
        const double share = demand_.home_model[size_t{home} * demand_.models + model];
        if (share == 0) continue;
        const statistics_key key{scene_.home_workload[home], model, shuffle_[home]};
        const activation &statistics = statistics_.at(key);
        if (!has_groups_) {
            for (size_t n = 0; n < statistics.frequency.size(); ++n)
                row[demand_.model_first[model] + n] = share * statistics.frequency[n];
            continue;
        }
        const uint64_t offset = group_offset_.at(key);
        for (uint64_t group = 0; group < statistics.share.size(); ++group) {
            const double of_home = share * statistics.share[group];
            demand_.call_group.push_back(static_cast<uint32_t>(offset + group));
            demand_.call_share.push_back(of_home);
            for (uint64_t n = demand_.group_first[offset + group];
                 n < demand_.group_first[offset + group + 1]; ++n)
                row[demand_.group_experts[n]] += of_home;
        }
    }
}

// Users hold the experts that they use most, of the models that they use. Ties go to the lower
// number.
void demand_builder::fill_holds() {
    const size_t servers = config_.servers.size(), experts = demand_.experts();
    if (std::none_of(config_.users.begin(), config_.users.end(),
                     [](const cluster_user &user) { return user.local_experts > 0; }))
        return;
    demand_.home_holds.assign(size_t{demand_.homes} * experts, 0);
    for (size_t user = 0; user < config_.users.size(); ++user) {
        const size_t home = servers + user;
        const double *row = &demand_.frequency[home * experts];
        std::vector<uint32_t> asked;
        for (uint32_t model = 0; model < demand_.models; ++model)
            if (demand_.home_model[home * demand_.models + model] > 0)
                for (uint32_t n = demand_.model_first[model]; n < demand_.model_first[model + 1];
                     ++n)
                    asked.push_back(n);
        const size_t held = std::min<size_t>(config_.users[user].local_experts, asked.size());
        std::partial_sort(asked.begin(), asked.begin() + static_cast<ptrdiff_t>(held), asked.end(),
                          [row](uint32_t left, uint32_t right) {
                              return row[left] != row[right] ? row[left] > row[right]
                                                             : left < right;
                          });
        for (size_t n = 0; n < held; ++n) demand_.home_holds[home * experts + asked[n]] = 1;
    }
}

status demand_builder::rates() {
    if (const status opened = open_files(); !opened) return opened;
    if (const status fitting = check_fits(); !fitting) return fitting;
    add_homes();
    return success();
}

status demand_builder::build() {
    if (const status known = rates(); !known) return known;
    const uint64_t frequencies = uint64_t{demand_.homes} * demand_.experts();
    if (frequencies > frequencies_max)
        return wrong(
            format("{}: {} homes times {} experts are {} frequencies, and the limit is {}; "
                   "describe fewer",
                   config_.place, demand_.homes, demand_.experts(), frequencies, frequencies_max));
    uint32_t groups_max = UINT32_MAX;
    if (const status added = add_statistics(groups_max); !added) return added;
    groups_max = 16384;
    while (has_groups_ && count_calls() > calls_max) {
        groups_max = groups_max > groups_least ? groups_max / 2 : 0;
        if (const status added = add_statistics(groups_max); !added) return added;
    }
    if (groups_max < 16384)
        log_info(
            format("{}: sets of experts chosen together are represented by {} tokens a layer, "
                   "so that {} homes have at most {} of them",
                   config_.place, groups_max, demand_.homes, calls_max));
    demand_.frequency.assign(frequencies, 0.0);
    if (has_groups_) fill_groups();
    for (uint32_t home = 0; home < demand_.homes; ++home) fill_frequencies(home);
    if (has_groups_) demand_.home_first_call.push_back(demand_.call_group.size());
    fill_holds();
    return success();
}

}  // namespace

status add_demand(const cluster_config &config, scene &scene) {
    return demand_builder(config, scene).build();
}

status add_rates(const cluster_config &config, scene &scene) {
    return demand_builder(config, scene).rates();
}

}  // namespace moorage::core
