// program_part.h - parts of the program that are separate libraries, beside the bundled policies.
// They are opened when a configuration needs them: plugins/<folder>/<name>.so.
//
//   // in the library, once
//   MOORAGE_PROGRAM_PART(etcd_client_maker{make_gateway})
//   // in the program
//   auto maker = find_program_part<etcd_client_maker>("registry/etcd.so");
//
// Such a library shares C++ classes with the program, so it must be of the same build. Compiler,
// standard library and version are compared before it is used. It is no policy: the search for
// policies skips its folder. It stays mapped until the process ends.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace moorage::core {

// Whether a folder below that of the bundled policies is searched for them. `registry` has parts of
// the program, `tls` what the wire "tcp" opens.
inline bool may_have_policies(const std::filesystem::path &folder) {
    return folder.filename() != "registry" && folder.filename() != "tls";
}

// Must be equal on both sides.
inline constexpr std::string_view program_build_id = MOORAGE_BUILD_VERSION ", " __VERSION__;

// The record that a library exports as `moorage_program_part`.
struct program_part {
    const char *build_id;
    void (*entry)();  // points to a function of the type that both sides name
};

// The entry point of plugins/<file>. Errors name the file and the remedy.
result<void (*)()> open_program_part(std::string_view file);

template <class Function>
result<Function> find_program_part(std::string_view file) {
    const auto entry = open_program_part(file);
    if (!entry) return entry.failure();
    return reinterpret_cast<Function>(*entry);
}

}  // namespace moorage::core

// clang-format off
#define MOORAGE_PROGRAM_PART(function)                                                       \
    extern "C" __attribute__((visibility("default")))                                        \
    const ::moorage::core::program_part moorage_program_part;                                \
    const ::moorage::core::program_part moorage_program_part = {                             \
        ::moorage::core::program_build_id.data(), reinterpret_cast<void (*)()>(function)};
// clang-format on
