// wire_certificates.h - an authority of the test's own, and certificates that it vouches for.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

namespace moorage::test {

struct certified {
    std::shared_ptr<EVP_PKEY> key;
    std::shared_ptr<X509> certificate;
};

// `names` as X509v3 has it, "DNS:node-a"; "" for none. `by` null: it vouches for itself.
inline certified certify(const std::string &names, const certified *by, long valid_s = 3600) {
    certified made{{EVP_EC_gen("P-256"), EVP_PKEY_free}, {X509_new(), X509_free}};
    X509 *of = made.certificate.get();
    static long serial = 0;
    X509_set_version(of, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(of), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(of), -7200);
    X509_gmtime_adj(X509_getm_notAfter(of), valid_s);
    X509_set_pubkey(of, made.key.get());
    const std::string common = by ? "subject of the test" : "authority of the test";
    X509_NAME_add_entry_by_txt(X509_get_subject_name(of), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char *>(common.c_str()), -1, -1, 0);
    const certified &issuer = by ? *by : made;
    X509_set_issuer_name(of, X509_get_subject_name(issuer.certificate.get()));
    const auto extend = [&](int id, const std::string &value) {
        X509_EXTENSION *one = X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str());
        if (!one) throw std::runtime_error("no such extension: " + value);
        X509_add_ext(of, one, -1);
        X509_EXTENSION_free(one);
    };
    if (!by) extend(NID_basic_constraints, "critical,CA:TRUE");
    if (!names.empty()) extend(NID_subject_alt_name, names);
    if (X509_sign(of, issuer.key.get(), EVP_sha256()) <= 0)
        throw std::runtime_error("a certificate cannot be signed");
    return made;
}

// A folder of PEM files that goes with the test.
class certificate_folder {
public:
    certificate_folder()
        : path_(std::filesystem::temp_directory_path() /
                ("moorage-wire-" + std::to_string(getpid()))) {
        std::filesystem::create_directories(path_);
        authority = certify("", nullptr);
        write("ca", authority);
    }
    ~certificate_folder() { std::filesystem::remove_all(path_); }

    void write(const std::string &name, const certified &of) const {
        FILE *out = std::fopen(file(name + ".pem").c_str(), "w");
        PEM_write_X509(out, of.certificate.get());
        std::fclose(out);
        out = std::fopen(file(name + ".key").c_str(), "w");
        PEM_write_PrivateKey(out, of.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
        std::fclose(out);
    }
    std::string file(const std::string &name) const { return (path_ / name).string(); }

    certified authority;

private:
    std::filesystem::path path_;
};

}  // namespace moorage::test
