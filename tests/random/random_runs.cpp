// random_runs.cpp - random_runs [N] [SEED] [--hashes | --disk | --gpus | --anything]: draws N
// configurations, runs them, checks the rules for all runs, and names the seed of each failure.
// --hashes: a line `seed N HASH` for each report (tests/matrix). --disk: runs with experts on disk.
// --gpus: runs over several GPUs. --anything: all of these, mostly with policies that do anything a
// policy may do (policies/anything.cpp).
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>

#include <unistd.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/cluster/cluster_run.h"
#include "core/config/run_config.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/pipeline/run.h"
#include "tests/random/invariants.h"
#include "tests/random/random_config.h"

namespace {

using namespace moorage;

// The run under way, for the handler of a crash.
char under_way[16 * 1024];

void tell(int signal) {
    ssize_t written = ::write(STDERR_FILENO, under_way, std::strlen(under_way));
    static_cast<void>(written);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

struct tally {
    uint64_t ran = 0, failed = 0;
    std::map<std::string, uint64_t> refused;
};

// The refusal without its numbers and without the place at its start.
std::string kind_of_refusal(const std::string &text) {
    const size_t place = text.find(": ");
    std::string kind;
    for (const char c : text.substr(place == std::string::npos ? 0 : place + 2))
        if (c < '0' || c > '9') kind += c;
    return kind.substr(0, 120);
}

void fail(tally &counts, uint64_t seed, const std::string &toml, const std::string &reason) {
    ++counts.failed;
    std::cerr << "seed " << seed << ": " << reason << "\n" << toml << "\n";
}

// FNV-1a hash of the report, without the parts that name folders of this run.
uint64_t hash_of(const core::run_report &report) {
    core::json figures = to_json(report);
    for (const char *part : {"config", "warnings"}) figures.erase(part);
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : figures.dump())
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
}

void run_one(uint64_t seed, const random::config_maker &maker, core::run_resources &shared,
             std::string_view mode, tally &counts) {
    const bool hashes = mode == "--hashes";
    const auto [toml, file] = mode == "--disk"       ? maker.draw_on_disk(seed)
                              : mode == "--gpus"     ? maker.draw_on_gpus(seed)
                              : mode == "--anything" ? maker.draw_anywhere(seed)
                                                     : maker.draw(seed);
    std::snprintf(under_way, sizeof under_way, "seed %llu did not survive:\n%s\n",
                  static_cast<unsigned long long>(seed), toml.c_str());
    const auto config = core::parse_run_config(toml, file, {});
    if (!config) return fail(counts, seed, toml, config.failure().text);
    core::run_options options;
    options.own_routing = false;
    const auto done = core::run_either(*config, shared, options);
    // Also refused: a placement for which there is no plan.
    const std::string_view no_plan = "plan failed (invalid argument)";
    if (!done && (done.failure().usage || done.failure().text.find(no_plan) != std::string::npos)) {
        ++counts.refused[kind_of_refusal(done.failure().text)];
        if (hashes) std::cout << core::format("seed {} refused\n", seed);
        return;
    }
    if (!done) return fail(counts, seed, toml, done.failure().text);
    ++counts.ran;
    // The last digits of results depend on the vectors in use (decision 0010). The recorded hashes
    // belong to AVX512, which a processor or a build with sanitizers may lack.
    if (hashes && !config->model.empty() && !core::vector_target().starts_with("AVX3"))
        std::cout << core::format("seed {} elsewhere\n", seed);
    else if (hashes)
        std::cout << core::format("seed {} {:016x}\n", seed, hash_of(*done));
    for (const std::string &broken : random::broken_invariants(*done, *config))
        fail(counts, seed, toml, broken);
    if (seed % 4 != 0) return;
    const auto again = core::run_either(*config, shared, options);
    if (!again || to_json(*again).dump() != to_json(*done).dump())
        fail(counts, seed, toml, "a second run of it differs");
}

}  // namespace

int main(int count, char **arguments) {
    const uint64_t runs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 40;
    const uint64_t first = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
    const std::string_view mode = count > 3 ? arguments[3] : "";
    core::run_resources shared;
    const std::filesystem::path built(MOORAGE_BINARY_DIR);
    std::vector<std::filesystem::path> plugins{built / "plugins"};
    if (mode == "--anything") plugins.push_back(built / "tests/policies/anything.so");
    if (const core::status found = shared.scan(plugins); !found) {
        std::cerr << found.failure().text << "\n";
        return 1;
    }
    const random::config_maker maker(shared.policies(),
                                     std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) std::signal(signal, tell);
    tally counts;
    for (uint64_t seed = first; seed < first + runs; ++seed)
        run_one(seed, maker, shared, mode, counts);
    uint64_t refused = 0;
    for (const auto &[reason, times] : counts.refused) refused += times;
    std::cout << core::format(
        "{} of {} drawn configurations from seed {} ran, {} were refused, {} "
        "failures\n",
        counts.ran, runs, first, refused, counts.failed);
    if (std::getenv("RANDOM_RUNS_REFUSALS"))
        for (const auto &[reason, times] : counts.refused)
            std::cout << core::format("{:5} x {}\n", times, reason);
    if (runs >= 20 && 2 * counts.ran < runs) {
        std::cerr << "most draws were refused: the generator has to be mended\n";
        return 1;
    }
    return counts.failed == 0 ? 0 : 1;
}
