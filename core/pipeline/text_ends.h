// text_ends.h - where a model's texts end: at tokens, or before texts that may span several tokens.
//
//   stop_stream shown(&rules->texts);
//   print(shown.push(piece));            // never a part of a text to stop at
//   if (shown.has_stopped()) ...         // nothing more comes out
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/model/model.h"
#include "core/model/tokenizer.h"
#include "core/source/model_source.h"

namespace moorage::core {

struct text_end_rules {
    std::vector<int32_t> ids;
    std::vector<std::string> texts;
};

// The rules from [source] stop and from the model. A text that is the name of a special token
// stands for that token, which no text shows. Errors: an id beyond the vocabulary, a text that is
// not UTF-8, texts without a tokenizer.
result<text_end_rules> end_rules_of(const run_config &config, const model &model,
                                    const tokenizer *tokenizer);

// Passes on a text that comes in pieces, up to the first stop: the one that is complete first.
// Among stops that are complete at the same place, it is the longest. So the division into pieces
// does not matter.
class stop_stream {
public:
    // `stops` is borrowed. No stop is empty.
    explicit stop_stream(const std::vector<std::string> *stops) : stops_(stops) {}
    std::string push(std::string_view piece);  // returns what cannot be the beginning of a stop
    std::string finish();                      // returns what was held back
    bool has_stopped() const { return has_stopped_; }

private:
    size_t stop_bytes() const;       // length of the longest stop at the end of the held text; 0:
                                     // none
    size_t beginning_bytes() const;  // length of a stop's beginning at the end of the held text
    const std::vector<std::string> *stops_;
    std::string held_;
    bool has_stopped_ = false;
};

// The text before the first of the stops.
std::string cut_at_stop(std::string_view text, const std::vector<std::string> &stops);

// Tells, token by token, whether the texts of several requests have come to a stop.
class stop_watch {
public:
    stop_watch(const tokenizer &tokenizer, std::vector<std::string> stops)
        : tokenizer_(tokenizer), stops_(std::move(stops)) {}
    // Sees every token of a request in order.
    bool ends_text(uint64_t request, int32_t id);
    void forget(uint64_t request) { texts_.erase(request); }
    const std::vector<std::string> &stops() const { return stops_; }

private:
    const tokenizer &tokenizer_;
    const std::vector<std::string> stops_;
    std::map<uint64_t, std::pair<text_stream, stop_stream>> texts_;
};

// Lets a source end its texts by end_rules_of(). The returned object has to live as long as the
// source. null: there are no texts to stop at.
result<std::unique_ptr<stop_watch>> end_texts(const run_config &config, const model &model,
                                              const tokenizer *tokenizer,
                                              model_source_options &options);

}  // namespace moorage::core
