// run_config.h - a run as configured in TOML: every section of the contract, checked key by key.
//
// Unknown sections and keys are errors that name file, line, the key and the nearest known one.
// Keys of a policy's own are passed on as settings with their places and checked by the host
// against the policy's declaration.
//
// Parameters of a policy stand beside `plugin`, or in a table of its name, `[cache.lfu]`, which
// counts only when that policy is chosen. When --set changes `plugin`, the parameters beside it
// were written for another policy and are dropped (logged); tables and --set parameters stay.
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
    // The file that the plugin is to be in, where several libraries have one of its name; empty:
    // any. Absolute where it lies beside the configuration, else relative to some plugin path.
    std::filesystem::path library = {};
    // What is said of policies not chosen, in [cache.NAME] or --set cache.NAME.KEY: the host can
    // check it against what they declare.
    struct other_table {
        std::string policy, place;
        settings params;
    };
    std::vector<other_table> other_tables = {};
    other_table &table_of(const std::string &policy, const std::string &where);
};

// Where nodes agree on members and plans while they run; neither of the two: their file is all.
struct registry_config {
    std::filesystem::path directory;     // of one machine, resolved
    std::vector<std::string> endpoints;  // of etcd, "host:port" or "https://host:port"
    // PEM files, resolved: what this side shows etcd, and who vouches for etcd.
    std::filesystem::path certificate, key, authority;
    std::string prefix = "moorage";  // of its keys, one a cluster
    std::string place;               // of the section, for messages; empty: not given
};

// What of the host's time inside policies passes in virtual time.
enum class policy_charge : uint8_t {
    none,      // it is not looked at: equal runs write equal bytes
    measured,  // what this machine takes
    declared   // policy_call_ns a call
};

struct run_config {
    std::filesystem::path file;  // as given

    // [run]
    std::string executor{executors[0].name};  // one of `executors`
    uint64_t tokens = 0;                      // of the source, 0: all
    uint32_t batch = 1;                       // requests decoded together
    // Tokens of a prefill pass; 0: prompts are decoded. Of a trace: the first tokens of each
    // request, in one pass. Default: 0 for a trace, 512 for a model.
    uint32_t prefill = 0;
    uint64_t seed = 0;
    bool seed_is_given = false;
    arithmetic numbers = arithmetic::by_format;  // [run] arithmetic
    uint32_t threads = 0;                        // of the CPU's arithmetic; 0: all processors
    uint32_t device = 0;                         // which GPU, of executor cuda
    bool guard = false;  // measures what cache, prefetch and substitution gain, holds off losers
    uint32_t guard_window = 32;  // passes of decoding, with or without, that are compared
    double guard_margin = 0.02;  // by which one has to be faster than the other
    // [hardware]; with a real executor the profile is "host" unless another is given
    std::string profile, link, node, disk, engine;
    device_config devices;    // several GPUs; profile is the first one's
    resource_factors faster;  // than the profiles say: no key of a file, but a question (--what-if)
    // [emulator]
    policy_charge policy_time = policy_charge::none;
    uint64_t policy_call_ns = 1000;
    // [source]: a trace or a model. Paths are resolved: against the config's directory, those of
    // --set against the current one.
    std::filesystem::path trace;
    std::string shape;            // model shape; empty: by the trace's model name
    std::filesystem::path model;  // directory
    // The experts' second version; empty: there is none. Of a model [source] small, a path,
    // resolved; of a trace small_shape.
    std::string small;
    std::vector<std::string> prompts;  // to be continued ...
    std::filesystem::path text;        // ... or a text, or windows of ids (*.json), to be scored
    uint32_t max_tokens = 128;         // new ones, of each prompt
    // How tokens are chosen (core/source/sampler.h). Temperature 0: always the most probable one.
    double temperature = 0, top_p = 1, min_p = 0;
    uint32_t sample_top_k = 0;  // [source] top_k: tokens considered; 0: all
    double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
    uint32_t penalty_window = 64;
    stop_config stop;
    uint32_t window = 512;  // ids of a scored text that are scored together
    // [memory]
    // Cache slots in whole experts; one of experts and bytes. Neither, with a model or on a real
    // executor: as many as fit.
    std::optional<uint32_t> experts;
    double experts_share = 0;  // of all experts, in place of the count; 0: not given
    std::optional<uint64_t> bytes;
    // Experts that host memory holds, the others are read from disk when they are needed; one of
    // the two. Neither: all of them.
    std::optional<uint32_t> host_experts;
    double host_experts_share = 0;
    std::optional<uint64_t> host_bytes;
    bool per_layer = false;                  // sharing = "shared" | "per-layer"
    std::optional<uint32_t> buffer_experts;  // default: top_k
    double split = 1;                        // share of an expert that is its top segment
    bool prefill_displaces = true;  // loads of prefill passes may take the place of other experts
    // [plugins]
    std::vector<std::filesystem::path> plugin_paths;  // resolved; besides the bundled ones
    on_fault action = on_fault::abort;
    call_guard guard_calls = call_guard::usual;  // guard = "off" | "default" | "full"
    uint32_t call_limit_ms = 10'000;             // 0: a call may take as long as it likes
    // stages
    stage_config router{"topk", "default", {}}, cache{"lfu", "default", {}},
        budget{"uniform", "default", {}}, prefetch{"none", "default", {}},
        dispatch{"load_all", "default", {}}, placement{}, transport{"direct", "default", {}};
    stage_config wire{"tcp", "default", {}};        // of nodes; an emulated cluster has none
    stage_config host_cache{"lfu", "default", {}};  // [cache.host]: of host memory
    bool host_cache_given = false;
    // [router] beside the policy's own: keys of the host, which hold it back.
    std::vector<uint64_t> exact_requests;  // the model's own choice stands for these
    double substitution_max = 1;           // share of a request's choices that may be substituted
    // [cluster] with [placement]'s keys beside the policy's own. Where it is given, [source],
    // [hardware] and [memory] may be left out: workloads and servers say what they would.
    std::optional<cluster_config> cluster;
    registry_config registry;  // of nodes
    // [report]
    std::string title;  // heading of text and HTML reports
    // Of keys of the file that have no effect on its cluster.
    std::vector<std::string> warnings;

    // The executor; the first of all where there is none of the name, which loading refuses.
    const executor_kind &runs_on() const;
    // Requires: one of `kinds`, or host_cache_stage.
    stage_config &stage(std::string_view kind);
    const stage_config &stage(std::string_view kind) const;
    bool sizes_cache() const { return experts || experts_share > 0 || bytes; }
    bool reads_disk() const { return host_experts || host_experts_share > 0 || host_bytes; }
};

// One "section.key=value" of --set; the value is read as TOML, and as text where it is none. A
// later one goes before an earlier one of the same key. memory.experts replaces memory.bytes of the
// file and the reverse. "cache.lfu.half_life=4" sets a key of the table [cache.lfu].
struct override_value {
    std::string section, key, value;
    std::string place = {};  // for messages: a flag that stands for the key; empty: --set
};
result<override_value> parse_override(std::string_view text);

// This process watches calls of policies as [plugins] says. load_run_config() does it, too, as
// policy libraries are opened after it.
void watch_calls(const run_config &config);

// What a cluster's file is read for: keys of --set without an effect there are refused, those of
// the file are warned of (`warnings`) unless nodes have a use for them.
enum class read_for : uint8_t { emulation, nodes };

// `defaults` says what of plain keys counts where neither file nor --set gives them.
result<run_config> load_run_config(const std::filesystem::path &file,
                                   std::span<const override_value> overrides,
                                   read_for purpose = read_for::emulation,
                                   const run_config &defaults = {});
// The same from text; `name` stands for the file in messages. For tests and the fuzz target. No
// file is read, so [cluster] file is refused.
result<run_config> parse_run_config(std::string_view text, const std::filesystem::path &name,
                                    std::span<const override_value> overrides,
                                    const run_config &defaults = {});
// Why a cluster has no use for a key of a section, "it has no effect ..."; "" where it has one.
std::string idle_in_cluster(std::string_view section, std::string_view key,
                            const cluster_config &cluster, read_for purpose);

// "section.key=a,b,c" of --sweep.
struct sweep {
    std::string section, key;
    std::vector<std::string> values;
};
result<sweep> parse_sweep(std::string_view text);

}  // namespace moorage::core
