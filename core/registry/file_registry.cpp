// file_registry.cpp - reads the directory, compares, writes whole files.
#include "core/registry/file_registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "core/base/atomic_file.h"
#include "core/base/log.h"
#include "core/base/safetensors.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "core/base/visible.h"

namespace moorage::core {

namespace {

namespace files = std::filesystem;

error failed(const files::path &at, const char *what) {
    return error{format("registry: {}: {}: {}", at.string(), what, std::strerror(errno))};
}

// At most the longest text; what is longer, or is not there, is nothing.
std::optional<std::string> read(const files::path &at) {
    std::ifstream from(at, std::ios::binary | std::ios::ate);
    constexpr std::streamoff bytes_max = cluster_registry::text_bytes_max + 32;
    const std::streamoff bytes = from.tellg();  // -1: it was not opened
    if (bytes < 0 || bytes > bytes_max) return std::nullopt;
    std::string text(static_cast<size_t>(bytes), '\0');
    from.seekg(0);
    from.read(text.data(), bytes);
    text.resize(static_cast<size_t>(from.gcount()));
    return text;
}

status write(const files::path &at, const std::string &text) {
    auto made = atomic_file::create(at);
    if (!made) return made.failure();
    made->write(std::as_bytes(std::span(text)));
    return made->commit();
}

// The open file; -1 with errno, EWOULDBLOCK where somebody else has it.
int locked(const files::path &at, int how) {
    const int file = ::open(at.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || ::flock(file, how) == 0) return file;
    const int why = errno;
    ::close(file);
    errno = why;
    return -1;
}

bool is_locked(const files::path &at) {
    const int file = ::open(at.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    const bool taken = ::flock(file, LOCK_SH | LOCK_NB) != 0;
    ::close(file);
    return taken;
}

// Whether the open file is still the one of that name.
bool is_at(int file, const files::path &at) {
    struct stat open, named;
    return file >= 0 && ::fstat(file, &open) == 0 && ::stat(at.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

status make_folders(const files::path &directory) {
    for (const char *part : {"members", "notes"}) {
        std::error_code wrong;
        if (files::is_directory(directory / part, wrong)) continue;
        files::create_directories(directory / part, wrong);
        if (wrong)
            return error{format("[registry] directory: {}: {}; name one that can be written",
                                directory.string(), wrong.message()),
                         true};
    }
    return success();
}

void read_all(const files::path &folder, size_t count_max, bool alive_only,
              std::map<std::string, std::string> &out) {
    std::error_code wrong;
    for (const auto &one : files::directory_iterator(folder, wrong)) {
        const std::string name = one.path().filename();
        if (out.size() == count_max) return;
        if (!is_registry_name(name) || name.ends_with(".alive")) continue;
        if (alive_only && !is_locked(folder / (name + ".alive"))) continue;
        if (auto text = read(one.path())) out.emplace(name, std::move(*text));
    }
}

// While it is there nobody else writes plans.
class writing {
public:
    explicit writing(const files::path &directory)
        : file_(locked(directory / "writing", LOCK_EX)) {}
    ~writing() {
        if (file_ >= 0) ::close(file_);
    }
    bool ok() const { return file_ >= 0; }

private:
    int file_;
};

}  // namespace

result<std::unique_ptr<cluster_registry>> file_registry::open(const files::path &directory,
                                                              bool make) {
    std::error_code wrong;
    if (!make && !directory.empty() && !files::is_directory(directory, wrong))
        return error{format("[registry] directory: {} is not there; the nodes make it, start one, "
                            "or name the one that they have",
                            directory.string()),
                     true};
    if (!directory.empty())
        if (const status made = make_folders(directory); !made) return made.failure();
    std::unique_ptr<file_registry> made(new file_registry(directory));
    return std::unique_ptr<cluster_registry>(std::move(made));
}

file_registry::~file_registry() { leave(); }

std::string file_registry::where() const {
    return directory_.empty() ? "the cluster's file" : directory_.string();
}

result<registry_state> file_registry::look() {
    registry_state seen;
    std::error_code wrong;
    if (!files::is_directory(directory_, wrong))
        return error{format("registry: {} is gone", directory_.string())};
    read_all(directory_ / "members", members_max, true, seen.members);
    read_all(directory_ / "notes", notes_max, false, seen.notes);
    if (is_locked(directory_ / "leader.alive"))
        seen.leader = read(directory_ / "leader").value_or("");
    if (!seen.leader.empty() && !is_registry_name(seen.leader)) seen.leader.clear();
    const auto plan = read(directory_ / "plan");
    // What somebody spoiled is no reason to forget the plan that was there.
    if (plan && !split_epoch(*plan, seen.epoch, seen.plan))
        seen.damaged = format(
            "registry: {} is damaged: {} in place of an epoch above 0, a line's end and at most {} "
            "bytes",
            (directory_ / "plan").string(), visible(shown(plan->substr(0, plan->find('\n')))),
            text_bytes_max);
    written_ = seen.damaged.empty() ? seen.epoch : state_.epoch;
    // Nor, to a member, is what somebody put there who knew less.
    if (seen.epoch == 0 || (!name_.empty() && seen.epoch < state_.epoch))
        seen.epoch = state_.epoch, seen.plan = state_.plan;
    return seen;
}

result<bool> file_registry::turn(uint64_t wait_ns) {
    const uint64_t end_ns = steady_ns() + wait_ns;
    for (;;) {
        if (!directory_.empty()) {
            auto seen = look();
            if (!seen) {
                // Found the next time, and filled again.
                if (!name_.empty())
                    if (const status made = make_folders(directory_); !made) return made.failure();
                return seen.failure();
            }
            if (const status kept = keep(); !kept) return kept.failure();
            if (!(*seen == state_)) {
                if (!seen->damaged.empty() && seen->damaged != state_.damaged)
                    log_warning(seen->damaged);
                state_ = std::move(*seen);
                return true;
            }
        }
        const uint64_t now_ns = steady_ns(), left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(look_ns, left_ns)));
        if (left_ns <= look_ns) return false;  // the next turn begins with a look
    }
}

status file_registry::keep() {
    if (lead_ >= 0 && !is_at(lead_, directory_ / "leader.alive")) ::close(std::exchange(lead_, -1));
    if (name_.empty()) return success();
    if (written_ < state_.epoch)
        if (const status kept = keep_plan(); !kept) return kept;
    const files::path at = directory_ / "members" / name_;
    std::error_code wrong;
    const bool locked_here = is_at(alive_, at.string() + ".alive");
    if (locked_here && files::exists(at, wrong)) return success();
    if (const status made = make_folders(directory_); !made) return made;
    if (!locked_here && alive_ >= 0) ::close(std::exchange(alive_, -1));
    return announce(std::string(name_), std::string(text_));
}

// Of several that do so the one with the highest epoch stays.
status file_registry::keep_plan() {
    const writing alone(directory_);
    if (!alone.ok()) return failed(directory_ / "writing", "cannot be locked");
    uint64_t there = 0;
    std::string ignored;
    if (const auto plan = read(directory_ / "plan"))
        if (!split_epoch(*plan, there, ignored)) return success();  // damaged: the leader's
    if (there < state_.epoch) {
        log_warning(format(
            "registry: {} has {} of the plan; epoch {}, which is in force, is "
            "written there again",
            directory_.string(), there == 0 ? "none" : format("epoch {}", there), state_.epoch));
        const status done = write(directory_ / "plan", with_epoch(state_.epoch, state_.plan));
        if (!done) return done;
    }
    written_ = std::max(there, state_.epoch);
    return success();
}

status file_registry::announce(const std::string &name, const std::string &text) {
    if (directory_.empty()) return success();
    if (!is_registry_name(name))
        return error{format("registry: {} is no name of a member", name), true};
    if (const status fits = check_registry_text("what a member says", text); !fits) return fits;
    const files::path at = directory_ / "members" / name;
    if (alive_ >= 0 && name != name_) leave();
    if (alive_ < 0) {
        alive_ = locked(at.string() + ".alive", LOCK_EX | LOCK_NB);
        if (alive_ < 0)
            return errno == EWOULDBLOCK
                       ? error{format("registry: {} takes part already; a second node of a name "
                                      "is not one",
                                      name)}
                       : failed(at, "cannot be locked");
        name_ = name;
    }
    text_ = text;
    return write(at, text);
}

void file_registry::leave() {
    std::error_code ignored;
    if (!name_.empty()) files::remove(directory_ / "members" / name_, ignored);
    for (int *const file : {&lead_, &alive_})
        if (*file >= 0) ::close(std::exchange(*file, -1));
    name_.clear();
}

result<bool> file_registry::lead() {
    if (lead_ >= 0) return true;
    if (directory_.empty() || name_.empty()) return false;
    const files::path at = directory_ / "leader.alive";
    const int file = locked(at, LOCK_EX | LOCK_NB);
    if (file < 0) {
        if (errno == EWOULDBLOCK) return false;
        return failed(at, "cannot be locked");
    }
    if (const status done = write(directory_ / "leader", name_); !done) {
        ::close(file);
        return done.failure();
    }
    lead_ = file;
    return true;
}

result<bool> file_registry::put_plan(uint64_t before, uint64_t epoch, const std::string &text) {
    if (lead_ < 0) return false;
    if (const status fits = check_registry_text("the plan", text); !fits) return fits.failure();
    const writing alone(directory_);
    if (!alone.ok()) return failed(directory_ / "writing", "cannot be locked");
    uint64_t there = before;  // none: somebody has removed it, and it is brought back
    std::string ignored;
    if (const auto plan = read(directory_ / "plan"))
        if (!split_epoch(*plan, there, ignored)) there = state_.epoch;
    if (there != before) return false;
    if (const status done = write(directory_ / "plan", with_epoch(epoch, text)); !done)
        return done.failure();
    state_.epoch = written_ = epoch;
    state_.plan = text;
    return true;
}

status file_registry::put_note(const std::string &name, const std::string &text) {
    if (directory_.empty())
        return error{
            "there is no registry but the cluster's file; give [registry] directory or "
            "endpoints",
            true};
    if (!is_registry_name(name)) return error{format("registry: {} is no name of a note", name)};
    if (const status fits = check_registry_text("a note", text); !fits) return fits;
    return write(directory_ / "notes" / name, text);
}

}  // namespace moorage::core
