// report_packing.h - the fields of a run's report that own memory, for base/packing.h. If a struct
// gets a new field, its line here does not compile until the field is named.
#pragma once

#include "core/base/fact_packing.h"
#include "core/base/packing.h"
#include "core/report/report.h"

namespace moorage::core {

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), guard_arm> {
    auto &[name, phase, on, as_configured, on_ns, off_ns, why, since_token, trials, changes,
           off_tokens] = of;
    each(name, phase, on, as_configured, on_ns, off_ns, why, since_token, trials, changes,
         off_tokens);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), policy_time> {
    auto &[policy, call, calls, ms] = of;
    each(policy, call, calls, ms);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), device_report> {
    auto &[name, experts, slots, requested, hits, loaded, h2d_bytes, compute_ms, transfer_ms,
           stall_ms] = of;
    each(name, experts, slots, requested, hits, loaded, h2d_bytes, compute_ms, transfer_ms,
         stall_ms);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), text_report::part> {
    auto &[name, scored, nll] = of;
    each(name, scored, nll);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), text_report> {
    auto &[model, prompts, texts, written, scored, nll, parts, own_nll] = of;
    each(model, prompts, texts, written, scored, nll, parts, own_nll);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), cluster_report::home> {
    auto &[name, requests, tokens, latency_ms, ttft_ms, local_ratio, causes] = of;
    each(name, requests, tokens, latency_ms, ttft_ms, local_ratio, causes);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), cluster_report::device> {
    auto &[name, utilisation, used_bytes, bytes, served] = of;
    each(name, utilisation, used_bytes, bytes, served);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), cluster_report::link> {
    auto &[from, to, activation_bytes, migration_bytes, queue_peak, utilisation] = of;
    each(from, to, activation_bytes, migration_bytes, queue_peak, utilisation);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), cluster_report> {
    auto &[policy, duration_s, bucket_s, latency_ms, experts_ms_per_token, by_token, local_ratio,
           remote_call_ms, calls, events, homes, devices, links, over_time, migrations,
           servers_layers, layers_experts, models_layers] = of;
    each(policy, duration_s, bucket_s, latency_ms, experts_ms_per_token, by_token, local_ratio,
         remote_call_ms, calls, events, homes, devices, links, over_time, migrations,
         servers_layers, layers_experts, models_layers);
}

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), run_report> {
    auto &[tokens, requests, executor, profile, title, seed, virtual_time, total_ms, tpot_ms,
           ttft_ms, tokens_per_s, experts, routing, lossy, version_names, versions, bytes,
           arrangement, host, devices, time, causes, has_predictions, predicted, predicted_right,
           layers, policy_times, guard, config, faults, without_advice, facts, warnings, misfit,
           text, cluster, opt_misses, opt_reason] = of;
    each(tokens, requests, executor, profile, title, seed, virtual_time, total_ms, tpot_ms, ttft_ms,
         tokens_per_s, experts, routing, lossy, version_names, versions, bytes, arrangement, host,
         devices, time, causes, has_predictions, predicted, predicted_right, layers, guard, config,
         faults, without_advice, facts, warnings, misfit, text, cluster, opt_misses, opt_reason);
}

}  // namespace moorage::core
