// measure_copies.cpp - the time of the CPU executor's loads, alone and while it computes.
#include <algorithm>
#include <atomic>
#include <vector>

#include "core/execute/cpu/cpu_executor.h"
#include "core/execute/cpu/forward.h"
#include "core/execute/cpu/measure_beside.h"
#include "core/execute/measure_models.h"
#include "core/execute/cpu/measure_parts.h"
#include "core/execute/measure_timing.h"
#include "core/execute/side_thread.h"

namespace moorage::core {

namespace {

constexpr uint32_t experts = 4, hidden = 2048, copy_rounds_min = 5;
constexpr uint64_t piece_min_bytes = 4096, piece_max_bytes = 64 << 20;

// An executor over one layer of large experts, its first token routed to all of them.
struct copy_probe {
    std::unique_ptr<model> source_model;
    std::unique_ptr<cpu_model> compute;
    std::unique_ptr<arena> places;
    std::unique_ptr<executor> device_executor;
    uint64_t expert_bytes = 0;

    status make(thread_pool &pool, uint64_t bytes) {
        const uint64_t intermediate = std::max<uint64_t>(bytes / (3 * 2 * hidden) / 32, 1) * 32;
        auto model =
            probe_model({1, hidden, static_cast<uint32_t>(intermediate), experts, experts, 64});
        if (!model) return model.failure();
        source_model = std::move(model).value();
        auto created = cpu_model::create(*source_model, pool, {.context_max = 2});
        if (!created) return created.failure();
        compute = std::move(created).value();
        places = std::make_unique<arena>(1, experts, source_model->config().moe_intermediate, 0, 1);
        auto executor =
            cpu_executor::create({source_model.get(), compute.get(), places.get(), 8, false});
        if (!executor) return executor.failure();
        device_executor = std::move(executor).value();
        expert_bytes = source_model->sizes().expert_bytes;
        places->take(0, MOORAGE_WHOLE, false);
        const int32_t id = 1;
        const pass token = prompt_pass({&id, 1}, 0, 0, true);
        device_executor->begin(token);
        device_executor->attention(0, token);
        while (device_executor->wait().kind != event_kind::gate) {
        }
        const std::vector<uint32_t> chosen{0, 1, 2, 3};
        const std::vector<float> weights(experts, 0.25f);
        device_executor->route(chosen, weights);
        return success();
    }
};

// On all threads, a few microseconds.
void compute_loop(thread_pool &pool, std::vector<float> &sink) {
    pool.parallel_for(pool.threads(), [&](uint32_t item) {
        float &value = sink[size_t{item} * 16];
        for (uint32_t i = 0; i < 2000; ++i) value = value * 0.999f + 0.001f;
    });
}

// A loop on all threads comes before each copy, as attention does in a run. The threads still look
// for work then, and together they copy the piece that is waited for.
std::vector<timed_sample> measure_sizes(copy_probe &probe, thread_pool &pool, double budget_s) {
    std::vector<float> sink(size_t{pool.threads()} * 16, 1.0f);
    std::vector<timed_sample> samples;
    const uint64_t largest_bytes = std::min(piece_max_bytes, probe.expert_bytes);
    for (uint64_t bytes = piece_min_bytes; bytes <= largest_bytes; bytes *= 4) {
        // Walks through the expert, so that the copied bytes were not read just before.
        uint64_t offset = 0;
        std::vector<double> durations;
        const auto begun = std::chrono::steady_clock::now();
        while (durations.size() < copy_rounds_min || seconds_since(begun) < budget_s) {
            if (offset + bytes > probe.expert_bytes) offset = 0;
            compute_loop(pool, sink);
            durations.push_back(copy_piece(*probe.device_executor, 0, offset, bytes));
            offset += bytes;
        }
        samples.push_back({static_cast<double>(bytes), lower_quartile(durations)});
    }
    return samples;
}

// While all threads keep computing: the thread that waits for a copy makes it.
double measure_wake(thread_pool &pool, double budget_s) {
    using clock = std::chrono::steady_clock;
    std::atomic<clock::time_point> begun{};
    side_thread beside([&](uint32_t) { begun.store(clock::now()); });
    std::vector<float> sink(size_t{pool.threads()} * 16, 1.0f);
    const auto now = [start = clock::now()] { return seconds_since(start); };
    return typical_sample(budget_s, now, [&] {
        compute_loop(pool, sink);
        const auto requested = clock::now();
        beside.start();
        do compute_loop(pool, sink);
        while (!beside.try_finish());
        return std::chrono::duration<double>(begun.load() - requested).count();
    });
}

}  // namespace

status measure_copies(thread_pool &pool, double budget_s, uint64_t expert_bytes,
                      measured_machine &machine) {
    copy_probe probe;
    if (const status done = probe.make(pool, expert_bytes); !done) return done.failure();
    copy_piece(*probe.device_executor, 0, 0,
               probe.expert_bytes);  // the slot's pages are there from now on
    machine.to_device = measure_sizes(probe, pool, budget_s);
    machine.wake_seconds = measure_wake(pool, budget_s);
    return measure_beside(*probe.device_executor, {experts, probe.expert_bytes}, 4 * budget_s,
                          machine);
}

}  // namespace moorage::core
