// completions.cpp - scripts that complete command lines, made from the declared command line.
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "tools/moorage/described.h"

namespace moorage::tool {

namespace {

using core::format;

std::vector<const described_command *> all_of(const described_command &root) {
    std::vector<const described_command *> all{&root};
    for (const described_command &one : root.commands)
        for (const described_command *below : all_of(one)) all.push_back(below);
    return all;
}

std::string name_of(const described_command &one) {
    return one.path.substr(one.path.rfind(' ') + 1);  // npos + 1 is 0
}

// `text` with `mark` before each of `special`.
std::string escaped(std::string_view text, std::string_view special, std::string_view mark) {
    std::string to;
    for (const char c : text) {
        if (special.find(c) != special.npos) to += mark;
        to += c;
    }
    return to;
}

// Bash: finds the path of commands among the words, then completes for the word before.

void append_bash_values(std::string &to, const described_command &one) {
    for (const described_option &option : one.options) {
        if (option.positional || option.kind == argument_kind::none) continue;
        std::string names;
        for (const std::string &name : option.names)
            names += format("{}\"{}:{}\"", names.empty() ? "" : " | ", one.path, name);
        to += "        " + names + ") ";
        if (option.kind == argument_kind::word)
            to += format("words=\"{}\" files= ;;\n", fmt::join(option.words, " "));
        else
            to += option.kind == argument_kind::file ? "words= files=1 ;;\n" : "words= files= ;;\n";
    }
}

std::string bash_words(const described_command &one) {
    std::string to;
    for (const described_command &below : one.commands) to += name_of(below) + " ";
    for (const described_option &option : one.options)
        if (!option.positional) to += option.names.back() + " ";
    if (!to.empty()) to.pop_back();
    return to;
}

std::string bash_of(const described_command &program) {
    std::string paths, words, values;
    for (const described_command *one : all_of(program)) {
        if (!one->path.empty()) {
            const std::string above = one->path.substr(0, one->path.size() - name_of(*one).size());
            paths += format("{}\"{}\"", paths.empty() ? "" : " | ",
                            above.empty() ? " " + one->path : one->path);
        }
        words += format("        \"{}\") words=\"{}\" files={} ;;\n", one->path, bash_words(*one),
                        one->commands.empty() ? "1" : "");
        append_bash_values(values, *one);
    }
    return "# Completion of moorage for bash; made by \"moorage completion bash\".\n"
           "_moorage() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} at= i\n"
           "    local words= files=\n"
           "    [ \"$cur\" = = ] && cur=\n"
           "    [ \"$prev\" = = ] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
           "    for ((i = 1; i < COMP_CWORD; ++i)); do\n"
           "        case \"$at ${COMP_WORDS[i]}\" in\n"
           "            " +
           paths +
           ")\n"
           "                at=${at:+$at }${COMP_WORDS[i]} ;;\n"
           "        esac\n"
           "    done\n"
           "    case \"$at\" in\n" +
           words +
           "    esac\n"
           "    case \"$at:$prev\" in\n" +
           values +
           "    esac\n"
           "    [ -z \"$files\" ] || [ \"${cur#-}\" != \"$cur\" ] || words=\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
           "    if [ -n \"$files\" ] && [ \"${cur#-}\" = \"$cur\" ]; then\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "    fi\n"
           "}\n"
           "complete -F _moorage moorage\n";
}

// Zsh: a function for each command, over _arguments.

std::string zsh_text(std::string_view text) {
    std::string to;
    for (const char c : escaped(text, "[]:\\", "\\")) to += c == '\'' ? "'\\''" : std::string(1, c);
    return to;
}

std::string zsh_action(const described_option &one) {
    if (one.kind == argument_kind::word) return format("({})", fmt::join(one.words, " "));
    return one.kind == argument_kind::file || one.positional ? "_files" : " ";
}

std::string zsh_specs(const described_command &one) {
    std::string to;
    for (const described_option &option : one.options) {
        const std::string help = zsh_text(option.help);
        if (option.positional) {
            to += format(" \\\n        '{}:{}:{}'", option.repeatable ? "*" : "", help,
                         zsh_action(option));
            continue;
        }
        for (const std::string &name : option.names) {
            to += format(" \\\n        '{}{}[{}]", option.repeatable ? "*" : "", name, help);
            if (option.kind != argument_kind::none)
                to += format(":{}:{}", zsh_text(option.value), zsh_action(option));
            to += "'";
        }
    }
    return to;
}

std::string function_of(const described_command &one) {
    std::string to = "_moorage";
    if (!one.path.empty()) to += "_" + one.path;
    for (char &c : to)
        if (c == ' ' || c == '-') c = '_';
    return to;
}

std::string zsh_of(const described_command &program) {
    std::string to = "#compdef moorage\n# Made by \"moorage completion zsh\".\n";
    for (const described_command *one : all_of(program)) {
        to += function_of(*one) + "() {\n";
        if (one->commands.empty()) {
            to += "    _arguments" + zsh_specs(*one) + "\n}\n";
            continue;
        }
        std::string names, calls;
        for (const described_command &below : one->commands) {
            names += format(" '{}:{}'", name_of(below), zsh_text(below.title));
            calls += format("            {}) {} ;;\n", name_of(below), function_of(below));
        }
        to +=
            "    local curcontext=$curcontext state line\n"
            "    local -a commands=(" +
            names + ")\n    _arguments -C" + zsh_specs(*one) +
            " \\\n        '1: :->command' '*:: :->rest'\n"
            "    case $state in\n"
            "        command) _describe command commands ;;\n"
            "        rest) case $line[1] in\n" +
            calls + "        esac ;;\n    esac\n}\n";
    }
    return to +
           "if [ \"$funcstack[1]\" = _moorage ]; then _moorage \"$@\"\n"
           "else compdef _moorage moorage; fi\n";
}

// Fish: one line for each option, on the condition of its command.

std::string fish_text(std::string_view text) { return "'" + escaped(text, "'\\", "\\") + "'"; }

std::string fish_of(const described_command &program) {
    std::string paths, lines;
    for (const described_command *one : all_of(program)) {
        if (!one->path.empty()) paths += format(" {}", fish_text(one->path));
        const std::string where = format("complete -c moorage -n '__moorage_at \"{}\"'", one->path);
        for (const described_command &below : one->commands)
            lines += format("{} -a {} -d {}\n", where, name_of(below), fish_text(below.title));
        for (const described_option &option : one->options) {
            if (option.positional) {
                lines += where + " -F\n";
                continue;
            }
            lines += where;
            for (const std::string &name : option.names)
                lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            if (option.kind == argument_kind::word)
                lines += format(" -x -a '{}'", fmt::join(option.words, " "));
            else if (option.kind != argument_kind::none)
                lines += option.kind == argument_kind::file ? " -r -F" : " -x";
            lines += " -d " + fish_text(option.help) + "\n";
        }
    }
    return "# Completion of moorage for fish; made by \"moorage completion fish\".\n"
           "function __moorage_at\n"
           "    set -l at\n"
           "    for word in (commandline -opc)[2..]\n"
           "        set -l further (string trim -- \"$at $word\")\n"
           "        contains -- \"$further\"" +
           paths +
           "; and set at $further\n"
           "    end\n"
           "    test \"$at\" = \"$argv[1]\"\n"
           "end\n"
           "complete -c moorage -f\n" +
           lines;
}

}  // namespace

std::string completion_of(const described_command &program, const std::string &shell) {
    if (shell == "bash") return bash_of(program);
    return shell == "zsh" ? zsh_of(program) : fish_of(program);
}

}  // namespace moorage::tool
