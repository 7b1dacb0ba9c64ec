// atomic_file.cpp - uses a temporary file in the same folder, so that the rename stays within one
// file system.
#include "core/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/partial_files.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr size_t buffer_bytes = 256 * 1024;
constexpr int links_max = 40;  // the system's own limit

// Follows links until the path is no link. The file need not exist.
std::filesystem::path resolve_links(std::filesystem::path path, std::error_code &code) {
    for (int hops = 0; hops < links_max; ++hops) {
        const auto file_status = std::filesystem::symlink_status(path, code);
        if (!std::filesystem::is_symlink(file_status)) {
            if (file_status.type() == std::filesystem::file_type::not_found) code.clear();
            return path;
        }
        const std::filesystem::path next = std::filesystem::read_symlink(path, code);
        if (code) return path;
        path = path.parent_path() / next;  // if `next` is absolute, it replaces the whole path
    }
    code = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    return path;
}

}  // namespace

result<atomic_file> atomic_file::create(const std::filesystem::path &path) {
    std::error_code code;
    const auto existing = std::filesystem::status(output_path(path), code);
    if (std::filesystem::exists(existing) && !std::filesystem::is_regular_file(existing))
        return error{format("{}: is there and not a regular file; name another", path.string())};
    atomic_file file;
    file.path_ = path;
    const std::filesystem::path target = resolve_links(output_path(path), code);
    if (code) return error{format("{}: cannot create: {}", path.string(), code.message())};
    file.final_path_ = std::filesystem::absolute(target, code).string();
    if (code) return error{format("{}: cannot create: {}", path.string(), code.message())};
    // Opened like any other file, so that it gets the usual permissions.
    partial_draft draft = make_partial(file.final_path_, [](const char *name) {
        return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
    if (draft.make_result < 0)
        return error{format("{}: cannot create: {}", path.string(), std::strerror(errno))};
    file.draft_path_ = std::move(draft.path);
    file.file_ = draft.make_result;
    file.table_entry_ = draft.table_entry;
    return file;
}

atomic_file::atomic_file(atomic_file &&source) noexcept
    : path_(std::move(source.path_)),
      final_path_(std::move(source.final_path_)),
      draft_path_(std::exchange(source.draft_path_, {})),
      buffer_(std::move(source.buffer_)),
      file_(std::exchange(source.file_, -1)),
      table_entry_(std::exchange(source.table_entry_, -1)),
      failure_(source.failure_.load()) {}

atomic_file::~atomic_file() {
    if (file_ >= 0) ::close(file_);
    if (!draft_path_.empty()) ::unlink(draft_path_.c_str());
    forget_partial_file(table_entry_);
}

void atomic_file::write(std::span<const std::byte> bytes) {
    buffer_.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    if (buffer_.size() >= buffer_bytes) flush();
}

void atomic_file::flush() {
    for (size_t offset = 0; offset < buffer_.size() && failure_ == 0;) {
        const ssize_t written = ::write(file_, buffer_.data() + offset, buffer_.size() - offset);
        if (written >= 0)
            offset += static_cast<size_t>(written);
        else if (errno != EINTR)
            failure_ = errno;
    }
    buffer_.clear();
}

void atomic_file::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty() && failure_ == 0) {
        const ssize_t written =
            ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0 && errno != EINTR) failure_ = errno;
        if (written < 0) continue;
        bytes = bytes.subspan(static_cast<size_t>(written));
        offset += static_cast<uint64_t>(written);
    }
}

status atomic_file::write_status() const {
    if (failure_ == 0) return success();
    return error{format("{}: cannot write: {}", path_.string(), std::strerror(failure_.load()))};
}

status atomic_file::commit() {
    flush();
    // Close before checking: some file systems report a full disk only then.
    if (::close(std::exchange(file_, -1)) != 0 && failure_ == 0) failure_ = errno;
    if (failure_ == 0 && ::rename(draft_path_.c_str(), final_path_.c_str()) != 0) failure_ = errno;
    if (const status done = write_status(); !done) return done;
    draft_path_.clear();
    return success();
}

}  // namespace moorage::core
