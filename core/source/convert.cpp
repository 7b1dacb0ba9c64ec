// convert.cpp - chooses the format and adds the line to errors.
#include "core/source/convert.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

#include "core/base/foreign_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/source/log_reader.h"

namespace moorage::core {

namespace {

// Leaves the stream at its position.
std::string foreign_beginning(std::istream &input) {
    if (!input) return {};
    std::array<char, foreign_bytes> begin{};
    input.read(begin.data(), begin.size());
    const auto bytes = static_cast<size_t>(input.gcount());
    input.clear();
    input.seekg(0);
    return non_text_problem(std::as_bytes(std::span(begin.data(), bytes)));
}

}  // namespace

result<trace_data> convert_stream(std::istream &input, const std::string &name,
                                  const convert_options &options) {
    log_builder builder(options.half, options.layers, options.experts);
    line_reader lines(input);
    const status read =
        options.format == "csv" ? read_csv(lines, builder) : read_json_lines(lines, builder);
    if (!read) return error{format("{}:{}: {}", name, lines.number(), read.failure().text)};
    result<trace_data> trace = builder.finish();
    if (!trace) return error{format("{}:{}: {}", name, lines.number(), trace.failure().text)};
    return trace;
}

result<trace_data> convert_log(const std::filesystem::path &path, const convert_options &options) {
    std::error_code code;
    if (std::filesystem::exists(path, code) && !std::filesystem::is_regular_file(path, code))
        return error{format("{}: is {}, a log is a regular file", path.string(),
                            std::filesystem::is_directory(path, code)
                                ? "a directory"
                                : "a named pipe, a socket or a device")};
    std::ifstream input(path, std::ios::binary);
    const int reason = errno;
    // Checked before the file's name, which may also tell the problem (".gz").
    if (const std::string foreign = foreign_beginning(input); !foreign.empty())
        return error{format("{}: {}", path.string(), foreign)};
    convert_options chosen = options;
    const std::string ending = path.extension().string();
    if (chosen.format.empty() && (ending == ".csv" || ending == ".tsv")) chosen.format = "csv";
    if (chosen.format.empty() && (ending == ".jsonl" || ending == ".ndjson"))
        chosen.format = "jsonl";
    if (chosen.format != "csv" && chosen.format != "jsonl")
        return error{format("{}: format {} is not csv or jsonl; give --format", path.string(),
                            chosen.format.empty() ? "of ending " + printable(ending)
                                                  : printable(chosen.format)),
                     true};
    if (!input) return error{format("{}: cannot open: {}", path.string(), std::strerror(reason))};
    return convert_stream(input, path.string(), chosen);
}

}  // namespace moorage::core
