// manual.cpp - the manual page, in mdoc(7), made from the declared command line.
#include <string>
#include <string_view>

#include "core/base/text.h"
#include "tools/moorage/described.h"

namespace moorage::tool {

namespace {

using core::format;

// Plain text without requests or escapes. Each sentence begins a line.
std::string plain(std::string_view text) {
    std::string output;
    for (const char c : text) {
        if (c == ' ' && output.ends_with('.')) {
            output += '\n';
            continue;
        }
        if ((c == '.' || c == '\'') && (output.empty() || output.ends_with('\n'))) output += "\\&";
        if (c == '\\')
            output += "\\e";
        else if (c == '-')
            output += "\\-";
        else
            output += c;
    }
    return output;
}

// Words of one line, for use after a macro. None is read as a macro itself.
std::string words(std::string_view text) {
    std::string output;
    for (const std::string &word : core::split(text, ' '))
        if (!word.empty()) output += (output.empty() ? "\\&" : " \\&") + plain(word);
    return output;
}

std::string flag(const std::string &name) { return "Fl " + words(name.substr(1)); }

// All its names: "Fl \&-json Ar \&FILE".
std::string heading(const described_option &option) {
    std::string output;
    for (const std::string &name : option.names)
        output +=
            (output.empty() ? "" : " , ") + (option.positional ? "Ar " + words(name) : flag(name));
    if (!option.positional && !option.value.empty()) output += " Ar " + words(option.value);
    return output;
}

// The help text, then further facts of the table of options.
std::string explanation(const described_option &option) {
    std::string output = option.help, facts;
    const auto add = [&](const std::string &part) { facts += (facts.empty() ? "" : "; ") + part; };
    if (option.required) add("required");
    if (!option.words.empty()) add("one of " + core::listed(option.words, "or"));
    if (!option.bounds.empty()) add("from " + option.bounds);
    if (!option.fallback.empty()) add("default " + option.fallback);
    if (!facts.empty()) output += format(" ({})", facts);
    return plain(output);
}

std::string options_of(const described_command &command) {
    std::string output;
    for (const described_option &option : command.options)
        if (option.names.back() != "--help")
            output += format(".It {}\n{}\n", heading(option), explanation(option));
    return output.empty() ? "" : ".Bl -tag -width Ds\n" + output + ".El\n";
}

std::string synopsis(const described_command &command) {
    std::string output = ".Nm " + words("moorage " + command.path) + "\n.Op Ar \\&options\n";
    for (const described_option &option : command.options)
        if (option.positional)
            output += format(".{} {}{}\n", option.required ? "Ar" : "Op Ar", words(option.names[0]),
                             option.repeatable ? " \\&..." : "");
    return output;
}

std::string paragraphs(const std::string &text) {
    std::string output;
    for (const std::string &line : core::split(text, '\n'))
        output += line.empty() ? ".Pp\n" : plain(line.substr(line.find_first_not_of(' '))) + "\n";
    return output;
}

void append_commands(std::string &output, const described_command &parent) {
    for (const described_command &command : parent.commands) {
        if (command.commands.empty()) {
            output += format(".Ss {}\n{}\n.Pp\n.Bd -ragged -offset indent -compact\n{}.Ed\n{}",
                             words("moorage " + command.path), plain(command.title),
                             synopsis(command), options_of(command));
            if (!command.footer.empty()) output += ".Pp\n" + paragraphs(command.footer);
        }
        append_commands(output, command);
    }
}

constexpr const char *closing_sections = R"(.Sh ENVIRONMENT
.Bl -tag -width Ds
.It Ev MOORAGE_PLUGIN_PATH
folders and libraries of policies besides the bundled ones, separated by colons
.It Ev MOORAGE_DATA_PATH
folders with configs and hw_profiles besides the installed ones, separated by colons
.It Ev MOORAGE_SDK
folder of the SDK, to compile policies
.It Ev CXX , CC , RUSTC
compilers for policies
.It Ev MOORAGE_ONE_PROCESS
1: no parent process watches the run, for debuggers
.El
.Sh FILES
Relative to the installation's prefix:
.Bl -tag -width Ds
.It Pa lib/moorage/plugins
the bundled policies
.It Pa share/moorage/configs
configurations to begin with; example.toml explains every key
.It Pa share/moorage/hw_profiles
profiles of GPUs, links, hosts, disks and engines
.It Pa share/moorage/sdk
the SDK, if it is installed
.El
.Sh EXIT STATUS
0: done; 1: failed; 2: wrong usage; 3: a policy died.
)";

}  // namespace

std::string manual_of(const described_command &program, const std::string &date) {
    std::string output = ".\\\" Made by \"moorage man\".\n.Dd " + date +
                         "\n.Dt MOORAGE 1\n.Os\n.Sh NAME\n.Nm moorage\n"
                         ".Nd run and emulate Mixture-of-Experts models whose experts do not fit\n"
                         ".Sh SYNOPSIS\n.Nm\n.Op Fl v\n.Ar command\n.Op Ar options\n"
                         ".Sh DESCRIPTION\n";
    output += plain(program.title) + ".\n" + options_of(program);
    output += ".Pp\n" + paragraphs(program.footer) + ".Sh COMMANDS\n";
    append_commands(output, program);
    return output + closing_sections;
}

}  // namespace moorage::tool
