// parser.cpp - the only file that includes CLI11.
#include "tools/moorage/parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/text.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

std::string name_of(const CLI::App &command) {
    const CLI::App *parent = command.get_parent();
    return (parent ? name_of(*parent) + " " : "") + command.get_name();
}

std::vector<std::string> names_of(const CLI::App &command) {
    std::vector<std::string> names;
    for (const CLI::Option *option : command.get_options()) {
        if (option->get_group().empty()) continue;  // an old spelling
        for (const std::string &name : option->get_lnames()) names.push_back("--" + name);
        for (const std::string &name : option->get_snames()) names.push_back("-" + name);
    }
    return names;
}

// " (place and replay have it)": the commands below `program` with the option.
std::string owners_of(const CLI::App &program, const std::string &name) {
    std::vector<std::string> owners;
    const auto visit = [&](const auto &self, const CLI::App &command) -> void {
        const std::vector<std::string> names = names_of(command);
        if (std::ranges::find(names, name) != names.end()) owners.push_back(command.get_name());
        for (const CLI::App *child : command.get_subcommands([](const CLI::App *) { return true; }))
            self(self, *child);
    };
    visit(visit, program);
    if (owners.empty() || owners.size() > 4) return "";
    return core::format(" ({} {} it)", core::listed(owners, "and"),
                        owners.size() == 1 ? "has" : "have");
}

// The first word that is not a command, or option that its command does not have, with the nearest
// known one. "" for any other error.
std::string first_unknown(const CLI::App &program, const std::vector<std::string> &words) {
    const CLI::App *command = &program;
    std::vector<std::string> options = names_of(program);
    for (const std::string &word : words) {
        std::vector<std::string> commands;
        const CLI::App *chosen = nullptr;
        for (const CLI::App *candidate :
             command->get_subcommands([](const CLI::App *) { return true; })) {
            commands.push_back(candidate->get_name());
            if (candidate->get_name() == word) chosen = candidate;
        }
        const std::string name = word.substr(0, word.find('='));
        const bool is_short = word.size() == 2 && word[0] == '-' && std::isalpha(word[1]);
        if (is_short || (word.starts_with("--") && word.size() > 2)) {
            if (std::ranges::find(options, name) == options.end() &&
                !(command->get_option_no_throw(name)))
                return core::format("{}: no option of {}{}{}; {} --help lists them", name,
                                    command->get_name(), owners_of(program, name),
                                    is_short ? "" : core::did_you_mean(name, options),
                                    name_of(*command));
        } else if (chosen) {
            command = chosen;
            const std::vector<std::string> new_options = names_of(*chosen);
            options.insert(options.end(), new_options.begin(), new_options.end());
        } else if (!commands.empty() && !word.starts_with('-')) {
            return core::format("{}: no command of {}{}; {} --help lists them", word,
                                command->get_name(), core::did_you_mean(word, commands),
                                name_of(*command));
        }
    }
    return "";
}

// The last of the commands that were named.
const CLI::App &last_named(const CLI::App &command) {
    const auto named = command.get_subcommands();
    return named.empty() ? command : last_named(*named.front());
}

// The help text of this command. App::help() would give that of the named subcommand.
std::string help_of(const CLI::App &command) {
    const std::string name = name_of(command);
    return command.get_formatter()->make_help(&command, name, CLI::AppFormatMode::Normal);
}

void append_values(option_values &values, const CLI::App &command,
                   std::span<const char *const> names) {
    for (const char *name : names)
        if (const CLI::Option *option = command.get_option_no_throw(name);
            option && option->count())
            values.emplace_back(name, option->results().front());
    for (const CLI::App *part : command.get_subcommands()) append_values(values, *part, names);
}

// The words of "{a,b}" or "a|b", or nothing.
std::vector<std::string> words_of(const std::string &text) {
    if (text.starts_with('{') && text.ends_with('}'))
        return core::split(text.substr(1, text.size() - 2), ',');
    const auto lower = [](char c) { return c == '|' || (c >= 'a' && c <= 'z'); };
    if (text.find('|') != std::string::npos && std::ranges::all_of(text, lower))
        return core::split(text, '|');
    return {};
}

// CLI11 describes checked values as "NAME:{a,b}" and "NAME:UINT in [1 - 64]".
void describe_value(const std::string &type_text, described_option &option) {
    size_t end = type_text.find(":{");
    const size_t range = type_text.find(" in [");
    if (end == std::string::npos && range != std::string::npos) {
        end = type_text.rfind(':', range);
        option.bounds = type_text.substr(range + 5, type_text.size() - range - 6);
    }
    option.value = type_text.substr(0, end);
    option.words = words_of(end == std::string::npos ? type_text : type_text.substr(end + 1));
    constexpr const char *file_placeholders[] = {"FILE", "CONFIG", "CLUSTER",
                                                 "PLAN", "DIR",    "TEXT"};
    const auto has_placeholder = [&](const char *part) {
        return option.value.find(part) != std::string::npos;
    };
    option.kind = !option.words.empty()                                     ? argument_kind::word
                  : std::ranges::any_of(file_placeholders, has_placeholder) ? argument_kind::file
                                                                            : argument_kind::other;
}

described_option described_of(const CLI::Option &option) {
    described_option described;
    described.positional = option.get_positional();
    if (described.positional) {
        described.names.push_back(option.get_name());
    } else {
        for (const std::string &name : option.get_snames()) described.names.push_back("-" + name);
        for (const std::string &name : option.get_lnames()) described.names.push_back("--" + name);
    }
    described.required = option.get_required();
    described.repeatable = option.get_expected_max() > 1 ||
                           option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    described.fallback = option.get_default_str();
    described.help = option.get_description();
    if (option.get_items_expected_max() > 0) describe_value(option.get_type_name(), described);
    return described;
}

described_command described_of(const CLI::App &command, const std::string &path) {
    described_command described;
    described.path = path;
    described.title = command.get_description();
    const CLI::App *parent = command.get_parent();
    if (!parent || parent->get_footer() != command.get_footer())
        described.footer = command.get_footer();
    for (const CLI::Option *option : command.get_options())
        if (!option->get_group().empty())  // else an old spelling
            described.options.push_back(described_of(*option));
    for (const CLI::App *child : command.get_subcommands([](const CLI::App *) { return true; }))
        if (!child->get_group().empty())
            described.commands.push_back(
                described_of(*child, (path.empty() ? "" : path + " ") + child->get_name()));
    return described;
}

}  // namespace

option *option::required() {
    cli_option_->required();
    return this;
}

option *option::type_name(const std::string &name) {
    cli_option_->type_name(name);
    return this;
}

option *option::take_all() {
    cli_option_->take_all();
    return this;
}

option *option::expected(int count) {
    cli_option_->expected(count);
    return this;
}

option *option::delimiter(char separator) {
    cli_option_->delimiter(separator);
    return this;
}

option *option::allow_extra_args(bool allowed) {
    cli_option_->allow_extra_args(allowed);
    return this;
}

option *option::capture_default_str() {
    cli_option_->capture_default_str();
    return this;
}

option *option::excludes(const option *excluded) {
    cli_option_->excludes(excluded->cli_option_);
    return this;
}

option *option::range(double least, double most) {
    cli_option_->check(CLI::Range(least, most));
    return this;
}

option *option::range(uint32_t least, uint32_t most) {
    cli_option_->check(CLI::Range(least, most));
    return this;
}

option *option::one_of(std::initializer_list<const char *> words) {
    const std::vector<std::string> known(words.begin(), words.end());
    cli_option_->check(CLI::Validator(
        [known](const std::string &word) -> std::string {
            if (std::ranges::find(known, word) != known.end()) return "";
            return core::format("{} is none of {}{}", word, core::listed(known, "and"),
                                core::did_you_mean(word, known));
        },
        core::format("{{{}}}", fmt::join(known, ","))));
    return this;
}

option *option::in_unit(core::quantity_unit unit) {
    cli_option_->transform(CLI::Validator(
        [unit](std::string &text) -> std::string {
            double number = 0;
            const char *const end = text.data() + text.size();
            if (const auto read = std::from_chars(text.data(), end, number);
                read.ec == std::errc() && read.ptr == end)
                return std::isfinite(number) ? "" : text + " is no finite number";
            const auto read = core::parse_quantity(text, unit);
            if (!read) return core::format("\"{}\": {}", text, read.failure().text);
            text = core::format("{}", *read);
            return "";
        },
        ""));
    return this;
}

size_t option::count() const { return cli_option_->count(); }

parser::parser(const std::string &title, const std::string &name)
    : owned_app_(std::make_unique<CLI::App>(title, name)), app_(owned_app_.get()) {}

parser::parser(CLI::App &app) : app_(&app) {}

parser::~parser() = default;

parser *parser::add_subcommand(const std::string &name, const std::string &title) {
    subcommands_.push_back(std::make_unique<parser>(*app_->add_subcommand(name, title)));
    return last_subcommand();
}

template <class Value>
option *parser::add_option(const std::string &names, Value &variable, const std::string &help) {
    options_.push_back(std::make_unique<option>(*app_->add_option(names, variable, help)));
    return options_.back().get();
}

template option *parser::add_option(const std::string &, uint32_t &, const std::string &);
template option *parser::add_option(const std::string &, uint64_t &, const std::string &);
template option *parser::add_option(const std::string &, double &, const std::string &);
template option *parser::add_option(const std::string &, std::string &, const std::string &);
template option *parser::add_option(const std::string &, std::filesystem::path &,
                                    const std::string &);
template option *parser::add_option(const std::string &, std::vector<int32_t> &,
                                    const std::string &);
template option *parser::add_option(const std::string &, std::vector<std::string> &,
                                    const std::string &);
template option *parser::add_option(const std::string &, std::vector<std::filesystem::path> &,
                                    const std::string &);

template <class Value>
void parser::add_old_option(const std::string &name, Value &variable, const std::string &now) {
    CLI::Option *const old = app_->add_option(name, variable);
    old->group("");
    old->each([name, now](const std::string &) { warn_old_spelling(name, now); });
}

template void parser::add_old_option(const std::string &, std::string &, const std::string &);
template void parser::add_old_option(const std::string &, std::vector<std::string> &,
                                     const std::string &);

option *parser::add_flag(const std::string &names, bool &variable, const std::string &help) {
    options_.push_back(std::make_unique<option>(*app_->add_flag(names, variable, help)));
    return options_.back().get();
}

void parser::set_version_flag(const std::string &name, const std::string &text) {
    app_->set_version_flag(name, text);
}

void parser::require_subcommand(int least) { app_->require_subcommand(least); }

void parser::footer(const std::string &text) { app_->footer(text); }

void parser::hide() { app_->group(""); }

described_command parser::described() const { return described_of(*app_, ""); }

std::optional<int> parser::parse(int argc, char **argv, bool reports_usage) {
    try {
        app_->parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        std::ostringstream output, errors;
        const int code = app_->exit(error, output, errors) == 0 ? exit_ok : exit_usage;
        if (code == exit_usage && !reports_usage) return code;
        if (const std::string unknown = first_unknown(*app_, {argv + 1, argv + argc});
            code == exit_usage && !unknown.empty())
            errors.str(unknown + "\n");
        else if (std::string_view(error.what()) == "A subcommand is required")
            errors.str(help_of(last_named(*app_)));
        print(output.str());
        print_error(errors.str());
        return finish_output(code);
    }
    return std::nullopt;
}

std::string parser::help() const { return help_of(*app_); }

const parser *parser::find(std::string_view words) const {
    const std::string_view first = words.substr(0, words.find(' '));
    for (const auto &child : subcommands_) {
        if (child->app_->get_name() != first) continue;
        return first == words ? child.get() : child->find(words.substr(first.size() + 1));
    }
    return nullptr;
}

bool parser::parsed() const { return app_->parsed(); }

std::vector<parser *> parser::leaves() {
    if (subcommands_.empty()) return {this};
    std::vector<parser *> found;
    for (const auto &child : subcommands_)
        for (parser *leaf : child->leaves()) found.push_back(leaf);
    return found;
}

bool parser::has_option(const std::string &name) const {
    return app_->get_option_no_throw(name) != nullptr;
}

std::string parser::name() const { return name_of(*app_); }

bool parser::got_subcommand(const std::string &name) const { return app_->got_subcommand(name); }

option_values parser::values_of(std::span<const char *const> names) const {
    option_values values;
    append_values(values, *app_, names);
    return values;
}

}  // namespace moorage::tool
