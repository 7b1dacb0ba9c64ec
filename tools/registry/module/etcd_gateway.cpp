// etcd_gateway.cpp - the etcd_client over HTTP and TLS: connects, sends requests and reads lines.
// Every operation has a time limit. It is a separate library, opened only if a cluster names etcd,
// because it brings OpenSSL. OpenSSL's relocations would take two thirds of every start.
#include <utility>  // Boost 1.74 needs it but does not include it

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/json.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "core/host/program_part.h"
#include "tools/registry/etcd_client.h"
#include "tools/registry/etcd_values.h"

namespace moorage::core {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::nanoseconds;

struct etcd_address {
    std::string text, host, port;
    bool secure = false;
};

etcd_address parse_address(std::string text) {
    constexpr std::string_view plain = "http://", over_tls = "https://";
    const bool secure = text.starts_with(over_tls);
    if (secure || text.starts_with(plain)) text.erase(0, (secure ? over_tls : plain).size());
    while (text.ends_with('/')) text.pop_back();
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return {text, text, "2379", secure};
    std::string host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    return {text, host, text.substr(colon + 1), secure};
}

std::string describe(error_code code) {
    return code == beast::error::timeout
               ? format("no answer within {} ms", etcd_client::answer_ns / 1'000'000)
               : code.message();
}

// The server's certificate must be for the host in the cluster's file.
void expect_host(SSL *session, const std::string &host) {
    error_code no_address;
    asio::ip::make_address(host, no_address);
    X509_VERIFY_PARAM *const parameters = SSL_get0_param(session);
    if (!no_address) {
        X509_VERIFY_PARAM_set1_ip_asc(parameters, host.c_str());
        return;
    }
    X509_VERIFY_PARAM_set1_host(parameters, host.c_str(), host.size());
    SSL_set_tlsext_host_name(session, host.c_str());
}

// One handler type for all operations, because Boost instantiates them for each type.
struct completion_handler {
    std::shared_ptr<std::optional<error_code>> outcome;
    template <class... Rest>
    void operator()(error_code code, const Rest &...) const {
        *outcome = code;
    }
};

using parser = http::response_parser<http::string_body>;

// A connection, and bytes that were read after the last message.
struct connection {
    explicit connection(asio::io_context &loop) : stream(loop), buffer(size_t{1} << 17) {}
    beast::tcp_stream stream;
    std::optional<asio::ssl::stream<beast::tcp_stream &>> secure;  // over `stream`, with https
    beast::flat_buffer buffer;
    size_t endpoint = 0;
};

// The connection of the watch, whose answer has no end.
struct watch_connection : connection {
    explicit watch_connection(asio::io_context &loop) : connection(loop) {
        answer.header_limit(etcd_client::header_bytes_max);
        // Limit for an answer that states its length. Such an answer is refused.
        answer.body_limit(etcd_client::line_bytes_max);
    }
    parser answer;
    std::string text;  // the beginning of an incomplete line
    error_code ended;
    bool reading = false;
};

class etcd_gateway final : public etcd_client {
public:
    explicit etcd_gateway(std::vector<std::string> endpoints) {
        for (std::string &endpoint : endpoints)
            endpoints_.push_back(parse_address(std::move(endpoint)));
    }
    ~etcd_gateway() override;

    status read_files(const etcd_tls &tls);
    result<json> post(const std::string &path, const json &body) override;
    status watch(const json &create, bool elsewhere) override;
    bool watching() const override { return events_ != nullptr; }
    result<std::vector<std::string>> lines(uint64_t wait_ns) override;
    void stop_watch() override;
    const std::string &endpoint() const override { return endpoints_[endpoint_].text; }

private:
    // Runs the loop until the operation of `begin` has ended. The operation has its own time limit.
    template <class Begin>
    error_code wait(Begin &&begin) {
        const auto outcome = std::make_shared<std::optional<error_code>>();
        begin(completion_handler{outcome});
        loop_.restart();
        while (!*outcome && loop_.run_one() != 0) continue;
        return outcome->value_or(asio::error::operation_aborted);
    }
    // Like wait(), with the stream in use: plain or TLS.
    template <class Begin>
    error_code wait_on(connection &link, Begin &&begin) {
        if (link.secure) return wait([&](auto handler) { begin(*link.secure, handler); });
        return wait([&](auto handler) { begin(link.stream, handler); });
    }
    // Connects. Returns the error in words; empty: none.
    std::string connect(connection &link);
    std::string shake_hands(connection &link, const std::string &host);
    result<std::string> ask(const std::string &path, const std::string &body);
    error_code send(connection &link, const std::string &path, const std::string &body);
    error_code read(connection &link, parser &answer, bool (parser::*enough)() const);
    void read_on();

    asio::io_context loop_;
    asio::ssl::context context_{asio::ssl::context::tls_client};
    std::vector<etcd_address> endpoints_;
    std::unique_ptr<connection> calls_;         // null: none is open
    std::unique_ptr<watch_connection> events_;  // null: nothing is watched
    size_t endpoint_ = 0;
};

// Running operations end with the loop.
etcd_gateway::~etcd_gateway() {
    stop_watch();
    calls_.reset();
    loop_.restart();
    loop_.poll();
}

status etcd_gateway::read_files(const etcd_tls &tls) {
    if (std::none_of(endpoints_.begin(), endpoints_.end(),
                     [](const etcd_address &address) { return address.secure; }))
        return success();
    error_code failed;
    const auto reason = [&](const std::filesystem::path &file) -> std::string {
        if (file.empty()) return "it is not given";
        if (::access(file.c_str(), R_OK) != 0) return std::strerror(errno);
        const char *text = ERR_reason_error_string(static_cast<uint32_t>(failed.value()));
        return text ? text : "it is not in PEM";
    };
    const auto refuse = [&](const char *key, const std::filesystem::path &file) {
        return error{format("[registry] {} {}cannot be used: {}", key,
                            file.empty() ? "" : file.string() + " ", reason(file))};
    };
    context_.load_verify_file(tls.ca.string(), failed);
    if (failed) return refuse("ca", tls.ca);
    context_.set_verify_mode(asio::ssl::verify_peer);
    SSL_CTX_set_min_proto_version(context_.native_handle(), TLS1_2_VERSION);
    if (tls.certificate.empty() && tls.key.empty()) return success();
    context_.use_certificate_chain_file(tls.certificate.string(), failed);
    if (failed) return refuse("certificate", tls.certificate);
    // Otherwise OpenSSL asks for it on the terminal.
    const auto asked = std::make_shared<bool>(false);
    context_.set_password_callback(
        [asked](size_t, asio::ssl::context::password_purpose) { return *asked = true, ""; });
    context_.use_private_key_file(tls.key.string(), asio::ssl::context::pem, failed);
    if (*asked)
        return error{format("[registry] key {} cannot be used: it has a passphrase; write it "
                            "without one (openssl pkey -in KEY -out NEW)",
                            tls.key.string())};
    if (failed) return refuse("key", tls.key);
    return success();
}

std::string etcd_gateway::connect(connection &link) {
    const etcd_address &address = endpoints_[link.endpoint];
    asio::ip::tcp::resolver names(loop_);
    asio::steady_timer timer(loop_, nanoseconds(answer_ns));
    timer.async_wait([&](error_code code) {
        if (!code) names.cancel();
    });
    asio::ip::tcp::resolver::results_type found;
    error_code failed = wait([&](auto handler) {
        names.async_resolve(address.host, address.port,
                            [&found, handler](error_code code, auto results) mutable {
                                if (!code) found = results;
                                handler(code);
                            });
    });
    timer.cancel();
    if (failed) return describe(failed);
    link.stream.expires_after(nanoseconds(answer_ns));
    failed = wait([&](auto handler) { link.stream.async_connect(found, handler); });
    if (!failed) link.stream.socket().set_option(asio::ip::tcp::no_delay(true), failed);
    if (failed) return describe(failed);
    return address.secure ? shake_hands(link, address.host) : std::string();
}

std::string etcd_gateway::shake_hands(connection &link, const std::string &host) {
    link.secure.emplace(link.stream, context_);
    expect_host(link.secure->native_handle(), host);
    const error_code failed = wait([&](auto handler) {
        link.secure->async_handshake(asio::ssl::stream_base::client, handler);
    });
    if (!failed) return {};
    if (const long verified = SSL_get_verify_result(link.secure->native_handle());
        verified != X509_V_OK)
        return format("its certificate is refused: {}", X509_verify_cert_error_string(verified));
    return format("no TLS: {}", describe(failed));
}

// Sets the limit answer_ns, which also covers everything that is read afterwards.
error_code etcd_gateway::send(connection &link, const std::string &path, const std::string &body) {
    const std::string text = format(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        path, endpoints_[link.endpoint].text, body.size(), body);
    link.stream.expires_after(nanoseconds(answer_ns));
    return wait_on(link, [&](auto &stream, auto handler) {
        asio::async_write(stream, asio::buffer(text), handler);
    });
}

// The parser reads the header first. It refuses a body that is too long before allocating memory
// for it.
error_code etcd_gateway::read(connection &link, parser &answer, bool (parser::*enough)() const) {
    error_code code;
    while (!code && !(answer.*enough)())
        code = wait_on(link, [&](auto &stream, auto handler) {
            http::async_read_some(stream, link.buffer, answer, handler);
        });
    return code;
}

// Uses the open connection, otherwise a new one.
result<std::string> etcd_gateway::ask(const std::string &path, const std::string &body) {
    const auto fail = [this](const char *problem, const std::string &reason) {
        calls_.reset();
        return error{format("etcd at {}: {}: {}", endpoint(), problem, reason)};
    };
    if (!calls_) {
        calls_ = std::make_unique<connection>(loop_);
        calls_->endpoint = endpoint_;
        if (const std::string reason = connect(*calls_); !reason.empty())
            return fail("cannot be reached", reason);
    }
    if (const error_code code = send(*calls_, path, body))
        return fail("takes no request", describe(code));
    parser answer;
    answer.header_limit(header_bytes_max);
    answer.body_limit(answer_bytes_max);
    const error_code code = read(*calls_, answer, &parser::is_done);
    if (code) return fail("answers nothing that can be read", describe(code));
    std::string text = std::move(answer.get().body());
    if (!answer.get().keep_alive()) calls_.reset();
    return text;
}

result<json> etcd_gateway::post(const std::string &path, const json &body) {
    const std::string text = json_line(body);
    error last_error;
    // One more try than endpoints: an open connection may have ended while it was idle.
    const bool was_open = calls_ != nullptr;
    for (size_t tries = 0; tries < endpoints_.size() + (was_open ? 1 : 0); ++tries) {
        const auto reply = ask(path, text);
        if (reply) {
            json answer = parse_etcd(*reply);
            if (answer.is_discarded()) {
                last_error = {
                    format("etcd at {}: {} answers what is no JSON of etcd", endpoint(), path)};
            } else if (const std::string reason = etcd_error(answer); !reason.empty()) {
                last_error = {format("etcd at {}: {}: {}", endpoint(), path, reason)};
            } else {
                return answer;
            }
            calls_.reset();
        } else {
            last_error = reply.failure();
        }
        if (tries != 0 || !was_open) endpoint_ = (endpoint_ + 1) % endpoints_.size();
    }
    return last_error;
}

void etcd_gateway::stop_watch() {
    if (!events_) return;
    events_->stream.close();
    // The last handler must run before the connection is destroyed.
    while (events_->reading) {
        loop_.restart();
        if (loop_.run_one() == 0) break;
    }
    events_.reset();
}

status etcd_gateway::watch(const json &create, bool elsewhere) {
    const size_t previous = events_ ? events_->endpoint : endpoint_;
    stop_watch();
    auto link = std::make_unique<watch_connection>(loop_);
    link->endpoint = (previous + (elsewhere ? 1 : 0)) % endpoints_.size();
    const auto fail = [&](const char *problem, const std::string &reason) {
        return error{
            format("etcd at {}: {}: {}", endpoints_[link->endpoint].text, problem, reason)};
    };
    if (const std::string reason = connect(*link); !reason.empty()) {
        endpoint_ = (link->endpoint + 1) % endpoints_.size();
        return fail("cannot be reached", reason);
    }
    if (const error_code code = send(*link, "/v3/watch", json_line({{"create_request", create}})))
        return fail("takes no watch", describe(code));
    if (const error_code code = read(*link, link->answer, &parser::is_header_done))
        return fail("does not watch", describe(code));
    if (link->answer.get().result() != http::status::ok || !link->answer.chunked())
        return error{format("etcd at {}: /v3/watch: HTTP {} without an end",
                            endpoints_[link->endpoint].text, link->answer.get().result_int())};
    link->answer.body_limit(boost::none);
    link->stream.expires_never();
    events_ = std::move(link);
    read_on();
    return success();
}

void etcd_gateway::read_on() {
    watch_connection &link = *events_;
    link.reading = true;
    const auto take = [this, &link](error_code code, size_t) {
        link.reading = false;
        std::string &body = link.answer.get().body();
        link.text += body;
        body.clear();
        if (code) link.ended = code;
        if (!code && link.answer.is_done()) link.ended = http::error::end_of_stream;
        if (link.text.size() > line_bytes_max) link.ended = http::error::body_limit;
        if (!link.ended && events_.get() == &link) read_on();
    };
    if (link.secure)
        http::async_read_some(*link.secure, link.buffer, link.answer, take);
    else
        http::async_read_some(link.stream, link.buffer, link.answer, take);
}

result<std::vector<std::string>> etcd_gateway::lines(uint64_t wait_ns) {
    if (!events_) return error{"etcd: nothing is watched"};
    const uint64_t deadline_ns = steady_ns() + wait_ns;
    watch_connection &link = *events_;
    std::vector<std::string> whole_lines;
    for (;;) {
        for (size_t end; (end = link.text.find('\n')) != std::string::npos;
             link.text.erase(0, end + 1))
            whole_lines.push_back(link.text.substr(0, end));
        const uint64_t now_ns = steady_ns();
        if (!whole_lines.empty()) return whole_lines;
        if (link.ended) {
            const std::string text = format("etcd at {}: the watch ended: {}",
                                            endpoints_[link.endpoint].text, link.ended.message());
            stop_watch();
            return error{text};
        }
        if (now_ns >= deadline_ns && wait_ns != 0) return whole_lines;
        loop_.restart();
        if (wait_ns == 0) {
            if (loop_.poll() == 0) return whole_lines;
        } else {
            loop_.run_one_for(nanoseconds(deadline_ns - now_ns));
        }
    }
}

result<std::unique_ptr<etcd_client>> make_gateway(const std::vector<std::string> &endpoints,
                                                  const etcd_tls &tls) {
    auto gateway = std::make_unique<etcd_gateway>(endpoints);
    if (const status read = gateway->read_files(tls); !read) return read.failure();
    return std::unique_ptr<etcd_client>(std::move(gateway));
}

}  // namespace

}  // namespace moorage::core

MOORAGE_PROGRAM_PART(moorage::core::etcd_client_maker{moorage::core::make_gateway})
