// completions.cpp - scripts that complete command lines, made from the declared command line.
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "tools/moorage/described.h"

namespace moorage::tool {

namespace {

using core::format;

std::vector<const described_command *> all_commands(const described_command &root) {
    std::vector<const described_command *> commands{&root};
    for (const described_command &child : root.commands)
        for (const described_command *descendant : all_commands(child))
            commands.push_back(descendant);
    return commands;
}

std::string name_of(const described_command &command) {
    return command.path.substr(command.path.rfind(' ') + 1);  // npos + 1 is 0
}

// `text` with `mark` before each of `special`.
std::string escaped(std::string_view text, std::string_view special, std::string_view mark) {
    std::string output;
    for (const char c : text) {
        if (special.find(c) != special.npos) output += mark;
        output += c;
    }
    return output;
}

// Bash: finds the path of commands among the words, then completes for the word before.

void append_bash_values(std::string &script, const described_command &command) {
    for (const described_option &option : command.options) {
        if (option.positional || option.kind == argument_kind::none) continue;
        std::string names;
        for (const std::string &name : option.names)
            names += format("{}\"{}:{}\"", names.empty() ? "" : " | ", command.path, name);
        script += "        " + names + ") ";
        if (option.kind == argument_kind::word)
            script += format("words=\"{}\" files= ;;\n", fmt::join(option.words, " "));
        else
            script +=
                option.kind == argument_kind::file ? "words= files=1 ;;\n" : "words= files= ;;\n";
    }
}

std::string bash_words(const described_command &command) {
    std::string words;
    for (const described_command &child : command.commands) words += name_of(child) + " ";
    for (const described_option &option : command.options)
        if (!option.positional) words += option.names.back() + " ";
    if (!words.empty()) words.pop_back();
    return words;
}

std::string bash_of(const described_command &program) {
    std::string paths, words, values;
    for (const described_command *command : all_commands(program)) {
        if (!command->path.empty()) {
            const std::string parent_path =
                command->path.substr(0, command->path.size() - name_of(*command).size());
            paths += format("{}\"{}\"", paths.empty() ? "" : " | ",
                            parent_path.empty() ? " " + command->path : command->path);
        }
        words += format("        \"{}\") words=\"{}\" files={} ;;\n", command->path,
                        bash_words(*command), command->commands.empty() ? "1" : "");
        append_bash_values(values, *command);
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
    std::string output;
    for (const char c : escaped(text, "[]:\\", "\\"))
        output += c == '\'' ? "'\\''" : std::string(1, c);
    return output;
}

std::string zsh_action(const described_option &option) {
    if (option.kind == argument_kind::word) return format("({})", fmt::join(option.words, " "));
    return option.kind == argument_kind::file || option.positional ? "_files" : " ";
}

std::string zsh_specs(const described_command &command) {
    std::string specs;
    for (const described_option &option : command.options) {
        const std::string help = zsh_text(option.help);
        if (option.positional) {
            specs += format(" \\\n        '{}:{}:{}'", option.repeatable ? "*" : "", help,
                            zsh_action(option));
            continue;
        }
        for (const std::string &name : option.names) {
            specs += format(" \\\n        '{}{}[{}]", option.repeatable ? "*" : "", name, help);
            if (option.kind != argument_kind::none)
                specs += format(":{}:{}", zsh_text(option.value), zsh_action(option));
            specs += "'";
        }
    }
    return specs;
}

std::string function_of(const described_command &command) {
    std::string name = "_moorage";
    if (!command.path.empty()) name += "_" + command.path;
    for (char &c : name)
        if (c == ' ' || c == '-') c = '_';
    return name;
}

std::string zsh_of(const described_command &program) {
    std::string script = "#compdef moorage\n# Made by \"moorage completion zsh\".\n";
    for (const described_command *command : all_commands(program)) {
        script += function_of(*command) + "() {\n";
        if (command->commands.empty()) {
            script += "    _arguments" + zsh_specs(*command) + "\n}\n";
            continue;
        }
        std::string names, calls;
        for (const described_command &child : command->commands) {
            names += format(" '{}:{}'", name_of(child), zsh_text(child.title));
            calls += format("            {}) {} ;;\n", name_of(child), function_of(child));
        }
        script +=
            "    local curcontext=$curcontext state line\n"
            "    local -a commands=(" +
            names + ")\n    _arguments -C" + zsh_specs(*command) +
            " \\\n        '1: :->command' '*:: :->rest'\n"
            "    case $state in\n"
            "        command) _describe command commands ;;\n"
            "        rest) case $line[1] in\n" +
            calls + "        esac ;;\n    esac\n}\n";
    }
    return script +
           "if [ \"$funcstack[1]\" = _moorage ]; then _moorage \"$@\"\n"
           "else compdef _moorage moorage; fi\n";
}

// Fish: one line for each option, on the condition of its command.

std::string fish_text(std::string_view text) { return "'" + escaped(text, "'\\", "\\") + "'"; }

std::string fish_of(const described_command &program) {
    std::string paths, lines;
    for (const described_command *command : all_commands(program)) {
        if (!command->path.empty()) paths += format(" {}", fish_text(command->path));
        const std::string condition =
            format("complete -c moorage -n '__moorage_at \"{}\"'", command->path);
        for (const described_command &child : command->commands)
            lines += format("{} -a {} -d {}\n", condition, name_of(child), fish_text(child.title));
        for (const described_option &option : command->options) {
            if (option.positional) {
                lines += condition + " -F\n";
                continue;
            }
            lines += condition;
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
