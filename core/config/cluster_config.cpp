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
    cluster_reader(const section_reader &cluster, const cluster_origin &origin)
        : cluster_(cluster),
          origin_(origin),
          root_(origin.file, key_table_of("cluster"), origin.base) {}

    result<cluster_config> read();

private:
    template <class Entry>
    using entry_reader = void (cluster_reader::*)(section_reader &, uint32_t, Entry &);

    // Reads the entries of a list of tables, each as often as its count says.
    template <class Entry>
    void read_list(const std::string &list, key_rows_of<Entry> rows, std::vector<Entry> &entries,
                   entry_reader<Entry> read, uint64_t limit = links_max);
    template <class Entry>
    void read_table(const std::string &name, key_rows_of<Entry> rows, std::optional<Entry> &value,
                    void (cluster_reader::*read)(section_reader &, Entry &));
    void add_overrides(const std::string &list, const std::string &name, section_reader &entry);
    void check_overrides();

    void read_model(section_reader &section, uint32_t index, cluster_model &model);
    void read_server(section_reader &section, uint32_t index, cluster_server &server);
    void read_link(section_reader &section, uint32_t index, cluster_link &link);
    void read_user(section_reader &section, uint32_t index, cluster_user &user);
    void read_workload(section_reader &section, uint32_t index, cluster_workload &workload);
    void read_statistics(section_reader &section, cluster_workload &workload);
    void read_arrivals(section_reader &section, cluster_workload &workload);
    void read_models(section_reader &section, cluster_workload &workload);
    void read_cloud(section_reader &section, cluster_cloud &cloud);
    void read_radio(section_reader &section, cluster_radio &radio);

    void read_name(section_reader &section, std::string &name);
    void read_location(section_reader &section, std::optional<position> &location);
    void read_turn(section_reader &section, const char *key, uint32_t index, std::string &text);
    // If the file and --set give keys that exclude each other, that of --set wins.
    const config_value *choose(section_reader &section, const std::vector<const char *> &keys,
                               std::string_view remedy);
    void fail(const section_reader &reader) {
        if (reader.failed() && !root_.failed()) root_.fail(reader.failure().text);
    }

    const section_reader &cluster_;
    const cluster_origin &origin_;
    section_reader root_;
    std::vector<const config_value *> used_;  // values of --set that applied to an entry
    uint32_t users_ = 0;  // counted before the radio's bandwidth is shared among them
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
override_key key_of(const config_value &value) {
    const size_t first = value.key.find('.'), last = value.key.rfind('.');
    if (first == std::string::npos) return {};
    return {value.key.substr(0, first),
            first == last ? "" : value.key.substr(first + 1, last - first - 1),
            value.key.substr(last + 1)};
}

void cluster_reader::add_overrides(const std::string &list, const std::string &name,
                                   section_reader &entry) {
    for (const config_value &value : cluster_.values()) {
        const override_key key = key_of(value);
        if (!value.raw || key.list != list || (!key.name.empty() && key.name != name)) continue;
        entry.add(config_value{key.key, value.value, value.place, value.raw});
        used_.push_back(&value);
    }
}

// A value of --set that applied to no entry names one that does not exist.
void cluster_reader::check_overrides() {
    for (const config_value &value : cluster_.values()) {
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
                               std::vector<Entry> &entries, entry_reader<Entry> read,
                               uint64_t limit) {
    const config_value *found = cluster_.find(list);
    if (!found || root_.failed()) return;
    const key_table &table = key_table_of("cluster." + list);
    const config_key *counted = table.find("count");
    const uint64_t max = counted ? counted->accepted.most : limit;
    const std::string &title = table.title;
    const bool is_list =
        found->value.type == node_type::list && !found->raw &&
        std::all_of(found->value.items.begin(), found->value.items.end(),
                    [](const node &item) { return item.type == node_type::table; });
    if (!is_list)
        return root_.fail(format("{}: [cluster] {} is {}; write {} and its keys below",
                                 found->place, list, describe(found->value), title));
    for (const node &item : found->value.items) {
        section_reader entry(origin_.file, table, origin_.base);
        entry.add(item);
        std::string name;
        if (table.find("name")) entry.read("name", name);
        add_overrides(list, name, entry);
        entry.expect();
        uint32_t count = 1;
        if (counted) entry.read(*counted, count);
        if (entry.failed()) return fail(entry);
        if (entries.size() + count > max)
            return root_.fail(format("{}:{}: more than {} entries of {}; the limit is {}",
                                     origin_.file, item.line, max, title, max));
        for (uint32_t index = 0; index < count; ++index) {
            Entry parsed;
            parsed.place = format("{}:{}", origin_.file, item.line);
            entry.read_rows(rows, parsed);
            (this->*read)(entry, index, parsed);
            if (entry.failed()) return fail(entry);
            if constexpr (requires { parsed.name; })
                if (entry.find("count")) parsed.name += format(".{}", index);
            entries.push_back(std::move(parsed));
        }
    }
}

template <class Entry>
void cluster_reader::read_table(const std::string &name, key_rows_of<Entry> rows,
                                std::optional<Entry> &value,
                                void (cluster_reader::*read)(section_reader &, Entry &)) {
    if (root_.failed()) return;
    section_reader table(origin_.file, key_table_of("cluster." + name), origin_.base);
    const config_value *found = cluster_.find(name);
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
    value = read_value;
}

const config_value *cluster_reader::choose(section_reader &section,
                                           const std::vector<const char *> &keys,
                                           std::string_view remedy) {
    const config_value *chosen = nullptr;
    for (const char *key : keys) {
        const config_value *found = section.find(key);
        if (!found) continue;
        if (chosen && chosen->raw.has_value() == found->raw.has_value()) {
            section.fail(format("{}: {} is given beside {}; {}", found->place, found->key,
                                chosen->key, remedy));
            return nullptr;
        }
        if (!chosen || found->raw) chosen = found;
    }
    return chosen;
}

void cluster_reader::read_name(section_reader &section, std::string &name) {
    section.require("name", "each needs one, for example name = \"lab\"");
    section.read("name", name);
    if (!section.failed() && !is_bare_key(name))
        section.fail(*section.find("name"), "a name is made of letters, digits, _ and -");
}

void cluster_reader::read_location(section_reader &section, std::optional<position> &location) {
    const config_value *found = section.find("position");
    if (!found || section.failed()) return;
    const auto numbers =
        found->value.type == node_type::list ? numbers_of(found->value) : std::nullopt;
    if (!numbers || numbers->size() != 2)
        return section.fail(*found, "two numbers in metres are needed, for example [120, 80.5]");
    constexpr double away_max_m = 1e7;  // a quarter of the earth's circumference
    if (std::fabs((*numbers)[0]) > away_max_m || std::fabs((*numbers)[1]) > away_max_m)
        return section.fail(*found,
                            format("metres from {:g} to {:g} are needed", -away_max_m, away_max_m));
    location = position{(*numbers)[0], (*numbers)[1]};
}

// Gives the instances of a counted entry the listed workloads in turn.
void cluster_reader::read_turn(section_reader &section, const char *key, uint32_t index,
                               std::string &text) {
    std::vector<std::string> names;
    section.read(key, names);
    if (!names.empty()) text = names[index % names.size()];
}

void cluster_reader::read_model(section_reader &section, uint32_t, cluster_model &model) {
    read_name(section, model.name);
    if (model.shape.empty()) model.shape = model.name;
    if (section.find("expert_bytes")) section.read("expert_bytes", model.expert_bytes.emplace());
}

void cluster_reader::read_server(section_reader &section, uint32_t index, cluster_server &server) {
    read_name(section, server.name);
    const config_value *device =
        choose(section, {"gpus", "flops"}, "a server has GPUs or is ideal");
    if (!device && !section.failed())
        return section.fail(
            format("{}: [[cluster.servers]] {} has no device; give gpus = "
                   "[\"a100_40gb\"], or flops for an ideal one",
                   server.place, server.name));
    if (device && device->key == "gpus") {
        section.read("gpus", server.gpus);
        if (!section.failed() && server.gpus.empty())
            section.fail(*device, "name a profile of hw_profiles, for example [\"a100_40gb\"]");
        uint32_t repeats = 1;
        section.read("gpu_count", repeats);
        if (!section.failed() && server.gpus.size() * repeats > server_gpus_max)
            section.fail(*device, format("at most {} GPUs a server", server_gpus_max));
        if (section.failed()) return;
        const std::vector<std::string> kinds = server.gpus;
        for (uint32_t n = 1; n < repeats; ++n)
            server.gpus.insert(server.gpus.end(), kinds.begin(), kinds.end());
    } else if (device) {
        section.read("flops", server.flops);
    }
    const config_value *memory =
        choose(section, {"expert_memory_bytes", "expert_memory_share"}, "keep one");
    if (memory && memory->key == "expert_memory_share") {
        section.read("expert_memory_share", server.expert_memory_share);
    } else if (memory) {
        section.read("expert_memory_bytes", server.expert_memory_bytes.emplace());
    }
    if (!section.failed() && server.gpus.empty() && !server.expert_memory_bytes)
        section.fail(
            format("{}: [[cluster.servers]] {} is ideal and has no memory; give "
                   "expert_memory_bytes, for example 5e9",
                   server.place, server.name));
    read_location(section, server.location);
    read_turn(section, "workload", index, server.workload);
    read_turn(section, "address", index, server.address);
    read_turn(section, "heartbeats", index, server.heartbeats);
    read_turn(section, "status", index, server.status);
}

void cluster_reader::read_link(section_reader &section, uint32_t, cluster_link &) {
    section.require("from", "name a server, or \"*\" for all");
    section.require("to", "name a server, or \"*\" for all");
    section.require("bits_per_s", "give its rate, for example bits_per_s = 500e6");
}

void cluster_reader::read_user(section_reader &section, uint32_t index, cluster_user &user) {
    read_name(section, user.name);
    read_location(section, user.location);
    section.require("workload", "say what the user asks for");
    read_turn(section, "workload", index, user.workload);
    if (!section.failed() && user.local_experts > 0 && user.flops == 0)
        section.fail(*section.find("local_experts"), "a user that holds experts needs flops, too");
}

// The key has three forms: models = "a"; models = ["a", "b"]; models = {a = 0.7, b = 0.3}.
void cluster_reader::read_models(section_reader &section, cluster_workload &workload) {
    const config_value *found = section.find("models");
    if (found && found->value.type == node_type::table) {
        for (const entry &field : found->value.entries) {
            const bool is_number =
                field.value.type == node_type::number || field.value.type == node_type::integer;
            const double share = field.value.type == node_type::number
                                     ? field.value.number
                                     : static_cast<double>(field.value.integer);
            if (!is_number || !(share > 0 && share <= 1))
                return section.fail(format(
                    "{}: {} models: {} is {}; shares above 0 and at most 1 are "
                    "needed",
                    found->place, "[[cluster.workloads]]", field.key, describe(field.value)));
            workload.models.emplace_back(field.key, share);
        }
    } else if (found) {
        std::vector<std::string> names;
        section.read("models", names);
        for (const std::string &name : names) workload.models.emplace_back(name, 0.0);
    }
    const config_value *drawn = section.find("models_per_user");
    if (drawn && !section.failed()) {
        node bounds = drawn->value;
        if (bounds.type == node_type::integer) bounds.items = {drawn->value, drawn->value};
        const auto numbers = numbers_of(bounds);
        const bool fits = numbers && numbers->size() == 2 && (*numbers)[0] >= 1 &&
                          (*numbers)[0] <= (*numbers)[1] && (*numbers)[1] <= cluster_models_max &&
                          bounds.items[0].type == node_type::integer &&
                          bounds.items[1].type == node_type::integer;
        if (!fits)
            return section.fail(*drawn,
                                format("a count from 1 to {}, or two such as [3, 5], the lower "
                                       "first, is needed",
                                       cluster_models_max));
        workload.models_per_user_min = static_cast<uint32_t>((*numbers)[0]);
        workload.models_per_user_max = static_cast<uint32_t>((*numbers)[1]);
        if (found && found->value.type == node_type::table)
            section.fail(*found,
                         "with models_per_user the shares come from model_zipf; list names");
    }
}

void cluster_reader::read_statistics(section_reader &section, cluster_workload &workload) {
    const config_value *file = choose(section, {"trace", "frequency"}, "keep one of them");
    if (section.failed()) return;
    if (file) section.read(file->key, file->key == "trace" ? workload.trace : workload.frequency);
    for (const char *key : {"domains", "request_first", "request_step"})
        if (const config_value *found = section.find(key);
            found && workload.trace.empty() &&
            (workload.frequency.empty() || found->key != "domains"))
            section.fail(*found, "it selects from a trace, and there is none; give trace");
    if (!file && workload.zipf < 0 && !section.failed())
        section.fail(
            format("{}: [[cluster.workloads]] {} does not say which experts are chosen; give "
                   "trace, frequency or zipf",
                   workload.place, workload.name));
}

void cluster_reader::read_arrivals(section_reader &section, cluster_workload &workload) {
    const config_value *arrival_key =
        choose(section, {"poisson_s", "arrivals"}, "keep one of them");
    if (arrival_key && arrival_key->key == "poisson_s")
        section.read("poisson_s", workload.poisson_s);
    if (arrival_key && arrival_key->key == "arrivals") section.read("arrivals", workload.arrivals);
    if (workload.poisson_s > 0 && workload.output_tokens == 0 && workload.trace.empty() &&
        !section.failed())
        section.fail(*arrival_key,
                     "the lengths of requests come from no trace; give output_tokens");
}

void cluster_reader::read_workload(section_reader &section, uint32_t, cluster_workload &workload) {
    read_name(section, workload.name);
    read_models(section, workload);
    read_statistics(section, workload);
    read_arrivals(section, workload);
    if (!section.failed() && workload.next_workload.empty() != (workload.next_workload_s == 0))
        section.fail(format("{}: workload {} needs both then and then_s, or neither",
                            workload.place, workload.name));
}

void cluster_reader::read_cloud(section_reader &section, cluster_cloud &) {
    section.require("flops", "give its computing rate, for example flops = 312e12");
}

void cluster_reader::read_radio(section_reader &section, cluster_radio &radio) {
    const config_value *width =
        choose(section, {"user_bandwidth_hz", "shared_bandwidth_hz"}, "keep one of them");
    if (width) {
        section.read(width->key, radio.user_bandwidth_hz);
        if (width->key == "shared_bandwidth_hz" && users_ > 0) radio.user_bandwidth_hz /= users_;
        section.require("user_power_w", "give the users' transmit power, for example 0.01");
    }
    if (users_ > 0 && !width)
        section.require("user_bandwidth_hz", "give that of each user, for example 5e6");
    section.require("server_power_w", "give the servers' transmit power, for example 6.3096");
    section.require("noise_w_per_hz", "give the noise density, for example 3.981e-21");
}

result<cluster_config> cluster_reader::read() {
    cluster_config config;
    config.place = cluster_.values().empty() ? origin_.file : cluster_.values().front().place;
    for (const config_value &value : cluster_.values())
        if (!value.raw || value.key.find('.') == std::string::npos) root_.add(value);
    const std::vector<std::string> tables = {"models", "servers", "links",    "cloud",
                                             "radio",  "users",   "workloads"};
    root_.expect();
    for (const config_value &value : cluster_.values())
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
                                           const cluster_origin &origin) {
    return cluster_reader(cluster, origin).read();
}

}  // namespace moorage::core
