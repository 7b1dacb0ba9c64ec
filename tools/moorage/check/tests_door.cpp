// tests_door.cpp - the one exported function and its tables.
#include <algorithm>
#include <chrono>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/host/call_list.h"
#include "core/host/elf_symbols.h"
#include "core/host/library.h"
#include "tools/moorage/check/tests.h"

namespace moorage::check {

using core::format;

verdict loads(const test_input &input) {
    const auto library = core::load_library(input.file);
    return library ? passed() : failed(library.failure().text);
}

verdict exported_symbols_one(const test_input &input) {
    const auto symbols = core::read_elf_symbols(input.file);
    if (!symbols) return failed(symbols.failure().text);
    std::vector<std::string_view> others;
    for (const std::string_view name : symbols->exported)
        if (!name.starts_with("moorage_module_v")) others.push_back(name);
    if (symbols->exported.size() == others.size())
        return failed("exports no " MOORAGE_MODULE_SYMBOL);
    if (others.empty()) return passed();
    return failed(format("exports {} symbols besides " MOORAGE_MODULE_SYMBOL
                         ", the first is {}; link with the "
                         "sdk's module.map and hidden visibility",
                         others.size(), others[0]));
}

// In a process of its own each time, because a library is loaded once in a process; the best of
// three, because a busy machine slows what it likes.
verdict scan_time(const test_input &input) {
    using namespace std::chrono;
    constexpr int limit_ms = 100, longest_ms = 250, unloadable = 255;
    int best_ms = unloadable;
    for (int i = 0; i < 3 && best_ms > limit_ms; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            core::become_own_process();
            const auto begin = steady_clock::now();
            if (!core::load_library(input.file)) _exit(unloadable);
            const auto took = duration_cast<milliseconds>(steady_clock::now() - begin).count();
            _exit(static_cast<int>(std::min<int64_t>(took, longest_ms)));
        }
        int state = 0;
        if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state))
            return skipped("no child process");
        best_ms = std::min(best_ms, WEXITSTATUS(state));
    }
    if (best_ms == unloadable) return skipped("the library does not load");
    if (best_ms <= limit_ms) return passed();
    return failed(format(
        "loading and describing takes {}{} ms, at most {} are allowed; move work to activate",
        best_ms, best_ms == longest_ms ? " or more" : "", limit_ms));
}

verdict descriptor_consistency(const test_input &input) {
    const moorage_module &module = *input.policy->module;
    const uint32_t count = module.descriptor_count;
    for (const uint32_t beyond : {count, count + 1, UINT32_MAX})
        if (module.descriptor(beyond))
            return failed(format("descriptor({}) is not null, there are {}", beyond, count));
    for (uint32_t i = 0; i < count; ++i)
        if (module.descriptor(i) != module.descriptor(i))
            return failed(
                format("descriptor({}) answers differently each time; return a static record", i));
    world test_world(first_world(input));
    auto instance = hosted_actor(*input.policy, input.params, test_world.environment());
    if (!instance) return failed(instance.failure().text);
    std::vector<std::string> ids{MOORAGE_INTERFACE_OBSERVER, MOORAGE_INTERFACE_FACTS,
                                 MOORAGE_INTERFACE_REPLAY};
    for (const std::string_view kind : core::kinds) ids.push_back(core::interface_id(kind));
    moorage_plugin *plugin = (*instance)->plugin;
    for (const std::string &id : ids) {
        const void *first = plugin->get_interface(plugin, id.c_str());
        if (first != plugin->get_interface(plugin, id.c_str()))
            return failed(format("get_interface(\"{}\") answers differently each time", id));
        if (input.policy->is(id) != (first != nullptr))
            return failed(format("{} is {} but get_interface answers {}", id,
                                 input.policy->is(id) ? "declared" : "not declared",
                                 first ? "a table" : "null"));
    }
    return passed();
}

verdict calls_found(const test_input &input) {
    const auto calls = core::list_calls(*input.policy);
    return calls ? passed(core::text_of(*calls)) : skipped(calls.failure().text);
}

verdict unknown_interface_null(const test_input &input) {
    world test_world(first_world(input));
    auto instance = hosted_actor(*input.policy, input.params, test_world.environment());
    if (!instance) return failed(instance.failure().text);
    moorage_plugin *plugin = (*instance)->plugin;
    for (const char *id :
         {"", "moorage", "moorage.unknown/1", "org.example.cache/1", "MOORAGE.CACHE/1"})
        if (plugin->get_interface(plugin, id))
            return failed(format("get_interface(\"{}\") is not null", id));
    return passed();
}

verdict id_trailing_garbage_null(const test_input &input) {
    world test_world(first_world(input));
    auto instance = hosted_actor(*input.policy, input.params, test_world.environment());
    if (!instance) return failed(instance.failure().text);
    moorage_plugin *plugin = (*instance)->plugin;
    for (uint32_t i = 0; i < input.policy->descriptor->kind_count; ++i) {
        const std::string id = input.policy->descriptor->plugin_kinds[i];
        for (const std::string &wrong :
             {id + "0", id + "/draft", id + " ", id.substr(0, id.size() - 1), " " + id})
            if (plugin->get_interface(plugin, wrong.c_str()))
                return failed(
                    format("get_interface(\"{}\") is not null; compare the whole id", wrong));
    }
    return passed();
}

}  // namespace moorage::check
