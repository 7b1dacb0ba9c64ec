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
        : of_(report), config_(config) {}
    std::vector<std::string> operator()() {
        experts("all layers", of_.experts);
        for (size_t i = 0; i < of_.layers.size(); ++i)
            experts(format("layer {}", i), of_.layers[i].experts);
        layers();
        routing();
        bytes();
        host();
        times();
        devices();
        optimum();
        finite(to_json(of_), "report");
        texts();
        return std::move(broken_);
    }

private:
    void holds(bool is, const std::string &what) {
        if (!is) broken_.push_back(what);
    }
    void equal(const std::string &what, uint64_t a, uint64_t b) {
        holds(a == b, format("{}: {} is not {}", what, a, b));
    }
    void at_most(const std::string &what, double a, double b) {
        holds(a <= b, format("{}: {} is more than {}", what, a, b));
    }

    void experts(const std::string &where, const core::expert_counts &of) {
        equal(where + ": hits + partial hits + misses, requested",
              of.hits + of.partial_hits + of.misses, of.requested);
        at_most(where + ": loaded + on the CPU + remote, requested",
                double(of.loaded + of.on_cpu + of.remote), double(of.requested));
        at_most(where + ": loaded, what was not there", double(of.loaded),
                double(of.partial_hits + of.misses));
        holds(of.hit_rate() >= 0 && of.hit_rate() <= 1, where + ": hit rate");
    }

    uint64_t sum(const std::function<uint64_t(const core::layer_report &)> &of) const {
        uint64_t all = 0;
        for (const core::layer_report &layer : of_.layers) all += of(layer);
        return all;
    }
    void layers() {
        const core::expert_counts &all = of_.experts;
        using layer = const core::layer_report &;
        equal("sum of requested", sum([](layer l) { return l.experts.requested; }), all.requested);
        equal("sum of hits", sum([](layer l) { return l.experts.hits; }), all.hits);
        equal("sum of partial hits", sum([](layer l) { return l.experts.partial_hits; }),
              all.partial_hits);
        equal("sum of misses", sum([](layer l) { return l.experts.misses; }), all.misses);
        equal("sum of substituted", sum([](layer l) { return l.experts.substituted; }),
              all.substituted);
        equal("sum of on_cpu", sum([](layer l) { return l.experts.on_cpu; }), all.on_cpu);
        equal("sum of remote", sum([](layer l) { return l.experts.remote; }), all.remote);
        equal("sum of loaded", sum([](layer l) { return l.experts.loaded; }), all.loaded);
        equal("sum of choices", sum([](layer l) { return l.routing.choices; }),
              of_.routing.choices);
        equal("sum of rows", sum([](layer l) { return l.routing.rows; }), of_.routing.rows);
        equal("sum of h2d_bytes", sum([](layer l) { return l.h2d_bytes; }), of_.bytes.h2d);
        double stall_ms = 0;
        for (layer l : of_.layers) stall_ms += l.stall_ms;
        // The work of a server for other servers belongs to none of its own layers.
        const double between = of_.cluster ? of_.time.stall - stall_ms : 0;
        holds(between >= -1e-6 && std::abs(stall_ms + between - of_.time.stall) <= 1e-6,
              format("sum of stall_ms: {} is not {}", stall_ms, of_.time.stall));
    }

    void routing() {
        const core::routing_counts &of = of_.routing;
        equal("rows, tokens by layers", of.rows, of_.tokens * of_.layers.size());
        at_most("requested, choices", double(of_.experts.requested), double(of.choices));
        at_most("rows unchanged, rows", double(of.rows_unchanged), double(of.rows));
        at_most("reweighted + dropped, substituted", double(of.reweighted + of.dropped),
                double(of_.experts.substituted));
        at_most("substituted, cap", double(of_.experts.substituted),
                double(of.choices) * config_.substitution_max + 1e-6);
        if (of_.experts.substituted == 0) equal("rows unchanged", of.rows_unchanged, of.rows);
        if (!of_.lossy) equal("substituted by a lossless router", of_.experts.substituted, 0);
    }

    void bytes() {
        const core::byte_counts &of = of_.bytes;
        equal("demand + prefetched + behind, h2d", of.demand + of.prefetched + of.behind, of.h2d);
        equal("used + wasted, prefetched", of.prefetch_used + of.prefetch_wasted, of.prefetched);
        at_most("cut off, wasted", double(of.prefetch_cut_off), double(of.prefetch_wasted));
        if (!of_.has_predictions && !of_.cluster)
            equal("prefetched without prefetch", of.prefetched, 0);
        // Only experts that are computed elsewhere or ordered into a slot are loaded behind
        // everything else.
        if (of_.experts.on_cpu == 0 && !of_.has_predictions && !of_.cluster)
            equal("behind without the CPU", of.behind, 0);
        if (of_.experts.loaded == 0 && !of_.cluster)
            at_most("demand without loads", double(of.demand), 0);
    }

    void host() {
        if (!of_.host) return;
        const core::host_report &of = *of_.host;
        at_most("hits in host memory, uses", double(of.hits), double(of.requested));
        at_most("uses of host memory, demand, prefetches and later loads",
                double(of_.experts.on_cpu), double(of.requested));
        at_most("disk busy, total", of.disk_ms, of_.total_ms + 1e-6);
        // The toy machine's expert; a read that was cut off has moved a part.
        const double reads = double(of.disk_bytes) / 100'000;
        if (config_.prefetch.plugin !=
            "anything_prefetch")  // which has more read than is asked for
            at_most("reads, what was not there", reads, double(of.requested - of.hits));
        if (of_.bytes.h2d != 0 || of_.experts.on_cpu != 0)
            holds(of.disk_bytes + of.first_bytes != 0, "something was used and nothing read");
    }

    void times() {
        const core::time_ms &of = of_.time;
        const size_t gpus = of_.cluster ? of_.cluster->devices.size() : of_.devices.size();
        const double all = of_.total_ms * (of_.cluster || gpus != 0 ? double(gpus) : 1);
        // Every moment has one cause; in a cluster those of each pipeline, from its own beginning.
        uint64_t caused_ns = 0;
        for (const auto &layer : of_.causes)
            for (const core::time_causes &phase : layer) caused_ns += phase.sum();
        if (!of_.cluster)
            equal("sum of causes, total", caused_ns,
                  static_cast<uint64_t>(std::llround(of_.total_ms * 1e6)));
        else
            at_most("sum of causes, total of all", double(caused_ns) / 1e6,
                    of_.total_ms * double(of_.cluster->devices.size() + of_.cluster->homes.size()));
        at_most("compute + stall, total", of.compute + of.stall, all + 1e-6);
        at_most("transfer, total", of.transfer, all + 1e-6);
        at_most("cpu, total", of.cpu, all + 1e-6);
        for (const core::summary_ms &one : {of_.tpot_ms, of_.ttft_ms}) {
            at_most("p50, p99", one.p50, one.p99);
            holds(one.mean >= 0, "mean of times");
        }
        if (of_.total_ms > 0)
            holds(std::abs(of_.tokens_per_s * of_.total_ms / 1e3 - double(of_.tokens)) <=
                      1e-6 * double(of_.tokens) + 1e-9,
                  "tokens_per_s by total_ms is not tokens");
    }

    // Several GPUs: their parts sum to the whole.
    void devices() {
        if (of_.devices.empty()) return;
        core::device_report sum;
        for (const core::device_report &one : of_.devices) {
            sum.slots += one.slots;
            sum.experts += one.experts;
            sum.requested += one.requested;
            sum.hits += one.hits;
            sum.loaded += one.loaded;
            sum.h2d_bytes += one.h2d_bytes;
            sum.compute_ms += one.compute_ms;
            sum.transfer_ms += one.transfer_ms;
            sum.stall_ms += one.stall_ms;
            at_most("compute + stall of a device, total", one.compute_ms + one.stall_ms,
                    of_.total_ms + 1e-6);
            at_most("transfer of a device, total", one.transfer_ms, of_.total_ms + 1e-6);
            at_most("hits of a device, requested", double(one.hits), double(one.requested));
        }
        equal("requested on the devices", sum.requested, of_.experts.requested);
        equal("hits on the devices", sum.hits, of_.experts.hits);
        equal("loaded to the devices", sum.loaded, of_.experts.loaded);
        equal("h2d_bytes of the devices", sum.h2d_bytes, of_.bytes.h2d);
        holds(std::abs(sum.compute_ms - of_.time.compute) <= 1e-6, "compute of the devices");
        holds(std::abs(sum.transfer_ms - of_.time.transfer) <= 1e-6, "transfer of the devices");
        holds(std::abs(sum.stall_ms - of_.time.stall) <= 1e-6, "stall of the devices");
    }

    void optimum() {
        if (of_.opt_misses == 0) return;
        at_most("the optimum, misses", double(of_.opt_misses), double(of_.experts.misses));
        holds(of_.opt_reason.empty(), "an optimum, and a reason for none: " + of_.opt_reason);
        holds(!of_.has_predictions && of_.experts.substituted == 0,
              "an optimum beside a prefetch or another routing");
    }

    void finite(const json &value, const std::string &where) {
        if (value.is_number_float())
            holds(std::isfinite(value.get<double>()), where + " is not finite");
        if (!value.is_structured()) return;
        for (auto at = value.begin(); at != value.end(); ++at)
            finite(at.value(), where + "/" + (value.is_object() ? at.key() : "-"));
    }

    void texts() {
        for (const std::string &line : core::split(to_text(of_), '\n')) {
            size_t columns = 0;
            for (const char c : line) columns += (c & 0xc0) != 0x80;
            holds(columns <= 80, "a line of more than 80 columns: " + line);
        }
        for (const auto &[plugin, count] : of_.faults)
            holds(false, format("{} pieces of wrong advice of {}", count, plugin));
    }

    const run_report &of_;
    const core::run_config &config_;
    std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> broken_invariants(const core::run_report &report,
                                           const core::run_config &config) {
    return checker(report, config)();
}

}  // namespace moorage::random
