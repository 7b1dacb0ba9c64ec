// run_account.cpp - what a run has counted, in the report's terms.
#include "core/pipeline/run_account.h"

#include <iterator>

#include "core/base/invariant.h"

namespace moorage::core {

run_account::run_account(uint32_t layer_count, uint32_t streams, bool in_virtual_time)
    : virtual_time(in_virtual_time),
      layers(layer_count),
      stall_of_layer_ns_(layer_count, 0),
      causes_(layer_count + size_t{1}),
      emitted_ns_(streams, 0) {}

void run_account::begin(executor &executor) {
    begun_ns_ = *executor.clock();
    begun_busy_ = executor.busy();
    for (uint32_t device = 0; device < devices.size(); ++device)
        begun_busy_of_.push_back(executor.busy_of(device));
    stall_ns_ = begun_busy_.stall;
    charge(executor, layers.size(), MOORAGE_DECODE);
}

void run_account::pass_begins(const pass &pass, uint64_t now_ns) {
    for (const pass_token &token : pass.tokens)
        if (token.position == 0 && !token.recomputed)
            emitted_ns_[token.stream] =
                token.arrived_ns == MOORAGE_NEVER ? now_ns : token.arrived_ns;
}

void run_account::pass_ended(const pass &pass, uint64_t now_ns) {
    for (const pass_token &token : pass.tokens) {
        requests += token.last;
        if (token.silent || (pass.phase == MOORAGE_PREFILL && !token.first))
            continue;  // no output token of its own
        uint64_t &emitted_ns = emitted_ns_[token.stream];
        (token.first ? ttft_ns_ : tpot_ns_).add(now_ns - emitted_ns);
        emitted_ns = now_ns;
    }
}

void run_account::report_times(const executor &executor, run_report &report) {
    const uint64_t taken_ns = *executor.clock() - begun_ns_;
    report.total_ms = static_cast<double>(taken_ns) / 1e6;
    report.tokens_per_s =
        taken_ns ? static_cast<double>(tokens) * 1e9 / static_cast<double>(taken_ns) : 0;
    report.tpot_ms = tpot_ns_.summary();
    report.ttft_ms = ttft_ns_.summary();
    const busy_ns busy = executor.busy();
    report.time.compute = static_cast<double>(busy.gpu - begun_busy_.gpu) / 1e6;
    report.time.transfer = static_cast<double>(busy.h2d - begun_busy_.h2d) / 1e6;
    report.time.stall = static_cast<double>(busy.stall - begun_busy_.stall) / 1e6;
    report.time.cpu = static_cast<double>(busy.cpu - begun_busy_.cpu) / 1e6;
    report.time.policy = static_cast<double>(decision_time.count()) / 1e6;
    if (report.host) report.host->disk_ms = static_cast<double>(busy.disk - begun_busy_.disk) / 1e6;
    // A device's work meanwhile is for others.
    causes_.back()[MOORAGE_DECODE][cause::idle] += idle_.sum();
    idle_ = {};
    report.causes = causes_;
}

// Counted twice, by who sends and by who asked: each byte has one fate.
void run_account::report_bytes(const executor &executor, const transport_stage &transport,
                               run_report &report) {
    MOORAGE_INVARIANT(bytes.prefetched == transport.sent_bytes(owner::prefetch) +
                                              transport.sent_bytes(owner::slot_prefetch));
    MOORAGE_INVARIANT(bytes.prefetched == bytes.prefetch_used + bytes.prefetch_wasted);
    MOORAGE_INVARIANT(transport.sent_bytes(owner::fill) ==
                      arrangement.first_bytes + arrangement.bytes);
    bytes.behind = transport.sent_bytes(owner::behind);
    bytes.demand = transport.sent_bytes(owner::demand) + transport.sent_bytes(owner::serve);
    bytes.h2d = bytes.demand + bytes.prefetched + bytes.behind;
    bytes.d2h = activation_bytes;
    if (executor.unified_memory()) bytes = {};
    report.bytes = bytes;
    report.arrangement = arrangement;
}

void run_account::report(const executor &executor, const memories &memories,
                         const transport_stage &transport, bool per_layer, run_report &report) {
    report.tokens = tokens;
    report.requests = requests;
    report.virtual_time = virtual_time;
    report_times(executor, report);
    report_bytes(executor, transport, report);
    const bool copies = !executor.unified_memory();
    for (uint32_t layer = 0; layer < layers.size(); ++layer) {
        layer_report &layer_report = layers[layer];
        layer_report.slots = per_layer ? memories.combined_ledger().slots(layer) : 0;
        layer_report.stall_ms = static_cast<double>(stall_of_layer_ns_[layer]) / 1e6;
        layer_report.h2d_bytes = copies ? transport.sent_bytes_of_layer(layer) : 0;
        layer_report.split = memories.ledger_of_device(0).rows().share(layer, first_segment);
        report.experts += layer_report.experts;
        report.routing += layer_report.routing;
        for (size_t version = 0; version < std::size(layer_report.versions); ++version)
            report.versions[version] += layer_report.versions[version];
        report.predicted += layer_report.predicted;
        report.predicted_right += layer_report.predicted_right;
    }
    report.layers = layers;
    for (uint32_t device = 0; device < devices.size(); ++device) {
        device_report &device_report = devices[device];
        const ledger &ledger = memories.ledger_of_device(device);
        for (const uint32_t slots : ledger.slots()) device_report.slots += slots;
        for (uint32_t page = 0; page < ledger.page_count(); ++page)
            device_report.experts += memories.device_of(page) == device;
        const busy_ns busy = executor.busy_of(device), begin_busy = begun_busy_of_[device];
        device_report.h2d_bytes = transport.sent_bytes_of_link(h2d_of(device));
        device_report.compute_ms = static_cast<double>(busy.gpu - begin_busy.gpu) / 1e6;
        device_report.transfer_ms = static_cast<double>(busy.h2d - begin_busy.h2d) / 1e6;
        device_report.stall_ms = static_cast<double>(busy.stall - begin_busy.stall) / 1e6;
    }
    report.devices = devices;
}

}  // namespace moorage::core
