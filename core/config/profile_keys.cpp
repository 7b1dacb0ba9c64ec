// profile_keys.cpp - the rows of hw_profiles and configs/models, file by file.
#include "core/config/profile_keys.h"

#include "core/config/section.h"

namespace moorage::core {

namespace {

using enum quantity_unit;

// Limits far above every machine. A larger value has a wrong unit.
constexpr uint64_t bytes_max = uint64_t{1} << 50;
constexpr uint32_t count_max = 1 << 24, kernels_max = 1000;
constexpr value_shape a_size = whole(1, bytes_max, bytes),
                      a_size_or_none = whole(0, bytes_max, bytes),
                      any_time = whole(0, 1'000'000'000, ns),
                      any_rate = real_above(0, 1e16, bytes_per_s),
                      any_speed = real_above(0, 1e20, flop_per_s);
// Usual ranges: from a single-board computer to some generations after today's fastest machine.
constexpr value_shape a_memory = usually(a_size, 1e5, 1e14, "GB"),
                      a_reserve = usually(a_size_or_none, 1e5, 1e13, "GB"),
                      a_cache = usually(a_size_or_none, 1e3, 1e12, "MB"),
                      a_memory_rate = usually(any_rate, 1e8, 1e15, "GB/s"),
                      a_link_rate = usually(any_rate, 1e6, 1e14, "GB/s"),
                      a_disk_rate = usually(any_rate, 1e5, 1e13, "GB/s"),
                      a_speed = usually(any_speed, 1e8, 1e18, "TFLOP/s"),
                      a_cpu_speed = usually(any_speed, 1e8, 1e18, "GFLOP/s"),
                      a_time = usually(any_time, 10, 1e8, "us"),
                      a_further_time = usually(any_time, 0, 1e8, "us"),  // of a token, an expert
    a_seek = usually(any_time, 100, 4e8, "us");
constexpr value_shape a_logits_rate = real(1e3, 1e16), a_share = real(0.001, 1, share),
                      a_multiple = real_above(0, 4, share), a_count = whole(1, count_max),
                      a_count_or_none = whole(0, count_max), kernels = whole(0, kernels_max),
                      few = real(0, kernels_max), bits = real_above(0, 64),
                      overlap_words = word("none|prefetch|layer|ahead");

constexpr key_row<device_profile> device_labels[] = {
    {"name", a_text, "name of the device", member<&device_profile::name>},
};
constexpr key_row<device_profile> device_figures[] = {
    {"memory_bytes", a_memory, "size of the memory", member<&device_profile::memory_bytes>},
    {"reserved_bytes", a_reserve, "unusable memory: context, display, fragmentation",
     member<&device_profile::reserved_bytes>},
    {"memory_bytes_per_s", a_memory_rate, "theoretical rate of the memory",
     member<&device_profile::memory_bytes_per_s>},
    {"memory_efficiency", a_share, "share of memory_bytes_per_s that matrix-vector kernels reach",
     member<&device_profile::memory_efficiency>},
    {"flops_per_s", a_speed, "speed of the 16-bit tensor units, float32 accumulation, dense",
     member<&device_profile::flops_per_s>},
    {"flops_efficiency", a_share, "share of flops_per_s that prefill kernels reach",
     member<&device_profile::flops_efficiency>},
    {"launch_ns", a_time, "time to launch a kernel", member<&device_profile::launch_ns>},
    {"sync_ns", a_time, "time to hand the gate's result to the host, once a layer",
     member<&device_profile::sync_ns>},
    {"layer_ns", a_time, "further fixed cost of a layer", member<&device_profile::layer_ns>},
    {"attention_kernels", kernels,
     "kernels launched per layer: attention, norms, gate, shared expert",
     member<&device_profile::attention_kernels>},
    {"expert_kernels", kernels, "kernels launched per expert",
     member<&device_profile::expert_kernels>},
    {"unified_memory", a_flag, "GPU and CPU read the same memory: loads copy nothing",
     member<&device_profile::unified_memory>},
};
constexpr key_row<device_profile> device_terms[] = {
    {"is_host", a_flag, "the device is the host's processor, and slots are copies in main memory",
     member<&device_profile::is_host>},
    {"compute_share", a_share,
     "share of its speed that computing keeps during a copy, with is_host",
     member<&device_profile::compute_share>},
    {"copy_share", a_share, "share of its speed that a copy keeps during computing, with is_host",
     member<&device_profile::copy_share>},
    {"load_ns", a_further_time, "computing time lost to each copied piece, with is_host",
     member<&device_profile::load_ns>},
    {"step_ns", a_time, "software's time in a layer step, besides computing, with is_host",
     member<&device_profile::step_ns>},
    {"wake_ns", a_time,
     "time until the copying thread begins, unless all threads wait for the piece, with is_host",
     member<&device_profile::wake_ns>},
    {"busy_link_slowdown", real(0, 4, share),
     "during a copy to the device, computing takes 1 + this times as long; whole thousandths, not "
     "with is_host",
     member<&device_profile::busy_link_slowdown>},
    {"logits_per_s", a_logits_rate,
     "rate of the logits from which the host draws tokens; 0: no cost",
     member<&device_profile::logits_per_s>},
    {"greedy_logits_per_s", a_logits_rate,
     "rate of the logits if the most probable token is taken (temperature 0); 0: as logits_per_s",
     member<&device_profile::greedy_logits_per_s>},
    {"expert_ns", a_further_time, "further fixed cost of an expert",
     member<&device_profile::expert_ns>},
    {"token_ns", a_further_time, "cost of each token after the first, in a layer",
     member<&device_profile::token_ns>},
    {"pass_ns", a_time, "fixed cost of a pass through all layers",
     member<&device_profile::pass_ns>},
    {"tile_tokens", real_above(0, kernels_max),
     "n tokens of an expert, if n > 1, take as long as n + this many",
     member<&device_profile::tile_tokens>},
    {"few_tokens", kernels,
     "up to this many tokens, weights are read once for all of them; 0: never",
     member<&device_profile::few_tokens>},
    {"few_flops_per_s", a_speed,
     "speed for the tokens after the first, up to few_tokens, on top of reading the weights",
     member<&device_profile::few_flops_per_s>},
    {"few_token_ns", a_further_time, "token_ns for up to few_tokens tokens",
     member<&device_profile::few_token_ns>},
    {"context_bytes_per_s", a_memory_rate,
     "rate of attention over cached keys and values; 0: the memory's rate",
     member<&device_profile::context_bytes_per_s>},
    {"cache_bytes", a_cache, "weights of a pass up to this size are read from the cache",
     member<&device_profile::cache_bytes>},
    {"cache_bytes_per_s", a_memory_rate, "rate of reads from the cache",
     member<&device_profile::cache_bytes_per_s>},
    {"vector_flops_per_s", a_speed, "32-bit speed outside the tensor units; engines need it",
     member<&device_profile::vector_flops_per_s>},
    {"kernel_ns", a_further_time,
     "time of an empty kernel that follows another one; engines need it",
     member<&device_profile::kernel_ns>},
};
constexpr key_row<device_profile> device_neighbours[] = {
    {"link", a_text, "usual link between the device and the host", member<&device_profile::link>,
     "the machine's own"},
    {"node", a_text, "usual host of the device", member<&device_profile::node>,
     "the machine's own"},
};

constexpr key_row<link_profile> link_labels[] = {
    {"name", a_text, "name of the link", member<&link_profile::name>},
};
constexpr key_row<link_profile> link_figures[] = {
    {"h2d_bytes_per_s", a_link_rate, "usable rate to the device, for large pinned copies",
     member<&link_profile::h2d_bytes_per_s>},
    {"d2h_bytes_per_s", a_link_rate, "usable rate from the device",
     member<&link_profile::d2h_bytes_per_s>},
    {"issue_ns", a_time, "fixed time of a transfer", member<&link_profile::issue_ns>},
};

constexpr key_row<disk_profile> disk_labels[] = {
    {"name", a_text, "name of the drive", member<&disk_profile::name>},
};
constexpr key_row<disk_profile> disk_figures[] = {
    {"read_bytes_per_s", a_disk_rate,
     "rate of direct reads of whole experts, many blocks at a time",
     member<&disk_profile::read_bytes_per_s>},
    {"issue_ns", a_seek, "time of a transfer until its first byte",
     member<&disk_profile::issue_ns>},
};

constexpr key_row<node_profile> node_labels[] = {
    {"name", a_text, "name of the host", member<&node_profile::name>},
};
constexpr key_row<node_profile> node_figures[] = {
    {"memory_bytes", a_memory, "size of main memory", member<&node_profile::memory_bytes>},
    {"memory_bytes_per_s", a_memory_rate,
     "upper limit of the rate for all readers of host memory together",
     member<&node_profile::memory_bytes_per_s>},
    {"cpu_bytes_per_s", a_memory_rate, "rate at which the CPU's expert kernel reads alone",
     member<&node_profile::cpu_bytes_per_s>},
    {"cpu_flops_per_s", a_cpu_speed, "speed of the CPU", member<&node_profile::cpu_flops_per_s>},
    {"cpu_issue_ns", a_time, "time to hand an expert to the pool of threads and back",
     member<&node_profile::cpu_issue_ns>},
};
constexpr key_row<node_profile> node_terms[] = {
    {"memory_theory_bytes_per_s", a_memory_rate,
     "rate of one socket's memory channels; engines' figures are shares of it",
     member<&node_profile::memory_theory_bytes_per_s>},
    {"launch_ns", a_time, "host's time to launch a kernel", member<&node_profile::launch_ns>},
};

constexpr key_row<engine_profile> engine_labels[] = {
    {"name", a_text, "name of the software", member<&engine_profile::name>},
};
constexpr key_row<engine_profile> engine_figures[] = {
    {"graph", a_flag, "a pass of one token is launched as one graph",
     member<&engine_profile::graph>},
    {"kernels_per_product", few,
     "kernels of a weight product, with its norms, quantising and additions",
     member<&engine_profile::kernels_per_product>},
    {"launch_gap_ns", a_further_time, "time between kernels that are launched one by one",
     member<&engine_profile::launch_gap_ns>},
    {"layer_ns", a_time, "software's own time in a layer", member<&engine_profile::layer_ns>},
    {"expert_loop_ns", a_further_time,
     "software's own time for each expert of a layer, used or not",
     member<&engine_profile::expert_loop_ns>},
    {"batch_layer_ns", a_time, "extra time in a layer if a pass has several tokens",
     member<&engine_profile::batch_layer_ns>},
    {"sync_ns", a_time, "time for the host's decision in a layer with absent experts",
     member<&engine_profile::sync_ns>},
    {"prompt_ns", any_time, "fixed time of a prompt", member<&engine_profile::prompt_ns>},
    {"memory_share", a_share, "share of the memory's rate, for large kernels",
     member<&engine_profile::memory_share>},
    {"unpack_operations", few, "operations of the vector units for a weight below 16 bits",
     member<&engine_profile::unpack_operations>},
    {"product_share", a_multiple, "share of the tensor rate, for many tokens",
     member<&engine_profile::product_share>},
    {"tile_tokens", few,
     "products for n tokens of an expert, if n > 1, take as long as for n + this many",
     member<&engine_profile::tile_tokens>},
    {"context_share", a_share, "share of the memory's rate, for cached keys and values",
     member<&engine_profile::context_share>},
    {"context_product_share", a_multiple, "share of the tensor rate, for attention's own products",
     member<&engine_profile::context_product_share>},
    {"copies", whole(1, kernels_max), "number of copies per expert",
     member<&engine_profile::copies>},
    {"copy_ns", a_further_time, "time of each copy, besides its bytes",
     member<&engine_profile::copy_ns>},
    {"overlap", overlap_words,
     "what computes during loads of absent experts: nothing; the layer before, for predicted ones; "
     "the layer's other experts; those and the layer before",
     member<&engine_profile::overlap>},
    {"prompt_load_tokens", a_count_or_none,
     "passes of at least this many tokens load absent experts; in smaller passes the CPU computes "
     "them; 0: as in decode",
     member<&engine_profile::prompt_load_tokens>},
    {"prompt_loads_all", a_flag, "prompts load whole layers, whatever their tokens use",
     member<&engine_profile::prompt_loads_all>},
    {"prompt_overlaps", a_flag, "loads of prompts overlap with computing",
     member<&engine_profile::prompt_overlaps>},
    {"microbatch", a_count_or_none, "tokens in a pass of a prompt; 0: all",
     member<&engine_profile::microbatch>},
    {"prompt_experts_share", a_share, "share of a layer's experts that its prompts ever use",
     member<&engine_profile::prompt_experts_share>},
    {"cpu_memory_share", a_share, "share of the channels' rate, for experts on the CPU",
     member<&engine_profile::cpu_memory_share>},
    {"cpu_flops_share", a_multiple, "share of the CPU's speed",
     member<&engine_profile::cpu_flops_share>},
    {"socket_flops_share", real(0, 1, share), "share of the speed, for each socket after the first",
     member<&engine_profile::socket_flops_share>},
    {"cpu_layer_ns", a_time, "time to hand a layer to the CPU and back",
     member<&engine_profile::cpu_layer_ns>},
};
constexpr key_row<engine_profile> engine_terms[] = {
    {"expert_ns", a_further_time, "software's own time for each expert that the device computes",
     member<&engine_profile::expert_ns>},
    {"copy_bytes_per_s", a_link_rate,
     "upper limit of the rate of loads: pageable memory; 0: as the link",
     member<&engine_profile::copy_bytes_per_s>},
    {"thread_bytes_per_s", a_memory_rate,
     "rate at which one thread reads experts; 0: independent of threads",
     member<&engine_profile::thread_bytes_per_s>},
};
// For engines with costs = "device".
constexpr key_row<engine_profile> engine_changes[] = {
    {"overlap", overlap_words, "as above", member<&engine_profile::overlap>},
    {"copy_bytes_per_s", a_link_rate, "as above", member<&engine_profile::copy_bytes_per_s>},
    {"layer_ns", a_time, "as above", member<&engine_profile::layer_ns>},
    {"expert_ns", a_further_time, "as above", member<&engine_profile::expert_ns>},
    {"cpu_layer_ns", a_time, "as above", member<&engine_profile::cpu_layer_ns>},
};
constexpr key_row<engine_profile> engine_special[] = {
    {"costs", word("device|engine"),
     "whose figures apply: the machine's own, with overlap, copy_bytes_per_s, layer_ns, expert_ns "
     "and cpu_layer_ns of this file on top; or this file's",
     by_hand},
};

constexpr key_row<model_shape> shape_labels[] = {
    {"name", a_text, "published name of the model", member<&model_shape::name>},
};
constexpr key_row<model_shape> shape_figures[] = {
    {"layers", a_count, "number of all layers", member<&model_shape::layers>},
    {"moe_layers", a_count, "number of layers with experts", member<&model_shape::moe_layers>},
    {"experts", a_count, "routed experts of a layer", member<&model_shape::experts>},
    {"top_k", a_count, "experts of a token and layer", member<&model_shape::top_k>},
    {"hidden", a_count, "size of a hidden state", member<&model_shape::hidden>},
    {"moe_intermediate", a_count, "rows of an expert", member<&model_shape::moe_intermediate>},
    {"matrices", whole(2, 3), "matrices of an expert: 3 if gated, 2 if not",
     member<&model_shape::matrices>},
    {"weight_bytes", real_above(0, 8), "bytes of a weight", member<&model_shape::weight_bytes>},
    {"expert_bytes", a_size, "size of an expert", member<&model_shape::expert_bytes>},
    {"non_expert_bytes", a_size, "size of everything but routed experts",
     member<&model_shape::non_expert_bytes>},
    {"dense_bytes", a_size,
     "part of non_expert_bytes that is read for every token: without the input embedding",
     member<&model_shape::dense_bytes>},
    {"kv_token_layer_bytes", a_size, "KV cache of a token in a layer",
     member<&model_shape::kv_token_layer_bytes>},
    {"vocabulary", a_count, "number of tokens in the vocabulary", member<&model_shape::vocabulary>},
};
constexpr key_row<model_shape> shape_terms[] = {
    {"expert_bits", bits, "bits of a weight of experts, scales included; 0: 8 x weight_bytes",
     member<&model_shape::expert_bits>},
    {"dense_bits", bits, "bits of a weight of the dense part", member<&model_shape::dense_bits>},
    {"head_bits", bits, "bits of a weight of the output matrix", member<&model_shape::head_bits>},
    {"embedding_bits", bits, "bits of a weight of the input embedding",
     member<&model_shape::embedding_bits>},
    {"products", whole(1, kernels_max), "number of products with weights in a layer",
     member<&model_shape::products>},
    {"context_operations", real_above(0, 1e20),
     "operations of a token with one cached token, in a layer",
     member<&model_shape::context_operations>},
    {"state_layer_bytes", a_size_or_none,
     "state of a sequence of any length, in a layer (linear attention)",
     member<&model_shape::state_layer_bytes>},
};
constexpr key_row<model_shape> shape_special[] = {
    {"config", in_words("a table"), "keys of the model's config.json that say how it computes",
     by_hand},
};
constexpr key_row<model_shape> alias_rows[] = {
    {"aliases", some_texts, "further names under which the file is found", by_hand},
};

template <class Of>
key_table file(std::string_view name, std::string_view called, std::string_view meaning,
               const profile_rows<Of> &rows) {
    key_table table{std::string(name), std::string(called), std::string(meaning)};
    table.add(rows.labels).add(rows.figures);
    for (documented_key &key : table.keys) key.default_text.clear();  // a file has all keys
    table.add(rows.terms);
    return table;
}

}  // namespace

const profile_rows<device_profile> device_profile_rows{device_labels, device_figures, device_terms};
const profile_rows<link_profile> link_profile_rows{link_labels, link_figures, {}};
const profile_rows<node_profile> node_profile_rows{node_labels, node_figures, node_terms};
const profile_rows<disk_profile> disk_profile_rows{disk_labels, disk_figures, {}};
const profile_rows<engine_profile> engine_profile_rows{engine_labels, engine_figures, engine_terms};
const profile_rows<model_shape> shape_rows{shape_labels, shape_figures, shape_terms};
const key_rows_of<engine_profile> engine_change_rows = engine_changes;

void add_profile_tables(std::vector<key_table> &tables) {
    const key_rows_of<model_shape> aliases = alias_rows;
    tables.push_back(file("device", "device profile", "hw_profiles/device", device_profile_rows));
    tables.back().add(key_rows_of<device_profile>(device_neighbours)).add(aliases);
    tables.push_back(file("link", "link profile", "hw_profiles/link", link_profile_rows));
    tables.push_back(file("node", "node profile", "hw_profiles/node", node_profile_rows));
    tables.back().add(aliases);
    tables.push_back(file("disk", "disk profile", "hw_profiles/disk", disk_profile_rows));
    tables.push_back(file("engine", "engine profile", "hw_profiles/engine", engine_profile_rows));
    tables.back().add(key_rows_of<engine_profile>(engine_special)).add(aliases);
    tables.push_back(file("model", "model shape", "configs/models", shape_rows));
    tables.back().add(key_rows_of<model_shape>(shape_special)).add(aliases);
}

}  // namespace moorage::core
