// node_ask.cpp - one request a prompt, over the cluster's wire.
#include "tools/moorage/node_ask.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/node/load_run.h"
#include "core/node/node_setup.h"
#include "core/node/wire_plugin.h"
#include "core/pipeline/texts.h"
#include "core/report/figures.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

std::string line_of(const std::string &server, const std::vector<load_outcome> &outcomes) {
    uint64_t written = 0, first_ns = 0, ended_ns = 0;
    for (const load_outcome &one : outcomes) {
        written += one.written.size();
        if (one.first_ns != MOORAGE_NEVER)
            first_ns = std::max(first_ns, one.first_ns - one.sent_ns);
        ended_ns = std::max(ended_ns, one.ended_ns - one.sent_ns);
    }
    const double rest_s = static_cast<double>(ended_ns - first_ns) / 1e9;
    std::string line = format("{} tokens written by {}, first after {}", written, server,
                              human_ms(static_cast<double>(first_ns) / 1e6));
    if (written > outcomes.size() && rest_s > 0)
        line += format(", then {} tokens/s",
                       three_digits(static_cast<double>(written - outcomes.size()) / rest_s));
    return line;
}

}  // namespace

result<node_answers> ask_node(const run_config &config, const std::string &server,
                              run_resources &shared,
                              const std::function<void(int32_t id)> &on_token,
                              const std::function<bool()> &stop) {
    const auto setup = set_up_node(config, "", shared);
    if (!setup) return setup.failure();
    const auto home = server_named(setup->plan, server);
    if (!home) return home.failure();
    const tokenizer *const words = setup->opened->words.get();
    auto job = make_job(config, *setup->opened->of, words);
    if (!job) return job.failure();
    std::vector<load_request> requests;
    for (model_request &one : job->requests) requests.push_back({*home, 0, std::move(one)});
    auto over = open_wire(config, shared.policies(), setup->plan, wire_calls::beside);
    if (!over) return over.failure();
    load_options options;
    options.stop = stop;
    options.on_tokens = [&](size_t request, std::span<const int32_t> ids) {
        if (request == 0) std::ranges::for_each(ids, on_token);
    };
    const auto outcomes = run_load(**over, setup->plan, draw_incarnation(), requests, options);
    node_answers made;
    made.text.prompts = std::move(job->prompts);
    for (const load_outcome &one : outcomes) {
        if (one.how != load_end::answered)
            return error{format("{} does not answer: {}: {}", server, name_of(one.how), one.text)};
        made.text.texts.push_back(words->decode(one.written, {}));
        made.text.written += one.written.size();
    }
    made.line = line_of(server, outcomes);
    return made;
}

}  // namespace moorage::tool
