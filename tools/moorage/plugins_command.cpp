// plugins_command.cpp - `moorage plugins`: lists, describes, checks and creates policies.
#include <memory>

#include "core/base/text.h"
#include "core/host/kinds.h"
#include "tools/moorage/command.h"
#include "tools/moorage/plugins.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

struct options {
    plugins_list_options list;
    plugins_describe_options describe;
    plugins_new_options scaffold;
    plugins_check_options check;
};

// Adds --set and the folders of policies.
void add_places(parser &to, setting_options &of) {
    add_set(to, of);
    add_flag_of_key(to, of, "--plugins");
    to.add_old_option("--path", of.plugins, "--plugins");
}

void add_list(parser &to, plugins_list_options &o) {
    parser *at = to.add_subcommand(
        "list", "list the available policies, and the libraries that were refused");
    add_places(*at, o.settings);
    add_json(*at, o.json, "the policies");
}

void add_describe(parser &to, plugins_describe_options &o) {
    parser *at = to.add_subcommand(
        "describe", "show a policy: its idea, calls, parameters with limits, needs and source");
    at->add_option("name", o.name, "name of the policy, as in TOML")->required();
    add_places(*at, o.settings);
    add_json(*at, o.json, "the policies");
}

void add_new(parser &to, plugins_new_options &o) {
    parser *at =
        to.add_subcommand("new", "write a new policy: one file that works and explains itself");
    const std::vector<std::string> kinds(std::begin(core::kinds), std::end(core::kinds));
    at->add_option("kind", o.kind, core::listed(kinds, "or"))->required();
    at->add_option("name", o.name, "name in TOML: snake_case, no keyword of the language")
        ->required();
    at->add_option("--lang", o.language, "cpp, c or rust")->capture_default_str();
    at->add_option("--dir", o.directory, "folder of the new file")->capture_default_str();
}

void add_check(parser &to, plugins_check_options &o) {
    parser *at = to.add_subcommand("check",
                                   "test whether a policy keeps the rules of the interface; each "
                                   "test runs in its own process");
    at->add_option("file", o.file,
                   "library (.so), or source (.cpp, .c, .rs) that is compiled first");
    at->add_option("policy", o.policy, "test only this policy of the library");
    at->add_option("--only", o.only, "run only this test");
    add_set(*at, o.settings);
    add_flag_of_key(*at, o.settings, "--seed", "random seed of the tests; default 1");
    at->add_option("--timeout", o.timeout_s, "timeout of a test")
        ->type_name("S")
        ->in(core::quantity_unit::s)
        ->range(0.01, 3600.0)
        ->capture_default_str();
    add_json(*at, o.json, "the results");
    at->add_flag("--all", o.verbose, "print every test, also those that passed");
    at->add_option("--param", o.params, "set a parameter for the policies of a kind; repeatable")
        ->type_name("KIND.KEY=VALUE")
        ->take_all()
        ->expected(1);
    at->add_option("--address", o.address, "address at which a wire listens in its tests")
        ->capture_default_str();
    at->add_flag("--large", o.large,
                 "also send messages of 1 GiB over a wire (needs 3 GiB of memory)");
    at->add_flag("--list-tests", o.list_tests, "list the tests, one sentence each");
}

}  // namespace

command install_plugins(parser &app) {
    parser *plugins = app.add_subcommand("plugins", "list, describe, check and make policies");
    plugins->require_subcommand(1);
    const auto given =
        std::make_shared<options>();  // lives as long as both the parser and the action
    add_list(*plugins, given->list);
    add_describe(*plugins, given->describe);
    add_new(*plugins, given->scaffold);
    add_check(*plugins, given->check);
    return [plugins, given] {
        if (plugins->got_subcommand("list")) return plugins_list(given->list);
        if (plugins->got_subcommand("describe")) return plugins_describe(given->describe);
        if (plugins->got_subcommand("new")) return plugins_new(given->scaffold);
        return plugins_check(given->check);
    };
}

}  // namespace moorage::tool
