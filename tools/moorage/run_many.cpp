// run_many.cpp - runs configurations on several threads where nothing is measured.
#include "tools/moorage/run_many.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "core/report/progress.h"

namespace moorage::tool {

using namespace moorage::core;

static uint32_t jobs_for(const std::vector<run_config> &configs, uint32_t wanted) {
    if (wanted != 0) return wanted;
    // What is measured must have the machine to itself.
    const bool measured = std::any_of(configs.begin(), configs.end(), [](const run_config &one) {
        return one.executor != "emulator";
    });
    return measured ? 1 : std::max(1u, std::thread::hardware_concurrency());
}

result<std::vector<run_report>> run_many(const std::vector<run_config> &configs,
                                         run_resources &shared, const run_many_options &options) {
    for (const run_config &config : configs)
        if (const status done = shared.scan(config.plugin_paths); !done) return done.failure();
    const uint32_t jobs = jobs_for(configs, options.jobs);
    std::vector<std::optional<result<run_report>>> reports(configs.size());
    std::atomic<size_t> next = 0;
    std::atomic<bool> failed = false;
    progress shown(options.what, configs.size());
    const auto work = [&] {
        for (size_t i; !failed && (i = next++) < configs.size();) {
            run_options how;
            how.optimum = options.optimum;
            how.own_routing = options.own_routing;
            if (jobs > 1) how.threads = 1;  // the others compute as well
            reports[i] = run_either(configs[i], shared, how);
            if (!*reports[i]) failed = true;
            shown.advance();
        }
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 1; i < jobs && i < configs.size(); ++i) threads.emplace_back(work);
    work();
    for (std::thread &thread : threads) thread.join();
    std::vector<run_report> done;
    for (auto &report : reports) {
        if (!report) continue;  // not begun, because another one failed
        if (!*report) return report->failure();
        done.push_back(std::move(*report).value());
    }
    return done;
}

}  // namespace moorage::tool
