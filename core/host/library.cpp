// library.cpp - loads policy libraries through Boost.DLL. The only file that includes it.
#include "core/host/library.h"

#include <boost/dll/shared_library.hpp>

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/base/foreign_file.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/call.h"
#include "core/host/descriptor.h"
#include "core/host/elf_symbols.h"
#include "core/host/surroundings.h"
#include "core/host/threads.h"

namespace moorage::core {

namespace {

constexpr uint32_t descriptors_max = 256;

// The libraries that stay loaded. Never destroyed: a policy's code must outlive every object that
// could still call it, including static ones. The handles keep the libraries mapped.
struct loaded_library {
    boost::dll::shared_library handle;
    library content;
    std::vector<std::string> shared;  // variables that the process shares between libraries
};
struct owner {
    std::recursive_mutex mutex;
    std::vector<std::unique_ptr<loaded_library>> libraries, refused;
    std::vector<library *> initialised;  // in order; deinit runs in reverse
};
owner &process() {
    static owner &everything = *new owner;
    return everything;
}

// Runs at exit once per initialised library, newest first. It is registered after the library was
// loaded, so it runs before the destruction of that library's statics.
void deinitialise_last() {
    auto &list = process().initialised;
    if (list.empty()) return;  // end_libraries() has already done it
    library *last = list.back();
    list.pop_back();
    const policy_call at_work(owner_being_opened(last->path.string()), entry_point::deinit);
    if (last->instances == 0)
        last->module.deinit();
    else
        log_warning(format("{}: not deinitialised, {} instances live", last->path.string(),
                           last->instances));
}

std::string init_error;
const void *init_service(const moorage_host *, const char *id) {
    static constexpr moorage_log log{sizeof(moorage_log), 0,
                                     [](const moorage_host *, int32_t level, const char *text) {
                                         if (level >= MOORAGE_LOG_ERROR)
                                             log_error(text);
                                         else if (level == MOORAGE_LOG_WARNING)
                                             log_warning(text);
                                         else
                                             log_info(text);
                                     }};
    return std::string_view(id) == MOORAGE_SERVICE_LOG ? &log : nullptr;
}
void keep_init_error(const moorage_host *, const char *text) {
    init_error = text ? text : "";
    note_on_board(init_error);
}
// The host that init sees. It can log and set an error. The other services belong to instances.
constexpr moorage_host init_host{sizeof(moorage_host), 0,       MOORAGE_ABI_MAJOR,
                                 MOORAGE_ABI_MINOR,    nullptr, init_service,
                                 keep_init_error};

bool has(const std::vector<std::string_view> &names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// The remedy for a library of an older or newer version.
std::string rebuild_or_upgrade(bool older) {
    return format("rebuild it with the headers of sdk {}.x{}", MOORAGE_ABI_MAJOR,
                  older ? "" : " or use a newer moorage");
}

std::string missing_symbol(const elf_symbols &symbols) {
    for (int major = 1; major <= 9; ++major)
        if (major != MOORAGE_ABI_MAJOR &&
            has(symbols.exported, "moorage_module_v" + std::to_string(major)))
            return format(
                "is of abi {} (exports moorage_module_v{}), and abi {} is needed ({}); {}", major,
                major, MOORAGE_ABI_MAJOR, MOORAGE_MODULE_SYMBOL,
                rebuild_or_upgrade(major < MOORAGE_ABI_MAJOR));
    return "exports no " MOORAGE_MODULE_SYMBOL
           "; export it with MOORAGE_POLICIES or with default visibility";
}

// The sanitizer that the library needs and this program lacks, or null. Loading its runtime late
// ends the process.
const char *missing_sanitizer(const elf_symbols &symbols) {
    static constexpr std::pair<const char *, const char *> sanitizers[] = {
        {"__asan_init", "address"},
        {"__hwasan_init", "hwaddress"},
        {"__tsan_init", "thread"},
        {"__msan_init", "memory"}};
    for (const auto &[symbol, name] : sanitizers)
        if (has(symbols.imported, symbol) && !dlsym(RTLD_DEFAULT, symbol)) return name;
    return nullptr;
}

// "" if nothing in the file forbids running its code.
std::string refusal_reason(const elf_symbols &symbols) {
    if (!has(symbols.functions, MOORAGE_MODULE_SYMBOL)) return missing_symbol(symbols);
    if (const char *sanitizer = missing_sanitizer(symbols))
        return format(
            "is built with -fsanitize={}, which this program is not; build it without, or "
            "moorage with it",
            sanitizer);
    return "";
}

std::string demangled(const std::string &name) {
    int code = 0;
    char *text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &code);
    const std::string shown = code == 0 && text ? text : name;
    std::free(text);
    return shown;
}

// Sharing variables of the C++ library is intended.
bool is_of_standard_library(std::string_view name) {
    for (const std::string_view start :
         {"_ZNSt", "_ZNKSt", "_ZZNSt", "_ZZNKSt", "_ZGVNSt", "_ZGVZNSt", "_ZGVZNKSt", "_ZTISt",
          "_ZTVSt", "_ZTSSt", "_ZZSt", "_ZGVZSt", "_ZSt", "_ZN9__gnu_cxx"})
        if (name.starts_with(start)) return true;
    return false;
}

std::vector<std::string> own_shared(const elf_symbols &symbols) {
    std::vector<std::string> names;
    for (const std::string_view name : symbols.shared)
        if (!is_of_standard_library(name)) names.emplace_back(name);
    std::sort(names.begin(), names.end());
    return names;
}

// If two libraries export a variable under one name, the loader makes one variable for both. Then a
// table of the first library would replace that of the second. "": there is no such variable.
std::string shared_with_others(const std::vector<std::string> &shared) {
    for (const auto *list : {&process().libraries, &process().refused})
        for (const auto &opened : *list) {
            std::vector<std::string> common;
            std::set_intersection(shared.begin(), shared.end(), opened->shared.begin(),
                                  opened->shared.end(), std::back_inserter(common));
            if (common.empty()) continue;
            return format(
                "exports {} C++ variables that {} exports as well, and both would use those of "
                "the latter, for example {}; build it with moorage_add_policy(), or with "
                "-fvisibility=hidden and a version script that exports {} alone",
                common.size(), opened->content.path.string(),
                demangled(common.front()).substr(0, 200), MOORAGE_MODULE_SYMBOL);
        }
    return "";
}

status check_module(const moorage_module *record) {
    if (!record)
        return error{MOORAGE_MODULE_SYMBOL " returned null; it must return a static record"};
    if (record->size < module_size_min)
        return error{
            format("module record has {} bytes, expected {} or more; set size to "
                   "sizeof(moorage_module)",
                   record->size, module_size_min)};
    if (record->size > record_size_max)
        return error{
            format("module record claims {} bytes, more than any record has ({}); set size to "
                   "sizeof(moorage_module)",
                   record->size, record_size_max)};
    if (record->abi_major != MOORAGE_ABI_MAJOR)
        return error{format("is of abi {}, and abi {} is needed; {}", record->abi_major,
                            MOORAGE_ABI_MAJOR,
                            rebuild_or_upgrade(record->abi_major < MOORAGE_ABI_MAJOR))};
    if (record->abi_minor_needed > MOORAGE_ABI_MINOR)
        return error{format("needs abi {}.{} at least, host offers {}.{}; use a newer moorage",
                            MOORAGE_ABI_MAJOR, record->abi_minor_needed, MOORAGE_ABI_MAJOR,
                            MOORAGE_ABI_MINOR)};
    if (!record->plugin_id || !*record->plugin_id)
        return error{"module record has no id; set plugin_id, for example org.example.mine"};
    if (!record->plugin_version || !*record->plugin_version)
        return error{"module record has no version; set plugin_version"};
    if (!record->descriptor)
        return error{"module record: function descriptor is null; it is required"};
    if (!record->create) return error{"module record: function create is null; it is required"};
    if (record->descriptor_count == 0 || record->descriptor_count > descriptors_max)
        return error{
            format("module record names {} policies, expected 1 .. {}; set descriptor_count",
                   record->descriptor_count, descriptors_max)};
    return success();
}

// Fills `library` from the library's record.
status read_module(const moorage_module *record, library &library) {
    if (auto sound = check_module(record); !sound) return sound.failure();
    library.module = completed<moorage_module>(record);
    std::set<std::string_view> names;
    for (uint32_t i = 0; i < library.module.descriptor_count; ++i) {
        auto read = [&] {
            const policy_call at_work(0, entry_point::descriptor);
            return read_descriptor(library.module.descriptor(i));
        }();
        if (!read) return error{format("descriptor {} {}", i, read.failure().text)};
        if (!names.insert(read->descriptor.plugin_name).second)
            return error{format("descriptor {}: policy {} is there twice; rename one", i,
                                read->descriptor.plugin_name)};
        library.descriptors.push_back(read->descriptor);
        library.params.push_back(std::move(read->params));
    }
    for (size_t i = 0; i < library.descriptors.size(); ++i)
        library.descriptors[i].plugin_params = library.params[i].data();
    return success();
}

// The loader's own sentence, without the text that Boost.DLL puts around it.
std::string_view loader_text(std::string_view message) {
    constexpr std::string_view mark = "dlerror system message: ";
    const size_t begin = message.find(mark);
    if (begin == message.npos) return message;
    message.remove_prefix(begin + mark.size());
    return message.substr(0, message.rfind("): "));
}

// Opens the file and reads its record. Errors give what its symbols forbid, or the loader's reason.
status open_module(loaded_library &fresh) {
    library &content = fresh.content;
    const auto symbols = read_elf_symbols(content.path);
    if (!symbols) return symbols.failure();
    if (std::string reason = refusal_reason(*symbols); !reason.empty()) return error{reason};
    content.is_self_contained = is_self_contained(*symbols);
    auto shared = own_shared(*symbols);
    if (std::string reason = shared_with_others(shared); !reason.empty()) return error{reason};
    fresh.shared = std::move(shared);
    if (!content.is_self_contained) remember_surroundings();
    try {
        {
            const policy_call at_work(0, entry_point::constructors);
            fresh.handle.load(boost::dll::fs::path(content.path.string()),
                              boost::dll::load_mode::rtld_now);
        }
        // A function of the library may select the symbol (IFUNC), and the record's address may be
        // invalid.
        const policy_call at_work(0, entry_point::module);
        const auto door = fresh.handle.get<const moorage_module *()>(MOORAGE_MODULE_SYMBOL);
        note_library(content.path.string(), reinterpret_cast<const void *>(door));
        return read_module(door(), content);
    } catch (const std::exception &failure) {
        const std::string mount = noexec_problem(content.path);
        return error{format("cannot be loaded: {}{}", loader_text(failure.what()),
                            mount.empty() ? "" : "; " + mount)};
    }
}

}  // namespace

std::unique_lock<std::recursive_mutex> load_lock() { return std::unique_lock(process().mutex); }

result<library *> load_library(const std::filesystem::path &file) {
    std::error_code failed;
    const auto path = std::filesystem::canonical(file, failed);
    if (failed) return error{format("cannot be read: {}", failed.message())};
    const auto lock = load_lock();
    for (const auto &known : process().libraries)
        if (known->content.path.native() == path.native()) return &known->content;
    auto fresh = std::make_unique<loaded_library>();
    library &content = fresh->content;
    content.path = path;
    status sound = [&] {
        const thread_watch threads(owner_being_opened(path.string()), /*looks=*/true);
        return open_module(*fresh);
    }();
    const bool opened = fresh->handle.is_loaded();
    if (const std::string changes = restore_surroundings(opened && !content.is_self_contained);
        sound && !changes.empty())
        sound =
            error{format("changes {} of the process when it is opened; leave that to the host "
                         "(a library built with -ffast-math does it: leave that out)",
                         changes)};
    if (!sound) {
        // Its code has run, so it stays mapped and nothing that it left can dangle.
        if (opened) process().refused.push_back(std::move(fresh));
        return sound.failure();
    }
    // The memory of other libraries is not needed, and address checks forbid reading all of it.
    if (content.is_self_contained)
        content.memory = library_memory(reinterpret_cast<const void *>(content.module.create));
    process().libraries.push_back(std::move(fresh));
    return &process().libraries.back()->content;
}

std::string reason_not_to_open(const std::filesystem::path &file) {
    const auto symbols = read_elf_symbols(file);
    return symbols ? refusal_reason(*symbols) : symbols.failure().text;
}

bool libraries_are_as_opened() {
    const auto lock = load_lock();
    return std::ranges::all_of(process().libraries, [](const auto &opened) {
        const library &content = opened->content;
        if (!content.used) return true;
        const bool is_plain = content.is_self_contained && !content.module.init &&
                              !content.module.deinit && content.memory.is_comparable();
        return is_plain && content.instances == 0 && content.memory.is_unchanged();
    });
}

void end_libraries() {
    const auto lock = load_lock();
    while (!process().initialised.empty()) deinitialise_last();
}

library *library_of(const moorage_module *module) {
    const auto lock = load_lock();
    for (const auto &known : process().libraries)
        if (&known->content.module == module) return &known->content;
    return nullptr;
}

status initialise(library &library) {
    const auto lock = load_lock();
    if (library.initialised) return success();
    if (library.module.init) {
        init_error.clear();
        const uint32_t owner = owner_being_opened(library.path.string());
        const thread_watch threads(owner, !library.is_self_contained);
        remember_surroundings();
        const int32_t code = [&] {
            const policy_call at_work(owner, entry_point::init);
            return library.module.init(&init_host);
        }();  // whole_state: true
        if (const std::string changes = restore_surroundings(true); !changes.empty())
            return error{
                format("{}: init changes {} of the process; a policy leaves it as it "
                       "found it",
                       library.path.string(), changes)};
        if (code != MOORAGE_OK)
            return error{format("{}: init failed with status {}: {}", library.path.string(), code,
                                init_error.empty() ? "no text given" : init_error)};
    }
    library.initialised = true;
    if (library.module.deinit) {
        process().initialised.push_back(&library);
        std::atexit(deinitialise_last);
    }
    return success();
}

}  // namespace moorage::core
