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
                      a_position = other("two numbers in metres, [x, y]"),
                      in_turn = other("a text, or a list that counted entries take in turn"),
                      some_tables = other("tables, of which each is an entry"),
                      a_table = other("a table");

constexpr key_row<cluster_config> cluster_list[] = {
    {"file", a_path, "a file whose [cluster] describes it, in place of all else here", by_hand},
    {"serial_calls", a_flag, "a home calls one server after the other",
     into<&cluster_config::serial_calls>},
    {"returns_each", a_flag, "servers return each expert's output, not their sum",
     into<&cluster_config::returns_each>},
    {"duration_s", a_duration, "of a run: requests come for so long; 0: until requests",
     into<&cluster_config::duration_s>},
    {"requests", whole(0, uint64_t{1} << 32), "of each home; 0: until duration_s",
     into<&cluster_config::requests>},
    {"bucket_s", a_duration, "of figures over time; 0: a 60th of the duration",
     into<&cluster_config::bucket_s>},
    {"offers_max", whole(1, 256), "servers that a home considers for an expert, the nearest",
     into<&cluster_config::offers_max>},
    {"local_bits_per_s", an_inner_rate, "between the devices of a server; 0: it takes no time",
     into<&cluster_config::local_bits_per_s>},
    {"shared_interface", a_flag, "the links of a server share one line each way",
     into<&cluster_config::shared_interface>},
    {"own_disk", a_flag,
     "a node computes from its model directory what no other node does (of nodes)",
     into<&cluster_config::own_disk>, "", cluster_use::nodes},
    {"models", some_tables, "[[cluster.models]]", by_hand},
    {"servers", some_tables, "[[cluster.servers]]", by_hand},
    {"links", some_tables, "[[cluster.links]]", by_hand},
    {"cloud", a_table, "[cluster.cloud]", by_hand},
    {"radio", a_table, "[cluster.radio]", by_hand},
    {"users", some_tables, "[[cluster.users]]", by_hand},
    {"workloads", some_tables, "[[cluster.workloads]]", by_hand},
};

constexpr key_row<cluster_model> model_list[] = {
    {"name", a_text, "by which it is named elsewhere", by_hand},
    {"shape", a_text, "its sizes: a file of configs/models, or a path", into<&cluster_model::shape>,
     "its name"},
    {"expert_bytes", an_expert, "of an expert, where they are stored smaller than the shape says",
     by_hand, "the shape's"},
    {"value_bits", whole(1, 64), "of a value of a hidden state on the way",
     into<&cluster_model::value_bits>},
    {"groups", whole(1, 1 << 16), "that its router limits tokens to", into<&cluster_model::groups>},
    {"weights", a_path, "the directory that nodes read it from (of nodes)",
     into<&cluster_model::weights>},
    {"count", whole(1, cluster_models_max),
     "entries that this one stands for: NAME.0, NAME.1 and so on", by_hand, "1, called NAME"},
};

constexpr key_row<cluster_server> server_list[] = {
    {"name", a_text, "by which it is named elsewhere", by_hand},
    {"gpus", some_texts, "device profiles of its GPUs", by_hand},
    {"gpu_count", whole(1, server_gpus_max), "how often gpus are there", by_hand, "1"},
    {"flops", a_speed,
     "in place of gpus: one ideal device, of which each expert of a model gets its part, and calls "
     "do not queue",
     by_hand},
    {"expert_memory_bytes", a_memory, "for experts, of each device; 0: it holds none", by_hand,
     "what the profile leaves beside everything else"},
    {"expert_memory_share", real_above(0, 1, share),
     "of a device's memory for experts, in place of expert_memory_bytes", by_hand},
    {"load_bytes_per_s", a_load_rate, "into each device", into<&cluster_server::load_bytes_per_s>,
     "the profile's; of an ideal device not limited"},
    {"host_experts", a_flag, "its main memory holds every expert, so that they can be loaded",
     into<&cluster_server::host_experts>},
    {"position", a_position, "where it stands, with [cluster.radio]", by_hand, "drawn"},
    {"workload", in_turn, "of tokens that enter here", by_hand, "none"},
    {"address", in_turn, "where other nodes call it, \"host:port\" (of nodes)", by_hand},
    {"heartbeats", in_turn, "where it answers them (of nodes)", by_hand},
    {"status", in_turn, "where it says over HTTP how it is (of nodes)", by_hand},
    {"count", whole(1, servers_max), "entries that this one stands for: NAME.0, NAME.1 and so on",
     by_hand, "1, called NAME"},
};

constexpr key_row<cluster_link> link_list[] = {
    {"from", a_text, "a server, or an entry; \"*\": all", into<&cluster_link::from>},
    {"to", a_text, "a server, or an entry; \"*\": all", into<&cluster_link::to>},
    {"symmetric", a_flag, "it leads back, too", into<&cluster_link::symmetric>},
    {"bits_per_s", a_link_rate, "its rate", into<&cluster_link::bits_per_s>, "none"},
    {"latency_s", a_latency, "of a message, beside its bits", into<&cluster_link::latency_s>},
};

constexpr key_row<cluster_cloud> cloud_list[] = {
    {"flops", a_speed, "its computing rate", into<&cluster_cloud::flops>, "none"},
    {"bits_per_s", a_link_rate, "to it and from it", into<&cluster_cloud::bits_per_s>,
     "not limited"},
    {"latency_s", a_latency, "each way", into<&cluster_cloud::latency_s>},
};

constexpr key_row<cluster_radio> radio_list[] = {
    {"user_bandwidth_hz", a_bandwidth, "of each user", by_hand},
    {"shared_bandwidth_hz", a_bandwidth, "of all users together, in place of user_bandwidth_hz",
     by_hand},
    {"server_bandwidth_hz", a_bandwidth, "between servers",
     into<&cluster_radio::server_bandwidth_hz>, "[[cluster.links]] say"},
    {"user_power_w", a_user_power, "with which users send", into<&cluster_radio::user_power_w>,
     "none"},
    {"server_power_w", a_server_power, "with which servers send",
     into<&cluster_radio::server_power_w>, "none"},
    {"gain", real_above(0, 1e12), "of the antennas", into<&cluster_radio::gain>},
    {"path_loss", real(0, 16), "exponent of the distance", into<&cluster_radio::path_loss>},
    {"noise_w_per_hz", real_above(0, 1e-6), "its density", into<&cluster_radio::noise_w_per_hz>,
     "none"},
    {"distance_min_m", a_length, "that is counted at least", into<&cluster_radio::distance_min_m>},
    {"area_m", a_side, "side of the square that positions are drawn in",
     into<&cluster_radio::area_m>, "none are drawn"},
    {"position_seed", whole(0, seed_max), "of positions", into<&cluster_radio::position_seed>},
};

constexpr key_row<cluster_user> user_list[] = {
    {"name", a_text, "by which it is named elsewhere", by_hand},
    {"position", a_position, "where it stands", by_hand, "drawn"},
    {"flops", a_speed, "that it computes experts of its own with", into<&cluster_user::flops>,
     "none"},
    {"local_experts", whole(0, 1 << 24), "that it holds: the ones it uses most",
     into<&cluster_user::local_experts>},
    {"workload", in_turn, "what it asks for", by_hand},
    {"count", whole(1, users_max), "entries that this one stands for: NAME.0, NAME.1 and so on",
     by_hand, "1, called NAME"},
};

constexpr key_row<cluster_workload> workload_list[] = {
    {"name", a_text, "by which it is named elsewhere", by_hand},
    {"models", other("a model, a list of them, or a table of shares that sum to 1"),
     "what is asked for", by_hand, "all models, alike"},
    {"models_per_user", other("a count, or two such as [3, 5]"),
     "each home draws so many of models, in an order of its own", by_hand, "all"},
    {"model_zipf", real(0, 16), "popularity of a home's models is rank^-model_zipf",
     into<&cluster_workload::model_zipf>},
    {"model_seed", whole(0, seed_max), "of those draws", into<&cluster_workload::model_seed>},
    {"trace", a_path, "which experts are chosen: as recorded", by_hand},
    {"frequency", a_path, "or by a file of shares, subjects times layers times experts", by_hand},
    {"domains", some_texts, "of these domains or subjects of the file alone",
     into<&cluster_workload::domains>, "all"},
    {"request_first", whole(0, 1 << 30), "of the trace's requests, this one",
     into<&cluster_workload::request_first>},
    {"request_step", whole(1, 1 << 30), "and every so many from there",
     into<&cluster_workload::request_step>},
    {"zipf", real(0, 16), "or drawn: popularity rank^-zipf, ranks shuffled per layer",
     into<&cluster_workload::zipf>, "not drawn"},
    {"draw_seed", whole(0, seed_max), "of those shuffles", into<&cluster_workload::draw_seed>},
    {"per_user", a_flag, "every home has shuffles of its own", into<&cluster_workload::per_user>},
    {"groups_max", whole(0, 1 << 20),
     "sets of experts chosen together that are kept per layer and home; 0: frequencies alone",
     into<&cluster_workload::groups_max>},
    {"poisson_s", usually(real_above(0, 1e9, s), 1e-6, 1e7, "ms"),
     "when requests come: so far apart on average", by_hand},
    {"arrivals", a_path, "or as a CSV of arrival_s,input,output says", by_hand},
    {"input_tokens", whole(0, tokens_max), "of each request; 0: the trace's",
     into<&cluster_workload::input_tokens>},
    {"output_tokens", whole(0, tokens_max), "of each request; 0: the trace's",
     into<&cluster_workload::output_tokens>},
    {"then", a_text, "another workload, as which tokens come later in a run",
     into<&cluster_workload::then>, "none"},
    {"then_s", usually(real_above(0, seconds_max, s), 1e-6, 1e8, "ms"), "from when on",
     into<&cluster_workload::then_s>, "never"},
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

void add_cluster_tables(std::vector<key_table> &to) {
    to.push_back(
        {"cluster", "[cluster]", "several servers, in place of [source], [hardware] and [memory]"});
    to.back().add(cluster_rows);
    to.push_back(list("models", "what is served").add(model_rows));
    to.push_back(list("servers", "devices and memory for experts").add(server_rows));
    to.push_back(
        list("links", "a later one replaces an earlier one of the same direction").add(link_rows));
    to.push_back(table("cloud", "holds every expert").add(cloud_rows));
    to.push_back(table("radio", "between users and servers, Eq. (3) and (4) of SlimCaching")
                     .add(radio_rows));
    to.push_back(list("users", "who ask over the radio").add(user_rows));
    to.push_back(list("workloads", "what tokens ask for, and when").add(workload_rows));
}

}  // namespace moorage::core
