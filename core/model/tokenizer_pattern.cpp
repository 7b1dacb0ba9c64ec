// tokenizer_pattern.cpp - PCRE2 with its just-in-time compiler, and with limits.
#include "core/model/tokenizer_pattern.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/base/text.h"
#include "core/model/tokenizer_regex.h"
#include "core/model/unicode.h"

namespace moorage::core {

namespace {

constexpr size_t pattern_bytes_max = 1 << 16;
constexpr uint32_t heap_kilobytes_max = 64 * 1024;
constexpr uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;

struct code_deleter {
    void operator()(pcre2_code *code) const { pcre2_code_free(code); }
};
struct context_deleter {
    void operator()(pcre2_match_context *context) const { pcre2_match_context_free(context); }
    void operator()(pcre2_compile_context *context) const { pcre2_compile_context_free(context); }
    void operator()(pcre2_match_data *data) const { pcre2_match_data_free(data); }
};
using code_pointer = std::unique_ptr<pcre2_code, code_deleter>;

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message_of(int code) {
    PCRE2_UCHAR text[256];
    if (pcre2_get_error_message(code, text, sizeof text) < 0) return format("error {}", code);
    return reinterpret_cast<const char *>(text);
}

result<code_pointer> compile(const std::string &text) {
    const std::unique_ptr<pcre2_compile_context, context_deleter> context(
        pcre2_compile_context_create(nullptr));
    if (!context) return error{"no memory for a pattern"};
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE error_offset = 0;
    code_pointer compiled(
        pcre2_compile(units(text), text.size(), options, &code, &error_offset, context.get()));
    if (!compiled) return error{message_of(code)};
    return compiled;
}

bool compiles(const std::string &piece) { return compile(piece).ok(); }

// Steps of backtracking before a match is given up. Every alternative may go to the end of the text
// and back. A pattern that tries all ways to split a text needs far more.
uint32_t steps_max(size_t text_bytes) {
    return static_cast<uint32_t>(
        std::min<uint64_t>(500'000 + 32 * uint64_t{text_bytes}, UINT32_MAX));
}

}  // namespace

struct pattern::compiled {
    code_pointer code;
};

pattern::pattern() = default;
pattern::~pattern() = default;
pattern::pattern(pattern &&) noexcept = default;
pattern &pattern::operator=(pattern &&) noexcept = default;

result<pattern> pattern::literal(std::string text) {
    if (text.empty()) return regex("");
    pattern created;
    created.literal_ = std::move(text);
    return created;
}

result<pattern> pattern::regex(const std::string &text) {
    if (text.size() > pattern_bytes_max)
        return error{
            format("a pattern of {} bytes, {} is the limit", text.size(), pattern_bytes_max)};
    const result<std::string> translated = to_pcre2(text, compiles);
    if (!translated)
        return error{format("pattern \"{}\": cannot use {}", text, translated.failure().text)};
    result<code_pointer> code = compile(*translated);
    if (!code) return error{format("pattern \"{}\": {}", text, code.failure().text)};
    // If compilation fails (too large a pattern, a machine that forbids it), matching is only
    // slower.
    pcre2_jit_compile(code->get(), PCRE2_JIT_COMPLETE);
    pattern created;
    created.source_ = text;
    created.compiled_ = std::make_unique<compiled>(compiled{std::move(code).value()});
    return created;
}

status pattern::find_all(std::string_view text, std::vector<text_range> &matches) const {
    if (!compiled_) {
        for (size_t position = 0; (position = text.find(literal_, position)) != text.npos;
             position += literal_.size())
            matches.push_back({position, position + literal_.size()});
        return success();
    }
    const pcre2_code *code = compiled_->code.get();
    const std::unique_ptr<pcre2_match_context, context_deleter> context(
        pcre2_match_context_create(nullptr));
    const std::unique_ptr<pcre2_match_data, context_deleter> match_data(
        pcre2_match_data_create_from_pattern(code, nullptr));
    if (!context || !match_data)
        return error{format("pattern \"{}\": no memory to match", source_)};
    pcre2_set_match_limit(context.get(), steps_max(text.size()));
    pcre2_set_depth_limit(context.get(), steps_max(text.size()));
    pcre2_set_heap_limit(context.get(), heap_kilobytes_max);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match_data.get());
    size_t last_end = SIZE_MAX;
    for (size_t position = 0; position <= text.size();) {
        const auto match = [&](uint32_t extra_options) {
            return pcre2_match(code, units(text), text.size(), position,
                               PCRE2_NO_UTF_CHECK | extra_options, match_data.get(), context.get());
        };
        int match_code = match(0);
        // The compiled code has its own small stack. The slower way uses memory instead.
        if (match_code == PCRE2_ERROR_JIT_STACKLIMIT) match_code = match(PCRE2_NO_JIT);
        if (match_code == PCRE2_ERROR_NOMATCH) break;
        if (match_code < 0)
            return error{format("pattern \"{}\": gave up in a text of {} bytes at byte {}: {}",
                                source_, text.size(), position, message_of(match_code))};
        const text_range match_range{range[0], range[1]};
        if (match_range.begin < position || match_range.end < match_range.begin)
            return error{format("pattern \"{}\" matches backwards", source_)};
        position = match_range.end;
        if (match_range.begin == match_range.end && match_range.end == last_end) {
            if (position == text.size()) break;
            next_character(text, position);
            continue;
        }
        last_end = position;
        matches.push_back(match_range);
    }
    return success();
}

}  // namespace moorage::core
