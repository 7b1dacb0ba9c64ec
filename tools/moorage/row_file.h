// row_file.h - finished rows, one line of JSON each, so that an interrupted command can resume.
//
//     {"row": "cache.plugin=lru", "hash": "90ab...", "report": {...}, "packed": "2b00..."}
//
// A row is recognised by a hash of its settings, the files that it reads and the libraries of its
// policies (core/decisions/0048). The program itself reads `packed` again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/pipeline/run.h"
#include "tools/moorage/parser.h"

namespace moorage::tool {

struct row_identity {
    std::string label, hash;
};

// Sums up texts and files; equal sums mean equal rows.
class row_hash {
public:
    void add(std::string_view text);
    // Adds a file by its content, or a large file by size and time of change. A folder counts by
    // all its files.
    void add_file(const std::filesystem::path &file);
    // Its version, size and time of change.
    void add_program();
    std::string text() const;

private:
    void mix(std::string_view bytes);
    uint64_t first_ = 0xcbf29ce484222325, second_ = 0x84222325cbf29ce4;
};

// Hash of the program, the row's settings as written, every file that its run reads, and the
// libraries that may have its policies.
std::string hash_of_run(const core::run_config &config, std::string_view settings,
                        core::run_resources &shared);

// The options of a command: --rows, --resume.
struct row_file_options {
    std::string file;
    bool resume = false;
};
void add_row_file(parser &command, row_file_options &options);

// Where the rows of a command that died are, and how to go on; "" if it kept none. `outputs`:
// options and files of its command line.
std::string remedy_of_rows(const option_values &outputs);

class row_file {
public:
    // `outputs`: the output files of the command. Without --rows, rows are kept beside the first
    // one. If there is no place for them, nothing is kept; --resume is then wrong usage.
    static core::result<row_file> open(const row_file_options &options,
                                       const std::vector<std::string> &outputs);
    row_file() = default;
    row_file(row_file &&source) noexcept;
    row_file &operator=(row_file &&) = delete;
    ~row_file();

    bool is_open() const { return file_ >= 0; }
    const std::filesystem::path &path() const { return path_; }
    size_t known_count() const { return saved_rows_.size(); }

    std::optional<std::string> find(const std::string &hash) const;
    void add(const row_identity &row, const core::json &figures, std::string_view bytes);

    // "--resume goes on with the others"; "" if nothing was kept.
    std::string remedy() const;
    // For a child that makes rows. Its policies must not reach the file.
    void close_in_worker();
    // Call it when all rows have ended and been written. has_all: none of them failed. Then a file
    // that nobody named is removed. Otherwise it stays, so that --resume can go on, and is named.
    core::status finish(bool has_all);

private:
    void read_known();
    std::filesystem::path path_;
    bool is_named_ = false;
    int file_ = -1;
    bool is_cut_off_ = false;
    int failure_ = 0;  // errno of the first line that could not be written
    std::map<std::string, std::string> saved_rows_;
};

}  // namespace moorage::tool
