// run_account.cpp - what a run has counted, in the report's terms.
#include "core/pipeline/run_account.h"

#include <cassert>
#include <iterator>

namespace moorage::core {

run_account::run_account(uint32_t layer_count, uint32_t streams, bool in_virtual_time)
    : virtual_time(in_virtual_time),
      layers(layer_count),
      stall_of_layer_ns_(layer_count, 0),
      causes_(layer_count + size_t{1}),
      emitted_ns_(streams, 0) {}

void run_account::begin(executor &of) {
    begun_ns_ = *of.clock();
    begun_busy_ = of.busy();
    for (uint32_t device = 0; device < devices.size(); ++device)
        begun_busy_of_.push_back(of.busy_of(device));
    stall_ns_ = begun_busy_.stall;
    charge(of, layers.size(), MOORAGE_DECODE);
}

void run_account::pass_begins(const pass &of, uint64_t now_ns) {
    for (const pass_token &token : of.tokens)
        if (token.position == 0 && !token.again)
            emitted_ns_[token.stream] =
                token.arrived_ns == MOORAGE_NEVER ? now_ns : token.arrived_ns;
}

void run_account::pass_ended(const pass &of, uint64_t now_ns) {
    for (const pass_token &token : of.tokens) {
        requests += token.last;
        if (token.silent || (of.phase == MOORAGE_PREFILL && !token.first))
            continue;  // no output token of its own
        uint64_t &emitted_ns = emitted_ns_[token.stream];
        (token.first ? ttft_ns_ : tpot_ns_).add(now_ns - emitted_ns);
        emitted_ns = now_ns;
    }
}

void run_account::report_times(const executor &of, run_report &into) {
    const uint64_t taken_ns = *of.clock() - begun_ns_;
    into.total_ms = static_cast<double>(taken_ns) / 1e6;
    into.tokens_per_s =
        taken_ns ? static_cast<double>(tokens) * 1e9 / static_cast<double>(taken_ns) : 0;
    into.tpot_ms = tpot_ns_.summary();
    into.ttft_ms = ttft_ns_.summary();
    const busy_ns busy = of.busy();
    into.time.compute = static_cast<double>(busy.gpu - begun_busy_.gpu) / 1e6;
    into.time.transfer = static_cast<double>(busy.h2d - begun_busy_.h2d) / 1e6;
    into.time.stall = static_cast<double>(busy.stall - begun_busy_.stall) / 1e6;
    into.time.cpu = static_cast<double>(busy.cpu - begun_busy_.cpu) / 1e6;
    into.time.policy = static_cast<double>(decisions.count()) / 1e6;
    if (into.host) into.host->disk_ms = static_cast<double>(busy.disk - begun_busy_.disk) / 1e6;
    // A device's work meanwhile is for others.
    causes_.back()[MOORAGE_DECODE][cause::idle] += idle_.sum();
    idle_ = {};
    into.causes = causes_;
}

// Counted twice, by who sends and by who asked: each byte has one fate.
void run_account::report_bytes(const executor &of, const transport_stage &transport,
                               run_report &into) {
    assert(bytes.prefetched ==
           transport.sent_bytes(owner::prefetch) + transport.sent_bytes(owner::slot_prefetch));
    assert(bytes.prefetched == bytes.prefetch_used + bytes.prefetch_wasted);
    assert(transport.sent_bytes(owner::fill) == arrangement.first_bytes + arrangement.bytes);
    bytes.behind = transport.sent_bytes(owner::behind);
    bytes.demand = transport.sent_bytes(owner::demand) + transport.sent_bytes(owner::serve);
    bytes.h2d = bytes.demand + bytes.prefetched + bytes.behind;
    bytes.d2h = activation_bytes;
    if (of.unified_memory()) bytes = {};
    into.bytes = bytes;
    into.arrangement = arrangement;
}

void run_account::report(const executor &of, const memories &truth,
                         const transport_stage &transport, bool per_layer, run_report &into) {
    into.tokens = tokens;
    into.requests = requests;
    into.virtual_time = virtual_time;
    report_times(of, into);
    report_bytes(of, transport, into);
    const bool copies = !of.unified_memory();
    for (uint32_t layer = 0; layer < layers.size(); ++layer) {
        layer_report &one = layers[layer];
        one.slots = per_layer ? truth.all().slots(layer) : 0;
        one.stall_ms = static_cast<double>(stall_of_layer_ns_[layer]) / 1e6;
        one.h2d_bytes = copies ? transport.sent_bytes_of_layer(layer) : 0;
        one.split = truth.at(0).rows().share(layer, first_segment);
        into.experts += one.experts;
        into.routing += one.routing;
        for (size_t version = 0; version < std::size(one.versions); ++version)
            into.versions[version] += one.versions[version];
        into.predicted += one.predicted;
        into.predicted_right += one.predicted_right;
    }
    into.layers = layers;
    for (uint32_t device = 0; device < devices.size(); ++device) {
        device_report &one = devices[device];
        const ledger &book = truth.at(device);
        for (const uint32_t slots : book.slots()) one.slots += slots;
        for (uint32_t page = 0; page < book.page_count(); ++page)
            one.experts += truth.device_of(page) == device;
        const busy_ns busy = of.busy_of(device), before = begun_busy_of_[device];
        one.h2d_bytes = transport.sent_bytes_of_link(h2d_of(device));
        one.compute_ms = static_cast<double>(busy.gpu - before.gpu) / 1e6;
        one.transfer_ms = static_cast<double>(busy.h2d - before.h2d) / 1e6;
        one.stall_ms = static_cast<double>(busy.stall - before.stall) / 1e6;
    }
    into.devices = devices;
}

}  // namespace moorage::core
