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
    std::string to;
    for (const char c : text) {
        if (c == ' ' && to.ends_with('.')) {
            to += '\n';
            continue;
        }
        if ((c == '.' || c == '\'') && (to.empty() || to.ends_with('\n'))) to += "\\&";
        if (c == '\\')
            to += "\\e";
        else if (c == '-')
            to += "\\-";
        else
            to += c;
    }
    return to;
}

// Words of one line, for use after a macro. None is read as a macro itself.
std::string words(std::string_view text) {
    std::string to;
    for (const std::string &word : core::split(text, ' '))
        if (!word.empty()) to += (to.empty() ? "\\&" : " \\&") + plain(word);
    return to;
}

std::string flag(const std::string &name) { return "Fl " + words(name.substr(1)); }

// All its names: "Fl \&-json Ar \&FILE".
std::string heading(const described_option &one) {
    std::string to;
    for (const std::string &name : one.names)
        to += (to.empty() ? "" : " , ") + (one.positional ? "Ar " + words(name) : flag(name));
    if (!one.positional && !one.value.empty()) to += " Ar " + words(one.value);
    return to;
}

// The help text, then further facts of the table of options.
std::string explanation(const described_option &one) {
    std::string to = one.help, more;
    const auto add = [&](const std::string &part) { more += (more.empty() ? "" : "; ") + part; };
    if (one.required) add("required");
    if (!one.words.empty()) add("one of " + core::listed(one.words, "or"));
    if (!one.bounds.empty()) add("from " + one.bounds);
    if (!one.fallback.empty()) add("default " + one.fallback);
    if (!more.empty()) to += format(" ({})", more);
    return plain(to);
}

std::string options_of(const described_command &one) {
    std::string to;
    for (const described_option &option : one.options)
        if (option.names.back() != "--help")
            to += format(".It {}\n{}\n", heading(option), explanation(option));
    return to.empty() ? "" : ".Bl -tag -width Ds\n" + to + ".El\n";
}

std::string synopsis(const described_command &one) {
    std::string to = ".Nm " + words("moorage " + one.path) + "\n.Op Ar \\&options\n";
    for (const described_option &option : one.options)
        if (option.positional)
            to += format(".{} {}{}\n", option.required ? "Ar" : "Op Ar", words(option.names[0]),
                         option.repeatable ? " \\&..." : "");
    return to;
}

std::string paragraphs(const std::string &text) {
    std::string to;
    for (const std::string &line : core::split(text, '\n'))
        to += line.empty() ? ".Pp\n" : plain(line.substr(line.find_first_not_of(' '))) + "\n";
    return to;
}

void append_commands(std::string &to, const described_command &parent) {
    for (const described_command &one : parent.commands) {
        if (one.commands.empty()) {
            to += format(".Ss {}\n{}\n.Pp\n.Bd -ragged -offset indent -compact\n{}.Ed\n{}",
                         words("moorage " + one.path), plain(one.title), synopsis(one),
                         options_of(one));
            if (!one.footer.empty()) to += ".Pp\n" + paragraphs(one.footer);
        }
        append_commands(to, one);
    }
}

constexpr const char *around = R"(.Sh ENVIRONMENT
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
    std::string to = ".\\\" Made by \"moorage man\".\n.Dd " + date +
                     "\n.Dt MOORAGE 1\n.Os\n.Sh NAME\n.Nm moorage\n"
                     ".Nd run and emulate Mixture-of-Experts models whose experts do not fit\n"
                     ".Sh SYNOPSIS\n.Nm\n.Op Fl v\n.Ar command\n.Op Ar options\n"
                     ".Sh DESCRIPTION\n";
    to += plain(program.title) + ".\n" + options_of(program);
    to += ".Pp\n" + paragraphs(program.footer) + ".Sh COMMANDS\n";
    append_commands(to, program);
    return to + around;
}

}  // namespace moorage::tool
