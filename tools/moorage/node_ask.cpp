// node_ask.cpp - one request a prompt, over the cluster's wire.
#include "tools/moorage/node_ask.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "tools/node/load_run.h"
#include "tools/node/node_setup.h"
#include "tools/node/wire_plugin.h"
#include "core/pipeline/text_ends.h"
#include "core/pipeline/texts.h"
#include "core/report/figures.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

std::string line_of(const std::string &server, const std::vector<load_outcome> &outcomes) {
    uint64_t written = 0, first_ns = 0, ended_ns = 0;
    for (const load_outcome &outcome : outcomes) {
        written += outcome.written.size();
        if (outcome.first_ns != MOORAGE_NEVER)
            first_ns = std::max(first_ns, outcome.first_ns - outcome.sent_ns);
        ended_ns = std::max(ended_ns, outcome.ended_ns - outcome.sent_ns);
    }
    const double rest_s = static_cast<double>(ended_ns - first_ns) / 1e9;
    std::string line = format("{} tokens written by {}, first after {}", written, server,
                              human_ms(static_cast<double>(first_ns) / 1e6));
    if (written > outcomes.size() && rest_s > 0)
        line += format(", then {} tokens/s",
                       three_digits(static_cast<double>(written - outcomes.size()) / rest_s));
    return line;
}

// A node ends its texts at the model's end tokens by its own file. So only the other rules are used
// here.
result<text_end_rules> own_end_rules(const run_config &config, const model &source_model,
                                     const tokenizer *words) {
    run_config user_config = config;
    user_config.stop.at_model_ends = false;
    return end_rules_of(user_config, source_model, words);
}

// The texts of a node, cut where the user's rules end them.
class cut_texts {
public:
    cut_texts(const tokenizer &words, text_end_rules rules, size_t requests)
        : words_(words), rules_(std::move(rules)), watch_(words, rules_.texts), texts_(requests) {}
    // Whether the token belongs to the text, as far as known. The text may end inside the last
    // token.
    bool add_token(size_t request, int32_t id) {
        part &text = texts_[request];
        if (text.has_ended) return false;
        text.has_ended = std::ranges::find(rules_.ids, id) != rules_.ids.end();
        if (text.has_ended) return false;
        text.ids.push_back(id);
        text.has_ended = watch_.ends_text(request, id);
        return true;
    }
    bool has_ended(size_t request) const { return texts_[request].has_ended; }
    std::string text(size_t request) const {
        return cut_at_stop(words_.decode(texts_[request].ids, {}), rules_.texts);
    }

private:
    struct part {
        std::vector<int32_t> ids;
        bool has_ended = false;
    };
    const tokenizer &words_;
    const text_end_rules rules_;
    stop_watch watch_;
    std::vector<part> texts_;
};

}  // namespace

result<node_answers> ask_node(const run_config &config, const std::string &server,
                              run_resources &shared,
                              const std::function<void(int32_t id)> &on_token,
                              const std::function<bool()> &stop) {
    const auto setup = set_up_node(config, "", shared);
    if (!setup) return setup.failure();
    const auto home = server_named(setup->plan, server);
    if (!home) return home.failure();
    const tokenizer *const words = setup->opened->loaded_tokenizer.get();
    auto job = make_job(config, *setup->opened->loaded_model, words);
    if (!job) return job.failure();
    std::vector<load_request> requests;
    for (model_request &request : job->requests) requests.push_back({*home, 0, std::move(request)});
    auto wire = open_wire(config, shared.policies(), setup->plan, wire_calls::beside);
    if (!wire) return wire.failure();
    load_options options;
    // Waits long enough for a busy node, which queues its requests and answers them in turn. A node
    // that hangs is still told apart.
    options.connect_ns = 60'000'000'000;
    options.patience_ns = 600'000'000'000;
    options.stop = stop;
    auto rules = own_end_rules(config, *setup->opened->loaded_model, words);
    if (!rules) return rules.failure();
    cut_texts cut(*words, std::move(*rules), requests.size());
    options.on_tokens = [&](size_t request, std::span<const int32_t> ids) {
        for (const int32_t id : ids)
            if (cut.add_token(request, id) && request == 0) on_token(id);
    };
    options.has_enough = [&](size_t request) { return cut.has_ended(request); };
    const auto outcomes = run_load(**wire, setup->plan, draw_incarnation(), requests, options);
    node_answers answers;
    answers.text.prompts = std::move(job->prompts);
    for (size_t request = 0; request < outcomes.size(); ++request) {
        const load_outcome &outcome = outcomes[request];
        if (outcome.end != load_end::answered)
            return error{
                format("{} does not answer: {}: {}", server, name_of(outcome.end), outcome.text)};
        answers.text.texts.push_back(cut.text(request));
        answers.text.written += outcome.written.size();
    }
    answers.line = line_of(server, outcomes);
    return answers;
}

}  // namespace moorage::tool
