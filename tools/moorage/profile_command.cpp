// profile_command.cpp - moorage profile measure: a profile of this machine.
#include <algorithm>
#include <ctime>
#include <memory>
#include <string>

#include "core/base/atomic_file.h"
#include "core/base/json.h"
#include "core/base/machine_limits.h"
#include "core/base/text.h"
#include "core/config/hardware.h"
#include "core/execute/executor_module.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/profile_compare.h"
#include "tools/moorage/profile_json.h"
#include "tools/moorage/profile_probe.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct measure_arguments {
    std::string out_file, executor = "cpu", json_file;
    double seconds = 20;
    setting_options settings;
    uint32_t threads = 0;  // of [run]
};

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    return format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

result<measured_machine> measure_machine(const measure_arguments &arguments) {
    measure_options options;
    options.seconds = arguments.seconds;
    options.threads = arguments.threads;
    options.progress = [](const std::string &name) { print_error(format("measuring {}\n", name)); };
    const executor_kind &kind = *find_executor(arguments.executor);
    auto machine = module_of(kind).measure(options);
    if (!machine) return machine.failure();
    machine->date = today();
    options.progress("whole tokens");
    if (const status done = measure_tokens(arguments.seconds / 10, arguments.threads, *machine);
        !done)
        return done.failure();
    if (kind.memory == fast_memory::gpu) return machine;
    options.progress("loads");
    if (const status done = measure_loads(arguments.seconds / 20, arguments.threads, *machine);
        !done)
        return done.failure();
    return machine;
}

// Finds errors that would otherwise show after minutes of measuring.
status check_first(const measure_arguments &arguments) {
    const uint32_t processors = usable_processors();
    if (arguments.threads > processors)
        return error{format("run.threads {}: this process may use {} processor{}, so from 0 to {}",
                            arguments.threads, processors, processors == 1 ? "" : "s", processors),
                     true};
    for (const std::string &file : {arguments.out_file, arguments.json_file})
        if (!file.empty() && file != "-")
            if (const auto writable = atomic_file::create(file); !writable)
                return writable.failure();
    return success();
}

int measure(measure_arguments &arguments) {
    if (const status read = read_machine(arguments.settings, "profile measure", arguments.executor,
                                         arguments.threads);
        !read)
        return fail(read.failure());
    if (const status sound = check_first(arguments); !sound) return fail(sound.failure());
    const auto machine = measure_machine(arguments);
    if (!machine) return fail(machine.failure());
    const measured_profile measured = profile_of(*machine);
    const std::string text = to_toml(measured.profile, measured.sources, measured.notes);
    if (const status done = write_text(arguments.out_file, text); !done)
        return fail(done.failure());
    if (arguments.json_file != "-" && arguments.out_file != "-") {
        for (const std::string &line : measured.notes) print(line + "\n");
        print(format("\nprofile: {0} (use it with --set hardware.profile={0})\n",
                     arguments.out_file));
    }
    if (!arguments.json_file.empty())
        if (const status done =
                write_json(arguments.json_file, json_of(*machine, measured.profile));
            !done)
            return fail(done.failure());
    return exit_ok;
}

void add_measure(parser &sub, measure_arguments &arguments) {
    sub.add_option("--out", arguments.out_file, "profile to write; -: standard output")
        ->required()
        ->type_name("FILE.toml");
    sub.add_option("--executor", arguments.executor, "executor to measure: cpu (default) or cuda")
        ->type_name("NAME")
        ->one_of({"cpu", "cuda"});
    sub.add_option("--seconds", arguments.seconds,
                   "time for repeats, about (20 s); each measurement always runs a few times, "
                   "which takes 10 s or more")
        ->type_name("S")
        ->in_unit(quantity_unit::s)
        ->range(0.01, 3600.0);
    add_set(sub, arguments.settings);
    add_flag_of_key(sub, arguments.settings, "--threads");
    add_json(sub, arguments.json_file, "all samples");
}

}  // namespace

command install_profile(parser &app) {
    parser *profile = app.add_subcommand(
        "profile", "measure this machine as a hardware profile, or compare the emulator with it");
    profile->require_subcommand(1);
    const auto arguments = std::make_shared<measure_arguments>();
    parser *measuring =
        profile->add_subcommand("measure", "measure this machine and write its profile");
    add_measure(*measuring, *arguments);
    const command compare = install_profile_compare(*profile);
    return [=] { return measuring->parsed() ? measure(*arguments) : compare(); };
}

}  // namespace moorage::tool
