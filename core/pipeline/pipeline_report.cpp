// pipeline_report.cpp - what a run has counted, in the report's terms.
#include <cassert>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

void pipeline::finish(run_report &report) {
    prefetch_.drain(bytes_);
    report.tokens = tokens_done_;
    report.requests = requests_done_;
    report.virtual_time = executor_.virtual_time();
    const uint64_t taken_ns = now_ns() - begun_ns_;
    report.total_ms = static_cast<double>(taken_ns) / 1e6;
    report.tokens_per_s =
        taken_ns ? static_cast<double>(tokens_done_) * 1e9 / static_cast<double>(taken_ns) : 0;
    report.tpot_ms = tpot_ns_.summary();
    report.ttft_ms = ttft_ns_.summary();
    behind_.cancel();
    // Counted twice, by who sends and by who asked: each byte has one fate.
    assert(bytes_.prefetched == transport_.sent_bytes(owner::prefetch));
    assert(bytes_.prefetched == bytes_.prefetch_used + bytes_.prefetch_wasted);
    assert(transport_.sent_bytes(owner::fill) == arrangement_.first_bytes + arrangement_.bytes);
    bytes_.behind = transport_.sent_bytes(owner::behind);
    bytes_.demand = transport_.sent_bytes(owner::demand) + transport_.sent_bytes(owner::serve);
    bytes_.h2d = bytes_.demand + bytes_.prefetched + bytes_.behind;
    report.arrangement = arrangement_;
    bytes_.d2h = transport_.moved_bytes(link_d2h) + activation_bytes_;
    const bool copies = !executor_.unified_memory();
    if (!copies) bytes_ = {};
    report.bytes = bytes_;
    busy_ns busy = executor_.busy();
    busy.gpu -= begun_busy_.gpu, busy.h2d -= begun_busy_.h2d, busy.cpu -= begun_busy_.cpu;
    busy.stall -= begun_busy_.stall;
    report.time.compute = static_cast<double>(busy.gpu) / 1e6;
    report.time.transfer = static_cast<double>(busy.h2d) / 1e6;
    report.time.stall = static_cast<double>(busy.stall) / 1e6;
    report.time.cpu = static_cast<double>(busy.cpu) / 1e6;
    report.time.policy = static_cast<double>(decision_time_.count()) / 1e6;
    charge_to(source_.layers());  // and with it what was charged before
    report.causes = causes_;
    report.has_predictions = prefetch_.active();
    for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
        layers_[layer].slots = per_layer_ ? truth_.slots(layer) : 0;
        layers_[layer].stall_ms = static_cast<double>(layer_stall_ns_[layer]) / 1e6;
        layers_[layer].h2d_bytes = copies ? transport_.sent_bytes_of_layer(layer) : 0;
        layers_[layer].split = truth_.rows().share(layer, MOORAGE_TOP);
        report.experts += layers_[layer].experts;
        report.routing += layers_[layer].routing;
        report.predicted += layers_[layer].predicted;
        report.predicted_right += layers_[layer].predicted_right;
    }
    report.layers = layers_;
    report.faults = {faults_.counts().begin(), faults_.counts().end()};
    report.without_advice = {faults_.without_advice().begin(), faults_.without_advice().end()};
}

}  // namespace moorage::core
