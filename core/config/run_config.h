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
#include "core/host/faults.h"

namespace moorage::core {

struct stage_config {
    std::string plugin;
    std::string place;  // of the plugin key, for messages
    settings params;
    // [cache.NAME] tables of policies not chosen, name and place: the host can check the names.
    std::vector<std::pair<std::string, std::string>> other_tables = {};
};

struct run_config {
    std::filesystem::path file;  // as given

    // [run]
    std::string executor = "emulator";
    uint64_t tokens = 0;   // of the source, 0: all
    uint32_t batch = 1;    // requests decoded together
    uint32_t prefill = 0;  // first tokens of each request that are one prefill step; 0: none
    uint64_t seed = 0;
    // [hardware]
    std::string profile, link, node;
    // [source]
    std::filesystem::path
        trace;          // resolved: against the config's directory, --set against the current
    std::string shape;  // model shape; empty: by the trace's model name
    // [memory]
    std::optional<uint32_t> experts;  // cache slots in whole experts; one of experts and bytes
    std::optional<uint64_t> bytes;
    bool per_layer = false;                  // sharing = "shared" | "per-layer"
    std::optional<uint32_t> buffer_experts;  // default: top_k
    // [plugins]
    std::vector<std::filesystem::path> plugin_paths;  // resolved; besides the bundled ones
    on_fault action = on_fault::abort;
    // stages
    stage_config router{"topk", "default", {}}, cache{"lru", "default", {}},
        budget{"uniform", "default", {}}, prefetch{"none", "default", {}},
        dispatch{"load_all", "default", {}}, placement{}, transport{"direct", "default", {}};
    // [report]
    std::string title;  // heading of text and HTML reports

    stage_config &stage(std::string_view kind);  // Requires: one of `kinds`
    const stage_config &stage(std::string_view kind) const;
};

// One "section.key=value" of --set; the value is read as TOML, and as text where it is none. A
// later one goes before an earlier one of the same key. memory.experts replaces memory.bytes of the
// file and the reverse. "cache.lfu.half_life=4" sets a key of the table [cache.lfu].
struct override_value {
    std::string section, key, value;
};
result<override_value> parse_override(std::string_view text);

result<run_config> load_run_config(const std::filesystem::path &file,
                                   std::span<const override_value> overrides);
// The same from text; `name` stands for the file in messages. For tests and the fuzz target.
result<run_config> parse_run_config(std::string_view text, const std::filesystem::path &name,
                                    std::span<const override_value> overrides);

// "section.key=a,b,c" of --sweep.
struct sweep {
    std::string section, key;
    std::vector<std::string> values;
};
result<sweep> parse_sweep(std::string_view text);

}  // namespace moorage::core
