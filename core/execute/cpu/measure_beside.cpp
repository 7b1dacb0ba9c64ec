// measure_beside.cpp - copies and computes at the same time until the time is up.
#include "core/execute/cpu/measure_beside.h"

#include <algorithm>
#include <vector>

#include "core/execute/measure_timing.h"

namespace moorage::core {

namespace {

constexpr uint32_t rounds_min = 5;

double seconds_of(const completion &done) {
    return std::max(static_cast<double>(done.duration_ns), 1.0) / 1e9;
}

// The next completion of a kind. An executor that failed completes nothing any more.
double wait_for(executor &executor, event_kind kind) {
    completion done{};
    do {
        if (executor.failed()) return 1e-9;
        done = executor.wait();
    } while (done.kind != kind);
    return seconds_of(done);
}

void queue_expert(executor &executor, uint32_t page) {
    expert_work work;
    work.page = page;
    work.tokens = 1;
    executor.expert_on_cpu(work);
}

}  // namespace

double copy_piece(executor &executor, uint32_t page, uint64_t offset, uint64_t bytes) {
    executor.send({link_h2d, page, MOORAGE_WHOLE, offset, bytes});
    return wait_for(executor, event_kind::piece);
}

status measure_beside(executor &executor, const beside_options &options, double budget_s,
                      measured_machine &machine) {
    const auto begun = std::chrono::steady_clock::now();
    const auto now = [&] { return seconds_since(begun); };
    const auto bytes = static_cast<double>(options.expert_bytes);
    uint32_t next = 0;
    const auto page = [&] { return 1 + next++ % (options.experts - 1); };
    const double alone = typical_sample(budget_s, now, [&] {
        queue_expert(executor, page());
        return wait_for(executor, event_kind::cpu_expert);
    });
    const double copy_alone = typical_sample(
        budget_s, now, [&] { return copy_piece(executor, 0, 0, options.expert_bytes); });
    machine.expert_memory_bytes_per_s = bytes / alone;
    // Only what ran wholly beside the copy counts.
    std::vector<double> computed, copied;
    const double both_begun = now();
    while (!executor.failed() && (copied.size() < rounds_min || now() - both_begun < budget_s)) {
        executor.send({link_h2d, 0, MOORAGE_WHOLE, 0, options.expert_bytes});
        double last = 0;
        for (bool copying = true; copying && !executor.failed();) {
            queue_expert(executor, page());
            const completion done = executor.wait();
            if (done.kind == event_kind::piece) {
                copying = false;
                copied.push_back(seconds_of(done));
                wait_for(executor, event_kind::cpu_expert);
                continue;
            }
            // The one before ended while the copy still went on.
            if (last > 0) computed.push_back(last);
            last = seconds_of(done);
        }
    }
    if (executor.failed()) return error{executor.failure()};
    if (computed.empty()) computed.push_back(alone);
    const double compute_seconds = lower_quartile(computed), copy_seconds = lower_quartile(copied);
    machine.compute_share = std::clamp(alone / compute_seconds, 0.05, 1.0);
    machine.copy_share = std::clamp(copy_alone / copy_seconds, 0.05, 1.0);
    machine.together_bytes_per_s = bytes / compute_seconds + bytes / copy_seconds;
    return success();
}

}  // namespace moorage::core
