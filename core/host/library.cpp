// library.cpp - loads policy libraries through Boost.DLL, the only file that includes it.
#include "core/host/library.h"

#include <boost/dll/shared_library.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/call.h"
#include "core/host/descriptor.h"
#include "core/host/elf_symbols.h"
#include "core/host/surroundings.h"

namespace moorage::core {

namespace {

constexpr uint32_t descriptors_max = 256;

// What stays loaded. Never destroyed: a policy's code must outlive every object that could still
// call into it, static ones included. The handles keep the libraries mapped.
struct loaded {
    boost::dll::shared_library handle;
    library content;
};
struct owner {
    std::recursive_mutex mutex;
    std::vector<std::unique_ptr<loaded>> libraries, refused;
    std::vector<library *> initialised;  // in order; deinit goes backwards
};
owner &process() {
    static owner &everything = *new owner;
    return everything;
}

// Runs at exit once per initialised library, newest first. Registered after the library was loaded,
// so it precedes the destruction of that library's statics.
void deinitialise_last() {
    auto &list = process().initialised;
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
// The host that init sees: it can log and set an error; the other services belong to instances.
constexpr moorage_host init_host{sizeof(moorage_host), 0,       MOORAGE_ABI_MAJOR,
                                 MOORAGE_ABI_MINOR,    nullptr, init_service,
                                 keep_init_error};

bool has(const std::vector<std::string_view> &names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// The remedy for a library of another version, older or newer.
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

// The sanitizer that the library needs and this program lacks, or null: loading its runtime late
// ends the process.
const char *missing_sanitizer(const elf_symbols &symbols) {
    static constexpr std::pair<const char *, const char *> sanitizers[] = {
        {"__asan_init", "address"},
        {"__hwasan_init", "hwaddress"},
        {"__tsan_init", "thread"},
        {"__msan_init", "memory"}};
    for (const auto &[symbol, name] : sanitizers)
        if (has(symbols.taken, symbol) && !dlsym(RTLD_DEFAULT, symbol)) return name;
    return nullptr;
}

// "" when nothing in the file speaks against running its code.
std::string not_to_be_opened(const std::filesystem::path &file) {
    const auto symbols = read_elf_symbols(file);
    if (!symbols) return symbols.failure().text;
    if (!has(symbols->functions, MOORAGE_MODULE_SYMBOL)) return missing_symbol(*symbols);
    if (const char *sanitizer = missing_sanitizer(*symbols))
        return format(
            "is built with -fsanitize={}, which this program is not; build it without, or "
            "moorage with it",
            sanitizer);
    return "";
}

status check_module(const moorage_module *given) {
    if (!given)
        return error{MOORAGE_MODULE_SYMBOL " returned null; it must return a static record"};
    if (given->size < module_size_min)
        return error{
            format("module record has {} bytes, expected {} or more; set size to "
                   "sizeof(moorage_module)",
                   given->size, module_size_min)};
    if (given->size > record_size_max)
        return error{
            format("module record claims {} bytes, more than any record has ({}); set size to "
                   "sizeof(moorage_module)",
                   given->size, record_size_max)};
    if (given->abi_major != MOORAGE_ABI_MAJOR)
        return error{format("is of abi {}, and abi {} is needed; {}", given->abi_major,
                            MOORAGE_ABI_MAJOR,
                            rebuild_or_upgrade(given->abi_major < MOORAGE_ABI_MAJOR))};
    if (given->abi_minor_needed > MOORAGE_ABI_MINOR)
        return error{format("needs abi {}.{} at least, host offers {}.{}; use a newer moorage",
                            MOORAGE_ABI_MAJOR, given->abi_minor_needed, MOORAGE_ABI_MAJOR,
                            MOORAGE_ABI_MINOR)};
    if (!given->plugin_id || !*given->plugin_id)
        return error{"module record has no id; set plugin_id, for example org.example.mine"};
    if (!given->plugin_version || !*given->plugin_version)
        return error{"module record has no version; set plugin_version"};
    if (!given->descriptor)
        return error{"module record: function descriptor is null; it is required"};
    if (!given->create) return error{"module record: function create is null; it is required"};
    if (given->descriptor_count == 0 || given->descriptor_count > descriptors_max)
        return error{
            format("module record names {} policies, expected 1 .. {}; set descriptor_count",
                   given->descriptor_count, descriptors_max)};
    return success();
}

// Fills `out` from the library's record.
status read_module(const moorage_module *given, library &out) {
    if (auto sound = check_module(given); !sound) return sound.failure();
    out.module = completed<moorage_module>(given);
    std::set<std::string_view> names;
    for (uint32_t i = 0; i < out.module.descriptor_count; ++i) {
        auto read = [&] {
            const policy_call at_work(0, entry_point::descriptor);
            return read_descriptor(out.module.descriptor(i));
        }();
        if (!read) return error{format("descriptor {} {}", i, read.failure().text)};
        if (!names.insert(read->descriptor.plugin_name).second)
            return error{format("descriptor {}: policy {} is there twice; rename one", i,
                                read->descriptor.plugin_name)};
        out.descriptors.push_back(read->descriptor);
        out.params.push_back(std::move(read->params));
    }
    for (size_t i = 0; i < out.descriptors.size(); ++i)
        out.descriptors[i].plugin_params = out.params[i].data();
    return success();
}

// The loader's own sentence, which the library wraps in its own.
std::string_view loader_text(std::string_view what) {
    constexpr std::string_view mark = "dlerror system message: ";
    const size_t begin = what.find(mark);
    if (begin == what.npos) return what;
    what.remove_prefix(begin + mark.size());
    return what.substr(0, what.rfind("): "));
}

// Opens the file. What its symbols say against it, and the loader's reason, come back as errors.
result<const moorage_module *> open_module(const std::filesystem::path &file,
                                    boost::dll::shared_library &handle) {
    if (std::string reason = not_to_be_opened(file); !reason.empty()) return error{reason};
    try {
        {
            const policy_call at_work(0, entry_point::constructors);
            handle.load(boost::dll::fs::path(file.string()), boost::dll::load_mode::rtld_now);
        }
        const auto door = handle.get<const moorage_module *()>(MOORAGE_MODULE_SYMBOL);
        const policy_call at_work(0, entry_point::module);
        return door();
    } catch (const std::exception &failure) {
        return error{format("cannot be loaded: {}", loader_text(failure.what()))};
    }
}

}  // namespace

std::unique_lock<std::recursive_mutex> load_lock() { return std::unique_lock(process().mutex); }

result<library *> load_library(const std::filesystem::path &file) {
    std::error_code failed;
    const auto path = std::filesystem::canonical(file, failed);
    if (failed) return error{format("cannot be read: {}", failed.message())};
    const auto lock = load_lock();
    for (const auto &one : process().libraries)
        if (one->content.path == path) return &one->content;
    auto fresh = std::make_unique<loaded>();
    fresh->content.path = path;
    remember_surroundings();
    owner_being_opened(path.string());
    const auto record = open_module(path, fresh->handle);
    status sound = record ? read_module(*record, fresh->content) : status(record.failure());
    if (const std::string what = restore_surroundings(/*all=*/true); sound && !what.empty())
        sound =
            error{format("changes {} of the process when it is opened; leave that to the host "
                         "(a library built with -ffast-math does it: leave that out)",
                         what)};
    if (!sound) {
        // Code of it has run: it stays mapped, so that nothing it left behind can dangle.
        if (fresh->handle.is_loaded()) process().refused.push_back(std::move(fresh));
        return sound.failure();
    }
    process().libraries.push_back(std::move(fresh));
    return &process().libraries.back()->content;
}

library *library_of(const moorage_module *module) {
    const auto lock = load_lock();
    for (const auto &one : process().libraries)
        if (&one->content.module == module) return &one->content;
    return nullptr;
}

status initialise(library &of) {
    const auto lock = load_lock();
    if (of.initialised) return success();
    if (of.module.init) {
        init_error.clear();
        remember_surroundings();
        const int32_t code = [&] {
            const policy_call at_work(owner_being_opened(of.path.string()), entry_point::init);
            return of.module.init(&init_host);
        }();
        if (const std::string what = restore_surroundings(/*all=*/true); !what.empty())
            return error{
                format("{}: init changes {} of the process; a policy leaves it as it "
                       "found it",
                       of.path.string(), what)};
        if (code != MOORAGE_OK)
            return error{format("{}: init failed with status {}: {}", of.path.string(), code,
                                init_error.empty() ? "no text given" : init_error)};
    }
    of.initialised = true;
    if (of.module.deinit) {
        process().initialised.push_back(&of);
        std::atexit(deinitialise_last);
    }
    return success();
}

}  // namespace moorage::core
