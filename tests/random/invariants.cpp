// invariants.cpp - sums over layers, fates of experts and bytes, times, bounds, and the JSON.
#include "tests/random/invariants.h"

#include <cmath>
#include <functional>

#include "core/base/json.h"
#include "core/base/text.h"

namespace moorage::random {

namespace {

using core::format;
using core::json;
using core::run_report;

class checker {
public:
    checker(const run_report &report, const core::run_config &config)
        : report_(report), config_(config) {}
    std::vector<std::string> operator()() {
        experts("all layers", report_.experts);
        for (size_t i = 0; i < report_.layers.size(); ++i)
            experts(format("layer {}", i), report_.layers[i].experts);
        layers();
        routing();
        bytes();
        host();
        times();
        devices();
        optimum();
        finite(to_json(report_), "report");
        texts();
        return std::move(broken_);
    }

private:
    void holds(bool is, const std::string &sentence) {
        if (!is) broken_.push_back(sentence);
    }
    void equal(const std::string &subject, uint64_t a, uint64_t b) {
        holds(a == b, format("{}: {} is not {}", subject, a, b));
    }
    void at_most(const std::string &subject, double a, double b) {
        holds(a <= b, format("{}: {} is more than {}", subject, a, b));
    }

    void experts(const std::string &scope, const core::expert_counts &counts) {
        equal(scope + ": hits + partial hits + misses, requested",
              counts.hits + counts.partial_hits + counts.misses, counts.requested);
        at_most(scope + ": loaded + on the CPU + remote, requested",
                double(counts.loaded + counts.on_cpu + counts.remote), double(counts.requested));
        at_most(scope + ": loaded, what was not there", double(counts.loaded),
                double(counts.partial_hits + counts.misses));
        holds(counts.hit_rate() >= 0 && counts.hit_rate() <= 1, scope + ": hit rate");
    }

    uint64_t sum(const std::function<uint64_t(const core::layer_report &)> &figure) const {
        uint64_t total = 0;
        for (const core::layer_report &layer : report_.layers) total += figure(layer);
        return total;
    }
    void layers() {
        const core::expert_counts &totals = report_.experts;
        using layer = const core::layer_report &;
        equal("sum of requested", sum([](layer l) { return l.experts.requested; }),
              totals.requested);
        equal("sum of hits", sum([](layer l) { return l.experts.hits; }), totals.hits);
        equal("sum of partial hits", sum([](layer l) { return l.experts.partial_hits; }),
              totals.partial_hits);
        equal("sum of misses", sum([](layer l) { return l.experts.misses; }), totals.misses);
        equal("sum of substituted", sum([](layer l) { return l.experts.substituted; }),
              totals.substituted);
        equal("sum of on_cpu", sum([](layer l) { return l.experts.on_cpu; }), totals.on_cpu);
        equal("sum of remote", sum([](layer l) { return l.experts.remote; }), totals.remote);
        equal("sum of loaded", sum([](layer l) { return l.experts.loaded; }), totals.loaded);
        equal("sum of choices", sum([](layer l) { return l.routing.choices; }),
              report_.routing.choices);
        equal("sum of rows", sum([](layer l) { return l.routing.rows; }), report_.routing.rows);
        equal("sum of h2d_bytes", sum([](layer l) { return l.h2d_bytes; }), report_.bytes.h2d);
        double stall_ms = 0;
        for (layer l : report_.layers) stall_ms += l.stall_ms;
        // The work of a server for other servers belongs to none of its own layers.
        const double between = report_.cluster ? report_.time.stall - stall_ms : 0;
        holds(between >= -1e-6 && std::abs(stall_ms + between - report_.time.stall) <= 1e-6,
              format("sum of stall_ms: {} is not {}", stall_ms, report_.time.stall));
    }

    void routing() {
        const core::routing_counts &counts = report_.routing;
        equal("rows, tokens by layers", counts.rows, report_.tokens * report_.layers.size());
        at_most("requested, choices", double(report_.experts.requested), double(counts.choices));
        at_most("rows unchanged, rows", double(counts.rows_unchanged), double(counts.rows));
        at_most("reweighted + dropped, substituted", double(counts.reweighted + counts.dropped),
                double(report_.experts.substituted));
        at_most("substituted, cap", double(report_.experts.substituted),
                double(counts.choices) * config_.substitution_max + 1e-6);
        if (report_.experts.substituted == 0)
            equal("rows unchanged", counts.rows_unchanged, counts.rows);
        if (!report_.lossy)
            equal("substituted by a lossless router", report_.experts.substituted, 0);
    }

    void bytes() {
        const core::byte_counts &counts = report_.bytes;
        equal("demand + prefetched + behind, h2d",
              counts.demand + counts.prefetched + counts.behind, counts.h2d);
        equal("used + wasted, prefetched", counts.prefetch_used + counts.prefetch_wasted,
              counts.prefetched);
        at_most("cut off, wasted", double(counts.prefetch_cut_off), double(counts.prefetch_wasted));
        if (!report_.has_predictions && !report_.cluster)
            equal("prefetched without prefetch", counts.prefetched, 0);
        // Only experts that are computed elsewhere or ordered into a slot are loaded behind
        // everything else.
        if (report_.experts.on_cpu == 0 && !report_.has_predictions && !report_.cluster)
            equal("behind without the CPU", counts.behind, 0);
        if (report_.experts.loaded == 0 && !report_.cluster)
            at_most("demand without loads", double(counts.demand), 0);
    }

    void host() {
        if (!report_.host) return;
        const core::host_report &memory = *report_.host;
        at_most("hits in host memory, uses", double(memory.hits), double(memory.requested));
        at_most("uses of host memory, demand, prefetches and later loads",
                double(report_.experts.on_cpu), double(memory.requested));
        at_most("disk busy, total", memory.disk_ms, report_.total_ms + 1e-6);
        // The toy machine's expert; a read that was cut off has moved a part.
        const double reads = double(memory.disk_bytes) / 100'000;
        if (config_.prefetch.plugin !=
            "anything_prefetch")  // which has more read than is asked for
            at_most("reads, what was not there", reads, double(memory.requested - memory.hits));
        if (report_.bytes.h2d != 0 || report_.experts.on_cpu != 0)
            holds(memory.disk_bytes + memory.first_bytes != 0,
                  "something was used and nothing read");
    }

    void times() {
        const core::time_ms &spent = report_.time;
        const size_t gpus =
            report_.cluster ? report_.cluster->devices.size() : report_.devices.size();
        const double available_ms =
            report_.total_ms * (report_.cluster || gpus != 0 ? double(gpus) : 1);
        // Every moment has one cause; in a cluster those of each pipeline, from its own beginning.
        uint64_t caused_ns = 0;
        for (const auto &layer : report_.causes)
            for (const core::time_causes &phase : layer) caused_ns += phase.sum();
        if (!report_.cluster)
            equal("sum of causes, total", caused_ns,
                  static_cast<uint64_t>(std::llround(report_.total_ms * 1e6)));
        else
            at_most("sum of causes, total of all", double(caused_ns) / 1e6,
                    report_.total_ms *
                        double(report_.cluster->devices.size() + report_.cluster->homes.size()));
        at_most("compute + stall, total", spent.compute + spent.stall, available_ms + 1e-6);
        at_most("transfer, total", spent.transfer, available_ms + 1e-6);
        at_most("cpu, total", spent.cpu, available_ms + 1e-6);
        for (const core::summary_ms &summary : {report_.tpot_ms, report_.ttft_ms}) {
            at_most("p50, p99", summary.p50, summary.p99);
            holds(summary.mean >= 0, "mean of times");
        }
        if (report_.total_ms > 0)
            holds(std::abs(report_.tokens_per_s * report_.total_ms / 1e3 -
                           double(report_.tokens)) <= 1e-6 * double(report_.tokens) + 1e-9,
                  "tokens_per_s by total_ms is not tokens");
    }

    // Several GPUs: their parts sum to the whole.
    void devices() {
        if (report_.devices.empty()) return;
        core::device_report sum;
        for (const core::device_report &device : report_.devices) {
            sum.slots += device.slots;
            sum.experts += device.experts;
            sum.requested += device.requested;
            sum.hits += device.hits;
            sum.loaded += device.loaded;
            sum.h2d_bytes += device.h2d_bytes;
            sum.compute_ms += device.compute_ms;
            sum.transfer_ms += device.transfer_ms;
            sum.stall_ms += device.stall_ms;
            at_most("compute + stall of a device, total", device.compute_ms + device.stall_ms,
                    report_.total_ms + 1e-6);
            at_most("transfer of a device, total", device.transfer_ms, report_.total_ms + 1e-6);
            at_most("hits of a device, requested", double(device.hits), double(device.requested));
        }
        equal("requested on the devices", sum.requested, report_.experts.requested);
        equal("hits on the devices", sum.hits, report_.experts.hits);
        equal("loaded to the devices", sum.loaded, report_.experts.loaded);
        equal("h2d_bytes of the devices", sum.h2d_bytes, report_.bytes.h2d);
        holds(std::abs(sum.compute_ms - report_.time.compute) <= 1e-6, "compute of the devices");
        holds(std::abs(sum.transfer_ms - report_.time.transfer) <= 1e-6, "transfer of the devices");
        holds(std::abs(sum.stall_ms - report_.time.stall) <= 1e-6, "stall of the devices");
    }

    void optimum() {
        if (report_.opt_misses == 0) return;
        at_most("the optimum, misses", double(report_.opt_misses), double(report_.experts.misses));
        holds(report_.opt_reason.empty(),
              "an optimum, and a reason for none: " + report_.opt_reason);
        holds(!report_.has_predictions && report_.experts.substituted == 0,
              "an optimum beside a prefetch or another routing");
    }

    void finite(const json &value, const std::string &path) {
        if (value.is_number_float())
            holds(std::isfinite(value.get<double>()), path + " is not finite");
        if (!value.is_structured()) return;
        for (auto entry = value.begin(); entry != value.end(); ++entry)
            finite(entry.value(), path + "/" + (value.is_object() ? entry.key() : "-"));
    }

    void texts() {
        for (const std::string &line : core::split(to_text(report_), '\n')) {
            size_t columns = 0;
            for (const char c : line) columns += (c & 0xc0) != 0x80;
            holds(columns <= 80, "a line of more than 80 columns: " + line);
        }
        for (const auto &[plugin, count] : report_.faults)
            holds(false, format("{} pieces of wrong advice of {}", count, plugin));
    }

    const run_report &report_;
    const core::run_config &config_;
    std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> broken_invariants(const core::run_report &report,
                                           const core::run_config &config) {
    return checker(report, config)();
}

}  // namespace moorage::random
