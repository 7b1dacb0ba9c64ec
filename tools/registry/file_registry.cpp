// file_registry.cpp - reads the directory, compares it, writes whole files.
#include "tools/registry/file_registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>

#include "core/base/atomic_file.h"
#include "core/base/log.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

namespace files = std::filesystem;

error failed(const files::path &path, const char *problem) {
    return error{format("registry: {}: {}: {}", path.string(), problem, std::strerror(errno))};
}

// The content of a place where a file should be.
struct file_text {
    bool exists = false;
    std::string problem;  // why it was not read; empty: it was
    std::string text;
};

// Only a regular file is really opened. Nothing waits, not even for a writer of a pipe.
file_text read_entry(const files::path &path) {
    file_text content;
    const auto set_problem = [&](std::string reason) {
        content.exists = true;
        content.problem = std::move(reason);
        return content;
    };
    const int file =
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (file < 0) {
        if (errno == ENOENT) return content;
        return set_problem(errno == ELOOP ? "a link" : std::strerror(errno));
    }
    struct stat is {};
    constexpr size_t bytes_max = cluster_registry::text_bytes_max + 32;
    if (::fstat(file, &is) == 0 && S_ISREG(is.st_mode)) {
        std::string &text = content.text;
        text.resize(std::min<size_t>(static_cast<size_t>(is.st_size), bytes_max) + 1);
        size_t count = 0;
        for (ssize_t chunk_bytes = 1; chunk_bytes > 0 && count < text.size();
             count += static_cast<size_t>(chunk_bytes))
            chunk_bytes =
                std::max<ssize_t>(::read(file, text.data() + count, text.size() - count), 0);
        text.resize(count);
        content.exists = true;
        if (count > bytes_max) content.problem = format("more than {} bytes", bytes_max);
    } else {
        set_problem("no file");
    }
    ::close(file);
    return content;
}

// Nothing: missing, or no regular file.
std::optional<std::string> read(const files::path &path) {
    file_text found = read_entry(path);
    if (!found.exists || !found.problem.empty()) return std::nullopt;
    return std::move(found.text);
}

// Removes whatever is no file; a folder only if it is empty.
status write(const files::path &path, const std::string &text) {
    std::error_code code;
    const auto is = files::symlink_status(path, code);
    if (files::exists(is) && !files::is_regular_file(is) && !files::remove(path, code))
        return error{format("registry: {}: it is no file and cannot be removed: {}", path.string(),
                            code.message())};
    auto file = atomic_file::create(path);
    if (!file) return file.failure();
    file->write(std::as_bytes(std::span(text)));
    return file->commit();
}

// The locked open file. -1 with errno; EWOULDBLOCK: another process has the lock.
int open_locked(const files::path &path, int mode) {
    constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY;
    int file = ::open(path.c_str(), flags, 0644);
    if (file < 0 && errno == ELOOP && ::unlink(path.c_str()) == 0)  // a link, which is not the
                                                                    // locked file
        file = ::open(path.c_str(), flags, 0644);
    if (file < 0 || ::flock(file, mode) == 0) return file;
    const int saved_errno = errno;
    ::close(file);
    errno = saved_errno;
    return -1;
}

bool is_locked(const files::path &path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (file < 0) return false;
    const bool taken = ::flock(file, LOCK_SH | LOCK_NB) != 0;
    ::close(file);
    return taken;
}

// Does the name still belong to the open file?
bool is_same_file(int file, const files::path &path) {
    struct stat open, named;
    return file >= 0 && ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

status make_folders(const files::path &directory) {
    for (const char *part : {"members", "notes"}) {
        std::error_code code;
        if (files::is_directory(directory / part, code)) continue;
        files::create_directories(directory / part, code);
        if (code)
            return error{format("[registry] directory: {}: {}; name one that can be written",
                                directory.string(), code.message()),
                         true};
    }
    return success();
}

void read_all(const files::path &folder, size_t count_max, bool alive_only,
              std::map<std::string, std::string> &texts) {
    std::error_code code;
    size_t entries = 0;  // limited, whatever somebody puts there
    for (files::directory_iterator cursor(folder, code), end; !code && cursor != end;
         cursor.increment(code)) {
        const files::directory_entry &entry = *cursor;
        const std::string name = entry.path().filename();
        if (texts.size() == count_max || ++entries > 16 * count_max) return;
        if (!is_registry_name(name) || name.ends_with(".alive")) continue;
        if (alive_only && !is_locked(folder / (name + ".alive"))) continue;
        if (auto text = read(entry.path())) texts.emplace(name, std::move(*text));
    }
}

// While it lives, no other process writes plans. A process that never releases the lock is not
// waited for forever.
class plan_lock {
public:
    explicit plan_lock(const files::path &directory) : path_(directory / "writing") {
        const uint64_t end_ns = steady_ns() + file_registry::lock_ns;
        for (;;) {
            file_ = open_locked(path_, LOCK_EX | LOCK_NB);
            if (file_ >= 0 || errno != EWOULDBLOCK || steady_ns() > end_ns) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }
    ~plan_lock() {
        if (file_ >= 0) ::close(file_);
    }
    plan_lock(const plan_lock &) = delete;
    status ok() const {
        if (file_ >= 0) return success();
        if (errno != EWOULDBLOCK) return failed(path_, "cannot be locked");
        return error{
            format("registry: {} is locked by another process, which does not let go; "
                   "end that one (lslocks names it)",
                   path_.string())};
    }

private:
    const files::path path_;
    int file_ = -1;
};

}  // namespace

result<std::unique_ptr<cluster_registry>> file_registry::open(const files::path &directory,
                                                              bool make) {
    std::error_code code;
    if (!make && !directory.empty() && !files::is_directory(directory, code))
        return error{format("[registry] directory: {} is not there; the nodes make it, start one, "
                            "or name the one that they have",
                            directory.string()),
                     true};
    if (!directory.empty())
        if (const status created = make_folders(directory); !created) return created.failure();
    std::unique_ptr<file_registry> registry(new file_registry(directory));
    return std::unique_ptr<cluster_registry>(std::move(registry));
}

file_registry::~file_registry() { leave(); }

std::string file_registry::location() const {
    return directory_.empty() ? "the cluster's file" : directory_.string();
}

result<registry_state> file_registry::look() {
    registry_state seen;
    std::error_code code;
    if (!files::is_directory(directory_, code))
        return error{format("registry: {} is gone", directory_.string())};
    read_all(directory_ / "members", members_max, true, seen.members);
    read_all(directory_ / "notes", notes_max, false, seen.notes);
    if (is_locked(directory_ / "leader.alive"))
        seen.leader = read(directory_ / "leader").value_or("");
    if (!seen.leader.empty() && !is_registry_name(seen.leader)) seen.leader.clear();
    look_at_plan(seen);
    return seen;
}

// A damaged plan is no reason to forget the plan that was there before. To a member, neither is an
// older plan.
void file_registry::look_at_plan(registry_state &seen) {
    const files::path path = directory_ / "plan";
    const file_text found = read_entry(path);
    plan_seen plan;
    if (!found.problem.empty())
        plan.damaged = format("registry: {} is damaged: it is {}", path.string(), found.problem);
    else if (found.exists)
        plan = check_stored_plan(path.string(), found.text, !name_.empty());
    // A plan of another cluster stays. A damaged plan is overwritten by the leader.
    written_ = plan.damaged.empty() ? plan.epoch : plan.of_other_cluster ? state_.epoch : 0;
    seen.damaged = std::move(plan.damaged);
    seen.epoch = plan.epoch, seen.plan = std::move(plan.text);
    if (seen.epoch == 0) seen.epoch = state_.epoch, seen.plan = state_.plan;
}

result<bool> file_registry::turn(uint64_t wait_ns) {
    const uint64_t end_ns = steady_ns() + wait_ns;
    for (;;) {
        if (!directory_.empty()) {
            auto seen = look();
            if (!seen) {
                // The next turn finds the new directory and fills it again.
                if (!name_.empty())
                    if (const status created = make_folders(directory_); !created)
                        return created.failure();
                return seen.failure();
            }
            const status kept = keep(*seen);
            if (!(*seen == state_)) {
                if (!seen->damaged.empty() && seen->damaged != state_.damaged)
                    log_warning(seen->damaged);
                state_ = std::move(*seen);
                if (kept) return true;
            }
            if (!kept) return kept.failure();
        }
        const uint64_t now_ns = steady_ns(), left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(look_ns, left_ns)));
        if (left_ns <= look_ns) return false;  // the next turn begins with a look
    }
}

status file_registry::keep(const registry_state &seen) {
    if (lead_ >= 0 && !is_same_file(lead_, directory_ / "leader.alive"))
        ::close(std::exchange(lead_, -1));
    if (name_.empty()) return success();
    if (lead_ >= 0 && seen.leader != name_)
        if (const status done = write(directory_ / "leader", name_); !done) return done;
    if (written_ < state_.epoch)
        if (const status kept = keep_plan(); !kept) return kept;
    const files::path path = directory_ / "members" / name_;
    const bool locked_here = is_same_file(alive_, path.string() + ".alive");
    if (locked_here && files::is_regular_file(files::symlink_status(path))) return success();
    if (const status created = make_folders(directory_); !created) return created;
    if (!locked_here && alive_ >= 0) ::close(std::exchange(alive_, -1));
    return announce(std::string(name_), std::string(text_));
}

// If several nodes restore a plan, the one with the highest epoch stays.
status file_registry::keep_plan() {
    const plan_lock alone(directory_);
    if (const status ok = alone.ok(); !ok) return ok;
    const files::path path = directory_ / "plan";
    const file_text found = read_entry(path);
    plan_seen plan;
    if (found.exists && found.problem.empty())
        plan = check_stored_plan(path.string(), found.text, /*is_member=*/true);
    if (plan.epoch != 0 || plan.of_other_cluster) return success();
    uint64_t epoch = 0;
    std::string ignored;
    const bool is_older =
        found.problem.empty() && split_epoch(found.text, epoch, ignored) && epoch < state_.epoch;
    // Only the leader overwrites a text that is no plan or has an impossible epoch.
    if (found.exists && !is_older && lead_ < 0) return success();
    log_warning(
        format("registry: {} has {}; epoch {} of the plan, which is in force, is written there "
               "again",
               directory_.string(),
               !found.exists ? std::string("no plan")
               : is_older    ? format("epoch {}", epoch)
                             : std::string("what is no plan"),
               state_.epoch));
    return write_plan(state_.epoch, state_.plan);
}

// Requires: a plan_lock is held.
status file_registry::write_plan(uint64_t epoch, const std::string &text) {
    const status done = write(directory_ / "plan", with_epoch(epoch, text));
    if (done) written_ = epoch;
    return done;
}

status file_registry::announce(const std::string &name, const std::string &text) {
    if (directory_.empty()) return success();
    if (!is_registry_name(name))
        return error{format("registry: {} is no name of a member", name), true};
    if (const status fits = check_registry_text("what a member says", text); !fits) return fits;
    const files::path path = directory_ / "members" / name;
    if (alive_ >= 0 && name != name_) leave();
    if (alive_ < 0) {
        alive_ = open_locked(path.string() + ".alive", LOCK_EX | LOCK_NB);
        if (alive_ < 0)
            return errno == EWOULDBLOCK
                       ? error{format("registry: {} takes part already; a second node of a name "
                                      "is not one",
                                      name)}
                       : failed(path, "cannot be locked");
        name_ = name;
    }
    text_ = text;
    return write(path, text);
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
    const files::path path = directory_ / "leader.alive";
    const int file = open_locked(path, LOCK_EX | LOCK_NB);
    if (file < 0) {
        if (errno != EWOULDBLOCK) return failed(path, "cannot be locked");
        if (const status taken = lead_is_taken(); !taken) return taken.failure();
        return false;
    }
    if (const status done = write(directory_ / "leader", name_); !done) {
        ::close(file);
        return done.failure();
    }
    lead_ = file;
    return true;
}

// Another process holds the leader's lock. If it is no member, nobody leads.
status file_registry::lead_is_taken() {
    const uint64_t now_ns = steady_ns();
    const bool owned = state_.leader != name_ && state_.members.contains(state_.leader);
    if (owned) ownerless_since_ns_ = 0;
    if (!owned && ownerless_since_ns_ == 0) ownerless_since_ns_ = now_ns;
    if (owned || now_ns - ownerless_since_ns_ < ownerless_ns) return success();
    return error{
        format("registry: {} is locked by a process that takes no part, so nobody leads; "
               "end that one (lslocks names it)",
               (directory_ / "leader.alive").string())};
}

result<bool> file_registry::put_plan(uint64_t old_epoch, uint64_t epoch, const std::string &text) {
    if (lead_ < 0) return false;
    if (const status fits = check_registry_text("the plan", text); !fits) return fits.failure();
    if (epoch > epoch_max)
        return error{format("registry: epoch {} is above {}, the last", epoch, epoch_max)};
    const plan_lock alone(directory_);
    if (const status ok = alone.ok(); !ok) return ok.failure();
    const files::path path = directory_ / "plan";
    const file_text found = read_entry(path);
    uint64_t stored_epoch = old_epoch;  // none: somebody has removed the plan, and it is restored
    if (found.exists) {
        plan_seen plan;
        if (found.problem.empty())
            plan = check_stored_plan(path.string(), found.text, /*is_member=*/true);
        if (plan.of_other_cluster) return error{plan.damaged};
        stored_epoch = plan.epoch != 0 ? plan.epoch : state_.epoch;
    }
    if (stored_epoch != old_epoch) return false;
    if (const status done = write_plan(epoch, text); !done) return done.failure();
    state_.epoch = epoch;
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
