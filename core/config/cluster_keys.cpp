// cluster_keys.cpp - the rows of a cluster's keys, table by table.
#include "core/config/cluster_keys.h"

namespace moorage::core {

namespace {

using enum quantity_unit;

// Limits far above every published system. They keep a typing error from becoming an allocation.
constexpr uint32_t servers_max = 1 << 14, users_max = 1 << 14, tokens_max = 1 << 24;
constexpr uint64_t seed_max = INT64_MAX, bytes_max = uint64_t{1} << 50;
constexpr double rate_max = 1e18, seconds_max = 1e9;
// Usual ranges: from a sensor's radio to some generations after today's fastest network.
constexpr value_shape a_load_rate =
                          usually(real_above(0, rate_max, bytes_per_s), 1e6, 1e14, "GB/s"),
                      a_link_rate =
                          usually(real_above(0, rate_max, bits_per_s), 1e4, 1e14, "Gbit/s"),
                      an_inner_rate = usually(real(0, 1e15, bits_per_s), 1e6, 1e14, "Gbit/s"),
                      a_speed = usually(real_above(0, rate_max, flop_per_s), 1e6, 1e17, "TFLOP/s"),
                      a_bandwidth = usually(real_above(0, rate_max, hz), 1e3, 1e12, "MHz"),
                      a_user_power = usually(real_above(0, rate_max, w), 1e-6, 10, "mW"),
                      a_server_power = usually(real_above(0, rate_max, w), 1e-4, 1e4, "W"),
                      a_latency = usually(real(0, seconds_max, s), 1e-9, 2, "ms"),
                      a_duration = usually(real(0, seconds_max, s), 1e-3, 1e8, "s"),
                      a_memory = usually(whole(0, bytes_max, bytes), 1e4, 1e14, "GB"),
                      an_expert = usually(whole(1, bytes_max, bytes), 256, 1e12, "MB"),
                      a_length = usually(real_above(0, 1e6, m), 1e-3, 1e5, "m"),
                      a_side = usually(real_above(0, 1e7, m), 2, 1e6, "km"),
                      a_position = in_words("two numbers in metres, [x, y]"),
                      in_turn =
                          in_words("a text, or a list of texts that counted entries take in turn"),
                      some_tables = in_words("a list of tables, one for each entry"),
                      a_table = in_words("a table");

constexpr key_row<cluster_config> cluster_list[] = {
    {"file", a_path,
     "file whose [cluster] section describes the cluster; it replaces all other keys here",
     by_hand},
    {"serial_calls", a_flag, "an entry node calls its servers one after the other",
     member<&cluster_config::serial_calls>},
    {"returns_each", a_flag, "servers return each expert's output instead of their sum",
     member<&cluster_config::returns_each>},
    {"duration_s", a_duration, "how long requests arrive in a run; 0: until requests is reached",
     member<&cluster_config::duration_s>},
    {"requests", whole(0, uint64_t{1} << 32),
     "number of requests at each entry node; 0: until duration_s is over",
     member<&cluster_config::requests>},
    {"bucket_s", a_duration, "width of a bucket in figures over time; 0: a 60th of the duration",
     member<&cluster_config::bucket_s>},
    {"offers_max", whole(1, 256),
     "number of servers that an entry node considers for an expert, nearest first",
     member<&cluster_config::offers_max>},
    {"local_bits_per_s", an_inner_rate,
     "rate between the devices of a server; 0: transfers take no time",
     member<&cluster_config::local_bits_per_s>},
    {"shared_interface", a_flag, "the links of a server share one line in each direction",
     member<&cluster_config::shared_interface>},
    {"own_disk", a_flag,
     "a node computes an expert from its model directory if no other node does (nodes only)",
     member<&cluster_config::own_disk>, "", cluster_use::nodes},
    {"models", some_tables, "[[cluster.models]]", by_hand},
    {"servers", some_tables, "[[cluster.servers]]", by_hand},
    {"links", some_tables, "[[cluster.links]]", by_hand},
    {"cloud", a_table, "[cluster.cloud]", by_hand},
    {"radio", a_table, "[cluster.radio]", by_hand},
    {"users", some_tables, "[[cluster.users]]", by_hand},
    {"workloads", some_tables, "[[cluster.workloads]]", by_hand},
};

constexpr key_row<cluster_model> model_list[] = {
    {"name", a_text, "name by which other entries refer to it", by_hand},
    {"shape", a_text, "sizes of the model: a file of configs/models, or a path",
     member<&cluster_model::shape>, "its name"},
    {"expert_bytes", an_expert, "size of an expert, if it is stored smaller than the shape says",
     by_hand, "the shape's"},
    {"value_bits", whole(1, 64), "size of one value of a hidden state on the network",
     member<&cluster_model::value_bits>},
    {"groups", whole(1, 1 << 16),
     "number of expert groups that the router limits tokens to; 1: no limit",
     member<&cluster_model::groups>},
    {"weights", a_path, "directory from which nodes read the model (nodes only)",
     member<&cluster_model::weights>},
    {"count", whole(1, cluster_models_max),
     "number of entries that this one stands for: NAME.0, NAME.1 and so on", by_hand,
     "1, called NAME"},
};

constexpr key_row<cluster_server> server_list[] = {
    {"name", a_text, "name by which other entries refer to it", by_hand},
    {"gpus", some_texts, "device profiles of its GPUs", by_hand},
    {"gpu_count", whole(1, server_gpus_max), "how many times the server has the GPUs of gpus",
     by_hand, "1"},
    {"flops", a_speed,
     "speed of one ideal device instead of gpus; each expert of a model gets its share, and calls "
     "do not queue",
     by_hand},
    {"expert_memory_bytes", a_memory, "memory for experts on each device; 0: the server holds none",
     by_hand, "what the profile leaves after everything else"},
    {"expert_memory_share", real_above(0, 1, share),
     "share of a device's memory for experts, instead of expert_memory_bytes", by_hand},
    {"load_bytes_per_s", a_load_rate, "rate of loads into each device",
     member<&cluster_server::load_bytes_per_s>, "the profile's rate; no limit for an ideal device"},
    {"host_experts", a_flag, "main memory holds every expert, and devices can load them",
     member<&cluster_server::host_experts>},
    {"position", a_position, "where the server stands, with [cluster.radio]", by_hand,
     "drawn at random"},
    {"workload", in_turn, "workload of the tokens that enter here", by_hand, "none"},
    {"address", in_turn, "where other nodes call it, \"host:port\" (nodes only)", by_hand},
    {"heartbeats", in_turn, "address that answers heartbeats (nodes only)", by_hand},
    {"status", in_turn, "HTTP address that reports its state (nodes only)", by_hand},
    {"count", whole(1, servers_max),
     "number of entries that this one stands for: NAME.0, NAME.1 and so on", by_hand,
     "1, called NAME"},
};

constexpr key_row<cluster_link> link_list[] = {
    {"from", a_text, "server or entry that sends; \"*\": all", member<&cluster_link::source>},
    {"to", a_text, "server or entry that receives; \"*\": all", member<&cluster_link::target>},
    {"symmetric", a_flag, "the link also leads back", member<&cluster_link::symmetric>},
    {"bits_per_s", a_link_rate, "rate of the link", member<&cluster_link::bits_per_s>, "none"},
    {"latency_s", a_latency, "latency of a message, in addition to the time of its bits",
     member<&cluster_link::latency_s>},
};

constexpr key_row<cluster_cloud> cloud_list[] = {
    {"flops", a_speed, "computing speed of the cloud", member<&cluster_cloud::flops>, "none"},
    {"bits_per_s", a_link_rate, "rate to the cloud and from it", member<&cluster_cloud::bits_per_s>,
     "no limit"},
    {"latency_s", a_latency, "latency in each direction", member<&cluster_cloud::latency_s>},
};

constexpr key_row<cluster_radio> radio_list[] = {
    {"user_bandwidth_hz", a_bandwidth, "bandwidth of each user", by_hand},
    {"shared_bandwidth_hz", a_bandwidth,
     "bandwidth of all users together, instead of user_bandwidth_hz", by_hand},
    {"server_bandwidth_hz", a_bandwidth, "bandwidth between servers",
     member<&cluster_radio::server_bandwidth_hz>, "[[cluster.links]] apply"},
    {"user_power_w", a_user_power, "power with which users send",
     member<&cluster_radio::user_power_w>, "none"},
    {"server_power_w", a_server_power, "power with which servers send",
     member<&cluster_radio::server_power_w>, "none"},
    {"gain", real_above(0, 1e12), "gain of the antennas", member<&cluster_radio::gain>},
    {"path_loss", real(0, 16), "exponent of the distance", member<&cluster_radio::path_loss>},
    {"noise_w_per_hz", real_above(0, 1e-6), "density of the noise",
     member<&cluster_radio::noise_w_per_hz>, "none"},
    {"distance_min_m", a_length,
     "smallest distance that is used; shorter distances count as this one",
     member<&cluster_radio::distance_min_m>},
    {"area_m", a_side, "side of the square in which positions are drawn",
     member<&cluster_radio::area_m>, "no positions are drawn"},
    {"position_seed", whole(0, seed_max), "random seed of positions",
     member<&cluster_radio::position_seed>},
};

constexpr key_row<cluster_user> user_list[] = {
    {"name", a_text, "name by which other entries refer to it", by_hand},
    {"position", a_position, "where the user stands", by_hand, "drawn at random"},
    {"flops", a_speed, "speed at which the user computes its own experts",
     member<&cluster_user::flops>, "none"},
    {"local_experts", whole(0, 1 << 24),
     "number of experts that the user holds: those that it uses most",
     member<&cluster_user::local_experts>},
    {"workload", in_turn, "workload of its requests", by_hand},
    {"count", whole(1, users_max),
     "number of entries that this one stands for: NAME.0, NAME.1 and so on", by_hand,
     "1, called NAME"},
};

constexpr key_row<cluster_workload> workload_list[] = {
    {"name", a_text, "name by which other entries refer to it", by_hand},
    {"models", in_words("a model, a list of them, or a table of shares that sum to 1"),
     "models that requests ask for", by_hand, "all models, with equal shares"},
    {"models_per_user", in_words("a count, or two such as [3, 5]"),
     "number of models that each entry node draws, in its own order", by_hand, "all"},
    {"model_zipf", real(0, 16), "popularity of an entry node's models is rank^-model_zipf",
     member<&cluster_workload::model_zipf>},
    {"model_seed", whole(0, seed_max), "random seed for the draws of models",
     member<&cluster_workload::model_seed>},
    {"trace", a_path, "recorded routing, which says which experts are chosen", by_hand},
    {"frequency", a_path,
     "instead of a trace: a file of shares, subjects times layers times experts", by_hand},
    {"domains", some_texts, "use only these domains or subjects of the file",
     member<&cluster_workload::domains>, "all"},
    {"request_first", whole(0, 1 << 30), "first request of the trace that is used",
     member<&cluster_workload::request_first>},
    {"request_step", whole(1, 1 << 30),
     "use every n-th request of the trace, from request_first on",
     member<&cluster_workload::request_step>},
    {"zipf", real(0, 16),
     "experts are drawn at random: popularity rank^-zipf, with ranks shuffled per layer",
     member<&cluster_workload::zipf>, "no draws"},
    {"draw_seed", whole(0, seed_max), "random seed for the shuffles of zipf",
     member<&cluster_workload::draw_seed>},
    {"per_user", a_flag, "every entry node has its own shuffles of zipf",
     member<&cluster_workload::per_user>},
    {"groups_max", whole(0, 1 << 20),
     "sets of experts chosen together that are kept per layer and entry node; 0: only frequencies",
     member<&cluster_workload::groups_max>},
    {"poisson_s", usually(real_above(0, 1e9, s), 1e-6, 1e7, "ms"),
     "mean time between the arrivals of two requests", by_hand},
    {"arrivals", a_path, "instead of poisson_s: a CSV file of arrival_s,input,output", by_hand},
    {"input_tokens", whole(0, tokens_max), "input tokens of each request; 0: as in the trace",
     member<&cluster_workload::input_tokens>},
    {"output_tokens", whole(0, tokens_max), "output tokens of each request; 0: as in the trace",
     member<&cluster_workload::output_tokens>},
    {"then", a_text, "workload that replaces this one later in a run",
     member<&cluster_workload::next_workload>, "none"},
    {"then_s", usually(real_above(0, seconds_max, s), 1e-6, 1e8, "ms"),
     "time from which tokens follow the workload of then",
     member<&cluster_workload::next_workload_s>, "never"},
};

key_table table(std::string_view name, std::string_view meaning) {
    return {format("cluster.{}", name), format("[cluster.{}]", name), std::string(meaning)};
}
key_table list(std::string_view name, std::string_view meaning) {
    return {format("cluster.{}", name), format("[[cluster.{}]]", name), std::string(meaning)};
}

}  // namespace

const key_rows_of<cluster_config> cluster_rows = cluster_list;
const key_rows_of<cluster_model> model_rows = model_list;
const key_rows_of<cluster_server> server_rows = server_list;
const key_rows_of<cluster_link> link_rows = link_list;
const key_rows_of<cluster_cloud> cloud_rows = cloud_list;
const key_rows_of<cluster_radio> radio_rows = radio_list;
const key_rows_of<cluster_user> user_rows = user_list;
const key_rows_of<cluster_workload> workload_rows = workload_list;

void add_cluster_tables(std::vector<key_table> &tables) {
    tables.push_back(
        {"cluster", "[cluster]", "several servers; replaces [source], [hardware] and [memory]"});
    tables.back().add(cluster_rows);
    tables.push_back(list("models", "models that are served").add(model_rows));
    tables.push_back(list("servers", "servers with their devices and their memory for experts")
                         .add(server_rows));
    tables.push_back(
        list("links", "links; a later one replaces an earlier one of the same direction")
            .add(link_rows));
    tables.push_back(table("cloud", "cloud that holds every expert").add(cloud_rows));
    tables.push_back(
        table("radio", "radio between users and servers, Eq. (3) and (4) of SlimCaching")
            .add(radio_rows));
    tables.push_back(list("users", "users who send requests over the radio").add(user_rows));
    tables.push_back(
        list("workloads", "which experts tokens use, and when requests arrive").add(workload_rows));
}

}  // namespace moorage::core
