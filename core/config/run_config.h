// run_config.h - a run as configured in TOML. Every section is checked key by key.
//
// Unknown sections and keys are errors that name file, line, the key and the nearest known one. A
// policy's own keys are passed on as settings with their places. The host checks them against the
// policy's declaration.
//
// Parameters of a policy stand beside `plugin`, or in a table of the policy's name, `[cache.lfu]`,
// which applies only if that policy is chosen. If --set changes `plugin`, the parameters beside it
// were written for another policy: they are dropped, and this is logged. Tables and --set
// parameters stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/base/setting.h"
#include "core/config/arithmetic.h"
#include "core/config/cluster_config.h"
#include "core/config/device_config.h"
#include "core/config/executors.h"
#include "core/config/resources.h"
#include "core/config/stop_reader.h"
#include "core/host/call.h"
#include "core/host/faults.h"

namespace moorage::core {

struct stage_config {
    std::string plugin;
    std::string place;  // of the plugin key, for messages
    settings params;
    // The file that must contain the plugin, if several libraries have one of its name. Empty: any.
    // Absolute if it lies beside the configuration, otherwise relative to a plugin path.
    std::filesystem::path library = {};
    // Settings of policies that are not chosen, from [cache.NAME] or --set cache.NAME.KEY. The host
    // can check them against what those policies declare.
    struct other_table {
        std::string policy, place;
        settings params;
    };
    std::vector<other_table> other_tables = {};
    other_table &table_of(const std::string &policy, const std::string &place);
};

// Where nodes agree on members and plans while they run. Without a directory and endpoints, only
// their file applies.
struct registry_config {
    std::filesystem::path directory;     // on one machine, resolved
    std::vector<std::string> endpoints;  // of etcd, "host:port" or "https://host:port"
    // PEM files, resolved: this side's certificate and key for etcd, and the authority for etcd's
    // own.
    std::filesystem::path certificate, key, authority;
    std::string prefix = "moorage";  // of its keys, one per cluster
    std::string place;               // of the section, for messages; empty: not given
};

// How much of the host's time inside policies passes in virtual time.
enum class policy_charge : uint8_t {
    none,      // nothing is measured: equal runs write equal bytes
    measured,  // the time that this machine takes
    declared   // policy_call_ns per call
};

struct run_config {
    std::filesystem::path file;  // as given

    // [run]
    std::string executor{executors[0].name};  // one of `executors`
    uint64_t tokens = 0;                      // of the source; 0: all
    uint32_t batch = 1;                       // requests decoded together
    // Tokens of a prefill pass; 0: prompts are decoded. For a trace: the first tokens of each
    // request, in one pass. Default: 0 for a trace, 512 for a model.
    uint32_t prefill = 0;
    uint64_t seed = 0;
    bool seed_is_given = false;
    arithmetic arithmetic_mode = arithmetic::by_format;  // [run] arithmetic
    uint32_t threads = 0;  // for the CPU's arithmetic; 0: all processors
    uint32_t device = 0;   // index of the GPU, for executor cuda
    bool guard = false;  // measures cache, prefetch and substitution, and disables those that lose
    uint32_t guard_window = 32;  // number of decode passes to compare, with and without a policy
    double guard_margin = 0.02;  // by which one side must be faster than the other
    // [hardware]. With a real executor the default profile is "host".
    std::string profile, link, node, disk, engine;
    device_config devices;           // several GPUs; profile is the first one's
    resource_factors speed_factors;  // factors on the profile: no key, but the question --what-if
    // [emulator]
    policy_charge policy_time = policy_charge::none;
    uint64_t policy_call_ns = 1000;
    // [source]: a trace or a model. Paths are resolved: those of the file against its directory,
    // those of --set against the current one.
    std::filesystem::path trace;
    std::string shape;            // model shape; empty: by the model that the trace names
    std::filesystem::path model;  // directory
    // The experts' second version; empty: none. For a model: [source] small, a resolved path. For a
    // trace: small_shape.
    std::string small;
    std::vector<std::string> prompts;  // to continue
    std::filesystem::path text;        // to score instead: a text, or windows of ids (*.json)
    uint32_t max_tokens = 128;         // new tokens per prompt
    // How tokens are chosen (core/source/sampler.h). Temperature 0: always the most probable one.
    double temperature = 0, top_p = 1, min_p = 0;
    uint32_t sample_top_k = 0;  // [source] top_k: number of candidate tokens; 0: all
    double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
    uint32_t penalty_window = 64;
    stop_config stop;
    uint32_t window = 512;  // ids of a scored text that are scored together
    // [memory]
    // Cache slots in whole experts. At most one of experts and bytes is given. Without either, with
    // a model or on a real executor: as many as fit.
    std::optional<uint32_t> experts;
    double experts_share = 0;  // share of all experts instead of the count; 0: not given
    std::optional<uint64_t> bytes;
    // Experts in host memory; the others are read from disk when they are needed. At most one of
    // the two is given. Without either: all experts.
    std::optional<uint32_t> host_experts;
    double host_experts_share = 0;
    std::optional<uint64_t> host_bytes;
    bool per_layer = false;                  // sharing = "shared" | "per-layer"
    std::optional<uint32_t> buffer_experts;  // default: top_k
    double split = 1;                        // share of an expert that is its top segment
    bool prefill_displaces = true;           // prefill loads may evict other experts
    // [plugins]
    std::vector<std::filesystem::path> plugin_paths;  // resolved; in addition to the bundled ones
    on_fault fault_action = on_fault::abort;
    call_guard guard_calls = call_guard::usual;  // guard = "off" | "default" | "full"
    uint32_t call_limit_ms = 10'000;             // 0: no limit
    // stages
    stage_config router{"topk", "default", {}}, cache{"lfu", "default", {}},
        budget{"uniform", "default", {}}, prefetch{"none", "default", {}},
        dispatch{"load_all", "default", {}}, placement{}, transport{"direct", "default", {}};
    stage_config wire{"tcp", "default", {}};        // for nodes; an emulated cluster has none
    stage_config host_cache{"lfu", "default", {}};  // [cache.host]: of host memory
    bool host_cache_given = false;
    // [router], except the policy's own keys: limits that the host puts on the policy.
    std::vector<uint64_t> exact_requests;  // the model's own choice applies to these
    double substitution_max = 1;           // largest share of a request's choices that may be
                                           // substituted
    // [cluster], with those keys of [placement] that are not the policy's own. With it, [source],
    // [hardware] and [memory] may be omitted: workloads and servers replace them.
    std::optional<cluster_config> cluster;
    registry_config registry;  // of nodes
    // [report]
    std::string title;  // heading of text and HTML reports
    // About keys of the file that have no effect on its cluster.
    std::vector<std::string> warnings;

    // The executor. The first of all if the name is unknown; loading refuses such a name.
    const executor_kind &runs_on() const;
    // Requires: one of `kinds`, or host_cache_stage.
    stage_config &stage(std::string_view kind);
    const stage_config &stage(std::string_view kind) const;
    bool sizes_cache() const { return experts || experts_share > 0 || bytes; }
    bool reads_disk() const { return host_experts || host_experts_share > 0 || host_bytes; }
};

// One "section.key=value" of --set. The value is read as TOML, or as text if it is no TOML. A later
// one of the same key wins. memory.experts replaces memory.bytes of the file, and the reverse.
// "cache.lfu.half_life=4" sets a key of the table [cache.lfu].
struct override_value {
    std::string section, key, value;
    std::string place = {};  // for messages: the flag that stands for the key; empty: --set
};
result<override_value> parse_override(std::string_view text);

// Makes this process watch policy calls as [plugins] says. load_run_config() also does it, because
// policy libraries are opened after it.
void watch_calls(const run_config &config);

// The purpose of reading a cluster's file. Keys of --set that have no effect for it are refused.
// Such keys of the file give a warning (`warnings`), unless nodes use them.
enum class read_for : uint8_t { emulation, nodes };

// `defaults`: the values of plain keys that neither the file nor --set gives.
result<run_config> load_run_config(const std::filesystem::path &file,
                                   std::span<const override_value> overrides,
                                   read_for purpose = read_for::emulation,
                                   const run_config &defaults = {});
// The same from text; `name` stands for the file in messages. For tests and the fuzz target. Reads
// no file, so [cluster] file is refused.
result<run_config> parse_run_config(std::string_view text, const std::filesystem::path &name,
                                    std::span<const override_value> overrides,
                                    const run_config &defaults = {});
// Why a key of a section has no effect in a cluster, "it has no effect ..."; "" if it has one.
std::string idle_in_cluster(std::string_view section, std::string_view key,
                            const cluster_config &cluster, read_for purpose);

// "section.key=a,b,c" of --sweep.
struct sweep {
    std::string section, key;
    std::vector<std::string> values;
};
result<sweep> parse_sweep(std::string_view text);

}  // namespace moorage::core
