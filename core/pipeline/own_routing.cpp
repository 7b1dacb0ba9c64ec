// own_routing.cpp - the second run: the plainest that computes the same as the model alone.
#include "core/pipeline/own_routing.h"

#include <cassert>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// Batch and prefill stay, since they decide what is summed together; strategies that lose nothing
// do not, and the defaults cost least.
run_config plain_of(const run_config &config) {
    const run_config defaults;
    run_config plain = config;
    for (const std::string_view kind : kinds) plain.stage(kind) = defaults.stage(kind);
    plain.exact_requests.clear();
    plain.substitution_max = 1;
    plain.split = 1;
    return plain;
}

// Everything that the likelihood of a text hangs on.
std::string key_of(const run_config &config) {
    return format("{}|{}|{}|{}|{}|{}|{}", config.model.string(), config.text.string(),
                  config.executor, config.batch, config.prefill, config.tokens, config.window);
}

}  // namespace

void add_own_routing(const run_config &config, run_resources &shared, const run_options &options,
                     const std::vector<model_request> &written, run_report &report) {
    assert(report.lossy);
    text_report &text = report.text;
    if (text.model.empty() || text.scored == 0) return;
    run_config plain = plain_of(config);
    run_options how;
    how.optimum = false;
    how.threads = options.threads;
    const auto score = [&]() -> result<text_report> {
        auto done = run(plain, shared, how);
        if (!done) return done.failure();
        return std::move(done->text);
    };
    const auto take = [&](const result<text_report> &own) {
        if (!own)
            report.warnings.push_back("quality was not measured: " + own.failure().text);
        else if (own->scored != text.scored)
            report.warnings.push_back(
                format("quality was not measured: {} tokens were scored, and {} with the model's "
                       "own routing",
                       text.scored, own->scored));
        else
            text.own_nll = own->nll;
    };
    if (written.empty()) return take(shared.own_routing(key_of(plain), score));
    plain.tokens = 0;  // every token is to be scored
    how.requests = &written;
    take(score());
}

}  // namespace moorage::core
