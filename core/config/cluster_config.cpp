// cluster_config.cpp - reads the tables of [cluster] and the changes of --set.
#include "core/config/cluster_config.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/config/cluster_keys.h"

namespace moorage::core {

namespace {

// Limits of entries in a list, with counted entries expanded.
constexpr uint32_t links_max = 1 << 16, workloads_max = 1024;

class cluster_reader {
public:
    cluster_reader(const section_reader &cluster, const cluster_origin &from)
        : cluster_(cluster), from_(from), root_(from.file, key_table_of("cluster"), from.base) {}

    result<cluster_config> read();

private:
    template <class Entry>
    using entry_reader = void (cluster_reader::*)(section_reader &, uint32_t, Entry &);

    // Reads the entries of a list of tables, each as often as its count says.
    template <class Entry>
    void read_list(const std::string &list, key_rows_of<Entry> rows, std::vector<Entry> &out,
                   entry_reader<Entry> read, uint64_t most = links_max);
    template <class Entry>
    void read_table(const std::string &name, key_rows_of<Entry> rows, std::optional<Entry> &out,
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
    // If the file and --set give keys that exclude each other, that of --set wins.
    const given *choose(section_reader &from, const std::vector<const char *> &keys,
                        std::string_view remedy);
    void fail(const section_reader &reader) {
        if (reader.failed() && !root_.failed()) root_.fail(reader.failure().text);
    }

    const section_reader &cluster_;
    const cluster_origin &from_;
    section_reader root_;
    std::vector<const given *> used_;  // values of --set that applied to an entry
    uint32_t users_ = 0;               // counted before the radio's bandwidth is shared among them
};

// The numbers of a list; nothing if it holds anything else.
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

// "servers.lab.gpus" is key gpus of entry lab; "servers.gpus" is that key of all entries. Names
// have no dot here, because a counted entry is named as it is written.
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

// A value of --set that applied to no entry names one that does not exist.
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
void cluster_reader::read_list(const std::string &list, key_rows_of<Entry> rows,
                               std::vector<Entry> &out, entry_reader<Entry> read, uint64_t most) {
    const given *found = cluster_.find(list);
    if (!found || root_.failed()) return;
    const key_table &table = key_table_of("cluster." + list);
    const config_key *counted = table.find("count");
    const uint64_t max = counted ? counted->takes.most : most;
    const std::string &title = table.called;
    const bool is_list =
        found->value.type == node_type::list && !found->raw &&
        std::all_of(found->value.items.begin(), found->value.items.end(),
                    [](const node &item) { return item.type == node_type::table; });
    if (!is_list)
        return root_.fail(format("{}: [cluster] {} is {}; write {} and its keys below",
                                 found->place, list, describe(found->value), title));
    for (const node &item : found->value.items) {
        section_reader entry(from_.file, table, from_.base);
        entry.add(item);
        std::string name;
        if (table.find("name")) entry.read("name", name);
        add_overrides(list, name, entry);
        entry.expect();
        uint32_t count = 1;
        if (counted) entry.read(*counted, count);
        if (entry.failed()) return fail(entry);
        if (out.size() + count > max)
            return root_.fail(format("{}:{}: more than {} entries of {}; the limit is {}",
                                     from_.file, item.line, max, title, max));
        for (uint32_t index = 0; index < count; ++index) {
            Entry one;
            one.place = format("{}:{}", from_.file, item.line);
            entry.read_rows(rows, one);
            (this->*read)(entry, index, one);
            if (entry.failed()) return fail(entry);
            if constexpr (requires { one.name; })
                if (entry.find("count")) one.name += format(".{}", index);
            out.push_back(std::move(one));
        }
    }
}

template <class Entry>
void cluster_reader::read_table(const std::string &name, key_rows_of<Entry> rows,
                                std::optional<Entry> &out,
                                void (cluster_reader::*read)(section_reader &, Entry &)) {
    if (root_.failed()) return;
    section_reader table(from_.file, key_table_of("cluster." + name), from_.base);
    const given *found = cluster_.find(name);
    if (found && (found->value.type != node_type::table || found->raw))
        return root_.fail(format("{}: [cluster] {} is {}; write [cluster.{}] and its keys below",
                                 found->place, name, describe(found->value), name));
    if (found) table.add(found->value);
    add_overrides(name, "", table);
    if (!found && table.values().empty()) return;
    table.expect();
    Entry read_value;
    table.read_rows(rows, read_value);
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
    constexpr double away_max_m = 1e7;  // a quarter of the earth's circumference
    if (std::fabs((*numbers)[0]) > away_max_m || std::fabs((*numbers)[1]) > away_max_m)
        return from.fail(*found,
                         format("metres from {:g} to {:g} are needed", -away_max_m, away_max_m));
    out = position{(*numbers)[0], (*numbers)[1]};
}

// Gives the instances of a counted entry the listed workloads in turn.
void cluster_reader::read_turn(section_reader &from, const char *key, uint32_t index,
                               std::string &out) {
    std::vector<std::string> names;
    from.read(key, names);
    if (!names.empty()) out = names[index % names.size()];
}

void cluster_reader::read_model(section_reader &from, uint32_t, cluster_model &out) {
    read_name(from, out.name);
    if (out.shape.empty()) out.shape = out.name;
    if (from.find("expert_bytes")) from.read("expert_bytes", out.expert_bytes.emplace());
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
        from.read("gpus", out.gpus);
        if (!from.failed() && out.gpus.empty())
            from.fail(*device, "name a profile of hw_profiles, for example [\"a100_40gb\"]");
        uint32_t each = 1;
        from.read("gpu_count", each);
        if (!from.failed() && out.gpus.size() * each > server_gpus_max)
            from.fail(*device, format("at most {} GPUs a server", server_gpus_max));
        if (from.failed()) return;
        const std::vector<std::string> kinds = out.gpus;
        for (uint32_t n = 1; n < each; ++n)
            out.gpus.insert(out.gpus.end(), kinds.begin(), kinds.end());
    } else if (device) {
        from.read("flops", out.flops);
    }
    const given *memory = choose(from, {"expert_memory_bytes", "expert_memory_share"}, "keep one");
    if (memory && memory->key == "expert_memory_share") {
        from.read("expert_memory_share", out.expert_memory_share);
    } else if (memory) {
        from.read("expert_memory_bytes", out.expert_memory_bytes.emplace());
    }
    if (!from.failed() && out.gpus.empty() && !out.expert_memory_bytes)
        from.fail(
            format("{}: [[cluster.servers]] {} is ideal and has no memory; give "
                   "expert_memory_bytes, for example 5e9",
                   out.place, out.name));
    read_place(from, out.at);
    read_turn(from, "workload", index, out.workload);
    read_turn(from, "address", index, out.address);
    read_turn(from, "heartbeats", index, out.heartbeats);
    read_turn(from, "status", index, out.status);
}

void cluster_reader::read_link(section_reader &from, uint32_t, cluster_link &) {
    from.require("from", "name a server, or \"*\" for all");
    from.require("to", "name a server, or \"*\" for all");
    from.require("bits_per_s", "give its rate, for example bits_per_s = 500e6");
}

void cluster_reader::read_user(section_reader &from, uint32_t index, cluster_user &out) {
    read_name(from, out.name);
    read_place(from, out.at);
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
        from.read("models", names);
        for (const std::string &name : names) out.models.emplace_back(name, 0.0);
    }
    const given *drawn = from.find("models_per_user");
    if (drawn && !from.failed()) {
        node bounds = drawn->value;
        if (bounds.type == node_type::integer) bounds.items = {drawn->value, drawn->value};
        const auto numbers = numbers_of(bounds);
        const bool fits = numbers && numbers->size() == 2 && (*numbers)[0] >= 1 &&
                          (*numbers)[0] <= (*numbers)[1] && (*numbers)[1] <= cluster_models_max &&
                          bounds.items[0].type == node_type::integer &&
                          bounds.items[1].type == node_type::integer;
        if (!fits)
            return from.fail(*drawn,
                             format("a count from 1 to {}, or two such as [3, 5], the lower "
                                    "first, is needed",
                                    cluster_models_max));
        out.models_per_user_min = static_cast<uint32_t>((*numbers)[0]);
        out.models_per_user_max = static_cast<uint32_t>((*numbers)[1]);
        if (found && found->value.type == node_type::table)
            from.fail(*found, "with models_per_user the shares come from model_zipf; list names");
    }
}

void cluster_reader::read_statistics(section_reader &from, cluster_workload &out) {
    const given *file = choose(from, {"trace", "frequency"}, "keep one of them");
    if (from.failed()) return;
    if (file) from.read(file->key, file->key == "trace" ? out.trace : out.frequency);
    for (const char *key : {"domains", "request_first", "request_step"})
        if (const given *found = from.find(key);
            found && out.trace.empty() && (out.frequency.empty() || found->key != "domains"))
            from.fail(*found, "it selects from a trace, and there is none; give trace");
    if (!file && out.zipf < 0 && !from.failed())
        from.fail(
            format("{}: [[cluster.workloads]] {} does not say which experts are chosen; give "
                   "trace, frequency or zipf",
                   out.place, out.name));
}

void cluster_reader::read_arrivals(section_reader &from, cluster_workload &out) {
    const given *when = choose(from, {"poisson_s", "arrivals"}, "keep one of them");
    if (when && when->key == "poisson_s") from.read("poisson_s", out.poisson_s);
    if (when && when->key == "arrivals") from.read("arrivals", out.arrivals);
    if (out.poisson_s > 0 && out.output_tokens == 0 && out.trace.empty() && !from.failed())
        from.fail(*when, "the lengths of requests come from no trace; give output_tokens");
}

void cluster_reader::read_workload(section_reader &from, uint32_t, cluster_workload &out) {
    read_name(from, out.name);
    read_models(from, out);
    read_statistics(from, out);
    read_arrivals(from, out);
    if (!from.failed() && out.then.empty() != (out.then_s == 0))
        from.fail(
            format("{}: workload {} needs both then and then_s, or neither", out.place, out.name));
}

void cluster_reader::read_cloud(section_reader &from, cluster_cloud &) {
    from.require("flops", "give its computing rate, for example flops = 312e12");
}

void cluster_reader::read_radio(section_reader &from, cluster_radio &out) {
    const given *width =
        choose(from, {"user_bandwidth_hz", "shared_bandwidth_hz"}, "keep one of them");
    if (width) {
        from.read(width->key, out.user_bandwidth_hz);
        if (width->key == "shared_bandwidth_hz" && users_ > 0) out.user_bandwidth_hz /= users_;
        from.require("user_power_w", "give the users' transmit power, for example 0.01");
    }
    if (users_ > 0 && !width)
        from.require("user_bandwidth_hz", "give that of each user, for example 5e6");
    from.require("server_power_w", "give the servers' transmit power, for example 6.3096");
    from.require("noise_w_per_hz", "give the noise density, for example 3.981e-21");
}

result<cluster_config> cluster_reader::read() {
    cluster_config config;
    config.place = cluster_.values().empty() ? from_.file : cluster_.values().front().place;
    for (const given &value : cluster_.values())
        if (!value.raw || value.key.find('.') == std::string::npos) root_.add(value);
    const std::vector<std::string> tables = {"models", "servers", "links",    "cloud",
                                             "radio",  "users",   "workloads"};
    root_.expect();
    for (const given &value : cluster_.values())
        if (const std::string list = key_of(value).list; value.raw && !list.empty())
            if (std::find(tables.begin(), tables.end(), list) == tables.end())
                root_.fail(format("{}: unknown table {} in [cluster]{}", value.place, list,
                                  did_you_mean(list, tables)));
    root_.read_rows(cluster_rows, config);
    read_list("models", model_rows, config.models, &cluster_reader::read_model);
    read_list("servers", server_rows, config.servers, &cluster_reader::read_server);
    read_list("links", link_rows, config.links, &cluster_reader::read_link);
    read_list("users", user_rows, config.users, &cluster_reader::read_user);
    read_list("workloads", workload_rows, config.workloads, &cluster_reader::read_workload,
              workloads_max);
    users_ = static_cast<uint32_t>(config.users.size());
    read_table("cloud", cloud_rows, config.cloud, &cluster_reader::read_cloud);
    read_table("radio", radio_rows, config.radio, &cluster_reader::read_radio);
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
