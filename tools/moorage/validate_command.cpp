// validate_command.cpp - moorage validate: compares the emulator with published measurements.
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/document.h"
#include "tools/validate/validation.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct validate_arguments {
    std::string file, pairs_file, shapes_file, json_file, html_file;
};

result<csv_table> read_table(const std::string &file) {
    const auto text = read_document(file);
    if (!text) return text.failure();
    return csv_table::parse(*text, file);
}

// A file beside the measurements may have shapes that no model file has.
result<setting_sources> read_sources(const validate_arguments &arguments) {
    setting_sources sources{".", {}};
    std::filesystem::path file = arguments.shapes_file;
    if (file.empty()) {
        file = std::filesystem::path(arguments.file).parent_path() / "shapes.csv";
        std::error_code code;
        if (!std::filesystem::is_regular_file(file, code)) return sources;
    }
    const auto table = read_table(file.string());
    if (!table) return table.failure();
    auto shapes = read_shapes(*table, sources.base);
    if (!shapes) return shapes.failure();
    sources.shapes = std::move(*shapes);
    return sources;
}

result<validation> validate_files(const validate_arguments &arguments) {
    const auto sources = read_sources(arguments);
    if (!sources) return sources.failure();
    const auto rows = read_table(arguments.file);
    if (!rows) return rows.failure();
    if (arguments.pairs_file.empty()) return validate(*rows, nullptr, *sources);
    const auto pairs = read_table(arguments.pairs_file);
    if (!pairs) return pairs.failure();
    return validate(*rows, &*pairs, *sources);
}

std::string command_line(const validate_arguments &arguments) {
    std::string line = "moorage validate " + arguments.file;
    if (!arguments.pairs_file.empty()) line += " --pairs " + arguments.pairs_file;
    if (!arguments.shapes_file.empty()) line += " --shapes " + arguments.shapes_file;
    return line + " --html " + arguments.html_file;
}

int run_validate(const validate_arguments &arguments) {
    const auto found = validate_files(arguments);
    if (!found) return fail(found.failure());
    if (arguments.json_file != "-") print(to_text(*found));
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, to_json(*found)); !done)
            return fail(done.failure());
    if (!arguments.html_file.empty()) {
        if (const status done =
                write_text(arguments.html_file, to_html(*found, command_line(arguments)));
            !done)
            return fail(done.failure());
        print_written("HTML report", arguments.html_file, arguments.json_file);
    }
    return exit_ok;
}

}  // namespace

command install_validate(parser &app) {
    parser *sub =
        app.add_subcommand("validate", "compare the emulator with published measurements");
    const auto arguments = std::make_shared<validate_arguments>();
    sub->add_option("file", arguments->file,
                    "measurements, one per row; docs/validate.md lists the columns")
        ->required()
        ->type_name("FILE.csv");
    sub->add_option("--pairs", arguments->pairs_file,
                    "file of pairs of rows, and how much slower one is")
        ->type_name("FILE.csv");
    sub->add_option("--shapes", arguments->shapes_file,
                    "model shapes that have no file; default: shapes.csv beside the measurements")
        ->type_name("FILE.csv");
    add_json(*sub, arguments->json_file, "the figures");
    sub->add_option("--html", arguments->html_file, "write a page with a scatter plot of all rows")
        ->type_name("FILE");
    sub->footer(
        "Emulates each row on its machine with its engine (hw_profiles/engine), and shows the "
        "figure beside\n"
        "the published one, by class. Rows that cannot be emulated are listed with the reason.");
    return [arguments] { return run_validate(*arguments); };
}

}  // namespace moorage::tool
