// own_routing.cpp - the second run: the plainest that computes the same as the model alone.
#include "core/pipeline/own_routing.h"

#include "core/base/invariant.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// Batch and prefill stay, because they decide what is summed together. Lossless policies do not
// stay: the defaults cost least.
run_config plain_of(const run_config &config) {
    const run_config defaults;
    run_config plain = config;
    for (const std::string_view kind : stage_kinds) plain.stage(kind) = defaults.stage(kind);
    plain.exact_requests.clear();
    plain.substitution_max = 1;
    plain.split = 1;
    plain.small.clear();
    return plain;
}

result<text_report> rerun(const run_config &plain, run_resources &shared,
                          const run_options &options, const std::vector<model_request> *requests) {
    run_options rerun_options;
    rerun_options.optimum = false;
    rerun_options.threads = options.threads;
    rerun_options.requests = requests;
    auto done = run(plain, shared, rerun_options);
    if (!done) return done.failure();
    return std::move(done->text);
}

}  // namespace

// Everything that the likelihood of a text hangs on.
std::string own_routing_key(const run_config &config) {
    return format("{}|{}|{}|{}|{}|{}|{}", config.model.string(), config.text.string(),
                  config.executor, config.batch, config.prefill, config.tokens, config.window);
}

result<text_report> own_routing_of(const run_config &config, run_resources &shared,
                                   const run_options &options) {
    return rerun(plain_of(config), shared, options, nullptr);
}

void take_own_routing(const result<text_report> &own_text, run_report &report) {
    text_report &text = report.text;
    if (!own_text)
        report.warnings.push_back("quality was not measured: " + own_text.failure().text);
    else if (own_text->scored != text.scored)
        report.warnings.push_back(
            format("quality was not measured: {} tokens were scored, and {} with the model's "
                   "own routing",
                   text.scored, own_text->scored));
    else
        text.own_nll = own_text->nll;
}

void add_own_routing(const run_config &config, run_resources &shared, const run_options &options,
                     const std::vector<model_request> &written, run_report &report) {
    MOORAGE_INVARIANT(report.lossy);
    const text_report &text = report.text;
    if (text.model.empty() || text.scored == 0) return;
    if (!written.empty()) {
        run_config plain = plain_of(config);
        plain.tokens = 0;  // every token is to be scored
        return take_own_routing(rerun(plain, shared, options, &written), report);
    }
    if (options.deferred) {
        options.deferred->own_routing = true;
        return;
    }
    const auto make = [&] { return own_routing_of(config, shared, options); };
    take_own_routing(shared.own_routing(own_routing_key(config), make), report);
}

}  // namespace moorage::core
