// texts.cpp - prompts to ids, text files and windows to scored requests, written ids to text.
#include "core/pipeline/texts.h"

#include <algorithm>
#include <cmath>

#include "core/base/foreign_file.h"
#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/model/unicode.h"
#include "core/pipeline/text_ends.h"

namespace moorage::core {

namespace {

constexpr size_t file_bytes_max = size_t{1} << 30;

// A value in a message: short ones as they are.
std::string shown(const json &value) {
    if (value.is_array()) return format("a list of {}", value.size());
    if (value.is_object()) return format("an object of {} keys", value.size());
    const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    return text.size() <= 40 ? text : text.substr(0, 40) + "...";
}

result<json> parse(std::string_view text, const std::string &name) {
    result<json> root = read_json(text);
    if (!root) return error{format("{}: not valid JSON: {}", name, root.failure().text), true};
    return root;
}

class job_builder {
public:
    job_builder(const run_config &config, const model &model, const tokenizer *tokenizer)
        : config_(config),
          config_of_model_(model.config()),
          begin_id_(model.generation().begin_id),
          tokenizer_(tokenizer) {}

    result<text_job> operator()() {
        const status done = config_.text.empty() ? add_prompts() : add_file();
        if (!done) return done.failure();
        return std::move(job_);
    }

private:
    status add_prompts();
    status add_file();
    status add_text(std::string_view text, uint32_t part, const std::string &place);
    status add_windows(const json &list, uint32_t part, const std::string &place);
    status add_ids(std::vector<int32_t> ids, uint32_t new_tokens, uint32_t part,
                   const std::string &place);
    result<std::vector<int32_t>> encode(std::string_view text, const std::string &place) const;

    const run_config &config_;
    const model_config &config_of_model_;
    int32_t begin_id_;
    const tokenizer *tokenizer_;
    text_job job_;
};

result<std::vector<int32_t>> job_builder::encode(std::string_view text,
                                                 const std::string &place) const {
    if (!tokenizer_)
        return error{format("{}: text needs a tokenizer, and {} has no {}", place,
                            config_.model.string(), tokenizer_place(config_.model)),
                     true};
    if (const status read = check_utf8(text, place); !read) return read.failure();
    auto ids = tokenizer_->encode(text, {});
    if (!ids) return error{format("{}: {}", place, ids.failure().text)};
    if (ids->empty() && begin_id_ >= 0) ids->push_back(begin_id_);
    return ids;
}

status job_builder::add_ids(std::vector<int32_t> ids, uint32_t new_tokens, uint32_t part,
                            const std::string &place) {
    const size_t least = new_tokens == 0 ? 2 : 1;
    if (ids.size() < least)
        return error{format("{}: {} ids; {} needed", place, ids.size(),
                            least == 1 ? "a prompt of at least one is" : "two or more are"),
                     true};
    const uint64_t positions = ids.size() + new_tokens;
    if (positions > config_of_model_.positions_max)
        return error{format("{}: {} ids and {} new tokens are more than the {} positions of {}; "
                            "shorten the text or lower max_tokens",
                            place, ids.size(), new_tokens, config_of_model_.positions_max,
                            config_.model.string()),
                     true};
    for (size_t i = 0; i < ids.size(); ++i)
        if (ids[i] < 0 || static_cast<uint32_t>(ids[i]) >= config_of_model_.vocabulary)
            return error{format("{}: id {} at {} is beyond the vocabulary of {}", place, ids[i], i,
                                config_of_model_.vocabulary),
                         true};
    job_.requests.push_back({std::move(ids), new_tokens});
    job_.parts.push_back(part);
    return success();
}

status job_builder::add_prompts() {
    if (config_.prompts.empty())
        return error{format("{}: a model needs something to do; give [source] prompt or text",
                            config_.file.string()),
                     true};
    for (size_t i = 0; i < config_.prompts.size(); ++i) {
        const std::string place = format("prompt {}", i + 1);
        auto ids = encode(config_.prompts[i], place);
        if (!ids) return ids.failure();
        const status added = add_ids(std::move(*ids), config_.max_tokens, 0, place);
        if (!added) return added.failure();
    }
    job_.prompts = config_.prompts;
    return success();
}

status job_builder::add_text(std::string_view text, uint32_t part, const std::string &place) {
    const auto ids = encode(text, place);
    if (!ids) return ids.failure();
    if (ids->empty()) return add_ids({}, 0, part, place);
    const size_t window = std::min(config_.window, config_of_model_.positions_max);
    for (size_t begin = 0; begin < ids->size(); begin += window) {
        const size_t end = std::min(begin + window, ids->size());
        if (end - begin < 2 && begin != 0) break;  // one id left over has none before it
        const status added = add_ids({ids->begin() + static_cast<ptrdiff_t>(begin),
                                      ids->begin() + static_cast<ptrdiff_t>(end)},
                                     0, part, place);
        if (!added) return added.failure();
    }
    return success();
}

status job_builder::add_windows(const json &list, uint32_t part, const std::string &place) {
    if (!list.is_array() || list.empty())
        return error{
            format("{}: {} where a list of windows is needed, each a list of ids or a text", place,
                   shown(list)),
            true};
    for (size_t i = 0; i < list.size(); ++i) {
        const std::string window_place = format("{}[{}]", place, i);
        status added = success();
        if (list[i].is_string()) {
            added = add_text(list[i].get_ref<const std::string &>(), part, window_place);
        } else if (list[i].is_array()) {
            std::vector<int32_t> ids;
            for (const json &id : list[i]) {
                if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
                    return error{
                        format("{}[{}]: {} is no id, a whole number from 0 to {}", window_place,
                               ids.size(), shown(id), config_of_model_.vocabulary - 1),
                        true};
                ids.push_back(id.get<int32_t>());
            }
            added = add_ids(std::move(ids), 0, part, window_place);
        } else {
            return error{format("{}: {} where a list of ids or a text is needed", window_place,
                                shown(list[i])),
                         true};
        }
        if (!added) return added.failure();
    }
    return success();
}

status job_builder::add_file() {
    const auto file = mapped_file::open(config_.text);
    if (!file) return file.failure();
    const std::span<const std::byte> bytes = file->bytes();
    if (bytes.size() > file_bytes_max)
        return error{format("{}: {} bytes, {} is the limit of a text", config_.text.string(),
                            bytes.size(), file_bytes_max),
                     true};
    const std::string name = config_.text.string();
    if (const std::string foreign = non_text_problem(bytes); !foreign.empty())
        return error{format("{}: {}", name, foreign), true};
    // A copy, because the search for words relies on the text staying as it is.
    const std::string text(
        without_byte_order_mark({reinterpret_cast<const char *>(bytes.data()), bytes.size()}));
    if (config_.text.extension() != ".json") return add_text(text, 0, name);
    const auto root = parse(text, name);
    if (!root) return root.failure();
    if (!root->is_object()) return add_windows(*root, 0, name);
    for (const auto &[key, value] : root->items()) {
        const auto part = static_cast<uint32_t>(job_.part_names.size());
        job_.part_names.push_back(key);
        const bool wrapped = value.is_object() && value.contains("windows");
        const status added =
            add_windows(wrapped ? value["windows"] : value, part, format("{}: {}", name, key));
        if (!added) return added.failure();
    }
    if (job_.requests.empty()) return error{format("{}: nothing to score", name), true};
    return success();
}

}  // namespace

result<text_job> make_job(const run_config &config, const model &model,
                          const tokenizer *tokenizer) {
    return job_builder(config, model, tokenizer)();
}

sampling sampling_of(const run_config &config) {
    return {.temperature = config.temperature,
            .top_p = config.top_p,
            .top_k = config.sample_top_k,
            .min_p = config.min_p,
            .seed = config.seed,
            .repetition = config.repetition_penalty,
            .presence = config.presence_penalty,
            .frequency = config.frequency_penalty,
            .penalty_window = config.penalty_window};
}

void describe_texts(const run_config &config, bool is_scored, json &source) {
    source = {{"model", config.model.lexically_normal().filename().string()}};
    if (is_scored)
        source["text"] = config.text.filename().string();
    else
        source["max_tokens"] = config.max_tokens;
    const run_config greedy;
    const auto tell = [&](const char *key, auto value, auto usual) {
        if (value != usual) source[key] = value;
    };
    tell("temperature", config.temperature, greedy.temperature);
    tell("top_p", config.top_p, greedy.top_p);
    tell("top_k", config.sample_top_k, greedy.sample_top_k);
    tell("min_p", config.min_p, greedy.min_p);
    tell("repetition_penalty", config.repetition_penalty, greedy.repetition_penalty);
    tell("presence_penalty", config.presence_penalty, greedy.presence_penalty);
    tell("frequency_penalty", config.frequency_penalty, greedy.frequency_penalty);
    if (sampling_of(config).penalises())
        tell("penalty_window", config.penalty_window, greedy.penalty_window);
    if (const stop_config &stop = config.stop; !stop.texts.empty() || !stop.ids.empty()) {
        json stops = stop.texts;
        for (const int32_t id : stop.ids) stops.push_back(id);
        source["stop"] = std::move(stops);
    }
}

text_report report_of(const text_job &job, const model_source &source, const tokenizer *tokenizer,
                      const std::string &model_name, const stop_watch *stops) {
    text_report report;
    report.model = model_name;
    report.prompts = job.prompts;
    if (!source.scores_texts()) {
        for (const std::vector<int32_t> &ids : source.written()) {
            report.written += ids.size();
            report.texts.push_back(tokenizer ? tokenizer->decode(ids, {}) : "");
            if (stops) report.texts.back() = cut_at_stop(report.texts.back(), stops->stops());
        }
        report.prompts.resize(report.texts.size());  // of requests that come as ids alone
    }
    double sum = 0;
    std::vector<double> part_sums(job.part_names.size(), 0);
    for (const std::string &name : job.part_names) report.parts.push_back({name, 0, 0});
    for (size_t i = 0; i < source.scores().size(); ++i) {
        const score &score = source.scores()[i];
        report.scored += score.tokens;
        sum += score.nll_sum;
        if (report.parts.empty()) continue;
        report.parts[job.parts[i]].scored += score.tokens;
        part_sums[job.parts[i]] += score.nll_sum;
    }
    const auto mean = [](double total, uint64_t count) {
        return count == 0 ? 0 : total / static_cast<double>(count);
    };
    report.nll = mean(sum, report.scored);
    for (size_t part = 0; part < report.parts.size(); ++part)
        report.parts[part].nll = mean(part_sums[part], report.parts[part].scored);
    return report;
}

// exp() of a large mean leaves the range of numbers although the mean does not.
status check_text(const text_report &text, const std::filesystem::path &model) {
    double worst = text.nll;
    for (const text_report::part &part : text.parts) worst = std::max(worst, part.nll);
    if (std::isfinite(std::exp(worst))) return success();
    return error{
        format("{}: a negative log-likelihood of {} per token: the model's logits lie so "
               "far apart that its perplexity is no finite number",
               model.string(), worst)};
}

}  // namespace moorage::core
