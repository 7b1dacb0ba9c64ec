// tls_library.hpp - opens the library that brings TLS: ../tls/openssl.so, beside the folder of
// tcp.so.
//
// OpenSSL has 21,000 relocations. Most uses of the wire need none of it: a list of all policies,
// nodes on one machine.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "secure.hpp"
#include "tls_library_record.hpp"

namespace tcp_wire {

inline std::unique_ptr<secure_context> open_tls_library(const std::filesystem::path &file,
                                                        const secure_files &files) {
    // It stays mapped: OpenSSL leaves functions that run at the end of the process.
    void *const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        throw std::invalid_argument("security = \"tls\" needs " + file.string() +
                                    ", which cannot be opened: " + ::dlerror());
    const auto *const library =
        static_cast<const tls_library *>(::dlsym(handle, "moorage_tcp_tls"));
    if (!library || std::strcmp(library->build, tls_build) != 0)
        throw std::invalid_argument("security = \"tls\": " + file.string() + " is of build " +
                                    (library ? library->build : "(none)") + ", and this wire of " +
                                    tls_build + "; install both from one package");
    return library->open(files);
}

std::unique_ptr<secure_context> open_secure_context(const secure_files &files) {
    Dl_info place{};
    if (::dladdr(reinterpret_cast<const void *>(&open_secure_context), &place) == 0)
        throw std::invalid_argument("security = \"tls\": the place of this library is not known");
    const std::filesystem::path tcp_file(place.dli_fname);
    return open_tls_library(tcp_file.parent_path().parent_path() / "tls/openssl.so", files);
}

}  // namespace tcp_wire
