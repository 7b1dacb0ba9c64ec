// openssl.cpp - the library that brings TLS to tcp.so: tls.hpp over OpenSSL.
#include "../tls.hpp"
#include "../tls_library_record.hpp"

namespace {

std::unique_ptr<tcp_wire::secure_context> open(const tcp_wire::secure_files &files) {
    return std::make_unique<tcp_wire::tls_context>(files);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tcp_wire::tls_library moorage_tcp_tls;
const tcp_wire::tls_library moorage_tcp_tls = {tcp_wire::tls_build, open};
