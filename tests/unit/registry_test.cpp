// registry_test.cpp - goal: sound libraries are listed, others refused with file, expected, found
// and remedy. Method: libraries that are built for this (tests/abi/bad, tests/abi/probe), files
// that are none, and folders made for the occasion.
#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/host/descriptor.h"
#include "core/host/library.h"
#include "core/host/registry.h"
#include "moorage/cache.h"

namespace registry_test {

namespace {

namespace fs = std::filesystem;
namespace core = moorage::core;

const fs::path build = MOORAGE_BINARY_DIR;

struct folder {
    folder() : path(fs::temp_directory_path() / ("moorage-registry-" + std::to_string(getpid()))) {
        fs::remove_all(path);
        fs::create_directories(path);
        core::set_log_level(core::log_level::off);
    }
    ~folder() { fs::remove_all(path); }
    fs::path path;
};

bool contains(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

core::status scan(core::registry &registry, const std::vector<fs::path> &paths) {
    return registry.scan(paths);
}

std::string reason_of(const fs::path &file) {
    core::registry registry;
    REQUIRE(scan(registry, {file}).ok());
    CHECK(registry.policies().empty());
    REQUIRE(registry.refusals().size() == 1);
    CHECK(registry.refusals()[0].path == file);
    return registry.refusals()[0].reason;
}

}  // namespace

TEST_CASE("a library with two policies gives both, with their parameters") {
    core::registry registry;
    REQUIRE(scan(registry, {build / "probe/probe.so"}).ok());
    REQUIRE(registry.policies().size() == 2);
    const core::policy &probe = registry.policies()[0];
    CHECK(probe.name() == "probe");
    CHECK(probe.is("cache"));
    CHECK(probe.is("moorage.cache/1"));
    CHECK_FALSE(probe.is("prefetch"));
    CHECK_FALSE(probe.is("observer"));
    REQUIRE(probe.params.size() == 5);
    CHECK(std::string(probe.params[0].plugin_key) == "window_tokens");
    CHECK(probe.params[0].integer_max == 64);
    CHECK(probe.params[1].real_default == 0.5);
    CHECK(std::string(probe.descriptor->plugin_version) == "2.1.0");
    CHECK(registry.policies()[1].is("prefetch"));
    CHECK(registry.refusals().empty());
}

TEST_CASE("a library is refused for its reason") {
    folder temporary;
    const auto bad = [](const char *name) {
        return reason_of(build / "bad" / (std::string(name) + ".so"));
    };
    CHECK(
        contains(bad("abi_major"),
                 "is of abi 9, and abi 2 is needed; rebuild it with the headers of sdk 2.x or use "
                 "a newer moorage"));
    CHECK(contains(
        bad("abi_old"),
        "is of abi 1 (exports moorage_module_v1), and abi 2 is needed (moorage_module_v2); "
        "rebuild it with the headers of sdk 2.x"));
    CHECK_FALSE(contains(bad("abi_old"), "newer moorage"));
    CHECK(contains(bad("minor_needed"),
                   "needs abi 2.9 at least, host offers 2.1; use a newer moorage"));
    CHECK(contains(bad("missing_symbol"), "exports no moorage_module_v2"));
    CHECK(contains(bad("size_small"), "16 bytes, expected 72 or more"));
    CHECK(contains(bad("size_garbage"), "3735928559"));
    CHECK(contains(bad("create_missing"), "create is null"));

    const fs::path text = temporary.path / "text.so", empty = temporary.path / "empty.so",
                   cut = temporary.path / "cut.so";
    std::ofstream(text) << "MZ this is something else";
    std::ofstream(empty).flush();
    CHECK(contains(reason_of(text), "no ELF header"));
    CHECK(contains(reason_of(empty), "no ELF header"));
    fs::copy_file(build / "probe/probe.so", cut);
    for (const uintmax_t bytes : {fs::file_size(cut) / 2, uintmax_t{600}, uintmax_t{70}}) {
        fs::resize_file(cut, bytes);
        CHECK(contains(reason_of(cut), "is cut off"));
    }
    fs::resize_file(cut, 40);
    CHECK(contains(reason_of(cut), "64-bit"));
}

TEST_CASE("a name that two libraries claim is an error that names both, unless one is meant") {
    folder temporary;
    const fs::path first_directory = temporary.path / "one",
                   second_directory = temporary.path / "other";
    for (const fs::path &directory : {first_directory, second_directory}) {
        fs::create_directories(directory);
        fs::copy_file(build / "probe/probe.so", directory / "probe.so");
    }
    fs::rename(second_directory / "probe.so", second_directory / "again.so");
    core::registry registry;
    REQUIRE(scan(registry, {first_directory, second_directory}).ok());
    CHECK(registry.refusals().empty());
    CHECK(registry.policies().size() == 4);
    const std::string text = registry.find("probe", "cache").failure().text;
    CHECK(contains(text, "cache policy probe is in 2 libraries"));
    CHECK(contains(text, (first_directory / "probe.so").c_str()));
    CHECK(contains(text, (second_directory / "again.so").c_str()));
    CHECK(contains(text, "library = "));
    const auto found_in = [&](const fs::path &library) {
        const auto found = registry.find("probe", "cache", library);
        return found ? (*found)->path : fs::path();
    };
    CHECK(found_in("probe.so") == first_directory / "probe.so");  // as seen from a scanned folder
    CHECK(found_in("again.so") == second_directory / "again.so");
    CHECK(found_in(second_directory / "again.so") == second_directory / "again.so");
    const std::string absent = registry.find("probe", "cache", "third.so").failure().text;
    CHECK(contains(absent, "not in library third.so"));
    CHECK(contains(absent, (second_directory / "again.so").c_str()));
    // The same file twice is no clash.
    core::registry single;
    REQUIRE(scan(single, {build / "probe/probe.so", build / "probe"}).ok());
    CHECK(single.find("probe", "cache").ok());
}

TEST_CASE("policies of different kinds may share a name: the kind tells them apart") {
    core::registry registry;
    REQUIRE(scan(registry, {build / "plugins/router/smoe.so", build / "plugins/prefetch/smoe.so"})
                .ok());
    CHECK(registry.refusals().empty());
    const auto router = registry.find("smoe", "router"),
               prefetch = registry.find("smoe", "prefetch");
    REQUIRE(router.ok());
    REQUIRE(prefetch.ok());
    CHECK((*router)->path == build / "plugins/router/smoe.so");
    CHECK((*prefetch)->path == build / "plugins/prefetch/smoe.so");
}

TEST_CASE("a folder is searched in order, not below; other files do not count") {
    folder temporary;
    fs::create_directories(temporary.path / "deep");
    fs::create_directories(temporary.path / "folder.so");
    fs::copy_file(build / "bad/leaks.so", temporary.path / "b.so");
    fs::copy_file(build / "bad/hangs.so", temporary.path / "a.so");
    fs::copy_file(build / "bad/throws.so", temporary.path / "deep/throws.so");
    std::ofstream(temporary.path / "notes.txt") << "not a library";
    REQUIRE(mkfifo((temporary.path / "pipe.so").c_str(), 0600) == 0);
    core::registry registry;
    REQUIRE(scan(registry, {temporary.path}).ok());
    REQUIRE(registry.policies().size() == 2);
    CHECK(registry.policies()[0].name() == "hangs");
    CHECK(registry.policies()[1].name() == "leaks");
    CHECK(registry.refusals().empty());
    CHECK(contains(reason_of(temporary.path / "pipe.so"), "is no regular file"));
    const auto missing = scan(registry, {temporary.path / "nowhere"});
    REQUIRE_FALSE(missing.ok());
    CHECK(missing.failure().usage);
    CHECK(contains(missing.failure().text, "nowhere does not exist"));
}

TEST_CASE("find names what is near, what is of another kind and what was refused") {
    core::registry registry;
    core::set_log_level(core::log_level::off);
    REQUIRE(scan(registry, {build / "probe/probe.so", build / "bad/abi_major.so"}).ok());
    const auto found = registry.find("probe", "cache");
    REQUIRE(found.ok());
    CHECK((*found)->name() == "probe");
    CHECK(contains(registry.find("prob", "cache").failure().text,
                   "no cache policy prob; did you mean probe"));
    CHECK(contains(registry.find("quite_different", "cache").failure().text, "there are: probe"));
    CHECK(contains(registry.find("probe", "router").failure().text,
                   "is no router policy but: cache"));
    CHECK(contains(registry.find("abi_major", "cache").failure().text, "was refused: is of abi 9"));
    CHECK(contains(registry.find("anything", "budget").failure().text,
                   "no budget policies were found"));
}

TEST_CASE("the bundled policies are beside the program; the environment adds to them") {
    unsetenv("MOORAGE_PLUGIN_PATH");
    const auto bundled = core::registry::bundled_folder();
    CHECK(fs::equivalent(bundled, build / "plugins"));
    CHECK(core::registry::default_paths() == std::vector<fs::path>{bundled});
    setenv("MOORAGE_PLUGIN_PATH", "/one::/two", 1);
    CHECK(core::registry::default_paths() == std::vector<fs::path>{bundled, "/one", "/two"});
    unsetenv("MOORAGE_PLUGIN_PATH");
    core::registry registry;  // the one folder whose folders are searched
    REQUIRE(scan(registry, {build / "plugins"}).ok());
    CHECK(registry.find("lru", "cache", "cache/lru.so").ok());
}

TEST_CASE("records of other sizes are completed") {
    // A longer record of a newer library: its tail is not read. A shorter one: the rest is zero.
    struct {
        uint32_t size, flags;
        uint64_t known, newer;
    } longer{24, 1, 2, 3};
    struct record {
        uint32_t size, flags;
        uint64_t known;
    };
    const auto cut = core::completed<record>(&longer);
    CHECK(cut.size == 16);
    CHECK(cut.flags == 1);
    CHECK(cut.known == 2);
    longer.size = 8;
    const auto filled = core::completed<record>(&longer);
    CHECK(filled.flags == 1);
    CHECK(filled.known == 0);
}

TEST_CASE("descriptors are checked field by field") {
    static const char *const cache[] = {MOORAGE_INTERFACE_CACHE};
    static const char *const twice[] = {MOORAGE_INTERFACE_CACHE, MOORAGE_INTERFACE_CACHE};
    static const char *const strange[] = {"org.example.thing/3"};
    static const char *const no_id[] = {"cache"};
    const moorage_descriptor good{
        sizeof(good), 0, "mine", "1.0.0", "does something", "", cache, nullptr, 1, 0, 0, 0};
    CHECK(core::read_descriptor(&good).ok());
    const auto reason = [&](auto change) {
        moorage_descriptor d = good;
        change(d);
        const auto read = core::read_descriptor(&d);
        return read.ok() ? std::string() : read.failure().text;
    };
    CHECK(contains(core::read_descriptor(nullptr).failure().text, "is null"));
    CHECK(contains(reason([](auto &d) { d.size = 8; }), "has size 8"));
    CHECK(contains(reason([](auto &d) { d.plugin_name = "Mine"; }), "expected snake_case"));
    CHECK(contains(reason([](auto &d) { d.plugin_name = "all"; }), "it means every policy"));
    CHECK(contains(reason([](auto &d) { d.plugin_name = "host"; }), "[cache.host]"));
    static const std::string endless(101, 'a');
    CHECK(contains(reason([](auto &d) { d.plugin_name = endless.c_str(); }), "100 the most"));
    CHECK(contains(reason([](auto &d) { d.plugin_name = nullptr; }), "has no name"));
    CHECK(contains(reason([](auto &d) { d.plugin_summary = ""; }), "no summary"));
    CHECK(contains(reason([](auto &d) { d.kind_count = 0; }), "names 0 kinds"));
    CHECK(contains(reason([](auto &d) { d.plugin_kinds = twice, d.kind_count = 2; }), "twice"));
    CHECK(
        contains(reason([](auto &d) { d.plugin_kinds = strange; }), "none of its kinds is known"));
    CHECK(contains(reason([](auto &d) { d.plugin_kinds = no_id; }), "is not an interface id"));
    CHECK(contains(reason([](auto &d) { d.param_count = 1; }), "table is null"));
    CHECK(reason([](auto &d) { d.plugin_source = nullptr; }).empty());

    moorage_param p{};
    p.size = sizeof(p);
    p.type = MOORAGE_PARAM_INTEGER;
    p.plugin_key = "size_tokens", p.plugin_help = "help";
    p.integer_default = 5, p.integer_min = 0, p.integer_max = 4;
    const auto param_error = [&] {
        return reason([&](auto &d) { d.plugin_params = &p, d.param_count = 1; });
    };
    CHECK(contains(param_error(), "has default 5, outside its limits 0 .. 4"));
    p.integer_max = 5;
    CHECK(param_error().empty());
    p.type = 9;
    CHECK(contains(param_error(), "has type 9"));
    p.type = MOORAGE_PARAM_TEXT, p.plugin_text_default = "x", p.plugin_text_choices = "a|b";
    CHECK(contains(param_error(), "none of its choices"));
    p.plugin_key = "a key";
    CHECK(contains(param_error(), "not snake_case"));
    p.plugin_key = "library";
    CHECK(contains(param_error(), "parameter library could not be set"));
}

}  // namespace registry_test
