// row_file.cpp - lines of finished rows, and the identities of rows.
#include "tools/moorage/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/partial_files.h"
#include "core/base/text.h"
#include "core/config/hardware.h"
#include "core/host/kinds.h"
#include "core/pipeline/run_hardware.h"
#include "tools/placement/scene.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

using namespace moorage::core;

namespace {

constexpr uintmax_t content_bytes_max = 64u << 20;  // larger files count by size and time
constexpr const char *rows_suffix = ".rows";

std::string hex_of(std::string_view bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const char byte : bytes) {
        text += digits[static_cast<unsigned char>(byte) >> 4];
        text += digits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}

std::optional<std::string> from_hex(std::string_view text) {
    const auto value = [](char digit) {
        return digit >= '0' && digit <= '9'   ? digit - '0'
               : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                                              : -1;
    };
    if (text.size() % 2 != 0) return std::nullopt;
    std::string bytes;
    bytes.reserve(text.size() / 2);
    for (size_t i = 0; i < text.size(); i += 2) {
        const int high = value(text[i]), low = value(text[i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        bytes += static_cast<char>(16 * high + low);
    }
    return bytes;
}

// The sum of a file, computed once per process, because rows share most files.
std::string sum_of_file(const std::filesystem::path &file, uintmax_t size) {
    static std::map<std::filesystem::path, std::string> known;
    std::string &sum = known[file];
    if (!sum.empty()) return sum;
    row_hash content;
    std::error_code failed;
    if (size > content_bytes_max) {
        const auto changed = std::filesystem::last_write_time(file, failed);
        content.add(format("{} {}", size, changed.time_since_epoch().count()));
    } else {
        std::string bytes(size, '\0');
        std::ifstream input(file, std::ios::binary);
        input.read(bytes.data(), static_cast<std::streamsize>(size));
        bytes.resize(static_cast<size_t>(input.gcount()));
        content.add(bytes);
    }
    return sum = content.text();
}

// Not standard output, a device or a pipe: no row file can lie beside these.
bool is_file_name(const std::string &output) {
    std::error_code failed;
    if (output.empty() || output == "-") return false;
    const auto type = std::filesystem::status(output, failed).type();
    return type == std::filesystem::file_type::not_found ||
           type == std::filesystem::file_type::regular;
}

// The files that a run opens before its first pass, without traces and models.
std::string sum_of_text(std::string_view text) {
    row_hash sum;
    sum.add(text);
    return sum.text();
}

bool is_row(const json &line) {
    return line.is_object() && line.contains("hash") && line["hash"].is_string() &&
           line.contains("packed") && line["packed"].is_string();
}

// Why rows cannot go to a file that is there: it would be destroyed. "": they can.
std::string why_no_row_file(const std::filesystem::path &file) {
    std::error_code failed;
    const auto type = std::filesystem::status(file, failed).type();
    if (type == std::filesystem::file_type::not_found) return "";
    if (type != std::filesystem::file_type::regular) return "is not a regular file";
    if (was_file_read(file)) return "is read by this command";
    std::ifstream input(file, std::ios::binary);
    std::string line;
    std::getline(input, line);
    if (line.empty() && input.eof()) return "";
    if (is_row(json::parse(line, nullptr, /*allow_exceptions=*/false))) return "";
    // A first row that was cut off.
    return line.starts_with("{\"row\":") ? "" : "is there and holds no rows";
}

void open_inputs(const run_config &config, run_resources &shared) {
    const std::filesystem::path base = config.file.parent_path();
    if (config.cluster) {
        static_cast<void>(make_scene(*config.cluster, base));
        return;
    }
    run_hardware hardware;
    static_cast<void>(hardware.load(config));
    std::string named = config.shape;
    if (named.empty() && !config.trace.empty())
        if (const auto trace = shared.open(config.trace)) named = (*trace)->meta("model");
    for (const std::string &shape : {named, config.trace.empty() ? "" : config.small})
        if (!shape.empty()) static_cast<void>(load_shape(shape, base));
}

// Input files of a run. Rows with the same profiles and shapes share one search.
std::set<std::filesystem::path> inputs_of(const run_config &config, run_resources &shared) {
    static std::map<std::string, std::set<std::filesystem::path>> known;
    std::string names =
        format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", config.file.string(), config.profile, config.link,
               config.node, config.disk, config.engine, config.shape, config.small,
               config.trace.string(), config.devices.peer);
    for (const std::string &profile : config.devices.profiles) names += "|" + profile;
    std::set<std::filesystem::path> files;
    if (const auto found = known.find(names); found != known.end() && !config.cluster)
        return found->second;
    {
        const opened_files noted(files);
        const silent_log silence;  // the row reports their errors
        open_inputs(config, shared);
    }
    return known[names] = files;
}

// The libraries that may have the policies of a run's stages, also searched once.
std::vector<std::filesystem::path> libraries_of(const std::string &plugin, std::string_view kind,
                                                run_resources &shared) {
    static std::map<std::pair<std::string, std::string>, std::vector<std::filesystem::path>> known;
    const auto [place, is_new] = known.try_emplace({plugin, std::string(kind)});
    if (is_new) place->second = shared.policies().files_with(plugin, kind);
    return place->second;
}

}  // namespace

void row_hash::mix(std::string_view bytes) {
    for (const char byte : bytes) {
        first_ = (first_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
        second_ = (second_ + static_cast<unsigned char>(byte) + 1) * 0x9e3779b97f4a7c15;
        second_ ^= second_ >> 29;
    }
}

void row_hash::add(std::string_view text) {
    mix(format("{}:", text.size()));
    mix(text);
}

void row_hash::add_file(const std::filesystem::path &file) {
    std::error_code failed;
    add(file.string());
    if (std::filesystem::is_directory(file, failed)) {
        std::set<std::filesystem::path> inner;
        for (std::filesystem::directory_iterator entry(file, failed), end; !failed && entry != end;
             entry.increment(failed))
            if (entry->is_regular_file(failed)) inner.insert(entry->path());
        for (const auto &inner_file : inner) add_file(inner_file);
        return;
    }
    const uintmax_t size = std::filesystem::file_size(file, failed);
    add(failed ? "" : sum_of_file(file, size));
}

void row_hash::add_program() {
    const std::filesystem::path program = "/proc/self/exe";
    std::error_code failed;
    add(format("{} {} {}", MOORAGE_VERSION, std::filesystem::file_size(program, failed),
               std::filesystem::last_write_time(program, failed).time_since_epoch().count()));
}

std::string row_hash::text() const { return format("{:016x}{:016x}", first_, second_); }

std::string hash_of_run(const run_config &config, std::string_view settings,
                        run_resources &shared) {
    row_hash sum;
    sum.add_program();
    sum.add(settings);
    sum.add(format("{}", config.seed));
    std::set<std::filesystem::path> files = inputs_of(config, shared);
    files.insert(config.file);
    for (const auto &file : {config.trace, config.model, config.text,
                             std::filesystem::path(config.trace.empty() ? config.small : "")})
        if (!file.empty()) files.insert(file);
    if (config.cluster && !config.cluster->plan.empty()) files.insert(config.cluster->plan);
    for (const auto &file : files) sum.add_file(file);
    for (const std::string_view kind : kinds)
        for (const auto &library : libraries_of(config.stage(kind).plugin, kind, shared))
            sum.add_file(library);
    if (config.host_cache_given)
        for (const auto &library : libraries_of(config.host_cache.plugin, "cache", shared))
            sum.add_file(library);
    return sum.text();
}

void add_row_file(parser &command, row_file_options &options) {
    command
        .add_option("--rows", options.file,
                    "save each row when it ends, as a line of JSON; default: a file beside the "
                    "first output, until all rows are there")
        ->type_name("FILE");
    command.add_flag("--resume", options.resume,
                     "continue with the rows that an interrupted command did not save");
}

result<row_file> row_file::open(const row_file_options &options,
                                const std::vector<std::string> &outputs) {
    row_file opened;
    opened.is_named_ = !options.file.empty();
    opened.path_ = options.file;
    for (const std::string &output : outputs)
        if (opened.path_.empty() && is_file_name(output)) opened.path_ = output + rows_suffix;
    if (opened.path_.empty() && options.resume)
        return error{"--resume: no file has rows to go on from; name it with --rows FILE", true};
    if (opened.path_.empty()) return opened;
    opened.path_ = output_path(opened.path_);
    if (const std::string reason = why_no_row_file(opened.path_); !reason.empty())
        return error{format("{}: {}, so no rows are kept there; name another file with --rows",
                            opened.path_.string(), reason),
                     true};
    if (options.resume) opened.read_known();
    if (options.resume && opened.saved_rows_.empty())
        log_warning(format("--resume: {} has no rows of this command; all rows are made",
                           opened.path_.string()));
    const int fresh = options.resume ? 0 : O_TRUNC;
    opened.file_ =
        ::open(opened.path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | fresh, 0666);
    // An unwritable place next to an output is reported when the output is written.
    if (opened.file_ < 0 && !opened.is_named_ && !options.resume) return row_file();
    if (opened.file_ < 0)
        return error{format("{}: rows cannot be kept: {}; name another file with --rows",
                            opened.path_.string(), std::strerror(errno))};
    if (opened.is_cut_off_ && ::write(opened.file_, "\n", 1) != 1) opened.failure_ = errno;
    return opened;
}

row_file::row_file(row_file &&source) noexcept
    : path_(std::move(source.path_)),
      is_named_(source.is_named_),
      file_(std::exchange(source.file_, -1)),
      failure_(source.failure_),
      saved_rows_(std::move(source.saved_rows_)) {}

row_file::~row_file() {
    if (file_ >= 0) ::close(file_);
}

void row_file::read_known() {
    std::ifstream input(path_);
    size_t damaged = 0;
    for (std::string line; std::getline(input, line);) {
        is_cut_off_ = input.eof();  // without its line break
        const json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
        if (!is_row(row)) continue;
        const std::string packed = row["packed"];
        if (row.value("sum", "") != sum_of_text(packed)) {
            ++damaged;
            continue;
        }
        if (auto bytes = from_hex(packed)) saved_rows_[row["hash"]] = std::move(*bytes);
    }
    if (damaged != 0)
        log_warning(format("{}: {} rows are damaged, or of another version, and are made again",
                           path_.string(), damaged));
}

std::optional<std::string> row_file::find(const std::string &hash) const {
    const auto found = saved_rows_.find(hash);
    if (found == saved_rows_.end()) return std::nullopt;
    return found->second;
}

void row_file::add(const row_identity &row, const json &figures, std::string_view bytes) {
    if (file_ < 0) return;
    json line = {{"row", row.label}, {"hash", row.hash}};
    if (!figures.is_null()) line["report"] = figures;
    const std::string packed = hex_of(bytes);
    line["sum"] = sum_of_text(packed);
    line["packed"] = packed;
    const std::string text =
        line.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + "\n";
    for (size_t done = 0; done < text.size() && failure_ == 0;) {
        const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            failure_ = written < 0 ? errno : ENOSPC;
        else
            done += static_cast<size_t>(written);
    }
}

std::string row_file::remedy() const {
    if (file_ < 0) return "--json, --csv or --rows FILE would keep them, and --resume go on";
    return format("the same command with {}--resume goes on with the others",
                  is_named_ ? "" : format("--rows {} or the same outputs and ", path_.string()));
}

void row_file::close_in_worker() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
}

static bool has_content(const std::filesystem::path &file) {
    std::error_code failed;
    return std::filesystem::file_size(file, failed) > 0 && !failed;
}

std::string remedy_of_rows(const option_values &outputs) {
    std::string file;
    for (const auto &[option, output] : outputs) {
        const std::filesystem::path candidate =
            option == "--rows" ? output_path(output) : output_path(output + rows_suffix);
        if (is_file_name(output) && has_content(candidate)) file = candidate.string();
    }
    if (file.empty()) return "";
    return format("the rows that ended are in {}; the same command with --resume goes on", file);
}

status row_file::finish(bool has_all) {
    if (file_ < 0) return success();
    std::error_code ignored;
    const bool stays = !has_all && has_content(path_);
    if (!is_named_ && !stays) std::filesystem::remove(path_, ignored);
    if (!is_named_ && stays)
        print_error(
            format("moorage: {} has the rows that did not fail; the same command with --resume "
                   "makes the others\n",
                   path_.string()));
    if (failure_ == 0 || !is_named_) return success();
    return error{format("{}: not every row was kept: {}", path_.string(), std::strerror(failure_))};
}

}  // namespace moorage::tool
