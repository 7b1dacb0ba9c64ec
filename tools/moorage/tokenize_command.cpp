// tokenize_command.cpp - moorage tokenize: a text's ids, the text of ids, or a comparison with a
// file of known ids.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/model/gguf.h"
#include "core/model/tokenizer.h"
#include "core/model/unicode.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

constexpr size_t mismatches_shown = 10;

struct tokenize_arguments {
    std::string directory, text_file, prompt, vectors_file, json_file;
    std::vector<int32_t> ids;
    bool has_prompt = false, has_text = false, decode = false, plain = false;
};

std::string joined(const std::vector<int32_t> &ids) { return format("{}", fmt::join(ids, " ")); }

// The text first: a file that cannot be written must not take the result with it.
int show(const tokenize_arguments &arguments, const std::string &text, const json &figures) {
    if (arguments.json_file != "-") print(text + "\n");
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, figures); !done)
            return fail(done.failure());
    return exit_ok;
}

std::string read_standard_input() {
    std::string text;
    char buffer[1 << 16];
    while (const size_t bytes = std::fread(buffer, 1, sizeof buffer, stdin))
        text.append(buffer, bytes);
    return text;
}

struct vector_case {
    std::string text;
    std::vector<int32_t> ids;
};

// [{"text", "ids"}...]
result<std::vector<vector_case>> read_vectors(const std::string &file) {
    const result<mapped_file> mapped = mapped_file::open(file);
    if (!mapped) return mapped.failure();
    const auto bytes = mapped->bytes();
    const auto *begin = reinterpret_cast<const char *>(bytes.data());
    const result<json> parsed = read_json({begin, bytes.size()});
    if (!parsed) return error{format("{}: not valid JSON: {}", file, parsed.failure().text)};
    const json &root = *parsed;
    if (!root.is_array()) return error{format("{}: not a JSON list of texts and their ids", file)};
    std::vector<vector_case> cases;
    for (const json &element : root) {
        const auto refused = [&](const char *problem) {
            return error{format("{}: element {}: {}", file, cases.size(), problem)};
        };
        if (!element.is_object() || !element.contains("text") || !element["text"].is_string())
            return refused("text is missing");
        if (!element.contains("ids") || !element["ids"].is_array())
            return refused("ids are missing");
        vector_case entry{element["text"].get<std::string>(), {}};
        for (const json &id : element["ids"]) {
            if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
                return refused("an id has to be a whole number below 2^31");
            entry.ids.push_back(id.get<int32_t>());
        }
        cases.push_back(std::move(entry));
    }
    return cases;
}

int compare(const tokenize_arguments &arguments, const tokenizer &model_tokenizer,
            const encode_options &options) {
    const auto cases = read_vectors(arguments.vectors_file);
    if (!cases) return fail(cases.failure());
    std::string text;
    json mismatches = json::array();
    for (size_t i = 0; i < cases->size(); ++i) {
        const vector_case &known = (*cases)[i];
        const auto ids = model_tokenizer.encode(known.text, options);
        if (ids && *ids == known.ids) continue;
        const std::string got = ids ? joined(*ids) : "error: " + ids.failure().text;
        if (mismatches.size() < mismatches_shown)
            text += format("text {}: {}\n  expected {}\n  got      {}\n", i,
                           json(known.text).dump(), joined(known.ids), got);
        json row = {{"index", i}, {"text", known.text}, {"expected", known.ids}};
        if (ids)
            row["got"] = *ids;
        else
            row["error"] = ids.failure().text;
        mismatches.push_back(std::move(row));
    }
    const size_t wrong = mismatches.size();
    if (wrong > mismatches_shown) text += format("{} more\n", wrong - mismatches_shown);
    text += format("{} texts, {} equal, {} different", cases->size(), cases->size() - wrong, wrong);
    const int code = show(arguments, text,
                          {{"texts", cases->size()},
                           {"equal", cases->size() - wrong},
                           {"mismatches", std::move(mismatches)}});
    return wrong > 0 ? exit_failed : code;
}

int decode(const tokenize_arguments &arguments, const tokenizer &model_tokenizer) {
    for (const int32_t id : arguments.ids)
        if (model_tokenizer.token_of(id).empty())
            return fail({format("{}: no token has the id {}; ids are below {}", arguments.directory,
                                id, model_tokenizer.size())});
    const std::string text =
        model_tokenizer.decode(arguments.ids, {.skip_special = arguments.plain});
    return show(arguments, text, {{"ids", arguments.ids}, {"text", text}});
}

// Until the next release --text may also be the text itself.
result<std::string> text_of(const tokenize_arguments &arguments) {
    if (arguments.has_prompt) return arguments.prompt;
    if (!arguments.has_text) return read_standard_input();
    std::error_code code;
    if (!std::filesystem::exists(arguments.text_file, code)) {
        warn_old_spelling("--text with a text", "--prompt TEXT, or --text FILE");
        return arguments.text_file;
    }
    const auto mapped = mapped_file::open(arguments.text_file);
    if (!mapped) return mapped.failure();
    const auto bytes = mapped->bytes();
    return std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size());
}

int tokenize(const tokenize_arguments &arguments) {
    const std::filesystem::path path = arguments.directory;
    const auto opened =
        is_gguf(path) ? tokenizer::open_for_model(path) : tokenizer::open(path / "tokenizer.json");
    if (!opened) return fail(opened.failure());
    if (*opened == nullptr) return fail({format("{}: has no tokenizer", arguments.directory)});
    const tokenizer &model_tokenizer = **opened;
    const encode_options options{.add_special = !arguments.plain,
                                 .parse_special = !arguments.plain};
    if (arguments.decode) return decode(arguments, model_tokenizer);
    if (!arguments.vectors_file.empty()) return compare(arguments, model_tokenizer, options);
    const auto text = text_of(arguments);
    if (!text) return fail(text.failure());
    const status read = check_utf8(*text, arguments.has_prompt  ? "--prompt"
                                          : !arguments.has_text ? "standard input"
                                                                : arguments.text_file);
    if (!read) return fail(read.failure());
    const auto ids = model_tokenizer.encode(*text, options);
    if (!ids) return fail(ids.failure());
    std::vector<std::string> tokens;
    for (const int32_t id : *ids) tokens.emplace_back(model_tokenizer.token_of(id));
    return show(arguments, joined(*ids), {{"ids", *ids}, {"tokens", std::move(tokens)}});
}

}  // namespace

command install_tokenize(parser &app) {
    parser *sub =
        app.add_subcommand("tokenize", "show the token ids of a text, or the text of token ids");
    const auto arguments = std::make_shared<tokenize_arguments>();
    sub->add_option("model", arguments->directory,
                    "directory with a tokenizer.json, or a GGUF file")
        ->required()
        ->type_name("MODEL_DIR");
    option *prompt = sub->add_option("--prompt", arguments->prompt,
                                     "text to tokenize, instead of standard input")
                         ->type_name("TEXT");
    option *text =
        sub->add_option("--text", arguments->text_file, "text file to tokenize")->type_name("FILE");
    option *vectors =
        sub->add_option("--vectors", arguments->vectors_file,
                        "compare with [{\"text\", \"ids\"}...]; exit code 1 if they differ")
            ->type_name("FILE.json");
    option *ids = sub->add_option("--decode", arguments->ids, "show the text of these ids")
                      ->type_name("ID...");
    text->excludes(prompt)->excludes(vectors)->excludes(ids);
    prompt->excludes(vectors)->excludes(ids);
    vectors->excludes(ids);
    sub->add_flag("--plain", arguments->plain,
                  "do not add or read special tokens; --decode leaves them out");
    add_json(*sub, arguments->json_file, "the result");
    return [arguments, prompt, text, ids] {
        arguments->has_prompt = prompt->count() > 0;
        arguments->has_text = text->count() > 0;
        arguments->decode = ids->count() > 0;
        return tokenize(*arguments);
    };
}

}  // namespace moorage::tool
