// machine_limits.cpp - finds the control groups in /proc, and reads their limits.
#include "core/base/machine_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

constexpr size_t processors_max = 1 << 20;  // in a list of processors

std::string first_line(const fs::path &file) {
    std::ifstream input(file);
    std::string line;
    std::getline(input, line);
    return line;
}

// Nothing if it is no number: "max", or a missing file.
std::optional<uint64_t> whole_number(std::string_view text) {
    uint64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

std::optional<uint64_t> read_number(const fs::path &file) { return whole_number(first_line(file)); }

// The number of a line "key 12".
std::optional<uint64_t> read_key(const fs::path &file, std::string_view key) {
    std::ifstream input(file);
    for (std::string name, value; input >> name >> value;)
        if (name == key) return whole_number(value);
    return std::nullopt;
}

// "0-3,8" counts five.
std::optional<uint32_t> count_of_list(std::string_view list) {
    uint64_t count = 0;
    while (!list.empty()) {
        const std::string_view part = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), part.size() + 1));
        const size_t dash = part.find('-');
        const auto first = whole_number(part.substr(0, dash));
        const auto last = dash == part.npos ? first : whole_number(part.substr(dash + 1));
        if (!first || !last || *last < *first || *last > processors_max) return std::nullopt;
        count += *last - *first + 1;
    }
    if (count == 0 || count > processors_max) return std::nullopt;
    return static_cast<uint32_t>(count);
}

// Part of a processor counts as one.
uint32_t processors_of_quota(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
    if (!quota || !period || *quota == 0 || *period == 0) return UINT32_MAX;
    const uint64_t whole = *quota / *period + (*quota % *period != 0);
    return static_cast<uint32_t>(std::min<uint64_t>(whole, UINT32_MAX));
}

// mountinfo writes a space as \040.
std::string unescaped(std::string_view text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool octal = text[i] == '\\' && i + 3 < text.size() &&
                           std::all_of(text.begin() + static_cast<ptrdiff_t>(i) + 1,
                                       text.begin() + static_cast<ptrdiff_t>(i) + 4,
                                       [](char c) { return c >= '0' && c <= '7'; });
        if (!octal) {
            plain += text[i];
            continue;
        }
        plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                   (text[i + 3] - '0'));
        i += 3;
    }
    return plain;
}

bool has_word(const std::string &list, std::string_view word) {
    std::istringstream input(list);
    for (std::string part; std::getline(input, part, ',');)
        if (part == word) return true;
    return false;
}

struct group_mount {
    std::string shown_root;  // the group at the mount point
    std::string point;
    std::string type;         // "cgroup", "cgroup2"
    std::string controllers;  // v1 only: "rw,cpu,cpuacct"
};

// Lines of mountinfo: "36 35 98:0 /root /point rw,noatime shared:1 - cgroup cgroup rw,cpu".
std::vector<group_mount> mounts_of(const fs::path &root) {
    std::vector<group_mount> mounts;
    std::ifstream input(root / "proc/self/mountinfo");
    for (std::string line; std::getline(input, line);) {
        const size_t dash = line.find(" - ");
        if (dash == line.npos) continue;
        std::istringstream front(line.substr(0, dash)), back(line.substr(dash + 3));
        std::string skipped, shown_root, point, source;
        group_mount mount;
        front >> skipped >> skipped >> skipped >> shown_root >> point;
        back >> mount.type >> source >> mount.controllers;
        if (mount.type != "cgroup" && mount.type != "cgroup2") continue;
        mount.shown_root = unescaped(shown_root);
        mount.point = unescaped(point);
        mounts.push_back(std::move(mount));
    }
    return mounts;
}

// The part of a group's path below the group that a mount shows. Nothing if the group is not below
// it, for example in a namespace that hides its own root.
std::optional<std::string> path_below(const std::string &group, const std::string &shown_root) {
    if (group.find("/..") != group.npos) return std::nullopt;
    if (shown_root == "/") return group == "/" ? "" : group;
    if (group == shown_root) return "";
    if (group.starts_with(shown_root + "/")) return group.substr(shown_root.size());
    return std::nullopt;
}

}  // namespace

class group_finder {
public:
    explicit group_finder(const fs::path &root) : root_(root), mounts_(mounts_of(root)) {}

    // Parses a line of /proc/self/cgroup: "4:cpu,cpuacct:/docker/1f", or "0::/docker/1f" for v2.
    void add_line(const std::string &line, control_groups &target) const {
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? first : line.find(':', first + 1);
        if (second == line.npos) return;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        if (controllers.empty()) {
            const auto groups = groups_of(path, "cgroup2", "", control_groups::version::v2);
            for (auto *const list : {&target.cpu_, &target.cpuset_, &target.memory_})
                list->insert(list->end(), groups.begin(), groups.end());
            return;
        }
        for (const auto &[name, list] :
             {std::pair{"cpu", &target.cpu_}, std::pair{"cpuset", &target.cpuset_},
              std::pair{"memory", &target.memory_}}) {
            if (!has_word(controllers, name)) continue;
            const auto groups = groups_of(path, "cgroup", name, control_groups::version::v1);
            list->insert(list->end(), groups.begin(), groups.end());
        }
    }

private:
    // From the process's own group up to the group that the mount shows.
    std::vector<control_groups::group> groups_of(const std::string &path, std::string_view type,
                                                 std::string_view controller,
                                                 control_groups::version kind) const {
        const group_mount *best = nullptr;
        std::optional<std::string> best_part;
        for (const group_mount &mount : mounts_) {
            if (mount.type != type) continue;
            if (!controller.empty() && !has_word(mount.controllers, controller)) continue;
            const auto part = path_below(path, mount.shown_root);
            // The mount that shows the fewest other groups is the nearest.
            if (best && (!part || (best_part && best_part->size() <= part->size()))) continue;
            best = &mount;
            best_part = part;
        }
        std::vector<control_groups::group> groups;
        if (!best) return groups;
        const fs::path top = (root_ / fs::path(best->point).relative_path()).lexically_normal();
        fs::path directory = top;
        std::error_code failed;
        if (const std::string part = best_part.value_or(""); !part.empty())
            directory = (top / fs::path(part).relative_path()).lexically_normal();
        if (!fs::is_directory(directory, failed)) directory = top;
        groups.push_back({directory, kind});
        while (directory != top && directory.has_relative_path()) {
            directory = directory.parent_path();
            groups.push_back({directory, kind});
        }
        return groups;
    }

    const fs::path root_;
    const std::vector<group_mount> mounts_;
};

control_groups control_groups::of_this_process(const fs::path &root) {
    control_groups groups;
    const group_finder finder(root);
    std::ifstream input(root / "proc/self/cgroup");
    for (std::string line; std::getline(input, line);) finder.add_line(line, groups);
    return groups;
}

uint32_t control_groups::processors() const {
    uint32_t least = UINT32_MAX;
    for (const group &control_group : cpu_) {
        if (control_group.kind == version::v2) {
            std::istringstream input(first_line(control_group.directory / "cpu.max"));
            std::string quota, period;
            input >> quota >> period;
            least = std::min(least, processors_of_quota(whole_number(quota), whole_number(period)));
        } else {  // a quota of -1 means no quota
            least = std::min(
                least,
                processors_of_quota(read_number(control_group.directory / "cpu.cfs_quota_us"),
                                    read_number(control_group.directory / "cpu.cfs_period_us")));
        }
    }
    for (const group &control_group : cpuset_)
        for (const char *file : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"})
            if (const auto count = count_of_list(first_line(control_group.directory / file)))
                least = std::min(least, *count);
    return least;
}

namespace {

struct memory_state {
    uint64_t limit_bytes = UINT64_MAX;
    uint64_t used_bytes = 0;  // without file pages, which can be evicted
};

// Above memory.high the kernel slows a group down until it has freed memory, so it counts as a
// limit.
memory_state memory_of(const fs::path &group, bool is_v2) {
    memory_state state;
    const fs::path details = group / "memory.stat";
    const auto apply_limit = [&](std::optional<uint64_t> limit) {
        if (limit) state.limit_bytes = std::min(state.limit_bytes, *limit);
    };
    if (is_v2) {
        apply_limit(read_number(group / "memory.max"));
        apply_limit(read_number(group / "memory.high"));
    } else {
        apply_limit(read_number(group / "memory.limit_in_bytes"));
        apply_limit(read_key(details, "hierarchical_memory_limit"));  // includes groups that are
                                                                      // not visible
    }
    const auto used = read_number(group / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
    uint64_t pages = 0;
    for (const char *key : {"inactive_file", "active_file"})
        pages += read_key(details, (is_v2 ? "" : "total_") + std::string(key)).value_or(0);
    state.used_bytes = used.value_or(0) - std::min(used.value_or(0), pages);
    return state;
}

}  // namespace

uint64_t control_groups::memory_bytes() const {
    uint64_t least = UINT64_MAX;
    for (const group &control_group : memory_)
        least = std::min(
            least,
            memory_of(control_group.directory, control_group.kind == version::v2).limit_bytes);
    return least;
}

uint64_t control_groups::memory_available_bytes() const {
    uint64_t least = UINT64_MAX;
    for (const group &control_group : memory_) {
        const memory_state state =
            memory_of(control_group.directory, control_group.kind == version::v2);
        if (state.limit_bytes == UINT64_MAX) continue;
        least = std::min(least, state.limit_bytes - std::min(state.limit_bytes, state.used_bytes));
    }
    return least;
}

uint32_t usable_processors() {
    static const uint32_t limit = control_groups::of_this_process("/").processors();
    uint32_t count = std::max(1u, std::thread::hardware_concurrency());
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0)
        count = static_cast<uint32_t>(CPU_COUNT(&allowed));
    return std::min(count, limit);
}

uint64_t usable_memory_bytes() {
    const auto pages = static_cast<uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1L));
    const auto page_bytes = static_cast<uint64_t>(std::max(::sysconf(_SC_PAGESIZE), 1L));
    return std::min(pages * page_bytes, control_groups::of_this_process("/").memory_bytes());
}

}  // namespace moorage::core
