// texts.h - what a run asks of a model: prompts and texts of a configuration as requests, and back.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "core/model/model.h"
#include "core/model/tokenizer.h"
#include "core/report/report.h"
#include "core/source/model_source.h"

namespace moorage::core {

struct text_job {
    std::vector<model_request> requests;
    std::vector<std::string> prompts;     // of requests that are continued
    std::vector<std::string> part_names;  // of a scored text ...
    std::vector<uint32_t> parts;          // ... and for each request the part it belongs to
};

// Requests of a configuration's prompts or text. A text file is cut into windows of `window` ids,
// each scored by itself; a *.json holds windows of ids: a list of lists of ids, or an object of
// parts, each {"windows": list of lists}, or with texts in place of the lists of ids. Every length
// and id is checked against the model. Errors name file, place and limit. `words` may be null where
// the file holds ids.
result<text_job> make_job(const run_config &config, const model &of, const tokenizer *words);

// What came of it.
text_report report_of(const text_job &job, const model_source &from, const tokenizer *words,
                      const std::string &model_name);
// An error where the likelihood of a text gives no finite perplexity; `model` is told of.
status check_text(const text_report &text, const std::filesystem::path &model);

}  // namespace moorage::core
