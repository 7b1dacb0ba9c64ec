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

std::vector<std::string> names_of(const CLI::App &command) {
    std::vector<std::string> names;
    for (const CLI::Option *one : command.get_options()) {
        if (one->get_group().empty()) continue;  // an old spelling
        for (const std::string &name : one->get_lnames()) names.push_back("--" + name);
        for (const std::string &name : one->get_snames()) names.push_back("-" + name);
    }
    return names;
}

// " (place and replay have it)": the commands below `program` with the option.
std::string owners_of(const CLI::App &program, const std::string &name) {
    std::vector<std::string> owners;
    const auto look = [&](const auto &self, const CLI::App &at) -> void {
        const std::vector<std::string> names = names_of(at);
        if (std::ranges::find(names, name) != names.end()) owners.push_back(at.get_name());
        for (const CLI::App *one : at.get_subcommands([](const CLI::App *) { return true; }))
            self(self, *one);
    };
    look(look, program);
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
        for (const CLI::App *one :
             command->get_subcommands([](const CLI::App *) { return true; })) {
            commands.push_back(one->get_name());
            if (one->get_name() == word) chosen = one;
        }
        const std::string name = word.substr(0, word.find('='));
        const bool is_short = word.size() == 2 && word[0] == '-' && std::isalpha(word[1]);
        if (is_short || (word.starts_with("--") && word.size() > 2)) {
            if (std::ranges::find(options, name) == options.end() &&
                !(command->get_option_no_throw(name)))
                return core::format("{}: no option of {}{}{}; {} --help lists them", name,
                                    command->get_name(), owners_of(program, name),
                                    is_short ? "" : core::did_you_mean(name, options),
                                    command->get_name());
        } else if (chosen) {
            command = chosen;
            const std::vector<std::string> more = names_of(*chosen);
            options.insert(options.end(), more.begin(), more.end());
        } else if (!commands.empty() && !word.starts_with('-')) {
            return core::format("{}: no command of {}{}; {} --help lists them", word,
                                command->get_name(), core::did_you_mean(word, commands),
                                command->get_name());
        }
    }
    return "";
}

// The last of the commands that were named.
const CLI::App &last_named(const CLI::App &of) {
    const auto named = of.get_subcommands();
    return named.empty() ? of : last_named(*named.front());
}

std::string name_of(const CLI::App &command) {
    const CLI::App *parent = command.get_parent();
    return (parent ? name_of(*parent) + " " : "") + command.get_name();
}

// The help text of this command. App::help() would give that of the named subcommand.
std::string help_of(const CLI::App &command) {
    const std::string name = name_of(command);
    return command.get_formatter()->make_help(&command, name, CLI::AppFormatMode::Normal);
}

void append_given(given_values &to, const CLI::App &command, std::span<const char *const> names) {
    for (const char *name : names)
        if (const CLI::Option *given = command.get_option_no_throw(name); given && given->count())
            to.emplace_back(name, given->results().front());
    for (const CLI::App *part : command.get_subcommands()) append_given(to, *part, names);
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
void describe_value(const std::string &said, described_option &to) {
    size_t end = said.find(":{");
    const size_t range = said.find(" in [");
    if (end == std::string::npos && range != std::string::npos) {
        end = said.rfind(':', range);
        to.bounds = said.substr(range + 5, said.size() - range - 6);
    }
    to.value = said.substr(0, end);
    to.words = words_of(end == std::string::npos ? said : said.substr(end + 1));
    constexpr const char *of_files[] = {"FILE", "CONFIG", "CLUSTER", "PLAN", "DIR", "TEXT"};
    const auto named = [&](const char *part) { return to.value.find(part) != std::string::npos; };
    to.kind = !to.words.empty()                      ? argument_kind::word
              : std::ranges::any_of(of_files, named) ? argument_kind::file
                                                     : argument_kind::other;
}

described_option described_of(const CLI::Option &one) {
    described_option to;
    to.positional = one.get_positional();
    if (to.positional) {
        to.names.push_back(one.get_name());
    } else {
        for (const std::string &name : one.get_snames()) to.names.push_back("-" + name);
        for (const std::string &name : one.get_lnames()) to.names.push_back("--" + name);
    }
    to.required = one.get_required();
    to.repeatable = one.get_expected_max() > 1 ||
                    one.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    to.fallback = one.get_default_str();
    to.help = one.get_description();
    if (one.get_items_expected_max() > 0) describe_value(one.get_type_name(), to);
    return to;
}

described_command described_of(const CLI::App &command, const std::string &path) {
    described_command to;
    to.path = path;
    to.title = command.get_description();
    const CLI::App *parent = command.get_parent();
    if (!parent || parent->get_footer() != command.get_footer()) to.footer = command.get_footer();
    for (const CLI::Option *one : command.get_options())
        if (!one->get_group().empty())  // else an old spelling
            to.options.push_back(described_of(*one));
    for (const CLI::App *one : command.get_subcommands([](const CLI::App *) { return true; }))
        if (!one->get_group().empty())
            to.commands.push_back(
                described_of(*one, (path.empty() ? "" : path + " ") + one->get_name()));
    return to;
}

}  // namespace

option *option::required() {
    of_->required();
    return this;
}

option *option::type_name(const std::string &name) {
    of_->type_name(name);
    return this;
}

option *option::take_all() {
    of_->take_all();
    return this;
}

option *option::expected(int count) {
    of_->expected(count);
    return this;
}

option *option::delimiter(char separator) {
    of_->delimiter(separator);
    return this;
}

option *option::allow_extra_args(bool allowed) {
    of_->allow_extra_args(allowed);
    return this;
}

option *option::capture_default_str() {
    of_->capture_default_str();
    return this;
}

option *option::excludes(const option *other) {
    of_->excludes(other->of_);
    return this;
}

option *option::range(double least, double most) {
    of_->check(CLI::Range(least, most));
    return this;
}

option *option::range(uint32_t least, uint32_t most) {
    of_->check(CLI::Range(least, most));
    return this;
}

option *option::one_of(std::initializer_list<const char *> words) {
    const std::vector<std::string> known(words.begin(), words.end());
    of_->check(CLI::Validator(
        [known](const std::string &word) -> std::string {
            if (std::ranges::find(known, word) != known.end()) return "";
            return core::format("{} is none of {}{}", word, core::listed(known, "and"),
                                core::did_you_mean(word, known));
        },
        core::format("{{{}}}", fmt::join(known, ","))));
    return this;
}

option *option::in(core::quantity_unit unit) {
    of_->transform(CLI::Validator(
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

size_t option::count() const { return of_->count(); }

parser::parser(const std::string &title, const std::string &name)
    : own_(std::make_unique<CLI::App>(title, name)), of_(own_.get()) {}

parser::parser(CLI::App &of) : of_(&of) {}

parser::~parser() = default;

parser *parser::add_subcommand(const std::string &name, const std::string &title) {
    subcommands_.push_back(std::make_unique<parser>(*of_->add_subcommand(name, title)));
    return last_subcommand();
}

template <class Value>
option *parser::add_option(const std::string &names, Value &variable, const std::string &help) {
    options_.push_back(std::make_unique<option>(*of_->add_option(names, variable, help)));
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
    CLI::Option *const old = of_->add_option(name, variable);
    old->group("");
    old->each([name, now](const std::string &) { tell_old(name, now); });
}

template void parser::add_old_option(const std::string &, std::string &, const std::string &);
template void parser::add_old_option(const std::string &, std::vector<std::string> &,
                                     const std::string &);

option *parser::add_flag(const std::string &names, bool &variable, const std::string &help) {
    options_.push_back(std::make_unique<option>(*of_->add_flag(names, variable, help)));
    return options_.back().get();
}

void parser::set_version_flag(const std::string &name, const std::string &text) {
    of_->set_version_flag(name, text);
}

void parser::require_subcommand(int least) { of_->require_subcommand(least); }

void parser::footer(const std::string &text) { of_->footer(text); }

void parser::hide() { of_->group(""); }

described_command parser::described() const { return described_of(*of_, ""); }

std::optional<int> parser::parse(int argc, char **argv) {
    try {
        of_->parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        std::ostringstream out, errors;
        const int code = of_->exit(error, out, errors) == 0 ? exit_ok : exit_usage;
        if (const std::string unknown = first_unknown(*of_, {argv + 1, argv + argc});
            code == exit_usage && !unknown.empty())
            errors.str(unknown + "\n");
        else if (std::string_view(error.what()) == "A subcommand is required")
            errors.str(help_of(last_named(*of_)));
        print(out.str());
        print_error(errors.str());
        return finish_output(code);
    }
    return std::nullopt;
}

std::string parser::help() const { return help_of(*of_); }

const parser *parser::find(std::string_view words) const {
    const std::string_view first = words.substr(0, words.find(' '));
    for (const auto &one : subcommands_) {
        if (one->of_->get_name() != first) continue;
        return first == words ? one.get() : one->find(words.substr(first.size() + 1));
    }
    return nullptr;
}

bool parser::parsed() const { return of_->parsed(); }

std::vector<parser *> parser::leaves() {
    if (subcommands_.empty()) return {this};
    std::vector<parser *> all;
    for (const auto &one : subcommands_)
        for (parser *leaf : one->leaves()) all.push_back(leaf);
    return all;
}

bool parser::has_option(const std::string &name) const {
    return of_->get_option_no_throw(name) != nullptr;
}

std::string parser::name() const { return name_of(*of_); }

bool parser::got_subcommand(const std::string &name) const { return of_->got_subcommand(name); }

given_values parser::given(std::span<const char *const> names) const {
    given_values all;
    append_given(all, *of_, names);
    return all;
}

}  // namespace moorage::tool
