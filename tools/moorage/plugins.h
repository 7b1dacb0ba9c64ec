// plugins.h - the parts of `moorage plugins`: one file each, put together in plugins_command.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/host/registry.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

struct plugins_list_options {
    setting_options settings;  // folders of policies besides the bundled ones
    std::string json;          // file, "-" or empty
};
int plugins_list(const plugins_list_options &options);

struct plugins_describe_options {
    std::string name;
    setting_options settings;
    std::string json;
};
int plugins_describe(const plugins_describe_options &options);

struct plugins_new_options {
    std::string kind, name, language = "cpp";
    std::filesystem::path directory = ".";
};
int plugins_new(const plugins_new_options &options);

struct plugins_check_options {
    std::filesystem::path file;  // a library, or a source that is compiled first
    std::string policy;          // empty: all of the library
    std::string only_test;       // a test; empty: all
    uint64_t seed = 1;
    double timeout_s = 10;
    std::string json;
    bool verbose = false;  // all tests, not only those that did not pass
    bool list_tests = false;
    std::vector<std::string> params;  // wire.key=value
    setting_options settings;         // of them the seed
    std::string address = "127.0.0.1:0";
    bool large = false;
};
int plugins_check(const plugins_check_options &options);

// The bundled policies and those of `paths`, or those that the command's settings name.
core::result<core::registry> open_registry(const std::vector<std::filesystem::path> &paths);
core::result<core::registry> open_registry(const setting_options &settings,
                                           std::string_view command);

// Kinds of a policy in words, without the observer: "cache, prefetch".
std::string kinds_of(const core::policy &loaded_policy);

// The SDK's folder, with include/, template/, rust/ and cmake/: $MOORAGE_SDK, else
// share/moorage/sdk of the installed tree, else sdk/ of the source tree.
core::result<std::filesystem::path> sdk_folder();

// Compiles a policy's source into a library beside it, printing the command, and returns its path.
core::result<std::filesystem::path> compile_policy(const std::filesystem::path &source);

// Text broken at spaces into lines of at most `width` columns, each after `indent` spaces.
std::string wrapped(const std::string &text, size_t indent, size_t width = 80);

}  // namespace moorage::tool
