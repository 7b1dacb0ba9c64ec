// measure_copies.cpp - what the CPU executor's loads take, alone and while it computes.
#include <algorithm>
#include <vector>

#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/cpu/forward.h"
#include "core/execute/cpu/measure_models.h"
#include "core/execute/cpu/measure_parts.h"
#include "core/execute/cpu/measure_timing.h"

namespace moorage::core {

namespace {

constexpr uint32_t experts = 4, hidden = 2048, rounds_min = 5;
constexpr uint64_t piece_min_bytes = 4096, piece_max_bytes = 64 << 20;

// An executor over one layer of large experts, its first token routed to all of them.
struct copy_probe {
    std::unique_ptr<model> of;
    std::unique_ptr<cpu_model> compute;
    arena places{experts, 1, 0};
    std::unique_ptr<executor> where;
    uint64_t expert_bytes = 0;

    status make(thread_pool &pool, uint64_t bytes) {
        const uint64_t intermediate = std::max<uint64_t>(bytes / (3 * 2 * hidden) / 32, 1) * 32;
        auto model =
            probe_model({1, hidden, static_cast<uint32_t>(intermediate), experts, experts, 64});
        if (!model) return model.failure();
        of = std::move(model).value();
        auto made = cpu_model::create(*of, pool, {.context_max = 2});
        if (!made) return made.failure();
        compute = std::move(made).value();
        auto executor = cpu_executor::create(
            {of.get(), compute.get(), &places, of->config().moe_intermediate, 8, false});
        if (!executor) return executor.failure();
        where = std::move(executor).value();
        expert_bytes = of->sizes().expert_bytes;
        places.take(0, MOORAGE_WHOLE);
        const int32_t id = 1;
        const pass token = prompt_pass({&id, 1}, 0, 0, true);
        where->begin(token);
        where->attention(0, token);
        while (where->wait().kind != event_kind::gate) {
        }
        const std::vector<uint32_t> all{0, 1, 2, 3};
        const std::vector<float> weights(experts, 0.25f);
        where->route(all, weights);
        return success();
    }

    double copy(uint64_t offset, uint64_t bytes) {
        where->send({link_h2d, 0, MOORAGE_WHOLE, offset, bytes});
        return std::max(static_cast<double>(where->wait().duration_ns), 1.0) / 1e9;
    }
    void queue_expert(uint32_t page) {
        expert_work work;
        work.page = page;
        work.tokens = 1;
        where->expert_on_cpu(work);
    }
    double compute_one(uint32_t page) {
        queue_expert(page);
        return std::max(static_cast<double>(where->wait().duration_ns), 1.0) / 1e9;
    }
};

// A loop on all threads comes before each copy, as attention does in a run: they still look for
// work then, and where the copy's thread wakes up depends on it.
std::vector<timed> measure_sizes(copy_probe &probe, thread_pool &pool, double budget_s) {
    std::vector<float> sink(size_t{pool.threads()} * 16, 1.0f);
    const auto loop = [&] {
        pool.each(pool.threads(), [&](uint32_t item) {
            float &value = sink[size_t{item} * 16];
            for (uint32_t i = 0; i < 2000; ++i) value = value * 0.999f + 0.001f;
        });
    };
    std::vector<timed> out;
    const uint64_t most = std::min(piece_max_bytes, probe.expert_bytes);
    for (uint64_t bytes = piece_min_bytes; bytes <= most; bytes *= 4) {
        // Walks through the expert, so that what is copied was not read just before.
        uint64_t offset = 0;
        std::vector<double> taken;
        const auto begun = std::chrono::steady_clock::now();
        while (taken.size() < rounds_min || seconds_since(begun) < budget_s) {
            if (offset + bytes > probe.expert_bytes) offset = 0;
            loop();
            taken.push_back(probe.copy(offset, bytes));
            offset += bytes;
        }
        out.push_back({static_cast<double>(bytes), lower_quartile(taken)});
    }
    return out;
}

// Copies one expert while others are computed until it has been copied. Only what ran wholly
// beside the copy counts.
void measure_together(copy_probe &probe, double budget_s, measured_machine &into) {
    const auto bytes = static_cast<double>(probe.expert_bytes);
    uint32_t next = 0;
    const auto page = [&] { return 1 + next++ % (experts - 1); };
    const double alone = typical_seconds(budget_s, [&] { probe.compute_one(page()); });
    const double copy_alone = typical_seconds(budget_s, [&] { probe.copy(0, probe.expert_bytes); });
    into.expert_memory_bytes_per_s = bytes / alone;
    std::vector<double> computed, copied;
    const auto begun = std::chrono::steady_clock::now();
    while (copied.size() < rounds_min || seconds_since(begun) < budget_s) {
        probe.where->send({link_h2d, 0, MOORAGE_WHOLE, 0, probe.expert_bytes});
        double last = 0;
        for (bool copying = true; copying;) {
            probe.queue_expert(page());
            completion done = probe.where->wait();
            if (done.kind == event_kind::piece) {
                copying = false;
                copied.push_back(static_cast<double>(done.duration_ns) / 1e9);
                while (probe.where->wait().kind != event_kind::cpu_expert) {
                }
                continue;
            }
            // The one before ended while the copy still went on.
            if (last > 0) computed.push_back(last);
            last = static_cast<double>(done.duration_ns) / 1e9;
        }
    }
    if (computed.empty()) computed.push_back(alone);
    const double compute_seconds = lower_quartile(computed), copy_seconds = lower_quartile(copied);
    into.compute_share = std::clamp(alone / compute_seconds, 0.05, 1.0);
    into.copy_share = std::clamp(copy_alone / copy_seconds, 0.05, 1.0);
    into.together_bytes_per_s = bytes / compute_seconds + bytes / copy_seconds;
}

}  // namespace

status measure_copies(thread_pool &pool, double budget_s, uint64_t expert_bytes,
                      measured_machine &into) {
    copy_probe probe;
    if (const status done = probe.make(pool, expert_bytes); !done) return done.failure();
    probe.copy(0, probe.expert_bytes);  // the slot's pages are there from now on
    into.to_device = measure_sizes(probe, pool, budget_s);
    measure_together(probe, 4 * budget_s, into);
    return success();
}

}  // namespace moorage::core
