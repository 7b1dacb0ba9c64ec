// profile_json.cpp - samples and figures by name; seconds and bytes.
#include "tools/moorage/profile_json.h"

#include "core/base/json.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

json samples(const std::vector<timed_sample> &timings, const char *amount) {
    json entries = json::array();
    for (const timed_sample &sample : timings)
        entries.push_back({{amount, sample.amount}, {"seconds", sample.seconds}});
    return entries;
}

}  // namespace

json json_of(const measured_machine &machine, const hardware_profile &profile) {
    json products = json::array();
    for (const product_speed &product : machine.products)
        products.push_back({{"type", name_of(product.type)},
                            {"rows", product.rows},
                            {"columns", product.columns},
                            {"tokens", product.tokens},
                            {"bytes", product.bytes},
                            {"seconds", product.seconds}});
    const device_profile &device = profile.device;
    return {{"executor", machine.executor},
            {"processor", machine.processor},
            {"date", machine.date},
            {"threads", machine.threads},
            {"read_bytes_per_s", machine.read_bytes_per_s},
            {"operations_per_s", machine.operations_per_s},
            {"together",
             {{"compute_share", machine.compute_share},
              {"copy_share", machine.copy_share},
              {"bytes_per_s", machine.together_bytes_per_s}}},
            {"cpu",
             {{"read_bytes_per_s", machine.host_read_bytes_per_s},
              {"expert_bytes_per_s", machine.is_host ? machine.expert_memory_bytes_per_s
                                                     : machine.cpu_expert_bytes_per_s}}},
            {"constants_seconds",
             {{"loop", machine.loop_seconds},
              {"sync", machine.sync_seconds},
              {"expert", machine.expert_seconds},
              {"experts", machine.experts_seconds},
              {"layer", machine.layer_seconds},
              {"pass", machine.pass_seconds},
              {"step", machine.step_seconds},
              {"load", machine.load_seconds},
              {"wake", machine.wake_seconds}}},
            {"draws", samples(machine.draws, "logits")},
            {"picks", samples(machine.picks, "logits")},
            {"link",
             {{"h2d_bytes_per_s", profile.link.h2d_bytes_per_s},
              {"d2h_bytes_per_s", profile.link.d2h_bytes_per_s},
              {"issue_ns", profile.link.issue_ns}}},
            {"cache", {{"bytes", device.cache_bytes}, {"bytes_per_s", device.cache_bytes_per_s}}},
            {"to_device", samples(machine.to_device, "bytes")},
            {"to_host", samples(machine.to_host, "bytes")},
            {"products", products},
            {"working_sets", samples(machine.working_sets, "bytes")},
            {"token_layers", samples(machine.token_layers, "bytes")},
            {"prefill_layers", samples(machine.prefill_layers, "operations")},
            {"few_layers", samples(machine.few_layers, "operations")},
            {"expert_tokens", samples(machine.expert_tokens, "tokens")},
            {"cpu_experts", samples(machine.cpu_experts, "bytes")},
            {"contexts", samples(machine.contexts, "positions")}};
}

}  // namespace moorage::tool
