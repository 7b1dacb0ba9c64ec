// wire_certificates.h - a certificate authority of the test, and certificates signed by it.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>

namespace moorage::test {

struct certified {
    std::shared_ptr<EVP_PKEY> key;
    std::shared_ptr<X509> certificate;
};

// `names` in X509v3's form, "DNS:node-a"; "" for none. `by` null: self-signed.
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

// The authority's certificate revocation list; `valid_s`: until the next one.
inline void write_revoked(const std::string &file, const certified &by,
                          std::initializer_list<certified> all, long valid_s = 3600) {
    const std::unique_ptr<X509_CRL, decltype(&X509_CRL_free)> list(X509_CRL_new(), X509_CRL_free);
    X509_CRL_set_version(list.get(), 1);
    X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(by.certificate.get()));
    const std::unique_ptr<ASN1_TIME, decltype(&ASN1_TIME_free)> at(ASN1_TIME_new(), ASN1_TIME_free);
    X509_gmtime_adj(at.get(), -7200);
    X509_CRL_set1_lastUpdate(list.get(), at.get());
    for (const certified &one : all) {
        X509_REVOKED *const row = X509_REVOKED_new();
        X509_REVOKED_set_serialNumber(row, X509_get_serialNumber(one.certificate.get()));
        X509_REVOKED_set_revocationDate(row, at.get());
        X509_CRL_add0_revoked(list.get(), row);
    }
    X509_gmtime_adj(at.get(), valid_s);
    X509_CRL_set1_nextUpdate(list.get(), at.get());
    X509_CRL_sort(list.get());
    if (X509_CRL_sign(list.get(), by.key.get(), EVP_sha256()) <= 0)
        throw std::runtime_error("a list cannot be signed");
    FILE *out = std::fopen(file.c_str(), "w");
    PEM_write_X509_CRL(out, list.get());
    std::fclose(out);
}

// A folder of PEM files that is removed with the test.
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
