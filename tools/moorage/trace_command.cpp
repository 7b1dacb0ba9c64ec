// trace_command.cpp - `moorage trace`: shows traces, makes synthetic ones, converts logs to traces.
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/source/convert.h"
#include "core/source/synth.h"
#include "core/source/trace_write.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/trace_info.h"
#include "tools/moorage/trace_record.h"

namespace moorage::tool {

using core::error, core::format, core::result, core::status;

namespace {

int exit_code(const status &done) { return done ? exit_ok : fail(done.failure()); }

struct info_options {
    std::string file, json;
};

status info(const info_options &options) {
    const result<core::trace> opened = core::trace::open(options.file);
    if (!opened) return opened.failure();
    // Reads the header again, for the file's list of tensors.
    const result<core::mapped_file> file = core::mapped_file::open(options.file);
    if (!file) return file.failure();
    result<core::safetensors> header = core::parse_safetensors(file->bytes(), options.file);
    if (!header) return header.failure();
    const trace_summary summary{*opened, std::move(*header), core::measure(*opened)};
    if (options.json != "-") print(text_of(summary));
    if (options.json.empty()) return core::success();
    return write_json(options.json, json_of(summary));
}

command install_info(parser &app) {
    parser *sub =
        app.add_subcommand("info", "show the content of a trace, and statistics of its routing");
    const auto options = std::make_shared<info_options>();
    sub->add_option("file", options->file, "trace file (*.safetensors)")->required();
    add_json(*sub, options->json, "the figures");
    return [options] { return exit_code(info(*options)); };
}

struct synth_arguments {
    core::synth_options options;
    std::string out_file;
    setting_options settings;
};

status synthesize(const synth_arguments &arguments) {
    constexpr std::string_view used[] = {"run.seed", "run.tokens"};
    const auto overrides = read_settings(arguments.settings);
    const auto keys = read_alone(arguments.settings, "trace synth", used);
    if (!keys) return keys.failure();
    core::synth_options options = arguments.options;
    if (has_setting(*overrides, used[0])) options.seed = keys->seed;
    if (has_setting(*overrides, used[1])) options.tokens = keys->tokens;
    return core::write_synthetic(options, arguments.out_file);
}

command install_synth(parser &app) {
    parser *sub =
        app.add_subcommand("synth",
                           "make a trace at random: each layer ranks its experts at random and "
                           "draws them without replacement, with weight 1 / (rank + b)^a");
    const auto arguments = std::make_shared<synth_arguments>();
    core::synth_options &o = arguments->options;
    sub->add_option("--out", arguments->out_file, "file to write")->required();
    sub->add_option("--layers", o.layers, "number of MoE layers")->capture_default_str();
    sub->add_option("--experts", o.experts, "experts per layer")->capture_default_str();
    sub->add_option("--top-k", o.top_k, "experts per token and layer")->capture_default_str();
    add_set(*sub, arguments->settings);
    add_flag_of_key(*sub, arguments->settings, "--tokens",
                    format("number of tokens in all requests together; default {}", o.tokens));
    sub->add_option("--requests", o.requests, "number of requests, of equal length")
        ->capture_default_str();
    sub->add_option("--a", o.a, "exponent of the ranks; 0: all experts are equally likely")
        ->capture_default_str();
    sub->add_option("--b", o.b, "number added to the ranks, which begin at 1")
        ->capture_default_str();
    sub->add_option("--reuse", o.reuse,
                    "probability that a token keeps an expert of the previous token, 0 to 1")
        ->capture_default_str();
    sub->add_option("--domains", o.domains,
                    "number of kinds of requests; each has its own rankings")
        ->capture_default_str();
    sub->add_option("--drift", o.drift,
                    "number of swaps of neighbouring ranks, per ranking and token")
        ->capture_default_str();
    sub->add_flag("--gate-scores", o.gate_scores,
                  "add scores of all experts, in agreement with the choice");
    sub->add_option("--predictions", o.predictions,
                    "number of predicted experts per token and layer")
        ->capture_default_str();
    sub->add_option("--prediction-accuracy", o.prediction_accuracy,
                    "share of the chosen experts that are predicted, 0 to 1")
        ->capture_default_str();
    add_flag_of_key(*sub, arguments->settings, "--seed",
                    format("random seed; equal seeds give equal files; default {}", o.seed));
    return [arguments] { return exit_code(synthesize(*arguments)); };
}

struct convert_arguments {
    core::convert_options options;
    std::string input_file, out_file, tokens;
    std::vector<std::string> drop, meta, layers;
    bool wide = false;
};

struct range {
    uint64_t first = 0, last = 0;
};

// "A:B" within `tokens`; either side may be empty.
result<range> parse_range(const std::string &text, uint64_t tokens) {
    range parsed{0, tokens};
    const std::vector<std::string> sides = core::split(text, ':');
    bool right = text.empty() || sides.size() == 2;
    for (size_t side = 0; right && side < 2 && !text.empty(); ++side) {
        const char *begin = sides[side].data(), *end = begin + sides[side].size();
        if (begin == end) continue;
        const auto [stop, code] =
            std::from_chars(begin, end, side == 0 ? parsed.first : parsed.last);
        right = code == std::errc() && stop == end;
    }
    if (!right) return error{format("--tokens {}: not two numbers like 0:1000", text), true};
    if (parsed.first >= parsed.last || parsed.last > tokens)
        return error{
            format("--tokens {}: holds no token or ends above the {} of the trace", text, tokens),
            true};
    return parsed;
}

// Layers of a log: "1:", "2:5", "7". Empty for any other text.
std::optional<core::layer_range> parse_layers(const std::string &text) {
    const std::vector<std::string> sides = core::split(text, ':');
    core::layer_range range;
    if (text.empty() || sides.size() > 2) return std::nullopt;
    for (size_t side = 0; side < sides.size(); ++side) {
        const std::string &number = sides[side];
        if (number.empty() && sides.size() == 2) continue;
        const char *const end = number.data() + number.size();
        const auto [stop, wrong] =
            std::from_chars(number.data(), end, side == 0 ? range.first : range.last);
        if (wrong != std::errc() || stop != end) return std::nullopt;
    }
    if (sides.size() == 1) range.last = range.first + 1;
    return range.first < range.last ? std::optional(range) : std::nullopt;
}

status read_layers(const convert_arguments &arguments, std::vector<core::layer_range> &ranges) {
    for (const std::string &text : arguments.layers) {
        const auto range = parse_layers(text);
        if (!range)
            return error{format("--layers {}: a number, or A:B for layers A to B - 1, is needed; "
                                "1: keeps all but the first",
                                text),
                         true};
        ranges.push_back(*range);
    }
    return core::success();
}

bool is_trace(const std::string &file) { return file.ends_with(".safetensors"); }

result<core::trace_data> read_input(const convert_arguments &arguments) {
    if (!is_trace(arguments.input_file)) {
        if (!arguments.tokens.empty())
            return error{"--tokens cuts traces, not logs: convert first", true};
        core::convert_options options = arguments.options;
        if (const status read = read_layers(arguments, options.layers); !read)
            return read.failure();
        return core::convert_log(arguments.input_file, options);
    }
    if (!arguments.options.format.empty() || arguments.options.experts != 0 || arguments.wide ||
        !arguments.layers.empty())
        return error{"--format, --experts, --layers and --wide are for logs, not for a trace",
                     true};
    const result<core::trace> source = core::trace::open(arguments.input_file);
    if (!source) return source.failure();
    const result<range> tokens = parse_range(arguments.tokens, source->tokens());
    if (!tokens) return tokens.failure();
    core::trace_data cut = core::cut_trace(*source, tokens->first, tokens->last - tokens->first);
    if (const status same = core::mapped_files_unchanged(); !same) return same.failure();
    return cut;
}

status convert(convert_arguments &arguments) {
    arguments.options.half = !arguments.wide;
    result<core::trace_data> data = read_input(arguments);
    if (!data) return data.failure();
    for (const std::string &name : arguments.drop)
        if (const status dropped = core::drop_tensor(*data, name); !dropped) return dropped;
    for (const std::string &pair : arguments.meta) {
        const size_t equals = pair.find('=');
        if (equals == 0 || equals == std::string::npos)
            return error{format("--meta {}: not of the form key=value", pair), true};
        data->metadata[pair.substr(0, equals)] = pair.substr(equals + 1);
    }
    if (const status written = core::write_trace(*data, arguments.out_file); !written)
        return written;
    // Reads the file back, so that a wrong file is found here and not at its first use.
    if (const result<core::trace> check = core::trace::open(arguments.out_file); !check)
        return check.failure();
    print(format("{}: {} tokens, {} requests, {} layers of {} experts, top-{}\n",
                 arguments.out_file, data->tokens, data->request_offsets.size() - 1, data->layers,
                 data->experts, data->top_k));
    return core::success();
}

command install_convert(parser &app) {
    parser *sub =
        app.add_subcommand("convert", "convert a log (CSV, JSON lines) to a trace, or cut a trace");
    const auto arguments = std::make_shared<convert_arguments>();
    sub->add_option("input", arguments->input_file,
                    "*.csv, *.tsv, *.jsonl, *.ndjson or *.safetensors")
        ->required();
    sub->add_option("--out", arguments->out_file, "trace file to write")->required();
    sub->add_option("--format", arguments->options.format,
                    "format of a log: csv or jsonl; default: by its name")
        ->one_of({"csv", "jsonl"});
    sub->add_option("--experts", arguments->options.experts,
                    "experts per layer in a log; default: the largest id plus one");
    sub->add_option("--layers", arguments->layers,
                    "layers of a log to keep: numbers and ranges A:B, with commas; 1: leaves out "
                    "the first layer, which has no experts in many models")
        ->delimiter(',');
    sub->add_flag("--wide", arguments->wide,
                  "store the weights of a log as 32-bit floats, not 16-bit");
    sub->add_option("--tokens", arguments->tokens, "keep tokens A to B - 1 of a trace, as A:B");
    sub->add_option("--drop", arguments->drop,
                    "optional tensors to leave out, with commas between them")
        ->delimiter(',');
    sub->add_option("--meta", arguments->meta, "key=value for the metadata; repeatable")
        ->allow_extra_args(false);
    sub->footer(
        "CSV: the first line names the columns token, layer, and expert0, expert1, ... (or\n"
        "experts, with spaces between the ids); optional weight0, ... (or weights), request,\n"
        "token_id. JSON lines: {\"experts\": [[3, 1], ...], \"weights\": ...} per token, or\n"
        "{\"token\": 0, \"layer\": 0, \"experts\": [3, 1], ...} per token and layer; optional\n"
        "request and token_id.");
    return [arguments] { return exit_code(convert(*arguments)); };
}

}  // namespace

command install_trace(parser &app) {
    parser *sub = app.add_subcommand("trace", "show, make, convert and record routing traces");
    sub->require_subcommand(1);
    // shared: std::function wants copies, and the list is the same for all of them
    using entries = std::vector<std::pair<parser *, command>>;
    const auto parts = std::make_shared<entries>();
    for (const auto install : {install_info, install_synth, install_convert, install_record}) {
        command action = install(*sub);
        parts->emplace_back(sub->last_subcommand(), std::move(action));
    }
    return [parts] {
        for (const auto &[part, action] : *parts)
            if (part->parsed()) return action();
        return exit_usage;
    };
}

}  // namespace moorage::tool
