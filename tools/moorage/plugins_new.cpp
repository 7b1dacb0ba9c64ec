// plugins_new.cpp - `plugins new`: one file from sdk/template with the policy's name.
#include <algorithm>
#include <cstdlib>
#include <fstream>
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
    if (const char *configured = std::getenv("MOORAGE_TEMPLATE_PATH"); configured && *configured) {
        if (fs::is_directory(configured)) return fs::path(configured);
        return error{format("MOORAGE_TEMPLATE_PATH = {} is no folder", configured), true};
    }
    const auto sdk = sdk_folder();
    if (!sdk) return sdk.failure();
    return *sdk / "template";
}

// Reserved words of a language that could be names of policies.
constexpr std::string_view cpp_words =
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t "
    "char32_t "
    "char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr "
    "constinit continue decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if inline int long mutable namespace new noexcept not "
    "not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires "
    "return short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename union unsigned using virtual void "
    "volatile "
    "wchar_t while xor xor_eq ";
constexpr std::string_view c_words =
    " auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while ";
constexpr std::string_view rust_words =
    " abstract as async await become box break const continue crate do dyn else enum extern false "
    "final fn for gen if impl in let loop macro match mod move mut override priv pub ref return "
    "self static struct super trait true try type typeof unsafe unsized use virtual where while "
    "yield ";

struct language {
    const char *name, *title, *extension;
    std::string_view words;
};
constexpr language languages[] = {{"cpp", "C++", ".cpp", cpp_words},
                                  {"c", "C", ".c", c_words},
                                  {"rust", "Rust", ".rs", rust_words}};

void replace_all(std::string &text, std::string_view token, std::string_view replacement) {
    for (size_t position = 0; (position = text.find(token, position)) != std::string::npos;
         position += replacement.size())
        text.replace(position, token.size(), replacement);
}

core::status check_name(const std::string &name, const language &chosen_language) {
    if (const std::string reason = core::policy_name_problem(name); !reason.empty())
        return error{format("{} is no name for a policy: {}", name, reason), true};
    if (chosen_language.words.find(" " + name + " ") != std::string_view::npos)
        return error{format("{} is a word of {}; choose another name", name, chosen_language.title),
                     true};
    core::set_log_level(core::log_level::error);
    const auto registry = open_registry({});
    if (!registry) return core::success();  // without bundled policies there is no clash
    for (const core::policy &loaded_policy : registry->policies())
        if (loaded_policy.name() == name)
            return error{format("policy {} is already in {}; choose another name", name,
                                loaded_policy.path.string()),
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
    if (auto named = check_name(options.name, *lang); !named) return named.failure();
    const auto folder = template_folder();
    if (!folder) return folder.failure();
    const fs::path source = *folder / lang->name / (options.kind + lang->extension + ".in");
    std::ifstream template_file(source, std::ios::binary);
    if (!template_file)
        return error{format("no {} template for {}: {} is missing; use --lang cpp", lang->name,
                            options.kind, source.string())};
    std::string text(std::istreambuf_iterator<char>(template_file), {});
    replace_all(text, "@NAME@", options.name);
    replace_all(text, "@KIND@", options.kind);

    std::error_code failed;
    fs::create_directories(options.directory, failed);
    const fs::path target = options.directory / (options.name + lang->extension);
    if (fs::exists(target))
        return error{format("{} exists; nothing is overwritten", target.string())};
    if (const core::status done = write_text(target.string(), text); !done)
        return error{format("{}; check folder and permissions", done.failure().text)};
    return target.lexically_normal();
}

}  // namespace

int plugins_new(const plugins_new_options &options) {
    const auto file = scaffold(options);
    if (!file) return fail(file.failure());
    print(format("wrote {0}\nnext: moorage plugins check {0}\n", file->string()));
    print(format("then in TOML: [plugins] path = [\"{}\"]  [{}] plugin = \"{}\"\n",
                 options.directory.string(), options.kind, options.name));
    return exit_ok;
}

}  // namespace moorage::tool
