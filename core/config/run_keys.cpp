// run_keys.cpp - the rows of a run's keys, section by section.
#include "core/config/run_keys.h"

#include "core/host/kinds.h"

namespace moorage::core {

namespace {

using enum quantity_unit;
using of_run = key_row<run_config>;

// Limits far above every published model and machine. They keep a typing error from becoming an
// allocation.
constexpr uint64_t count_max = INT64_MAX;  // the largest TOML integer
constexpr uint64_t bytes_max = uint64_t{1} << 50, experts_max = 1 << 20;

constexpr of_run run_list[] = {
    {"executor", a_text,
     "what executes the run: emulator (virtual time), cpu or cuda (real execution)",
     member<&run_config::executor>},
    {"tokens", whole(0, count_max), "number of tokens of the source that are run; 0: all",
     member<&run_config::tokens>, "", cluster_use::nodes},
    {"batch", whole(1, 4096), "number of requests that are decoded together",
     member<&run_config::batch>},
    {"prefill", whole(0, 1 << 24),
     "tokens of a prefill pass: the first ones of each request of a trace, or pieces of a model's "
     "prompt (65536 at most); 0: prompts are decoded",
     by_hand, "0 for a trace, 512 for a model"},
    {"seed", whole(0, count_max), "random seed of the run, for policies and for drawn tokens",
     member<&run_config::seed>},
    {"threads", whole(0, 1024),
     "threads for arithmetic on the CPU; 0: one for each usable processor",
     member<&run_config::threads>, "", cluster_use::nodes},
    {"arithmetic", word("exact|fast"),
     "type of activations: float32 (exact), or rounded as the weights' format needs (fast: 8 bits, "
     "bf16)",
     by_hand, "\"fast\" for GGUF's quantised types, else \"exact\"", cluster_use::nodes},
    {"device", whole(0, 1023), "index of the GPU that computes, for executor cuda",
     member<&run_config::device>, "", cluster_use::none},
    {"guard", a_flag,
     "test now and then what cache, prefetch and substitution gain; switch off those that lose, "
     "with figures and a warning",
     member<&run_config::guard>, "", cluster_use::none},
    {"guard_window", whole(4, 1 << 20),
     "number of decode passes that are compared, with and without a policy",
     member<&run_config::guard_window>, "", cluster_use::none},
    {"guard_margin", real(0, 1, share), "share by which one side must be faster than the other",
     member<&run_config::guard_margin>, "", cluster_use::none},
};

constexpr of_run emulator_list[] = {
    {"policy_time", word("none|measured|declared"),
     "host time inside policies that passes in virtual time: none, the time on this machine, or "
     "policy_call_ns per call",
     member<&run_config::policy_time>},
    {"policy_call_ns", whole(1, 1'000'000'000, ns),
     "virtual time of a call, with policy_time = \"declared\"",
     member<&run_config::policy_call_ns>},
};

constexpr of_run hardware_list[] = {
    {"profile", a_text, "device: a file of hw_profiles/device or measured, or a path to a .toml",
     member<&run_config::profile>, "none on the emulator, \"host\" on cpu and cuda",
     cluster_use::none},
    {"link", a_text, "link between host and device: a file of hw_profiles/link, or a path",
     member<&run_config::link>, "the device's usual link"},
    {"node", a_text, "host: a file of hw_profiles/node, or a path", member<&run_config::node>,
     "the device's usual host"},
    {"disk", a_text, "drive from which experts outside host memory are read",
     member<&run_config::disk>, "none on the emulator"},
    {"engine", a_text, "software to emulate: a file of hw_profiles/engine, or a path",
     member<&run_config::engine>, "moorage itself"},
};

constexpr key_row<device_config> device_list[] = {
    {"devices", some_texts, "device profiles of several GPUs of one machine, instead of profile",
     member<&device_config::profiles>},
    {"peer", a_text, "link between those devices: a file of hw_profiles/link, or a path",
     member<&device_config::peer>, "through host memory"},
    {"spread", word("experts|layers"), "what is spread over the devices: experts, or whole layers",
     member<&device_config::whole_layers>},
};

constexpr of_run source_list[] = {
    {"trace", a_path, "recorded routing, in the trace format", by_hand, "", cluster_use::none},
    {"model", a_path,
     "model instead of a trace: a directory in Hugging Face layout, or a GGUF file", by_hand},
    {"shape", a_text,
     "sizes of a trace's model: a file of configs/models, a path or a published name",
     member<&run_config::shape>, "the shape of the model that the trace names", cluster_use::none},
    {"small", a_path,
     "second, smaller version of a model's experts, which a router may use: the same model in "
     "another format",
     by_hand, "only one version"},
    {"small_shape", a_text,
     "second, smaller version of a trace's experts: a shape, found as shape is", by_hand,
     "only one version"},
    {"prompt", some_prose, "texts that a model continues, one request each", by_hand},
    {"text", a_path,
     "text that a model scores instead of continuing a prompt: a text, or windows of ids in a "
     ".json",
     by_hand},
    {"max_tokens", whole(1, 1 << 20), "largest number of new tokens per prompt",
     member<&run_config::max_tokens>},
    {"temperature", real(0, 100), "0: always the most probable token; above 0: tokens are drawn",
     member<&run_config::temperature>},
    {"top_p", real_above(0, 1, share),
     "draw from the most probable tokens with this total probability", member<&run_config::top_p>},
    {"top_k", whole(0, experts_max),
     "draw from at most this many of the most probable tokens; 0: all",
     member<&run_config::sample_top_k>},
    {"min_p", real(0, 1, share),
     "draw only tokens with at least this share of the largest probability",
     member<&run_config::min_p>},
    {"repetition_penalty", real_above(0, 1000),
     "factor that lowers the logit of a token that is already present; 1: no effect",
     member<&run_config::repetition_penalty>},
    {"presence_penalty", real(-1000, 1000),
     "amount subtracted from the logit of a token that is already present",
     member<&run_config::presence_penalty>},
    {"frequency_penalty", real(-1000, 1000),
     "amount subtracted from a token's logit for each time that it is present",
     member<&run_config::frequency_penalty>},
    {"penalty_window", whole(0, 1 << 24),
     "number of last tokens of prompt and text that penalties look at; 0: all",
     member<&run_config::penalty_window>},
    {"stop", in_words("true, false, a text, a token id or a list of them"),
     "where a text ends: at the model's end tokens (false: not), before a text, at a token by its "
     "id or name; a list adds to the end tokens",
     by_hand, "true"},
    {"window", whole(2, 1 << 16), "number of ids of a text that are scored together",
     member<&run_config::window>},
};

constexpr of_run memory_list[] = {
    {"experts", amount(experts_max, "bytes"),
     "cache slots, in whole experts; give this or bytes, and --set of one replaces the other",
     by_hand, "as many as fit, for a model or on a real executor"},
    {"bytes", whole(1, bytes_max, bytes), "size of the cache slots, instead of experts", by_hand},
    {"device_experts", in_words("a list of counts of experts, one for each of [hardware] devices"),
     "cache slots of each device, instead of experts and bytes", by_hand,
     "divided by the memory left on each device"},
    {"host_experts", amount(experts_max, "host_bytes"),
     "experts that host memory holds; the others are read from disk on demand; executor cpu uses "
     "this instead of experts",
     by_hand, "all"},
    {"host_bytes", whole(1, bytes_max, bytes),
     "size of the experts in host memory, instead of host_experts", by_hand},
    {"sharing", word("shared|per-layer"), "one cache for all layers, or one cache for each layer",
     member<&run_config::per_layer>},
    {"buffer_experts", whole(0, 1 << 16),
     "slots of the transfer buffer; 0 is allowed only without prefetch", by_hand,
     "the model's top-k"},
    {"split", real_above(0, 1, share),
     "share of an expert that is its top segment; only this segment is cached; rounded to about an "
     "eighth; 1: experts are whole",
     member<&run_config::split>},
    {"prefill_displaces", a_flag, "loads of prefill passes may replace what decoding has cached",
     member<&run_config::prefill_displaces>},
};

constexpr of_run plugins_list[] = {
    {"path", some_paths,
     "libraries with further policies, or folders of them (no subfolders), besides the bundled "
     "ones and those of MOORAGE_PLUGIN_PATH",
     member<&run_config::plugin_paths>},
    {"on_fault", word("abort|replace"),
     "wrong advice of a policy: end the run, or use the default's advice",
     member<&run_config::fault_action>},
    {"guard", word("off|default|full"),
     "how closely policy calls are watched; full: after each call, check that the process is "
     "unchanged (locale, directory, signals, umask)",
     member<&run_config::guard_calls>},
    {"call_limit_ms", whole(0, 86'400'000, ms),
     "time limit of a policy call; a longer call is ended and its policy named; the plan of a "
     "placement has 30 times as long, in processor time; 0: no limit",
     member<&run_config::call_limit_ms>},
};

constexpr key_row<stage_config> stage_list[] = {
    {"plugin", a_text,
     "name of the policy; its parameters stand beside this key, or in a table of its name",
     by_hand},
    {"library", a_text, "file that contains the policy, if several libraries have one of its name",
     by_hand, "any"},
};

constexpr of_run router_list[] = {
    {"exact_requests", some_counts,
     "requests, numbered from 0, that keep the model's own choice, whatever the policy says",
     member<&run_config::exact_requests>},
    {"substitution_max", real(0, 1, share),
     "largest share of a request's choices, counted from its first token, that the policy may "
     "substitute, reweigh, drop or take in a second version",
     member<&run_config::substitution_max>},
};

constexpr key_row<cluster_config> placement_list[] = {
    {"interval_s", usually(real(0, 1e9, s), 1e-4, 1e8, "s"),
     "time between decisions during a run; 0: no further decisions",
     member<&cluster_config::interval_s>},
    {"window_s", usually(real_above(0, 1e9, s), 1e-6, 1e8, "ms"),
     "half-life of the statistics that decisions use", member<&cluster_config::window_s>},
    {"migration_bytes_per_s", usually(real(0, 1e15, bytes_per_s), 1e3, 1e14, "GB/s"),
     "limit of the rate at which a device receives migrating experts; 0: what the links leave",
     member<&cluster_config::migration_bytes_per_s>},
    {"migration_delay_max", real_above(0, 1e3),
     "limit of the time that migration may add, as a share of the time of demand traffic",
     member<&cluster_config::migration_delay_max>},
    {"zone_servers", whole(0, 1024),
     "number of servers that are planned together; 0: all up to 1,024, else 256",
     member<&cluster_config::zone_servers>},
    {"plan", a_path, "plan file that moorage place wrote, instead of a policy's plan",
     member<&cluster_config::plan>, "the policy makes one"},
};

constexpr key_row<registry_config> registry_list[] = {
    {"directory", a_path, "directory on one machine where its nodes meet", by_hand},
    {"endpoints", some_texts, "members of etcd, \"host:port\", instead of a directory", by_hand},
    {"certificate", a_path, "certificate of this node, if etcd asks for one; give key, too",
     member<&registry_config::certificate>},
    {"key", a_path, "key of the certificate", member<&registry_config::key>},
    {"ca", a_path,
     "authority that signed etcd's certificate, for endpoints that begin with https://",
     member<&registry_config::authority>},
    {"prefix", a_text, "prefix of etcd's keys, one for each cluster",
     member<&registry_config::prefix>},
};

constexpr of_run report_list[] = {
    {"title", a_text, "heading of the text report and of pages", member<&run_config::title>},
};

constexpr std::string_view stage_meanings[] = {
    "which experts a token takes, and the limits of the policy",
    "which experts fast memory keeps",
    "how slots are divided among layers; policies other than uniform need sharing = \"per-layer\"",
    "which experts are loaded before they are needed",
    "who computes an expert: the device, the CPU or another server",
    "which server of a cluster holds which expert",
    "order and pieces in which experts cross a link",
    "how messages travel between real nodes; an emulated cluster has none",
};
static_assert(std::size(stage_meanings) == std::size(kinds));

// For the stages of a cluster's homes. Experts come and go only in servers that load them.
cluster_use use_of_stage(std::string_view kind) {
    if (kind == "cache" || kind == "prefetch" || kind == "transport") return cluster_use::loads;
    if (kind == "budget") return cluster_use::none;
    return kind == "wire" ? cluster_use::nodes : cluster_use::all;
}

key_table section(std::string_view name, std::string_view meaning,
                  cluster_use use = cluster_use::all) {
    return {.name = std::string(name),
            .title = format("[{}]", name),
            .meaning = std::string(meaning),
            .in_cluster = use};
}

}  // namespace

const key_rows_of<run_config> run_rows = run_list, emulator_rows = emulator_list,
                              hardware_rows = hardware_list, source_rows = source_list,
                              memory_rows = memory_list, plugins_rows = plugins_list,
                              router_rows = router_list, report_rows = report_list;
const key_rows_of<device_config> device_rows = device_list;
const key_rows_of<registry_config> registry_rows = registry_list;
const key_rows_of<stage_config> stage_rows = stage_list;
const key_rows_of<cluster_config> placement_rows = placement_list;

void add_run_tables(std::vector<key_table> &tables) {
    tables.push_back(section("run", "what is run, and how").add(run_rows));
    using enum cluster_use;
    tables.push_back(
        section("emulator", "how much host time inside policies passes in virtual time", none)
            .add(emulator_rows));
    tables.push_back(section("hardware", "the machine, described by profiles", nodes)
                         .add(hardware_rows)
                         .add(device_rows));
    tables.push_back(
        section("source", "a trace, or a model and its texts", nodes).add(source_rows));
    tables.push_back(
        section("memory", "what fast memory and host memory hold", none).add(memory_rows));
    tables.push_back(
        section("plugins", "where policies are, and how they are watched").add(plugins_rows));
    tables.push_back(section("registry", "where real nodes agree on members and plans", nodes)
                         .add(registry_rows));
    tables.push_back(section("report", "heading of all outputs").add(report_rows));
    const run_config untouched;
    for (size_t i = 0; i < std::size(kinds); ++i) {
        key_table stage = section(kinds[i], stage_meanings[i], use_of_stage(kinds[i]));
        stage.is_open = true;
        stage.add(stage_rows);
        stage.keys[0].default_text = value_text({}, untouched.stage(kinds[i]).plugin);
        if (kinds[i] == "router") stage.add(router_rows);
        if (kinds[i] == "placement") stage.add(placement_rows);
        tables.push_back(std::move(stage));
        if (kinds[i] != "cache") continue;
        tables.push_back(
            section(host_cache_stage, "which experts host memory keeps, with host_experts"));
        tables.back().is_open = true;
        tables.back().add(stage_rows);
        tables.back().keys[0].default_text = value_text({}, untouched.host_cache.plugin);
    }
}

}  // namespace moorage::core
