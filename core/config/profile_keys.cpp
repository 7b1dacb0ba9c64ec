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
                      a_cpu_speed = usually(any_speed, 1e8, 1e16, "GFLOP/s"),
                      a_time = usually(any_time, 10, 1e8, "us"),
                      a_further_time = usually(any_time, 0, 1e8, "us"),  // of a token, an expert
    a_seek = usually(any_time, 100, 4e8, "us");
constexpr value_shape a_logits_rate = real_above(0, 1e16), a_share = real_above(0, 1, share),
                      an_efficiency = usually(a_share, 0.01, 1, "%"),
                      a_multiple = real_above(0, 4, share), a_count = whole(1, count_max),
                      a_count_or_none = whole(0, count_max), kernels = whole(0, kernels_max),
                      few = real(0, kernels_max), bits = real_above(0, 64),
                      overlap_words = word("none|prefetch|layer|ahead");

constexpr key_row<device_profile> device_labels[] = {
    {"name", a_text, "of the device", into<&device_profile::name>},
};
constexpr key_row<device_profile> device_figures[] = {
    {"memory_bytes", a_memory, "all of it", into<&device_profile::memory_bytes>},
    {"reserved_bytes", a_reserve, "not usable: context, display, fragmentation",
     into<&device_profile::reserved_bytes>},
    {"memory_bytes_per_s", a_memory_rate, "of memory, theory",
     into<&device_profile::memory_bytes_per_s>},
    {"memory_efficiency", an_efficiency, "of it, that matrix-vector kernels reach",
     into<&device_profile::memory_efficiency>},
    {"flops_per_s", a_speed, "16-bit tensor, float32 accumulation, dense",
     into<&device_profile::flops_per_s>},
    {"flops_efficiency", an_efficiency, "of it, that prefill kernels reach",
     into<&device_profile::flops_efficiency>},
    {"launch_ns", a_time, "of a kernel", into<&device_profile::launch_ns>},
    {"sync_ns", a_time, "of handing the gate's result to the host, once a layer",
     into<&device_profile::sync_ns>},
    {"layer_ns", a_time, "further fixed cost of a layer", into<&device_profile::layer_ns>},
    {"attention_kernels", kernels, "launched per layer: attention, norms, gate, shared expert",
     into<&device_profile::attention_kernels>},
    {"expert_kernels", kernels, "launched per expert", into<&device_profile::expert_kernels>},
    {"unified_memory", a_flag, "GPU and CPU read the same memory: loads copy nothing",
     into<&device_profile::unified_memory>},
};
constexpr key_row<device_profile> device_terms[] = {
    {"is_host", a_flag, "the device is the host's processor, and slots are copies in main memory",
     into<&device_profile::is_host>},
    {"compute_share", a_share, "of its own speed that computing keeps beside a copy, with is_host",
     into<&device_profile::compute_share>},
    {"copy_share", a_share, "of its own speed that a copy keeps beside computing, with is_host",
     into<&device_profile::copy_share>},
    {"load_ns", a_further_time, "of each piece copied, taken from computing, with is_host",
     into<&device_profile::load_ns>},
    {"step_ns", a_time, "of the software in a layer step beside what it computes, with is_host",
     into<&device_profile::step_ns>},
    {"wake_ns", a_time,
     "until the thread that copies begins, unless all wait for the piece, with is_host",
     into<&device_profile::wake_ns>},
    {"busy_link_slowdown", real(0, 4, share),
     "while a copy is on the link towards it, what it computes takes 1 + so many times as long; "
     "whole thousandths, not with is_host",
     into<&device_profile::busy_link_slowdown>},
    {"logits_per_s", a_logits_rate, "from which the host draws tokens; 0: at no cost",
     into<&device_profile::logits_per_s>},
    {"greedy_logits_per_s", a_logits_rate,
     "where it takes the most probable token (temperature 0); 0: as logits_per_s",
     into<&device_profile::greedy_logits_per_s>},
    {"expert_ns", a_further_time, "further fixed cost of an expert",
     into<&device_profile::expert_ns>},
    {"token_ns", a_further_time, "in a layer, of each token beside the first",
     into<&device_profile::token_ns>},
    {"pass_ns", a_time, "fixed cost of a pass through all layers", into<&device_profile::pass_ns>},
    {"tile_tokens", real_above(0, kernels_max),
     "several tokens of an expert take as long as so many more",
     into<&device_profile::tile_tokens>},
    {"few_tokens", kernels, "up to which weights are streamed past tokens; 0: as many are",
     into<&device_profile::few_tokens>},
    {"few_flops_per_s", a_speed, "of few tokens beside the first, on top of reading the weights",
     into<&device_profile::few_flops_per_s>},
    {"few_token_ns", a_further_time, "token_ns of few", into<&device_profile::few_token_ns>},
    {"context_bytes_per_s", a_memory_rate,
     "at which attention works through cached keys and values; 0: at the memory's rate",
     into<&device_profile::context_bytes_per_s>},
    {"cache_bytes", a_cache, "weights of a pass that are no more come from the cache",
     into<&device_profile::cache_bytes>},
    {"cache_bytes_per_s", a_memory_rate, "and at this rate",
     into<&device_profile::cache_bytes_per_s>},
    {"vector_flops_per_s", a_speed, "32-bit, outside the tensor units; engines need it",
     into<&device_profile::vector_flops_per_s>},
    {"kernel_ns", a_further_time,
     "of a kernel that has nothing to do, behind another one; engines need it",
     into<&device_profile::kernel_ns>},
};
constexpr key_row<device_profile> device_neighbours[] = {
    {"link", a_text, "the usual link between it and the host", into<&device_profile::link>,
     "a machine's own"},
    {"node", a_text, "its usual host", into<&device_profile::node>, "a machine's own"},
};

constexpr key_row<link_profile> link_labels[] = {
    {"name", a_text, "of the link", into<&link_profile::name>},
};
constexpr key_row<link_profile> link_figures[] = {
    {"h2d_bytes_per_s", a_link_rate, "to the device, usable, large pinned copies",
     into<&link_profile::h2d_bytes_per_s>},
    {"d2h_bytes_per_s", a_link_rate, "from the device", into<&link_profile::d2h_bytes_per_s>},
    {"issue_ns", a_time, "of a transfer", into<&link_profile::issue_ns>},
};

constexpr key_row<disk_profile> disk_labels[] = {
    {"name", a_text, "of the drive", into<&disk_profile::name>},
};
constexpr key_row<disk_profile> disk_figures[] = {
    {"read_bytes_per_s", a_disk_rate, "of whole experts, read directly, many blocks at a time",
     into<&disk_profile::read_bytes_per_s>},
    {"issue_ns", a_seek, "of a transfer, until its first byte", into<&disk_profile::issue_ns>},
};

constexpr key_row<node_profile> node_labels[] = {
    {"name", a_text, "of the host", into<&node_profile::name>},
};
constexpr key_row<node_profile> node_figures[] = {
    {"memory_bytes", a_memory, "of main memory", into<&node_profile::memory_bytes>},
    {"memory_bytes_per_s", a_memory_rate, "ceiling for everything that reads host memory together",
     into<&node_profile::memory_bytes_per_s>},
    {"cpu_bytes_per_s", a_memory_rate, "that the CPU's expert kernel reads alone",
     into<&node_profile::cpu_bytes_per_s>},
    {"cpu_flops_per_s", a_cpu_speed, "of the CPU", into<&node_profile::cpu_flops_per_s>},
    {"cpu_issue_ns", a_time, "of an expert: to the pool of threads and back",
     into<&node_profile::cpu_issue_ns>},
};
constexpr key_row<node_profile> node_terms[] = {
    {"memory_theory_bytes_per_s", a_memory_rate,
     "of one socket's channels; engines' figures are shares of it",
     into<&node_profile::memory_theory_bytes_per_s>},
    {"launch_ns", a_time, "of the host's time, for each kernel it launches",
     into<&node_profile::launch_ns>},
};

constexpr key_row<engine_profile> engine_labels[] = {
    {"name", a_text, "of the software", into<&engine_profile::name>},
};
constexpr key_row<engine_profile> engine_figures[] = {
    {"graph", a_flag, "a pass of one token is launched as a whole", into<&engine_profile::graph>},
    {"kernels_per_product", few, "with what goes along: norms, quantising, additions",
     into<&engine_profile::kernels_per_product>},
    {"launch_gap_ns", a_further_time, "between kernels that are launched one by one",
     into<&engine_profile::launch_gap_ns>},
    {"layer_ns", a_time, "software's own time in a layer", into<&engine_profile::layer_ns>},
    {"expert_loop_ns", a_further_time,
     "software's own time for each expert of a layer, used or not",
     into<&engine_profile::expert_loop_ns>},
    {"batch_layer_ns", a_time, "more in a layer where a pass has several tokens",
     into<&engine_profile::batch_layer_ns>},
    {"sync_ns", a_time, "in a layer some of whose experts are absent: the host decides",
     into<&engine_profile::sync_ns>},
    {"prompt_ns", any_time, "once for a prompt", into<&engine_profile::prompt_ns>},
    {"memory_share", a_share, "of the memory's rate, large kernels",
     into<&engine_profile::memory_share>},
    {"unpack_operations", few, "of the vector units, for a weight below 16 bits",
     into<&engine_profile::unpack_operations>},
    {"product_share", a_multiple, "of the tensor rate, many tokens",
     into<&engine_profile::product_share>},
    {"tile_tokens", few, "an expert's products are as long as for so many more",
     into<&engine_profile::tile_tokens>},
    {"context_share", a_share, "of the memory's rate, cached keys and values",
     into<&engine_profile::context_share>},
    {"context_product_share", a_multiple, "of the tensor rate, attention's own products",
     into<&engine_profile::context_product_share>},
    {"copies", whole(1, kernels_max), "of an expert", into<&engine_profile::copies>},
    {"copy_ns", a_further_time, "of each, beside its bytes", into<&engine_profile::copy_ns>},
    {"overlap", overlap_words,
     "what computes while absent experts are loaded: nothing; the layer before, beside what was "
     "predicted; the layer's other experts; those and the layer before",
     into<&engine_profile::overlap>},
    {"prompt_load_tokens", a_count_or_none,
     "passes of so many tokens load what is absent, of fewer the CPU computes it; 0: as in decode",
     into<&engine_profile::prompt_load_tokens>},
    {"prompt_loads_all", a_flag, "whole layers, whatever their tokens use",
     into<&engine_profile::prompt_loads_all>},
    {"prompt_overlaps", a_flag, "loads of prompts go on beside computing",
     into<&engine_profile::prompt_overlaps>},
    {"microbatch", a_count_or_none, "tokens of a pass of a prompt; 0: all",
     into<&engine_profile::microbatch>},
    {"prompt_experts_share", a_share, "of a layer's experts, that its prompts ever use",
     into<&engine_profile::prompt_experts_share>},
    {"cpu_memory_share", a_share, "of the channels' rate, experts on the CPU",
     into<&engine_profile::cpu_memory_share>},
    {"cpu_flops_share", a_multiple, "of the CPU's rate", into<&engine_profile::cpu_flops_share>},
    {"socket_flops_share", real(0, 1, share), "of a socket beyond the first",
     into<&engine_profile::socket_flops_share>},
    {"cpu_layer_ns", a_time, "a layer's hand-over to the CPU and back",
     into<&engine_profile::cpu_layer_ns>},
};
constexpr key_row<engine_profile> engine_terms[] = {
    {"expert_ns", a_further_time, "software's own time for each expert that the device computes",
     into<&engine_profile::expert_ns>},
    {"copy_bytes_per_s", a_link_rate,
     "loads are at most so fast: from pageable memory; 0: as the link",
     into<&engine_profile::copy_bytes_per_s>},
    {"thread_bytes_per_s", a_memory_rate, "that one thread reads of experts; 0: any number",
     into<&engine_profile::thread_bytes_per_s>},
};
// For engines with costs = "device".
constexpr key_row<engine_profile> engine_changes[] = {
    {"overlap", overlap_words, "as above", into<&engine_profile::overlap>},
    {"copy_bytes_per_s", a_link_rate, "as above", into<&engine_profile::copy_bytes_per_s>},
    {"layer_ns", a_time, "as above", into<&engine_profile::layer_ns>},
    {"expert_ns", a_further_time, "as above", into<&engine_profile::expert_ns>},
    {"cpu_layer_ns", a_time, "as above", into<&engine_profile::cpu_layer_ns>},
};
constexpr key_row<engine_profile> engine_special[] = {
    {"costs", word("device|engine"),
     "whose figures hold: the machine's own, with what is given of overlap, copy_bytes_per_s, "
     "layer_ns, expert_ns and cpu_layer_ns on top; or this file's",
     by_hand},
};

constexpr key_row<model_shape> shape_labels[] = {
    {"name", a_text, "as it was published", into<&model_shape::name>},
};
constexpr key_row<model_shape> shape_figures[] = {
    {"layers", a_count, "all of them", into<&model_shape::layers>},
    {"moe_layers", a_count, "of them with experts", into<&model_shape::moe_layers>},
    {"experts", a_count, "routed, of a layer", into<&model_shape::experts>},
    {"top_k", a_count, "experts of a token and layer", into<&model_shape::top_k>},
    {"hidden", a_count, "size of a hidden state", into<&model_shape::hidden>},
    {"moe_intermediate", a_count, "rows of an expert", into<&model_shape::moe_intermediate>},
    {"matrices", whole(2, 3), "of an expert: 3 gated, 2 not", into<&model_shape::matrices>},
    {"weight_bytes", real_above(0, 8), "of a weight", into<&model_shape::weight_bytes>},
    {"expert_bytes", a_size, "of an expert", into<&model_shape::expert_bytes>},
    {"non_expert_bytes", a_size, "everything but routed experts",
     into<&model_shape::non_expert_bytes>},
    {"dense_bytes", a_size, "of them, read for every token: input embedding excluded",
     into<&model_shape::dense_bytes>},
    {"kv_token_layer_bytes", a_size, "KV cache of a token in a layer",
     into<&model_shape::kv_token_layer_bytes>},
    {"vocabulary", a_count, "tokens that there are", into<&model_shape::vocabulary>},
};
constexpr key_row<model_shape> shape_terms[] = {
    {"expert_bits", bits, "of a weight of experts, scales included; 0: 8 x weight_bytes",
     into<&model_shape::expert_bits>},
    {"dense_bits", bits, "of a weight of the dense part", into<&model_shape::dense_bits>},
    {"head_bits", bits, "of a weight of the output matrix", into<&model_shape::head_bits>},
    {"embedding_bits", bits, "of a weight of the input embedding",
     into<&model_shape::embedding_bits>},
    {"products", whole(1, kernels_max), "by weights, in a layer", into<&model_shape::products>},
    {"context_operations", real_above(0, 1e20), "of a token with one cached token, in a layer",
     into<&model_shape::context_operations>},
    {"state_layer_bytes", a_size_or_none,
     "of a sequence, whatever its length, in a layer (linear attention)",
     into<&model_shape::state_layer_bytes>},
};
constexpr key_row<model_shape> shape_special[] = {
    {"config", other("a table"), "keys of the model's config.json that say how it computes",
     by_hand},
};
constexpr key_row<model_shape> alias_rows[] = {
    {"aliases", some_texts, "further names by which the file is found", by_hand},
};

template <class Of>
key_table file(std::string_view name, std::string_view called, std::string_view meaning,
               const profile_rows<Of> &rows) {
    key_table made{std::string(name), std::string(called), std::string(meaning)};
    made.add(rows.labels).add(rows.figures);
    for (told_key &one : made.keys) one.usual.clear();  // a file has all keys
    made.add(rows.terms);
    return made;
}

}  // namespace

const profile_rows<device_profile> device_profile_rows{device_labels, device_figures, device_terms};
const profile_rows<link_profile> link_profile_rows{link_labels, link_figures, {}};
const profile_rows<node_profile> node_profile_rows{node_labels, node_figures, node_terms};
const profile_rows<disk_profile> disk_profile_rows{disk_labels, disk_figures, {}};
const profile_rows<engine_profile> engine_profile_rows{engine_labels, engine_figures, engine_terms};
const profile_rows<model_shape> shape_rows{shape_labels, shape_figures, shape_terms};
const key_rows_of<engine_profile> engine_change_rows = engine_changes;

void add_profile_tables(std::vector<key_table> &to) {
    const key_rows_of<model_shape> aliases = alias_rows;
    to.push_back(file("device", "device profile", "hw_profiles/device", device_profile_rows));
    to.back().add(key_rows_of<device_profile>(device_neighbours)).add(aliases);
    to.push_back(file("link", "link profile", "hw_profiles/link", link_profile_rows));
    to.push_back(file("node", "node profile", "hw_profiles/node", node_profile_rows));
    to.back().add(aliases);
    to.push_back(file("disk", "disk profile", "hw_profiles/disk", disk_profile_rows));
    to.push_back(file("engine", "engine profile", "hw_profiles/engine", engine_profile_rows));
    to.back().add(key_rows_of<engine_profile>(engine_special)).add(aliases);
    to.push_back(file("model", "model shape", "configs/models", shape_rows));
    to.back().add(key_rows_of<model_shape>(shape_special)).add(aliases);
}

}  // namespace moorage::core
