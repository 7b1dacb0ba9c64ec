// parser.h - the command line as the commands declare it: options bound to variables, subcommands.
//
//     parser *sub = app.add_subcommand("model", "look at a model");
//     sub->add_option("--jobs", arguments->jobs, "threads")->type_name("N")->range(1u, 64u);
//
// A thin cover of CLI11. Its header costs four seconds in every unit that includes it, so only
// parser.cpp does. Names and meanings are CLI11's.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/quantity.h"
#include "tools/moorage/described.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace moorage::tool {

// Each function returns the option itself.
class option {
public:
    explicit option(CLI::Option &cli_option) : cli_option_(&cli_option) {}

    option *required();
    option *type_name(const std::string &name);
    option *take_all();
    option *expected(int count);
    option *delimiter(char separator);
    option *allow_extra_args(bool allowed);
    // --help shows the variable's present value.
    option *capture_default_str();
    option *excludes(const option *excluded);
    option *range(double least, double most);
    option *range(uint32_t least, uint32_t most);
    option *one_of(std::initializer_list<const char *> words);
    // A number, also with a unit. Call it before range().
    option *in_unit(core::quantity_unit unit);

    size_t count() const;

private:
    CLI::Option *cli_option_;
};

// Option and its (first) value.
using option_values = std::vector<std::pair<std::string, std::string>>;

// A command with its options and subcommands. Those live as long as it does.
class parser {
public:
    parser(const std::string &title, const std::string &name);
    explicit parser(CLI::App &app);
    ~parser();

    parser *add_subcommand(const std::string &name, const std::string &title);
    // `variable` is one of the types that parser.cpp lists; it outlives the parser.
    template <class Value>
    option *add_option(const std::string &names, Value &variable, const std::string &help);
    // An old spelling that --help hides. Its user is told the new one.
    template <class Value>
    void add_old_option(const std::string &name, Value &variable, const std::string &now);
    option *add_flag(const std::string &names, bool &variable, const std::string &help);
    void set_version_flag(const std::string &name, const std::string &text);
    void require_subcommand(int least);
    void footer(const std::string &text);
    // Hides it from its parent's help and from described().
    void hide();

    // Answers requests for help and version, and reports wrong usage; then returns an exit code.
    // Returns nothing if the work can begin. reports_usage = false: says nothing of wrong usage.
    std::optional<int> parse(int argc, char **argv, bool reports_usage);
    bool parsed() const;
    // Commands without subcommands; also this one if it has none.
    std::vector<parser *> leaves();
    bool has_option(const std::string &name) const;
    std::string name() const;  // "moorage plugins check"
    std::string help() const;
    // The command below this one with these words ("plugins check"); null if there is none.
    const parser *find(std::string_view words) const;
    bool got_subcommand(const std::string &name) const;
    // The given options among `names`, here and in the chosen subcommands.
    option_values values_of(std::span<const char *const> names) const;
    // This command and those below it, as declared so far.
    described_command described() const;
    // The one that was added last. Requires: there is one.
    parser *last_subcommand() { return subcommands_.back().get(); }

private:
    std::unique_ptr<CLI::App> owned_app_;  // null in a subcommand
    CLI::App *app_;
    std::vector<std::unique_ptr<parser>> subcommands_;
    std::vector<std::unique_ptr<option>> options_;
};

}  // namespace moorage::tool
