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

// `names` in X509v3's form, "DNS:node-a"; "" for none. `authority` null: self-signed.
inline certified certify(const std::string &names, const certified *authority,
                         long valid_s = 3600) {
    certified result{{EVP_EC_gen("P-256"), EVP_PKEY_free}, {X509_new(), X509_free}};
    X509 *certificate = result.certificate.get();
    static long serial = 0;
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate), valid_s);
    X509_set_pubkey(certificate, result.key.get());
    const std::string common = authority ? "subject of the test" : "authority of the test";
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char *>(common.c_str()), -1, -1, 0);
    const certified &issuer = authority ? *authority : result;
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer.certificate.get()));
    const auto extend = [&](int id, const std::string &value) {
        X509_EXTENSION *extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str());
        if (!extension) throw std::runtime_error("no such extension: " + value);
        X509_add_ext(certificate, extension, -1);
        X509_EXTENSION_free(extension);
    };
    if (!authority) extend(NID_basic_constraints, "critical,CA:TRUE");
    if (!names.empty()) extend(NID_subject_alt_name, names);
    if (X509_sign(certificate, issuer.key.get(), EVP_sha256()) <= 0)
        throw std::runtime_error("a certificate cannot be signed");
    return result;
}

// The authority's certificate revocation list; `valid_s`: until the next one.
inline void write_revoked(const std::string &file, const certified &authority,
                          std::initializer_list<certified> revoked, long valid_s = 3600) {
    const std::unique_ptr<X509_CRL, decltype(&X509_CRL_free)> list(X509_CRL_new(), X509_CRL_free);
    X509_CRL_set_version(list.get(), 1);
    X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(authority.certificate.get()));
    const std::unique_ptr<ASN1_TIME, decltype(&ASN1_TIME_free)> time(ASN1_TIME_new(),
                                                                     ASN1_TIME_free);
    X509_gmtime_adj(time.get(), -7200);
    X509_CRL_set1_lastUpdate(list.get(), time.get());
    for (const certified &entry : revoked) {
        X509_REVOKED *const row = X509_REVOKED_new();
        X509_REVOKED_set_serialNumber(row, X509_get_serialNumber(entry.certificate.get()));
        X509_REVOKED_set_revocationDate(row, time.get());
        X509_CRL_add0_revoked(list.get(), row);
    }
    X509_gmtime_adj(time.get(), valid_s);
    X509_CRL_set1_nextUpdate(list.get(), time.get());
    X509_CRL_sort(list.get());
    if (X509_CRL_sign(list.get(), authority.key.get(), EVP_sha256()) <= 0)
        throw std::runtime_error("a list cannot be signed");
    FILE *output = std::fopen(file.c_str(), "w");
    PEM_write_X509_CRL(output, list.get());
    std::fclose(output);
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

    void write(const std::string &name, const certified &subject) const {
        FILE *output = std::fopen(file(name + ".pem").c_str(), "w");
        PEM_write_X509(output, subject.certificate.get());
        std::fclose(output);
        output = std::fopen(file(name + ".key").c_str(), "w");
        PEM_write_PrivateKey(output, subject.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
        std::fclose(output);
        output = std::fopen(file(name + ".locked.key").c_str(), "w");
        PEM_write_PrivateKey(output, subject.key.get(), EVP_aes_256_cbc(),
                             reinterpret_cast<const unsigned char *>("words"), 5, nullptr, nullptr);
        std::fclose(output);
    }
    std::string file(const std::string &name) const { return (path_ / name).string(); }

    certified authority;

private:
    std::filesystem::path path_;
};

}  // namespace moorage::test
