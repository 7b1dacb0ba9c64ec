// tls_library_record.hpp - what ../tls/openssl.so exports for tcp.so.
#pragma once

#include <memory>

#include "secure.hpp"

namespace tcp_wire {

// The record that the library exports as `moorage_tcp_tls`. Both sides share C++ classes, so they
// must be of one build.
struct tls_library {
    const char *build;
    std::unique_ptr<secure_context> (*open)(const secure_files &files);
};
inline constexpr const char *tls_build = MOORAGE_BUILD_VERSION ", " __VERSION__;

}  // namespace tcp_wire
