// plugins_new.cpp - `plugins new`: one file from sdk/template with the policy's name put in.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/descriptor.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/plugins.h"

namespace moorage::tool {

namespace fs = std::filesystem;
using core::error;
using core::format;

namespace {

// $MOORAGE_TEMPLATE_PATH, else that of the SDK.
core::result<fs::path> template_folder() {
    if (const char *given = std::getenv("MOORAGE_TEMPLATE_PATH"); given && *given) {
        if (fs::is_directory(given)) return fs::path(given);
        return error{format("MOORAGE_TEMPLATE_PATH = {} is no folder", given), true};
    }
    const auto sdk = sdk_folder();
    if (!sdk) return sdk.failure();
    return *sdk / "template";
}

struct language {
    const char *name, *extension;
};
constexpr language languages[] = {{"cpp", ".cpp"}, {"c", ".c"}, {"rust", ".rs"}};

void replace_all(std::string &text, std::string_view token, std::string_view by) {
    for (size_t at = 0; (at = text.find(token, at)) != std::string::npos; at += by.size())
        text.replace(at, token.size(), by);
}

core::status check_name(const std::string &name) {
    if (!core::is_snake_case(name))
        return error{
            format("{} is no name for a policy: lower case letters, digits and _, beginning with a "
                   "letter",
                   name),
            true};
    core::set_log_level(core::log_level::error);
    const auto all = open_registry({});
    if (!all) return core::success();  // the bundled policies are not there: nothing to clash with
    for (const core::policy &one : all->policies())
        if (one.name() == name)
            return error{
                format("policy {} is already in {}; choose another name", name, one.path.string()),
                true};
    return core::success();
}

core::result<fs::path> scaffold(const plugins_new_options &options) {
    const std::vector<std::string> kinds(std::begin(core::kinds), std::end(core::kinds));
    if (std::find(kinds.begin(), kinds.end(), options.kind) == kinds.end())
        return error{format("no kind {}{}; there are: {}", options.kind,
                            core::did_you_mean(options.kind, kinds), fmt::join(kinds, ", ")),
                     true};
    const auto *lang = std::find_if(std::begin(languages), std::end(languages),
                                    [&](const language &l) { return options.language == l.name; });
    if (lang == std::end(languages))
        return error{
            format("no templates in language {}; there are: cpp, c, rust", options.language), true};
    if (auto named = check_name(options.name); !named) return named.failure();
    const auto folder = template_folder();
    if (!folder) return folder.failure();
    const fs::path source = *folder / lang->name / (options.kind + lang->extension + ".in");
    std::ifstream in(source, std::ios::binary);
    if (!in)
        return error{format("no {} template for {}: {} is missing; use --lang cpp", lang->name,
                            options.kind, source.string())};
    std::string text(std::istreambuf_iterator<char>(in), {});
    replace_all(text, "@NAME@", options.name);
    replace_all(text, "@KIND@", options.kind);

    std::error_code failed;
    fs::create_directories(options.directory, failed);
    const fs::path target = options.directory / (options.name + lang->extension);
    if (fs::exists(target))
        return error{format("{} exists; nothing is overwritten", target.string())};
    std::ofstream out(target, std::ios::binary);
    out << text << std::flush;
    if (!out)
        return error{format("{} cannot be written; check folder and permissions", target.string())};
    return target.lexically_normal();
}

}  // namespace

int plugins_new(const plugins_new_options &options) {
    const auto file = scaffold(options);
    if (!file) return fail(file.failure());
    std::cout << "wrote " << file->string() << "\n"
              << "next: moorage plugins check " << file->string() << "\n"
              << format("then in TOML: [plugins] path = [\"{}\"]  [{}] plugin = \"{}\"\n",
                        options.directory.string(), options.kind, options.name);
    return exit_ok;
}

}  // namespace moorage::tool
