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
std::filesystem::path target_of(std::filesystem::path path, std::error_code &code) {
    for (int hops = 0; hops < links_max; ++hops) {
        const auto is = std::filesystem::symlink_status(path, code);
        if (!std::filesystem::is_symlink(is)) {
            if (is.type() == std::filesystem::file_type::not_found) code.clear();
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
    const auto held = std::filesystem::status(output_path(path), code);
    if (std::filesystem::exists(held) && !std::filesystem::is_regular_file(held))
        return error{format("{}: is there and not a regular file; name another", path.string())};
    atomic_file made;
    made.path_ = path;
    const std::filesystem::path target = target_of(output_path(path), code);
    if (code) return error{format("{}: cannot create: {}", path.string(), code.message())};
    made.place_ = std::filesystem::absolute(target, code).string();
    if (code) return error{format("{}: cannot create: {}", path.string(), code.message())};
    // Opened like any other file, so that it gets the usual permissions.
    made_partial draft = make_partial(made.place_, [](const char *name) {
        return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
    if (draft.answer < 0)
        return error{format("{}: cannot create: {}", path.string(), std::strerror(errno))};
    made.temporary_ = std::move(draft.path);
    made.file_ = draft.answer;
    made.noted_ = draft.noted;
    return made;
}

atomic_file::atomic_file(atomic_file &&other) noexcept
    : path_(std::move(other.path_)),
      place_(std::move(other.place_)),
      temporary_(std::exchange(other.temporary_, {})),
      buffer_(std::move(other.buffer_)),
      file_(std::exchange(other.file_, -1)),
      noted_(std::exchange(other.noted_, -1)),
      failure_(other.failure_.load()) {}

atomic_file::~atomic_file() {
    if (file_ >= 0) ::close(file_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    forget_partial_file(noted_);
}

void atomic_file::write(std::span<const std::byte> bytes) {
    buffer_.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    if (buffer_.size() >= buffer_bytes) flush();
}

void atomic_file::flush() {
    for (size_t at = 0; at < buffer_.size() && failure_ == 0;) {
        const ssize_t written = ::write(file_, buffer_.data() + at, buffer_.size() - at);
        if (written >= 0)
            at += static_cast<size_t>(written);
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

status atomic_file::written() const {
    if (failure_ == 0) return success();
    return error{format("{}: cannot write: {}", path_.string(), std::strerror(failure_.load()))};
}

status atomic_file::commit() {
    flush();
    // Close before checking: some file systems report a full disk only then.
    if (::close(std::exchange(file_, -1)) != 0 && failure_ == 0) failure_ = errno;
    if (failure_ == 0 && ::rename(temporary_.c_str(), place_.c_str()) != 0) failure_ = errno;
    if (const status done = written(); !done) return done;
    temporary_.clear();
    return success();
}

}  // namespace moorage::core
