// cluster_config.cpp - reads the tables of [cluster], with what --set changes in them.
#include "core/config/cluster_config.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// Far above every published system; they keep a slip of the keyboard from becoming an allocation.
constexpr uint32_t models_max = 1024, servers_max = 1 << 14, gpus_max = 64, links_max = 1 << 16,
                   users_max = 1 << 14, workloads_max = 1024, tokens_max = 1 << 24,
                   groups_limit = 1 << 20;
constexpr uint64_t seed_max = INT64_MAX;
constexpr double bytes_max = 0x1p50, rate_max = 1e18, seconds_max = 1e9;

class cluster_reader {
public:
    cluster_reader(const section_reader &cluster, const cluster_origin &from)
        : cluster_(cluster), from_(from), root_(from.file, "[cluster]") {}

    result<cluster_config> read();

private:
    template <class Entry>
    using entry_reader = void (cluster_reader::*)(section_reader &, uint32_t, Entry &);

    // The entries of a list of tables, each as often as its count says.
    template <class Entry>
    void read_list(const std::string &list, const std::vector<std::string> &keys, uint32_t max,
                   std::vector<Entry> &out, entry_reader<Entry> read);
    template <class Entry>
    void read_table(const std::string &name, const std::vector<std::string> &keys,
                    std::optional<Entry> &out,
                    void (cluster_reader::*read)(section_reader &, Entry &));
    void add_overrides(const std::string &list, const std::string &name, section_reader &entry);
    void check_overrides();

    void read_model(section_reader &from, uint32_t index, cluster_model &out);
    void read_server(section_reader &from, uint32_t index, cluster_server &out);
    void read_link(section_reader &from, uint32_t index, cluster_link &out);
    void read_user(section_reader &from, uint32_t index, cluster_user &out);
    void read_workload(section_reader &from, uint32_t index, cluster_workload &out);
    void read_statistics(section_reader &from, cluster_workload &out);
    void read_arrivals(section_reader &from, cluster_workload &out);
    void read_models(section_reader &from, cluster_workload &out);
    void read_cloud(section_reader &from, cluster_cloud &out);
    void read_radio(section_reader &from, cluster_radio &out);

    void read_name(section_reader &from, std::string &out);
    void read_place(section_reader &from, std::optional<position> &out);
    void read_turn(section_reader &from, const char *key, uint32_t index, std::string &out);
    void read_path(section_reader &from, const char *key, std::filesystem::path &out);
    void read_rate(section_reader &from, const char *key, double &out);
    void read_bytes(section_reader &from, const char *key, uint64_t &out);
    // Of keys that exclude each other, the one that --set gives replaces the file's.
    const given *choose(section_reader &from, const std::vector<const char *> &keys,
                        std::string_view remedy);
    void fail(const section_reader &reader) {
        if (reader.failed() && !root_.failed()) root_.fail(reader.failure().text);
    }

    const section_reader &cluster_;
    const cluster_origin &from_;
    section_reader root_;
    std::vector<const given *> used_;  // values of --set that reached an entry
    uint32_t users_ = 0;               // counted before the radio shares its bandwidth among them
};

// The numbers of a list, nothing where it holds anything else.
std::optional<std::vector<double>> numbers_of(const node &value) {
    std::vector<double> numbers;
    for (const node &item : value.items) {
        if (item.type != node_type::integer && item.type != node_type::number) return std::nullopt;
        numbers.push_back(item.type == node_type::number ? item.number
                                                         : static_cast<double>(item.integer));
        if (!std::isfinite(numbers.back())) return std::nullopt;
    }
    return numbers;
}

// "servers.lab.gpus" is key gpus of entry lab; "servers.gpus" is the key of all entries. Names of
// counted entries hold no dot here: the entry as written is meant.
struct override_key {
    std::string list, name, key;
};
override_key key_of(const given &value) {
    const size_t first = value.key.find('.'), last = value.key.rfind('.');
    if (first == std::string::npos) return {};
    return {value.key.substr(0, first),
            first == last ? "" : value.key.substr(first + 1, last - first - 1),
            value.key.substr(last + 1)};
}

void cluster_reader::add_overrides(const std::string &list, const std::string &name,
                                   section_reader &entry) {
    for (const given &value : cluster_.values()) {
        const override_key key = key_of(value);
        if (!value.raw || key.list != list || (!key.name.empty() && key.name != name)) continue;
        entry.add(given{key.key, value.value, value.place, value.raw});
        used_.push_back(&value);
    }
}

// A value of --set that reached no entry names one that is not there.
void cluster_reader::check_overrides() {
    for (const given &value : cluster_.values()) {
        const override_key key = key_of(value);
        if (!value.raw || key.list.empty() ||
            std::find(used_.begin(), used_.end(), &value) != used_.end())
            continue;
        root_.fail(format("{}: [cluster] has no {}{}; give it in the file", value.place, key.list,
                          key.name.empty() ? "" : " called " + key.name));
    }
}

template <class Entry>
void cluster_reader::read_list(const std::string &list, const std::vector<std::string> &keys,
                               uint32_t max, std::vector<Entry> &out, entry_reader<Entry> read) {
    const given *found = cluster_.find(list);
    if (!found || root_.failed()) return;
    const std::string title = format("[[cluster.{}]]", list);
    const bool is_list =
        found->value.type == node_type::list && !found->raw &&
        std::all_of(found->value.items.begin(), found->value.items.end(),
                    [](const node &item) { return item.type == node_type::table; });
    if (!is_list)
        return root_.fail(format("{}: [cluster] {} is {}; write {} and its keys below",
                                 found->place, list, describe(found->value), title));
    for (const node &item : found->value.items) {
        section_reader entry(from_.file, title);
        entry.add(item);
        std::string name;
        entry.read("name", name);
        add_overrides(list, name, entry);
        entry.expect(keys);
        uint32_t count = 1;
        entry.read("count", count, 1, max);
        if (entry.failed()) return fail(entry);
        if (out.size() + count > max)
            return root_.fail(format("{}:{}: more than {} entries of {}; the limit is {}",
                                     from_.file, item.line, max, title, max));
        for (uint32_t index = 0; index < count; ++index) {
            Entry one;
            one.place = format("{}:{}", from_.file, item.line);
            (this->*read)(entry, index, one);
            if (entry.failed()) return fail(entry);
            if constexpr (requires { one.name; })
                if (entry.find("count")) one.name += format(".{}", index);
            out.push_back(std::move(one));
        }
    }
}

template <class Entry>
void cluster_reader::read_table(const std::string &name, const std::vector<std::string> &keys,
                                std::optional<Entry> &out,
                                void (cluster_reader::*read)(section_reader &, Entry &)) {
    if (root_.failed()) return;
    section_reader table(from_.file, format("[cluster.{}]", name));
    const given *found = cluster_.find(name);
    if (found && (found->value.type != node_type::table || found->raw))
        return root_.fail(format("{}: [cluster] {} is {}; write [cluster.{}] and its keys below",
                                 found->place, name, describe(found->value), name));
    if (found) table.add(found->value);
    add_overrides(name, "", table);
    if (!found && table.values().empty()) return;
    table.expect(keys);
    Entry read_value;
    if (!table.failed()) (this->*read)(table, read_value);
    if (table.failed()) return fail(table);
    out = read_value;
}

const given *cluster_reader::choose(section_reader &from, const std::vector<const char *> &keys,
                                    std::string_view remedy) {
    const given *chosen = nullptr;
    for (const char *key : keys) {
        const given *found = from.find(key);
        if (!found) continue;
        if (chosen && chosen->raw.has_value() == found->raw.has_value()) {
            from.fail(format("{}: {} is given beside {}; {}", found->place, found->key, chosen->key,
                             remedy));
            return nullptr;
        }
        if (!chosen || found->raw) chosen = found;
    }
    return chosen;
}

void cluster_reader::read_name(section_reader &from, std::string &out) {
    from.require("name", "each needs one, for example name = \"lab\"");
    from.read("name", out);
    if (!from.failed() && !is_bare_key(out))
        from.fail(*from.find("name"), "a name is made of letters, digits, _ and -");
}

void cluster_reader::read_place(section_reader &from, std::optional<position> &out) {
    const given *found = from.find("position");
    if (!found || from.failed()) return;
    const auto numbers =
        found->value.type == node_type::list ? numbers_of(found->value) : std::nullopt;
    if (!numbers || numbers->size() != 2)
        return from.fail(*found, "two numbers in metres are needed, for example [120, 80.5]");
    out = position{(*numbers)[0], (*numbers)[1]};
}

// A workload for each instance of a counted entry in turn.
void cluster_reader::read_turn(section_reader &from, const char *key, uint32_t index,
                               std::string &out) {
    std::vector<std::string> names;
    from.read_texts(key, names);
    if (!names.empty()) out = names[index % names.size()];
}

void cluster_reader::read_path(section_reader &from, const char *key, std::filesystem::path &out) {
    std::string text;
    from.read(key, text);
    if (from.failed() || text.empty()) return;
    const bool of_set = from.find(key)->raw.has_value();
    out = (of_set ? std::filesystem::path(text) : from_.base / text).lexically_normal();
}

void cluster_reader::read_rate(section_reader &from, const char *key, double &out) {
    from.read_above(key, out, 0, rate_max);
}

// Whole bytes; 2.5e9 is a number in TOML and welcome.
void cluster_reader::read_bytes(section_reader &from, const char *key, uint64_t &out) {
    double bytes = 0;
    from.read_above(key, bytes, 1, bytes_max, /*or_equal=*/true);
    out = static_cast<uint64_t>(bytes);
}

void cluster_reader::read_model(section_reader &from, uint32_t, cluster_model &out) {
    read_name(from, out.name);
    out.shape = out.name;
    from.read("shape", out.shape);
    if (from.find("expert_bytes")) {
        uint64_t bytes = 0;
        read_bytes(from, "expert_bytes", bytes);
        out.expert_bytes = bytes;
    }
    from.read("value_bits", out.value_bits, 1, 64);
    from.read("groups", out.groups, 1, 1 << 16);
    read_path(from, "weights", out.weights);
}

void cluster_reader::read_server(section_reader &from, uint32_t index, cluster_server &out) {
    read_name(from, out.name);
    const given *device = choose(from, {"gpus", "flops"}, "a server has GPUs or is ideal");
    if (!device && !from.failed())
        return from.fail(
            format("{}: [[cluster.servers]] {} has no device; give gpus = "
                   "[\"a100_40gb\"], or flops for an ideal one",
                   out.place, out.name));
    if (device && device->key == "gpus") {
        from.read_texts("gpus", out.gpus);
        if (!from.failed() && out.gpus.empty())
            from.fail(*device, "name a profile of hw_profiles, for example [\"a100_40gb\"]");
        uint32_t each = 1;
        from.read("gpu_count", each, 1, gpus_max);
        if (!from.failed() && out.gpus.size() * each > gpus_max)
            from.fail(*device, format("at most {} GPUs a server", gpus_max));
        if (from.failed()) return;
        const std::vector<std::string> kinds = out.gpus;
        for (uint32_t n = 1; n < each; ++n)
            out.gpus.insert(out.gpus.end(), kinds.begin(), kinds.end());
    } else if (device) {
        read_rate(from, "flops", out.flops);
    }
    from.read("host_experts", out.host_experts);
    const given *memory = choose(from, {"expert_memory_bytes", "expert_memory_share"}, "keep one");
    if (memory && memory->key == "expert_memory_share") {
        from.read_above("expert_memory_share", out.expert_memory_share, 0, 1);
    } else if (memory) {
        read_bytes(from, "expert_memory_bytes", out.expert_memory_bytes);
    }
    if (!from.failed() && out.gpus.empty() && out.expert_memory_bytes == 0)
        from.fail(
            format("{}: [[cluster.servers]] {} is ideal and has no memory; give "
                   "expert_memory_bytes, for example 5e9",
                   out.place, out.name));
    read_rate(from, "load_bytes_per_s", out.load_bytes_per_s);
    read_place(from, out.at);
    read_turn(from, "workload", index, out.workload);
    read_turn(from, "address", index, out.address);
    read_turn(from, "heartbeats", index, out.heartbeats);
    read_turn(from, "status", index, out.status);
}

void cluster_reader::read_link(section_reader &from, uint32_t, cluster_link &out) {
    from.require("from", "name a server, or \"*\" for all");
    from.require("to", "name a server, or \"*\" for all");
    from.require("bits_per_s", "give its rate, for example bits_per_s = 500e6");
    from.read("from", out.from);
    from.read("to", out.to);
    from.read("symmetric", out.symmetric);
    read_rate(from, "bits_per_s", out.bits_per_s);
    from.read_above("latency_s", out.latency_s, 0, seconds_max, /*or_equal=*/true);
}

void cluster_reader::read_user(section_reader &from, uint32_t index, cluster_user &out) {
    read_name(from, out.name);
    read_place(from, out.at);
    read_rate(from, "flops", out.flops);
    from.read("local_experts", out.local_experts, 0, 1 << 24);
    from.require("workload", "say what the user asks for");
    read_turn(from, "workload", index, out.workload);
    if (!from.failed() && out.local_experts > 0 && out.flops == 0)
        from.fail(*from.find("local_experts"), "a user that holds experts needs flops, too");
}

// models = "a", ["a", "b"] or {a = 0.7, b = 0.3}.
void cluster_reader::read_models(section_reader &from, cluster_workload &out) {
    const given *found = from.find("models");
    if (found && found->value.type == node_type::table) {
        for (const entry &one : found->value.entries) {
            const bool is_number =
                one.value.type == node_type::number || one.value.type == node_type::integer;
            const double share = one.value.type == node_type::number
                                     ? one.value.number
                                     : static_cast<double>(one.value.integer);
            if (!is_number || !(share > 0 && share <= 1))
                return from.fail(
                    format("{}: {} models: {} is {}; shares above 0 and at most 1 are "
                           "needed",
                           found->place, "[[cluster.workloads]]", one.key, describe(one.value)));
            out.models.emplace_back(one.key, share);
        }
    } else if (found) {
        std::vector<std::string> names;
        from.read_texts("models", names);
        for (const std::string &name : names) out.models.emplace_back(name, 0.0);
    }
    const given *drawn = from.find("models_per_user");
    if (drawn && !from.failed()) {
        node bounds = drawn->value;
        if (bounds.type == node_type::integer) bounds.items = {drawn->value, drawn->value};
        const auto numbers = numbers_of(bounds);
        const bool fits = numbers && numbers->size() == 2 && (*numbers)[0] >= 1 &&
                          (*numbers)[0] <= (*numbers)[1] && (*numbers)[1] <= models_max &&
                          bounds.items[0].type == node_type::integer &&
                          bounds.items[1].type == node_type::integer;
        if (!fits)
            return from.fail(*drawn,
                             format("a count from 1 to {}, or two such as [3, 5], the lower "
                                    "first, is needed",
                                    models_max));
        out.models_per_user_min = static_cast<uint32_t>((*numbers)[0]);
        out.models_per_user_max = static_cast<uint32_t>((*numbers)[1]);
        if (found && found->value.type == node_type::table)
            from.fail(*found, "with models_per_user the shares come from model_zipf; list names");
    }
    from.read_above("model_zipf", out.model_zipf, 0, 16, /*or_equal=*/true);
    from.read("model_seed", out.model_seed, 0, seed_max);
}

void cluster_reader::read_statistics(section_reader &from, cluster_workload &out) {
    const given *file = choose(from, {"trace", "frequency"}, "keep one of them");
    if (from.failed()) return;
    if (file) read_path(from, file->key.c_str(), file->key == "trace" ? out.trace : out.frequency);
    from.read_texts("domains", out.domains);
    from.read("request_first", out.request_first, 0, 1 << 30);
    from.read("request_step", out.request_step, 1, 1 << 30);
    for (const char *key : {"domains", "request_first", "request_step"})
        if (const given *found = from.find(key);
            found && out.trace.empty() && (out.frequency.empty() || found->key != "domains"))
            from.fail(*found, "it selects from a trace, and there is none; give trace");
    from.read_above("zipf", out.zipf, 0, 16, /*or_equal=*/true);
    from.read("draw_seed", out.draw_seed, 0, seed_max);
    from.read("per_user", out.per_user);
    from.read("groups_max", out.groups_max, 0, groups_limit);
    if (!file && out.zipf < 0 && !from.failed())
        from.fail(
            format("{}: [[cluster.workloads]] {} does not say which experts are chosen; give "
                   "trace, frequency or zipf",
                   out.place, out.name));
}

void cluster_reader::read_arrivals(section_reader &from, cluster_workload &out) {
    const given *when = choose(from, {"poisson_s", "arrivals"}, "keep one of them");
    if (when && when->key == "poisson_s") from.read_above("poisson_s", out.poisson_s, 0, 1e9);
    if (when && when->key == "arrivals") read_path(from, "arrivals", out.arrivals);
    from.read("input_tokens", out.input_tokens, 0, tokens_max);
    from.read("output_tokens", out.output_tokens, 0, tokens_max);
    if (out.poisson_s > 0 && out.output_tokens == 0 && out.trace.empty() && !from.failed())
        from.fail(*when, "the lengths of requests come from no trace; give output_tokens");
}

void cluster_reader::read_workload(section_reader &from, uint32_t, cluster_workload &out) {
    read_name(from, out.name);
    read_models(from, out);
    read_statistics(from, out);
    read_arrivals(from, out);
    from.read("then", out.then);
    from.read_above("then_s", out.then_s, 0, seconds_max);
    if (!from.failed() && out.then.empty() != (out.then_s == 0))
        from.fail(
            format("{}: workload {} needs both then and then_s, or neither", out.place, out.name));
}

void cluster_reader::read_cloud(section_reader &from, cluster_cloud &out) {
    from.require("flops", "give its computing rate, for example flops = 312e12");
    read_rate(from, "flops", out.flops);
    read_rate(from, "bits_per_s", out.bits_per_s);
    from.read_above("latency_s", out.latency_s, 0, seconds_max, /*or_equal=*/true);
}

void cluster_reader::read_radio(section_reader &from, cluster_radio &out) {
    const given *width =
        choose(from, {"user_bandwidth_hz", "shared_bandwidth_hz"}, "keep one of them");
    if (width) {
        read_rate(from, width->key.c_str(), out.user_bandwidth_hz);
        if (width->key == "shared_bandwidth_hz" && users_ > 0) out.user_bandwidth_hz /= users_;
        from.require("user_power_w", "give the users' transmit power, for example 0.01");
    }
    if (users_ > 0 && !width)
        from.require("user_bandwidth_hz", "give that of each user, for example 5e6");
    from.require("server_power_w", "give the servers' transmit power, for example 6.3096");
    from.require("noise_w_per_hz", "give the noise density, for example 3.981e-21");
    read_rate(from, "server_bandwidth_hz", out.server_bandwidth_hz);
    read_rate(from, "user_power_w", out.user_power_w);
    read_rate(from, "server_power_w", out.server_power_w);
    read_rate(from, "gain", out.gain);
    from.read_above("path_loss", out.path_loss, 0, 16, /*or_equal=*/true);
    from.read_above("noise_w_per_hz", out.noise_w_per_hz, 0, 1);
    from.read_above("distance_min_m", out.distance_min_m, 0, 1e6);
    from.read_above("area_m", out.area_m, 0, 1e7);
    from.read("position_seed", out.position_seed, 0, seed_max);
}

result<cluster_config> cluster_reader::read() {
    cluster_config config;
    config.place = cluster_.values().empty() ? from_.file : cluster_.values().front().place;
    for (const given &value : cluster_.values())
        if (!value.raw || value.key.find('.') == std::string::npos) root_.add(value);
    const std::vector<std::string> tables = {"models", "servers", "links",    "cloud",
                                             "radio",  "users",   "workloads"};
    std::vector<std::string> known = {"serial_calls",     "returns_each", "duration_s",
                                      "requests",         "bucket_s",     "offers_max",
                                      "local_bits_per_s", "shared_interface",
                                      "own_disk"};
    known.insert(known.end(), tables.begin(), tables.end());
    root_.expect(known);
    for (const given &value : cluster_.values())
        if (const std::string list = key_of(value).list; value.raw && !list.empty())
            if (std::find(tables.begin(), tables.end(), list) == tables.end())
                root_.fail(format("{}: unknown table {} in [cluster]{}", value.place, list,
                                  did_you_mean(list, tables)));
    root_.read("serial_calls", config.serial_calls);
    root_.read("returns_each", config.returns_each);
    root_.read_above("duration_s", config.duration_s, 0, seconds_max, /*or_equal=*/true);
    root_.read("requests", config.requests, 0, uint64_t{1} << 32);
    root_.read_above("bucket_s", config.bucket_s, 0, seconds_max, /*or_equal=*/true);
    root_.read("offers_max", config.offers_max, 1, 256);
    root_.read_above("local_bits_per_s", config.local_bits_per_s, 0, 1e15, /*or_equal=*/true);
    root_.read("shared_interface", config.shared_interface);
    root_.read("own_disk", config.own_disk);
    read_list<cluster_model>(
        "models", {"name", "shape", "expert_bytes", "value_bits", "groups", "weights", "count"},
        models_max, config.models, &cluster_reader::read_model);
    read_list<cluster_server>("servers",
                              {"name", "gpus", "gpu_count", "flops", "expert_memory_bytes",
                               "expert_memory_share", "load_bytes_per_s", "host_experts",
                               "position", "workload", "address", "heartbeats", "status", "count"},
                              servers_max, config.servers, &cluster_reader::read_server);
    read_list<cluster_link>("links", {"from", "to", "symmetric", "bits_per_s", "latency_s"},
                            links_max, config.links, &cluster_reader::read_link);
    read_list<cluster_user>("users",
                            {"name", "position", "flops", "local_experts", "workload", "count"},
                            users_max, config.users, &cluster_reader::read_user);
    read_list<cluster_workload>(
        "workloads", {"name",     "models",       "models_per_user", "model_zipf",   "model_seed",
                      "trace",    "domains",      "request_first",   "request_step", "frequency",
                      "zipf",     "draw_seed",    "per_user",        "groups_max",   "poisson_s",
                      "arrivals", "input_tokens", "output_tokens",   "then",         "then_s"},
        workloads_max, config.workloads, &cluster_reader::read_workload);
    users_ = static_cast<uint32_t>(config.users.size());
    read_table<cluster_cloud>("cloud", {"flops", "bits_per_s", "latency_s"}, config.cloud,
                              &cluster_reader::read_cloud);
    read_table<cluster_radio>("radio",
                              {"user_bandwidth_hz", "shared_bandwidth_hz", "server_bandwidth_hz",
                               "user_power_w", "server_power_w", "gain", "path_loss",
                               "noise_w_per_hz", "distance_min_m", "area_m", "position_seed"},
                              config.radio, &cluster_reader::read_radio);
    if (!root_.failed()) check_overrides();
    if (root_.failed()) return root_.failure();
    if (const status complete = complete_cluster_config(config); !complete)
        return complete.failure();
    return config;
}

}  // namespace

result<cluster_config> read_cluster_config(const section_reader &cluster,
                                           const cluster_origin &from) {
    return cluster_reader(cluster, from).read();
}

}  // namespace moorage::core
