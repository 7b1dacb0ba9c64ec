// plugins_command.cpp - `moorage plugins`: lists, describes, checks and creates policies.
#include <memory>

#include "core/base/text.h"
#include "core/host/kinds.h"
#include "tools/moorage/command.h"
#include "tools/moorage/plugins.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

struct plugins_options {
    plugins_list_options list;
    plugins_describe_options describe;
    plugins_new_options scaffold;
    plugins_check_options check;
};

// Adds --set and the folders of policies.
void add_places(parser &command, setting_options &settings) {
    add_set(command, settings);
    add_flag_of_key(command, settings, "--plugins");
    command.add_old_option("--path", settings.plugins, "--plugins");
}

void add_list(parser &parent, plugins_list_options &o) {
    parser *command = parent.add_subcommand(
        "list", "list the available policies, and the libraries that were refused");
    add_places(*command, o.settings);
    add_json(*command, o.json, "the policies");
}

void add_describe(parser &parent, plugins_describe_options &o) {
    parser *command = parent.add_subcommand(
        "describe", "show a policy: its idea, calls, parameters with limits, needs and source");
    command->add_option("name", o.name, "name of the policy, as in TOML")->required();
    add_places(*command, o.settings);
    add_json(*command, o.json, "the policies");
}

void add_new(parser &parent, plugins_new_options &o) {
    parser *command =
        parent.add_subcommand("new", "write a new policy: one file that works and explains itself");
    const std::vector<std::string> kinds(std::begin(core::kinds), std::end(core::kinds));
    command->add_option("kind", o.kind, core::listed(kinds, "or"))->required();
    command->add_option("name", o.name, "name in TOML: snake_case, no keyword of the language")
        ->required();
    command->add_option("--lang", o.language, "cpp, c or rust")->capture_default_str();
    command->add_option("--dir", o.directory, "folder of the new file")->capture_default_str();
}

void add_check(parser &parent, plugins_check_options &o) {
    parser *command =
        parent.add_subcommand("check",
                              "test whether a policy keeps the rules of the interface; each "
                              "test runs in its own process");
    command->add_option("file", o.file,
                        "library (.so), or source (.cpp, .c, .rs) that is compiled first");
    command->add_option("policy", o.policy, "test only this policy of the library");
    command->add_option("--only", o.only_test, "run only this test");
    add_set(*command, o.settings);
    add_flag_of_key(*command, o.settings, "--seed", "random seed of the tests; default 1");
    command->add_option("--timeout", o.timeout_s, "timeout of a test")
        ->type_name("S")
        ->in_unit(core::quantity_unit::s)
        ->range(0.01, 3600.0)
        ->capture_default_str();
    add_json(*command, o.json, "the results");
    command->add_flag("--all", o.verbose, "print every test, also those that passed");
    command
        ->add_option("--param", o.params, "set a parameter for the policies of a kind; repeatable")
        ->type_name("KIND.KEY=VALUE")
        ->take_all()
        ->expected(1);
    command->add_option("--address", o.address, "address at which a wire listens in its tests")
        ->capture_default_str();
    command->add_flag("--large", o.large,
                      "also send messages of 1 GiB over a wire (needs 3 GiB of memory)");
    command->add_flag("--list-tests", o.list_tests, "list the tests, one sentence each");
}

}  // namespace

command install_plugins(parser &app) {
    parser *plugins = app.add_subcommand("plugins", "list, describe, check and make policies");
    plugins->require_subcommand(1);
    const auto arguments =
        std::make_shared<plugins_options>();  // lives as long as both the parser and the action
    add_list(*plugins, arguments->list);
    add_describe(*plugins, arguments->describe);
    add_new(*plugins, arguments->scaffold);
    add_check(*plugins, arguments->check);
    return [plugins, arguments] {
        if (plugins->got_subcommand("list")) return plugins_list(arguments->list);
        if (plugins->got_subcommand("describe")) return plugins_describe(arguments->describe);
        if (plugins->got_subcommand("new")) return plugins_new(arguments->scaffold);
        return plugins_check(arguments->check);
    };
}

}  // namespace moorage::tool
