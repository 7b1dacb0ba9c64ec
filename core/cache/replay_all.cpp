// replay_all.cpp - many replays over all cores, and the words of a replay's settings.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "core/base/text.h"
#include "core/cache/replay.h"

namespace moorage::core {

result<std::vector<replay_result>> replay_all(const trace &source, const future *coming,
                                              std::span<const replay_job> jobs, uint32_t threads,
                                              const replay_progress &progress) {
    // Everything that can be refused is refused before hours of other work.
    for (const replay_job &job : jobs)
        if (const status able = check_replay(source, job); !able) return able.failure();

    std::vector<std::optional<result<replay_result>>> done(jobs.size());
    std::atomic<size_t> next = 0;
    // Jobs before the first that failed all run, so the failure that is told is always the same
    // one.
    std::atomic<size_t> failed = jobs.size();
    const auto work = [&] {
        for (size_t i; (i = next.fetch_add(1)) < std::min(jobs.size(), failed.load());) {
            done[i] = replay(source, coming, jobs[i], progress);
            if (done[i]->ok()) continue;
            size_t first = failed.load();
            while (i < first && !failed.compare_exchange_weak(first, i)) {
            }
        }
    };
    const size_t available =
        threads == 0 ? std::max(1u, std::thread::hardware_concurrency()) : threads;
    std::vector<std::thread> others;
    for (size_t i = 1; i < std::min(available, jobs.size()); ++i) others.emplace_back(work);
    work();
    for (std::thread &other : others) other.join();

    std::vector<replay_result> results;
    results.reserve(jobs.size());
    for (auto &one : done) {
        if (!one->ok()) return one->failure();
        results.push_back(std::move(**one));
    }
    return results;
}

uint32_t slots_without_lru_hits(uint32_t layers, uint32_t top_k, order requests) {
    // In rounds a layer comes up again after one expert of each other layer, else after top_k.
    return (layers - 1) * (requests == order::rounds ? 1 : top_k);
}

const char *name_of(order value) {
    switch (value) {
        case order::rounds:
            return "rounds";
        case order::serial:
            return "serial";
        case order::token:
            break;
    }
    return "token";
}

const char *name_of(sharing value) { return value == sharing::shared ? "shared" : "per-layer"; }

result<order> parse_order(std::string_view text) {
    for (const order value : {order::rounds, order::token, order::serial})
        if (text == name_of(value)) return value;
    return error{format("order {} is not known; rounds, token and serial are", text), true};
}

result<sharing> parse_sharing(std::string_view text) {
    for (const sharing value : {sharing::shared, sharing::per_layer})
        if (text == name_of(value)) return value;
    return error{format("sharing {} is not known; shared and per-layer are", text), true};
}

}  // namespace moorage::core
