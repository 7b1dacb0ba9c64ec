// validate_command.cpp - moorage validate: compares the emulator with published measurements.
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/document.h"
#include "core/validate/validation.h"
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
result<setting_sources> read_sources(const validate_arguments &given) {
    setting_sources sources{".", {}};
    std::filesystem::path file = given.shapes_file;
    if (file.empty()) {
        file = std::filesystem::path(given.file).parent_path() / "shapes.csv";
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

result<validation> validate_files(const validate_arguments &given) {
    const auto sources = read_sources(given);
    if (!sources) return sources.failure();
    const auto rows = read_table(given.file);
    if (!rows) return rows.failure();
    if (given.pairs_file.empty()) return validate(*rows, nullptr, *sources);
    const auto pairs = read_table(given.pairs_file);
    if (!pairs) return pairs.failure();
    return validate(*rows, &*pairs, *sources);
}

std::string command_line(const validate_arguments &given) {
    std::string line = "moorage validate " + given.file;
    if (!given.pairs_file.empty()) line += " --pairs " + given.pairs_file;
    if (!given.shapes_file.empty()) line += " --shapes " + given.shapes_file;
    return line + " --html " + given.html_file;
}

int run_validate(const validate_arguments &given) {
    const auto found = validate_files(given);
    if (!found) return fail(found.failure());
    if (given.json_file != "-") print(to_text(*found));
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, to_json(*found)); !done)
            return fail(done.failure());
    if (!given.html_file.empty()) {
        if (const status done = write_text(given.html_file, to_html(*found, command_line(given)));
            !done)
            return fail(done.failure());
        print_written("HTML report", given.html_file, given.json_file);
    }
    return exit_ok;
}

}  // namespace

command install_validate(parser &app) {
    parser *sub =
        app.add_subcommand("validate", "compare the emulator with published measurements");
    const auto given = std::make_shared<validate_arguments>();
    sub->add_option("file", given->file,
                    "measurements, one per row; docs/validate.md lists the columns")
        ->required()
        ->type_name("FILE.csv");
    sub->add_option("--pairs", given->pairs_file,
                    "file of pairs of rows, and how much slower one is")
        ->type_name("FILE.csv");
    sub->add_option("--shapes", given->shapes_file,
                    "model shapes that have no file; default: shapes.csv beside the measurements")
        ->type_name("FILE.csv");
    add_json(*sub, given->json_file, "the figures");
    sub->add_option("--html", given->html_file, "write a page with a scatter plot of all rows")
        ->type_name("FILE");
    sub->footer(
        "Emulates each row on its machine with its engine (hw_profiles/engine), and shows the "
        "figure beside\n"
        "the published one, by class. Rows that cannot be emulated are listed with the reason.");
    return [given] { return run_validate(*given); };
}

}  // namespace moorage::tool
