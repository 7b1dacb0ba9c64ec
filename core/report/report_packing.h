// report_packing.h - the fields of a run's report that own memory, for base/packing.h. If a struct
// gets a new field, its line here does not compile until the field is named.
#pragma once

#include "core/base/fact_packing.h"
#include "core/base/packing.h"
#include "core/report/report.h"

namespace moorage::core {

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), guard_arm> {
    auto &[name, phase, enabled, as_configured, on_ns, off_ns, reason, since_token, trials, changes,
           off_tokens] = value;
    visit(name, phase, enabled, as_configured, on_ns, off_ns, reason, since_token, trials, changes,
          off_tokens);
}

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), policy_time> {
    auto &[policy, call, calls, ms] = value;
    visit(policy, call, calls, ms);
}

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), device_report> {
    auto &[name, experts, slots, requested, hits, loaded, h2d_bytes, compute_ms, transfer_ms,
           stall_ms] = value;
    visit(name, experts, slots, requested, hits, loaded, h2d_bytes, compute_ms, transfer_ms,
          stall_ms);
}

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), text_report::part> {
    auto &[name, scored, nll] = value;
    visit(name, scored, nll);
}

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), text_report> {
    auto &[model, prompts, texts, written, scored, nll, parts, own_nll] = value;
    visit(model, prompts, texts, written, scored, nll, parts, own_nll);
}

void each_field(auto &value,
                auto &&visit) requires packed_as<decltype(value), cluster_report::home> {
    auto &[name, requests, tokens, latency_ms, ttft_ms, local_ratio, causes] = value;
    visit(name, requests, tokens, latency_ms, ttft_ms, local_ratio, causes);
}

void each_field(auto &value,
                auto &&visit) requires packed_as<decltype(value), cluster_report::device> {
    auto &[name, utilisation, used_bytes, bytes, served] = value;
    visit(name, utilisation, used_bytes, bytes, served);
}

void each_field(auto &value,
                auto &&visit) requires packed_as<decltype(value), cluster_report::link> {
    auto &[source, target, activation_bytes, migration_bytes, queue_peak, utilisation] = value;
    visit(source, target, activation_bytes, migration_bytes, queue_peak, utilisation);
}

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), cluster_report> {
    auto &[policy, duration_s, bucket_s, latency_ms, experts_ms_per_token, by_token, local_ratio,
           remote_call_ms, calls, events, homes, devices, links, over_time, migrations,
           servers_layers, layers_experts, models_layers] = value;
    visit(policy, duration_s, bucket_s, latency_ms, experts_ms_per_token, by_token, local_ratio,
          remote_call_ms, calls, events, homes, devices, links, over_time, migrations,
          servers_layers, layers_experts, models_layers);
}

void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), run_report> {
    auto &[tokens, requests, executor, profile, title, seed, virtual_time, total_ms, tpot_ms,
           ttft_ms, tokens_per_s, experts, routing, lossy, version_names, versions, bytes,
           arrangement, host, devices, time, causes, has_predictions, predicted, predicted_right,
           layers, policy_times, guard, config, faults, without_advice, facts, warnings, misfit,
           text, cluster, opt_misses, opt_reason] = value;
    visit(tokens, requests, executor, profile, title, seed, virtual_time, total_ms, tpot_ms,
          ttft_ms, tokens_per_s, experts, routing, lossy, version_names, versions, bytes,
          arrangement, host, devices, time, causes, has_predictions, predicted, predicted_right,
          layers, guard, config, faults, without_advice, facts, warnings, misfit, text, cluster,
          opt_misses, opt_reason);
}

}  // namespace moorage::core
