// machine_limits_test.cpp - goal: a process in a container uses the processors and the memory that
// its control groups allow. Method: trees of /proc and /sys/fs/cgroup, as the kernel's documents
// (cgroup-v1, cgroup-v2, proc) describe them and container engines lay them out, with limits whose
// answers are worked out by hand; then this process itself.
#include "core/base/machine_limits.h"

#include <doctest/doctest.h>

#include <sched.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/memory_block.h"
#include "core/execute/thread_pool.h"
#include "tests/unit/model_files.h"

namespace machine_limits_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

constexpr uint64_t gib = uint64_t{1} << 30, none = UINT64_MAX;

// A machine's files below a folder of its own.
struct tree {
    scratch_directory place;
    tree(const std::vector<std::pair<std::string, std::string>> &files) {
        for (const auto &[name, content] : files) {
            const auto file = place.path() / name;
            std::filesystem::create_directories(file.parent_path());
            write_file(file, content + "\n");
        }
    }
    control_groups groups() const { return control_groups::of_this_process(place.path()); }
};

// Cgroup version 2, mounted as a whole at /sys/fs/cgroup, as a namespace shows it.
const std::string mount_v2 =
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "29 23 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate";

}  // namespace

TEST_CASE("version 2, a container with a namespace of its own") {
    const tree files({{"proc/self/cgroup", "0::/"},
                      {"proc/self/mountinfo", mount_v2},
                      {"sys/fs/cgroup/cpu.max", "200000 100000"},
                      {"sys/fs/cgroup/memory.max", "4294967296"},
                      {"sys/fs/cgroup/memory.high", "max"},
                      {"sys/fs/cgroup/memory.current", "3221225472"},
                      {"sys/fs/cgroup/memory.stat",
                       "anon 1073741824\nfile 2147483648\ninactive_file 1073741824\nactive_file "
                       "536870912\nunevictable 0"}});
    CHECK(files.groups().processors() == 2);
    CHECK(files.groups().memory_bytes() == 4 * gib);
    // 3 GiB are in use, of which 1.5 GiB are pages of files: 4 - 1.5.
    CHECK(files.groups().memory_available_bytes() == 4 * gib - 3 * gib / 2);
}

TEST_CASE("version 2, nested groups: the lowest limit on the way up counts") {
    const std::string group = "sys/fs/cgroup/user.slice/user-1000.slice/run.scope/";
    const std::string slice = "sys/fs/cgroup/user.slice/user-1000.slice/";
    const tree files({{"proc/self/cgroup", "0::/user.slice/user-1000.slice/run.scope"},
                      {"proc/self/mountinfo", mount_v2},
                      {group + "cpu.max", "max 100000"},
                      {group + "memory.max", "8589934592"},
                      {group + "memory.current", "1073741824"},
                      {slice + "cpu.max", "250000 100000"},
                      {slice + "memory.max", "max"},
                      {slice + "memory.high", "6442450944"},
                      {slice + "memory.current", "5368709120"},
                      {"sys/fs/cgroup/user.slice/cpu.max", "800000 100000"},
                      {"sys/fs/cgroup/user.slice/memory.max", "max"}});
    CHECK(files.groups().processors() == 3);  // 2.5 of them
    CHECK(files.groups().memory_bytes() == 6 * gib);
    CHECK(files.groups().memory_available_bytes() == 1 * gib);  // of the slice: 6 - 5; own: 8 - 1
}

TEST_CASE("version 2, a part of a processor is one") {
    for (const auto &[limit, processors] :
         {std::pair{"50000 100000", 1u}, std::pair{"1000 1000000", 1u},
          std::pair{"100000 100000", 1u}, std::pair{"100001 100000", 2u},
          std::pair{"1600000 100000", 16u}}) {
        const std::string quota = limit;  // clang 14 captures no structured binding
        CAPTURE(quota);
        const tree files({{"proc/self/cgroup", "0::/"},
                          {"proc/self/mountinfo", mount_v2},
                          {"sys/fs/cgroup/cpu.max", quota}});
        CHECK(files.groups().processors() == processors);
    }
}

// Docker without a namespace: the group's path is the host's, and the mount shows that group.
TEST_CASE("version 1, a container whose mounts show its own group") {
    const std::string path = "/docker/0f3a";
    const tree files(
        {{"proc/self/cgroup", "12:memory:" + path + "\n7:cpu,cpuacct:" + path +
                                  "\n3:cpuset:" + path + "\n1:name=systemd:" + path},
         {"proc/self/mountinfo",
          "812 811 0:29 " + path + " /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n" +
              "813 811 0:30 " + path +
              " /sys/fs/cgroup/cpu,cpuacct ro master:9 - cgroup cgroup rw,cpu,cpuacct\n" +
              "814 811 0:31 " + path + " /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset"},
         {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000"},
         {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000"},
         {"sys/fs/cgroup/cpuset/cpuset.cpus", "0-1,8,10-11"},
         {"sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648"},
         {"sys/fs/cgroup/memory/memory.usage_in_bytes", "1610612736"},
         {"sys/fs/cgroup/memory/memory.stat",
          "inactive_file 7\ntotal_inactive_file 536870912\ntotal_active_file 0\n"
          "hierarchical_memory_limit 2147483648"}});
    CHECK(files.groups().processors() == 4);  // the quota; the set has 5
    CHECK(files.groups().memory_bytes() == 2 * gib);
    CHECK(files.groups().memory_available_bytes() == 1 * gib);  // 2 - (1.5 - 0.5)
}

TEST_CASE("version 1 without limits, and one that only statistics tell") {
    const std::string mounts =
        "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "34 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    const tree free({{"proc/self/cgroup", "4:memory:/\n1:cpu:/"},
                     {"proc/self/mountinfo", mounts},
                     {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"},
                     {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"},
                     {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"},
                     {"sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824"}});
    CHECK(free.groups().processors() == UINT32_MAX);
    CHECK(free.groups().memory_bytes() == 9223372036854771712u);
    CHECK(free.groups().memory_available_bytes() > uint64_t{1} << 60);
    // A group above, which the mount hides, has the limit.
    const tree hidden({{"proc/self/cgroup", "4:memory:/"},
                       {"proc/self/mountinfo", mounts},
                       {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"},
                       {"sys/fs/cgroup/memory/memory.usage_in_bytes", "0"},
                       {"sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 1048576"}});
    CHECK(hidden.groups().memory_bytes() == 1 << 20);
}

TEST_CASE("a set of processors, of both versions") {
    const std::vector<std::pair<std::string, uint32_t>> lists = {
        {"0-15", 16},
        {"3", 1},
        {"0-1,4-5", 4},
        {"0,2,4", 3},
        // Nothing that limits: empty, turned round, no numbers, more than there can be.
        {"", UINT32_MAX},
        {"5-2", UINT32_MAX},
        {"a-b", UINT32_MAX},
        {"0-99999999", UINT32_MAX}};
    for (const auto &[processors, count] : lists) {
        const std::string list = processors;
        CAPTURE(list);
        const tree version_2({{"proc/self/cgroup", "0::/a"},
                              {"proc/self/mountinfo", mount_v2},
                              {"sys/fs/cgroup/a/cpuset.cpus.effective", list}});
        CHECK(version_2.groups().processors() == count);
        const tree version_1(
            {{"proc/self/cgroup", "3:cpuset:/a"},
             {"proc/self/mountinfo", "33 30 0:30 / /cpuset rw - cgroup cgroup rw,cpuset"},
             {"cpuset/a/cpuset.effective_cpus", list}});
        CHECK(version_1.groups().processors() == count);
    }
}

// Version 1 has the controllers, version 2 is there for names of groups alone.
TEST_CASE("both versions mounted") {
    const tree files({{"proc/self/cgroup", "2:cpu:/job\n0::/job"},
                      {"proc/self/mountinfo",
                       "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                       "40 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"},
                      {"sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000"},
                      {"sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000"},
                      {"sys/fs/cgroup/unified/job/cgroup.procs", "1"}});
    CHECK(files.groups().processors() == 3);
    CHECK(files.groups().memory_bytes() == none);
}

TEST_CASE("odd places: escaped mount points, hidden paths, several mounts") {
    const tree escaped(
        {{"proc/self/cgroup", "0::/x"},
         {"proc/self/mountinfo", "29 23 0:26 / /sys/my\\040groups rw - cgroup2 cgroup rw"},
         {"sys/my groups/x/cpu.max", "500000 100000"}});
    CHECK(escaped.groups().processors() == 5);
    // A path that leads out of the namespace, and one that the mount does not know. Then only the
    // mount itself counts.
    for (const char *path : {"0::/../../other", "0::/kubepods/pod1"}) {
        CAPTURE(path);
        const tree outside({{"proc/self/cgroup", path},
                            {"proc/self/mountinfo", mount_v2},
                            {"sys/fs/cgroup/cpu.max", "700000 100000"}});
        CHECK(outside.groups().processors() == 7);
    }
    const tree several({{"proc/self/cgroup", "0::/pod/box"},
                        {"proc/self/mountinfo",
                         "29 23 0:26 /elsewhere /a rw - cgroup2 cgroup rw\n"
                         "30 23 0:26 / /b rw - cgroup2 cgroup rw\n"
                         "31 23 0:26 /pod /c rw - cgroup2 cgroup rw"},
                        {"a/cpu.max", "100000 100000"},
                        {"b/pod/box/cpu.max", "900000 100000"},
                        {"c/box/cpu.max", "900000 100000"}});
    CHECK(several.groups().processors() == 9);
}

TEST_CASE("what is damaged or missing limits nothing") {
    const tree empty({});
    CHECK(empty.groups().processors() == UINT32_MAX);
    CHECK(empty.groups().memory_bytes() == none);
    CHECK(empty.groups().memory_available_bytes() == none);
    for (const char *quota : {"", "max", "max 100000", "12", "x y", "100 0", "0 100000",
                              "-5 100000", "99999999999999999999999 1"}) {
        CAPTURE(quota);
        const tree files({{"proc/self/cgroup", "0::/\nnonsense\n:\n9:cpu"},
                          {"proc/self/mountinfo", mount_v2 + "\nshort\n1 2 - cgroup2\n - cgroup2"},
                          {"sys/fs/cgroup/cpu.max", quota},
                          {"sys/fs/cgroup/memory.max", quota},
                          {"sys/fs/cgroup/memory.current", quota}});
        CHECK(files.groups().processors() == UINT32_MAX);
    }
}

TEST_CASE("this process: threads and memory keep to what it may use") {
    const control_groups groups = control_groups::of_this_process("/");
    CHECK(usable_processors() >= 1);
    CHECK(usable_processors() <= groups.processors());
    CHECK(usable_memory_bytes() <= groups.memory_bytes());
    CHECK(memory_available_bytes() <= groups.memory_bytes());
    CHECK(thread_pool(0).threads() == usable_processors());
    cpu_set_t old_cpus, single_cpu;
    REQUIRE(sched_getaffinity(0, sizeof old_cpus, &old_cpus) == 0);
    CPU_ZERO(&single_cpu);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&single_cpu) == 0; ++cpu)
        if (CPU_ISSET(cpu, &old_cpus)) CPU_SET(cpu, &single_cpu);
    REQUIRE(sched_setaffinity(0, sizeof single_cpu, &single_cpu) == 0);
    CHECK(usable_processors() == 1);
    CHECK(thread_pool(0).threads() == 1);
    sched_setaffinity(0, sizeof old_cpus, &old_cpus);
}

}  // namespace machine_limits_test
