// etcd_client.cpp - connects, asks, reads lines; every operation ends within its time.
#include "core/registry/etcd_client.h"

#include <utility>  // Boost 1.74 needs it and does not say so

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
#include <optional>

#include "core/base/json.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "core/registry/etcd_values.h"

namespace moorage::core {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::nanoseconds;

struct address {
    std::string whole, host, port;
    bool secure = false;
};

address address_of(std::string text) {
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

std::string words_of(error_code code) {
    return code == beast::error::timeout
               ? format("no answer within {} ms", etcd_client::answer_ns / 1'000'000)
               : code.message();
}

// Fills in who vouches for whom.
status read_files(asio::ssl::context &to, const etcd_tls &with) {
    error_code failed;
    const auto reason = [&](const std::filesystem::path &file) -> std::string {
        if (file.empty()) return "it is not given";
        if (::access(file.c_str(), R_OK) != 0) return std::strerror(errno);
        const char *said = ERR_reason_error_string(static_cast<uint32_t>(failed.value()));
        return said ? said : "it is not in PEM";
    };
    const auto wrong = [&](const char *what, const std::filesystem::path &file) {
        return error{format("[registry] {} {}cannot be used: {}", what,
                            file.empty() ? "" : file.string() + " ", reason(file))};
    };
    to.load_verify_file(with.ca.string(), failed);
    if (failed) return wrong("ca", with.ca);
    to.set_verify_mode(asio::ssl::verify_peer);
    SSL_CTX_set_min_proto_version(to.native_handle(), TLS1_2_VERSION);
    if (with.certificate.empty() && with.key.empty()) return success();
    to.use_certificate_chain_file(with.certificate.string(), failed);
    if (failed) return wrong("certificate", with.certificate);
    to.use_private_key_file(with.key.string(), asio::ssl::context::pem, failed);
    if (failed) return wrong("key", with.key);
    return success();
}

// The other has to be who the file of the cluster calls.
void expect(SSL *session, const std::string &host) {
    error_code none;
    asio::ip::make_address(host, none);
    X509_VERIFY_PARAM *const of = SSL_get0_param(session);
    if (!none) {
        X509_VERIFY_PARAM_set1_ip_asc(of, host.c_str());
        return;
    }
    X509_VERIFY_PARAM_set1_host(of, host.c_str(), host.size());
    SSL_set_tlsext_host_name(session, host.c_str());
}

// One type for all operations: they are compiled anew for each.
struct ended {
    std::shared_ptr<std::optional<error_code>> how;
    template <class... Rest>
    void operator()(error_code code, const Rest &...) const {
        *how = code;
    }
};

using parser = http::response_parser<http::string_body>;

}  // namespace

struct etcd_client::parts {
    // A connection, and what was read of it beyond the last message.
    struct line {
        explicit line(asio::io_context &loop) : stream(loop), buffer(size_t{1} << 17) {}
        beast::tcp_stream stream;
        std::optional<asio::ssl::stream<beast::tcp_stream &>> secure;  // over it, where it is
        beast::flat_buffer buffer;
        size_t endpoint = 0;
    };
    // The watch's: its answer has no end.
    struct watch_line : line {
        explicit watch_line(asio::io_context &loop) : line(loop) {
            answer.header_limit(header_bytes_max);
            answer.body_limit(line_bytes_max);  // of one that says its length, and is refused
        }
        parser answer;
        std::string text;  // up to now, of a line that is not whole
        error_code ended;
        bool reading = false;
    };

    // Runs the loop until `begin`'s operation has ended, which its own time limit sees to.
    template <class Begin>
    error_code wait(Begin &&begin) {
        const auto how = std::make_shared<std::optional<error_code>>();
        begin(ended{how});
        loop.restart();
        while (!*how && loop.run_one() != 0) continue;
        return how->value_or(asio::error::operation_aborted);
    }
    // As wait(), with the stream that is spoken over.
    template <class Begin>
    error_code over(line &to, Begin &&begin) {
        if (to.secure) return wait([&](auto handler) { begin(*to.secure, handler); });
        return wait([&](auto handler) { begin(to.stream, handler); });
    }
    // What went wrong, in words; empty: nothing.
    std::string connect(line &to);
    std::string shake_hands(line &to, const std::string &host);
    result<std::string> ask(const std::string &path, const std::string &body);
    error_code post(line &to, const std::string &path, const std::string &body);
    error_code read(line &from, parser &into, bool (parser::*enough)() const);
    void read_on();

    asio::io_context loop;
    asio::ssl::context context{asio::ssl::context::tls_client};
    status ready = success();
    std::vector<address> endpoints;
    std::unique_ptr<line> calls;         // null: none is open
    std::unique_ptr<watch_line> events;  // null: nothing is watched
    size_t endpoint = 0;
};

etcd_client::etcd_client(std::vector<std::string> endpoints, const etcd_tls &with)
    : parts_(new parts()) {
    bool secure = false;
    for (std::string &one : endpoints) {
        parts_->endpoints.push_back(address_of(std::move(one)));
        secure |= parts_->endpoints.back().secure;
    }
    if (secure) parts_->ready = read_files(parts_->context, with);
}

const status &etcd_client::ready() const { return parts_->ready; }

// What is under way ends with the loop.
etcd_client::~etcd_client() {
    stop_watch();
    parts_->calls.reset();
    parts_->loop.restart();
    parts_->loop.poll();
}

const std::string &etcd_client::endpoint() const {
    return parts_->endpoints[parts_->endpoint].whole;
}

std::string etcd_client::parts::connect(line &to) {
    const address &at = endpoints[to.endpoint];
    asio::ip::tcp::resolver names(loop);
    asio::steady_timer late(loop, nanoseconds(answer_ns));
    late.async_wait([&](error_code code) {
        if (!code) names.cancel();
    });
    asio::ip::tcp::resolver::results_type found;
    error_code failed = wait([&](auto handler) {
        names.async_resolve(at.host, at.port,
                            [&found, handler](error_code code, auto results) mutable {
                                if (!code) found = results;
                                handler(code);
                            });
    });
    late.cancel();
    if (failed) return words_of(failed);
    to.stream.expires_after(nanoseconds(answer_ns));
    failed = wait([&](auto handler) { to.stream.async_connect(found, handler); });
    if (!failed) to.stream.socket().set_option(asio::ip::tcp::no_delay(true), failed);
    if (failed) return words_of(failed);
    return at.secure ? shake_hands(to, at.host) : std::string();
}

std::string etcd_client::parts::shake_hands(line &to, const std::string &host) {
    to.secure.emplace(to.stream, context);
    expect(to.secure->native_handle(), host);
    const error_code failed = wait(
        [&](auto handler) { to.secure->async_handshake(asio::ssl::stream_base::client, handler); });
    if (!failed) return {};
    if (const long verified = SSL_get_verify_result(to.secure->native_handle());
        verified != X509_V_OK)
        return format("its certificate is refused: {}", X509_verify_cert_error_string(verified));
    return format("no TLS: {}", words_of(failed));
}

// Within answer_ns, as all that is read after it.
error_code etcd_client::parts::post(line &to, const std::string &path, const std::string &body) {
    const std::string text = format(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        path, endpoints[to.endpoint].whole, body.size(), body);
    to.stream.expires_after(nanoseconds(answer_ns));
    return over(to, [&](auto &stream, auto handler) {
        asio::async_write(stream, asio::buffer(text), handler);
    });
}

// The header alone first, which refuses what is too long before memory for that is taken.
error_code etcd_client::parts::read(line &from, parser &into, bool (parser::*enough)() const) {
    error_code code;
    while (!code && !(into.*enough)())
        code = over(from, [&](auto &stream, auto handler) {
            http::async_read_some(stream, from.buffer, into, handler);
        });
    return code;
}

// Over the connection that there is, else over a new one.
result<std::string> etcd_client::parts::ask(const std::string &path, const std::string &body) {
    const auto failed = [this](const char *what, const std::string &words) {
        calls.reset();
        return error{format("etcd at {}: {}: {}", endpoints[endpoint].whole, what, words)};
    };
    if (!calls) {
        calls = std::make_unique<line>(loop);
        calls->endpoint = endpoint;
        if (const std::string words = connect(*calls); !words.empty())
            return failed("cannot be reached", words);
    }
    if (const error_code code = post(*calls, path, body))
        return failed("takes no request", words_of(code));
    parser answer;
    answer.header_limit(header_bytes_max);
    answer.body_limit(answer_bytes_max);
    const error_code code = read(*calls, answer, &parser::is_done);
    if (code) return failed("answers nothing that can be read", words_of(code));
    std::string text = std::move(answer.get().body());
    if (!answer.get().keep_alive()) calls.reset();
    return text;
}

result<json> etcd_client::post(const std::string &path, const json &body) {
    if (!parts_->ready) return parts_->ready.failure();
    const std::string text = json_line(body);
    error last;
    // One more than there are: a connection that was idle for long may be gone.
    const bool was_open = parts_->calls != nullptr;
    for (size_t tries = 0; tries < parts_->endpoints.size() + (was_open ? 1 : 0); ++tries) {
        const auto said = parts_->ask(path, text);
        if (said) {
            json answer = parse_etcd(*said);
            if (answer.is_discarded()) {
                last = {format("etcd at {}: {} answers what is no JSON of etcd", endpoint(), path)};
            } else if (const std::string wrong = etcd_error(answer); !wrong.empty()) {
                last = {format("etcd at {}: {}: {}", endpoint(), path, wrong)};
            } else {
                return answer;
            }
            parts_->calls.reset();
        } else {
            last = said.failure();
        }
        if (tries != 0 || !was_open)
            parts_->endpoint = (parts_->endpoint + 1) % parts_->endpoints.size();
    }
    return last;
}

bool etcd_client::watching() const { return parts_->events != nullptr; }

void etcd_client::stop_watch() {
    if (!parts_->events) return;
    parts_->events->stream.close();
    // Its last handler runs before it goes.
    while (parts_->events->reading) {
        parts_->loop.restart();
        if (parts_->loop.run_one() == 0) break;
    }
    parts_->events.reset();
}

status etcd_client::watch(const json &create, bool elsewhere) {
    if (!parts_->ready) return parts_->ready;
    const size_t before = parts_->events ? parts_->events->endpoint : parts_->endpoint;
    stop_watch();
    auto made = std::make_unique<parts::watch_line>(parts_->loop);
    made->endpoint = (before + (elsewhere ? 1 : 0)) % parts_->endpoints.size();
    const auto failed = [&](const char *what, const std::string &words) {
        return error{
            format("etcd at {}: {}: {}", parts_->endpoints[made->endpoint].whole, what, words)};
    };
    if (const std::string words = parts_->connect(*made); !words.empty()) {
        parts_->endpoint = (made->endpoint + 1) % parts_->endpoints.size();
        return failed("cannot be reached", words);
    }
    if (const error_code code =
            parts_->post(*made, "/v3/watch", json_line({{"create_request", create}})))
        return failed("takes no watch", words_of(code));
    if (const error_code code = parts_->read(*made, made->answer, &parser::is_header_done))
        return failed("does not watch", words_of(code));
    if (made->answer.get().result() != http::status::ok || !made->answer.chunked())
        return error{format("etcd at {}: /v3/watch: HTTP {} without an end",
                            parts_->endpoints[made->endpoint].whole,
                            made->answer.get().result_int())};
    made->answer.body_limit(boost::none);
    made->stream.expires_never();
    parts_->events = std::move(made);
    parts_->read_on();
    return success();
}

void etcd_client::parts::read_on() {
    watch_line &one = *events;
    one.reading = true;
    const auto came = [this, &one](error_code code, size_t) {
        one.reading = false;
        std::string &body = one.answer.get().body();
        one.text += body;
        body.clear();
        if (code) one.ended = code;
        if (!code && one.answer.is_done()) one.ended = http::error::end_of_stream;
        if (one.text.size() > line_bytes_max) one.ended = http::error::body_limit;
        if (!one.ended && events.get() == &one) read_on();
    };
    if (one.secure)
        http::async_read_some(*one.secure, one.buffer, one.answer, came);
    else
        http::async_read_some(one.stream, one.buffer, one.answer, came);
}

result<std::vector<std::string>> etcd_client::lines(uint64_t wait_ns) {
    if (!parts_->events) return error{"etcd: nothing is watched"};
    const uint64_t end_ns = steady_ns() + wait_ns;
    parts::watch_line &from = *parts_->events;
    std::vector<std::string> whole;
    for (;;) {
        for (size_t end; (end = from.text.find('\n')) != std::string::npos;
             from.text.erase(0, end + 1))
            whole.push_back(from.text.substr(0, end));
        const uint64_t now_ns = steady_ns();
        if (!whole.empty()) return whole;
        if (from.ended) {
            const std::string text =
                format("etcd at {}: the watch ended: {}", parts_->endpoints[from.endpoint].whole,
                       from.ended.message());
            stop_watch();
            return error{text};
        }
        if (now_ns >= end_ns && wait_ns != 0) return whole;
        parts_->loop.restart();
        if (wait_ns == 0) {
            if (parts_->loop.poll() == 0) return whole;
        } else {
            parts_->loop.run_one_for(nanoseconds(end_ns - now_ns));
        }
    }
}

}  // namespace moorage::core
