// output.cpp - files and settings, as every command writes and reads them.
#include "tools/moorage/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

#include "core/base/atomic_file.h"
#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/partial_files.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "core/host/supervise.h"
#include "core/report/figures.h"
#include "core/report/odd_figure.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

int output_errno = 0;                // first failed write to standard output
std::FILE *report_output = nullptr;  // null: standard output itself
size_t columns = 0;                  // width of a terminal out of reach; 0: it can be asked

std::FILE *output() { return report_output ? report_output : stdout; }

bool output_begun = false;

void write_output(std::string_view shown) {
    output_begun = output_begun || !shown.empty();
    if (std::fwrite(shown.data(), 1, shown.size(), output()) != shown.size() && output_errno == 0)
        output_errno = errno;
}

// The file that a name stands for, as far as known before it exists.
std::filesystem::path resolved(const std::string &file) {
    std::error_code code;
    const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(file), code);
    return code ? std::filesystem::path(file).lexically_normal() : path;
}

// nlohmann escapes only the characters that JSON requires. This escapes other control characters,
// so that the text stays exact and a terminal does not obey them.
std::string escaped(const std::string &document) {
    std::string safe;
    safe.reserve(document.size());
    for (size_t position = 0; position < document.size(); ++position) {
        const auto byte = static_cast<unsigned char>(document[position]);
        const auto next = static_cast<unsigned char>(document.c_str()[position + 1]);
        const bool second_set = byte == 0xC2 && next < 0xA0;  // U+0080 to U+009F
        if (byte == 0x7F || second_set)
            safe += format("\\u00{:02x}", second_set ? next : byte);
        else
            safe += document[position];
        if (second_set) ++position;
    }
    return safe;
}

}  // namespace

void secure_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
        // open() takes the lowest free number, which is this one. Using it stays an error: an input
        // cannot be read, and an output cannot be written.
        const int open_mode = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (::open("/dev/null", open_mode) < 0) ::open("/", O_RDONLY | O_DIRECTORY);
    }
}

void keep_output_apart() {
    constexpr int least = 3;  // above the three that every program has
    const int descriptor = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, least);
    if (descriptor < 0 || fcntl(STDERR_FILENO, F_GETFD) < 0) return;
    report_output = fdopen(descriptor, "w");  // not of one that cannot be written
    if (report_output)
        dup2(STDERR_FILENO, STDOUT_FILENO);
    else
        close(descriptor);
}

void print_through_parent() {
    if (!report_output || !has_printing_parent()) return;
    columns = output_columns();
    std::fclose(std::exchange(report_output, nullptr));
}

bool has_output_begun() { return output_begun; }

int print_for_child(std::string_view shown, core::printed_on target) {
    if (target == core::printed_on::errors)
        std::fwrite(shown.data(), 1, shown.size(), stderr);
    else
        write_output(shown);
    output_failed();
    return output_errno;
}

int end_interrupted(int signal) {
    finish_output(exit_failed);
    core::end_by(signal);
    return exit_failed;
}

std::string name_of_signal(int signal) {
    const char *name = sigabbrev_np(signal);
    return name ? std::string("SIG") + name : format("signal {}", signal);
}

void print(std::string_view text) {
    const std::string shown = visible(text);
    if (has_printing_parent())
        print_by_parent(shown);
    else
        write_output(shown);
}

size_t output_columns() {
    if (columns != 0) return columns;
    winsize screen{};
    if (ioctl(fileno(output()), TIOCGWINSZ, &screen) != 0 || screen.ws_col == 0) return 100;
    return std::clamp<size_t>(screen.ws_col, core::text_columns, 160);
}

bool output_failed() {
    if (has_printing_parent()) return print_errno_of_parent() != 0;
    if (std::fflush(output()) != 0 && output_errno == 0) output_errno = errno;
    return output_errno != 0 || std::ferror(output()) != 0;
}

void print_error(std::string_view text) {
    const std::string shown = visible(text);
    // In order with the output, and whatever a policy did to the descriptors or limits here.
    if (has_printing_parent())
        print_by_parent(shown, printed_on::errors);
    else
        std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void warn_old_spelling(const std::string &old, const std::string &now) {
    print_error(
        format("moorage: {}: write {}; the old spelling goes with the next release\n", old, now));
}

int fail(const error &reason) {
    print_error(format("moorage: {}\n", with_short_words(reason.text)));
    return reason.usage ? exit_usage : exit_failed;
}

void print_written(std::string_view title, const std::string &file, const std::string &json_file) {
    (json_file == "-" ? print_error : print)(format("{}: {}\n", title, file));
}

int finish_output(int code) {
    // Runs and replays check their files before they give figures. Other input files are checked
    // only now.
    if (const status same = mapped_files_unchanged(); !same && code == exit_ok)
        code = fail(same.failure());
    if (has_printing_parent() || !output_failed()) return code;  // the parent looks itself
    const std::string reason = output_errno == 0 ? "" : format(": {}", std::strerror(output_errno));
    const int failed = fail({"standard output cannot be written" + reason});
    return code == exit_ok ? failed : code;
}

status check_outputs(const std::vector<std::pair<std::string, std::string>> &outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].second.empty())
            return error{format("{} is given no name; give the file's, or - for standard output",
                                outputs[i].first),
                         true};
        if (outputs[i].second.size() > 1 && outputs[i].second.starts_with('-'))
            return error{format("{0} {1}: a name that begins with - is taken for an option; name "
                                "the file, or write ./{1}",
                                outputs[i].first, outputs[i].second),
                         true};
        for (size_t j = 0; j < i; ++j) {
            const auto &[first, first_file] = outputs[j];
            const auto &[second, second_file] = outputs[i];
            if (first_file != second_file && (first_file == "-" || second_file == "-" ||
                                              resolved(first_file) != resolved(second_file)))
                continue;
            return error{format("{} {} and {} {} are one file, and the second would replace the "
                                "first; give each a name of its own",
                                first, first_file, second, second_file),
                         true};
        }
    }
    return success();
}

status check_inputs(const std::vector<std::pair<std::string, std::string>> &outputs, int argc,
                    char **argv) {
    std::error_code failed;
    for (const auto &[option, output] : outputs)
        for (int i = 1; i < argc; ++i) {
            const std::string_view word = argv[i];
            // The output's own word, or another output, of which check_outputs() has spoken.
            const bool is_output = std::ranges::any_of(outputs, [&](const auto &candidate) {
                return word == candidate.second || word == candidate.first + "=" + candidate.second;
            });
            if (is_output && argv[i - 1][0] == '-') continue;
            if (std::filesystem::is_directory(word, failed) ||
                !std::filesystem::equivalent(word, output, failed))
                continue;
            return error{format("{} {} is {}, an input, which would be replaced; name another "
                                "file",
                                option, output, word),
                         true};
        }
    return success();
}

status check_can_be_written(const std::vector<std::pair<std::string, std::string>> &outputs) {
    constexpr std::string_view texts[] = {"--json", "--html", "--csv"};
    for (const auto &[option, output] : outputs) {
        if (output == "-" || std::ranges::find(texts, option) == std::end(texts)) continue;
        if (const auto trial = atomic_file::create(output); !trial) return trial.failure();
    }
    return success();
}

status check_not_read(const std::string &file) {
    if (!was_file_read(output_path(file))) return success();
    return error{format("{}: this command reads that file, and the output would replace it; name "
                        "another",
                        file),
                 true};
}

status write_text(const std::string &file, const std::string &text) {
    if (file == "-") {
        print(text);
        return success();  // finish_output() tells
    }
    if (const status allowed = check_not_read(file); !allowed) return allowed;
    auto writer = atomic_file::create(file);
    if (!writer) return writer.failure();
    writer->write(std::as_bytes(std::span(text)));
    return writer->commit();
}

status write_json(const std::string &file, const json &figures) {
    if (const std::string odd = odd_figure(figures); !odd.empty())
        return error{format("{}: the figure {} is no finite number", file, odd)};
    const std::string text = figures.dump(2, ' ', false, json::error_handler_t::replace);
    return write_text(file, escaped(text) + "\n");
}

result<std::vector<override_value>> read_overrides(const std::vector<std::string> &texts) {
    std::vector<override_value> overrides;
    for (const std::string &text : texts) {
        auto parsed = parse_override(text);
        if (!parsed) return parsed.failure();
        overrides.push_back(std::move(parsed).value());
    }
    return overrides;
}

std::vector<std::vector<override_value>> combinations(const std::vector<sweep> &sweeps) {
    std::vector<std::vector<override_value>> combined{{}};
    for (const sweep &swept : sweeps) {
        std::vector<std::vector<override_value>> longer;
        for (const auto &start : combined) {
            for (const std::string &value : swept.values) {
                longer.push_back(start);
                longer.back().push_back({swept.section, swept.key, value,
                                         format("--sweep {}.{}", swept.section, swept.key)});
            }
        }
        combined = std::move(longer);
    }
    return combined;
}

}  // namespace moorage::tool
