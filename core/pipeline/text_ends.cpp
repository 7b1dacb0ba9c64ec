// text_ends.cpp - ids and names of [source] stop, and texts looked for byte by byte.
#include "core/pipeline/text_ends.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/model/unicode.h"

namespace moorage::core {

result<text_end_rules> end_rules_of(const run_config &config, const model &model,
                                    const tokenizer *tokenizer) {
    text_end_rules rules;
    const auto add_id = [&](int32_t id) {
        if (std::ranges::find(rules.ids, id) == rules.ids.end()) rules.ids.push_back(id);
    };
    if (config.stop.at_model_ends) {
        for (const int32_t id : model.generation().end_ids) add_id(id);
        for (const int32_t id : model.generation().named_end_ids) add_id(id);
    }
    for (const int32_t id : config.stop.ids) {
        if (static_cast<uint32_t>(id) >= model.config().vocabulary)
            return error{format("[source] stop: token {} is beyond the vocabulary of {}: ids are "
                                "below {}",
                                id, config.model.string(), model.config().vocabulary),
                         true};
        add_id(id);
    }
    for (const std::string &text : config.stop.texts) {
        if (!tokenizer)
            return error{format("[source] stop: text needs a tokenizer, and {} has no {}; give ids",
                                config.model.string(), tokenizer_place(config.model)),
                         true};
        if (const status read = check_utf8(text, "[source] stop"); !read) return read.failure();
        const int32_t id = tokenizer->id_of(text);
        if (id >= 0 && tokenizer->is_special(id))
            add_id(id);
        else
            rules.texts.push_back(text);
    }
    return rules;
}

size_t stop_stream::stop_bytes() const {
    size_t longest = 0;
    for (const std::string &stop : *stops_)
        if (stop.size() > longest && held_.ends_with(stop)) longest = stop.size();
    return longest;
}

size_t stop_stream::beginning_bytes() const {
    size_t longest = 0;
    for (const std::string &stop : *stops_)
        for (size_t bytes = std::min(stop.size() - 1, held_.size()); bytes > longest; --bytes)
            if (held_.ends_with(std::string_view(stop).substr(0, bytes))) longest = bytes;
    return longest;
}

std::string stop_stream::push(std::string_view piece) {
    if (has_stopped_) return "";
    if (stops_->empty()) return std::string(piece);
    for (const char byte : piece) {
        held_ += byte;
        const size_t stop = stop_bytes();
        if (stop == 0) continue;
        has_stopped_ = true;
        held_.resize(held_.size() - stop);
        return std::exchange(held_, "");
    }
    const size_t certain = held_.size() - beginning_bytes();
    std::string passed = held_.substr(0, certain);
    held_.erase(0, certain);
    return passed;
}

std::string stop_stream::finish() { return std::exchange(held_, ""); }

std::string cut_at_stop(std::string_view text, const std::vector<std::string> &stops) {
    stop_stream shown(&stops);
    std::string passed = shown.push(text);
    return passed + shown.finish();
}

result<std::unique_ptr<stop_watch>> end_texts(const run_config &config, const model &model,
                                              const tokenizer *tokenizer,
                                              model_source_options &options) {
    auto rules = end_rules_of(config, model, tokenizer);
    if (!rules) return rules.failure();
    options.end_ids = std::move(rules->ids);
    std::unique_ptr<stop_watch> watch;
    if (rules->texts.empty()) return watch;
    watch = std::make_unique<stop_watch>(*tokenizer, std::move(rules->texts));
    options.ends_text = [stops = watch.get()](uint64_t request, int32_t id) {
        return stops->ends_text(request, id);
    };
    options.on_end = [stops = watch.get()](uint64_t request) { stops->forget(request); };
    return watch;
}

bool stop_watch::ends_text(uint64_t request, int32_t id) {
    auto entry = texts_.find(request);
    if (entry == texts_.end())
        entry =
            texts_.emplace(request, std::pair(text_stream(tokenizer_, {}), stop_stream(&stops_)))
                .first;
    auto &[text, stops] = entry->second;
    stops.push(text.push(id));
    return stops.has_stopped();
}

}  // namespace moorage::core
