// texts.h - the requests of a run to a model: makes requests from prompts and texts of a
// configuration, and texts from results.
#pragma once

#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/config/run_config.h"
#include "core/model/model.h"
#include "core/model/tokenizer.h"
#include "core/report/report.h"
#include "core/source/model_source.h"
#include "core/source/sampler.h"

namespace moorage::core {

class stop_watch;

struct text_job {
    std::vector<model_request> requests;
    std::vector<std::string> prompts;     // of requests that are continued
    std::vector<std::string> part_names;  // of a scored text ...
    std::vector<uint32_t> parts;          // ... and for each request the part it belongs to
};

// Makes requests from a configuration's prompts or text. A text file is cut into windows of
// `window` ids, each scored by itself. A *.json file holds windows of ids: a list of lists of ids,
// or an object of parts, each {"windows": list of lists}. Texts may replace the lists of ids. Every
// length and id is checked against the model. Errors name file, place and limit. `tokenizer` may be
// null if the file holds ids.
result<text_job> make_job(const run_config &config, const model &model, const tokenizer *tokenizer);

// How a configuration chooses tokens.
sampling sampling_of(const run_config &config);

// Writes [source] of a report's configuration: the model, its requests, and the sampling if it is
// not greedy.
void describe_texts(const run_config &config, bool is_scored, json &source);

// The result of a text job. Texts end before those of `stops`, if it is not null.
text_report report_of(const text_job &job, const model_source &source, const tokenizer *tokenizer,
                      const std::string &model_name, const stop_watch *stops);
// An error if the likelihood of a text gives no finite perplexity. It names `model`.
status check_text(const text_report &text, const std::filesystem::path &model);

}  // namespace moorage::core
