// Goal: numbers with units have their meaning in SI and IEC 80000-13, and nothing else is accepted.
// Method: values worked out by hand, exactly; each wrong way to write one, with its error.
#include "core/base/quantity.h"

#include <doctest/doctest.h>

#include <string>

namespace quantity_test {

using namespace moorage::core;

namespace {

double value(const char *text, quantity_unit unit) {
    CAPTURE(text);
    const auto read = parse_quantity(text, unit);
    REQUIRE_MESSAGE(read.ok(), (read ? "" : read.failure().text));
    return *read;
}

bool refused(const std::string &text, quantity_unit unit, const std::string &part) {
    CAPTURE(text);
    const auto read = parse_quantity(text, unit);
    REQUIRE_FALSE(read.ok());
    CHECK(read.failure().usage);
    const bool found = read.failure().text.find(part) != std::string::npos;
    if (!found) MESSAGE("\"" << read.failure().text << "\" lacks \"" << part << "\"");
    return found;
}

}  // namespace

using enum quantity_unit;

TEST_CASE("numbers are written as they are read, and given the unit that they lost") {
    CHECK(quantity_text(25.3, bytes_per_s) == "25.3 B/s");
    CHECK(quantity_text(0.25, share) == "25 %");
    CHECK(quantity_text(7, ns) == "7 ns");
    CHECK(short_quantity_text(1e6, bytes_per_s) == "1 MB/s");
    CHECK(short_quantity_text(1e14, bits_per_s) == "100 Tbit/s");
    CHECK(short_quantity_text(1e8, ns) == "100 ms");
    CHECK(short_quantity_text(1e-3, s) == "1 ms");
    CHECK(short_quantity_text(0, ns) == "0 ns");
    CHECK(short_quantity_text(1e7, bytes) == "10 MB");
    for (const quantity_unit unit : all_units)
        for (const double number : {0.001, 7.0, 25.3, 1e6, 3e12}) {
            const auto parsed = parse_quantity(quantity_text(number, unit), unit),
                       parsed_short = parse_quantity(short_quantity_text(number, unit), unit);
            CAPTURE(name_of(unit));
            REQUIRE((parsed.ok() && parsed_short.ok()));
            CHECK(*parsed == doctest::Approx(number));
            CHECK(*parsed_short == doctest::Approx(number));
        }
    // The likely unit fits; only others fit; none fits.
    CHECK(likely_quantity_text(25.3, bytes_per_s, 1e6, 1e14, "GB/s") == "25.3 GB/s");
    CHECK(likely_quantity_text(25.3, bytes_per_s, 1e6, 1e14, "kB/s") == "25.3 GB/s");
    CHECK(likely_quantity_text(25300, bytes_per_s, 1e6, 1e13, "GB/s") == "25300 MB/s");
    CHECK(likely_quantity_text(1e300, bytes_per_s, 1e6, 1e14, "GB/s") == "");
    CHECK(likely_quantity_text(20, s, 1e-9, 2, "ms") == "20 ms");
}

TEST_CASE("sizes: powers of 1000, and of 1024 with an i") {
    CHECK(value("5 GiB", bytes) == 5368709120.0);  // 5 x 1024^3
    CHECK(value("5GiB", bytes) == 5368709120.0);
    CHECK(value("5 GB", bytes) == 5e9);
    CHECK(value("1.5 kB", bytes) == 1500);
    CHECK(value("0.5 KiB", bytes) == 512);
    CHECK(value("1 MiB", bytes) == 1048576);
    CHECK(value("2 TiB", bytes) == 2199023255552.0);
    CHECK(value("1 PiB", bytes) == 1125899906842624.0);
    CHECK(value("7 B", bytes) == 7);
    CHECK(value("1e3 MB", bytes) == 1e9);
    CHECK(value(".5 GB", bytes) == 5e8);
    CHECK(value("2.3 GB", bytes) == 2.3e9);
}

TEST_CASE("rates: bits and bytes, whichever a key counts") {
    CHECK(value("500 Mbit/s", bits_per_s) == 5e8);
    CHECK(value("500 Mbit/s", bytes_per_s) == 62.5e6);
    CHECK(value("25 GB/s", bytes_per_s) == 25e9);
    CHECK(value("25 GB/s", bits_per_s) == 200e9);
    CHECK(value("1 MiB/s", bits_per_s) == 8388608);
    CHECK(value("10 Gbit/s", bytes_per_s) == 1.25e9);
}

TEST_CASE("shares, times, frequencies, powers, arithmetic, lengths") {
    CHECK(value("25%", share) == 0.25);
    CHECK(value("25 %", share) == 0.25);  // as reports print it
    CHECK(value("12.5%", share) == 0.125);
    CHECK(value("-3%", share) == -0.03);  // a number; the key's bounds refuse it
    CHECK(value("2 min", s) == 120);
    CHECK(value("250 ms", s) == 0.25);
    CHECK(value("1 d", ms) == 86'400'000);
    CHECK(value("1.5 us", ns) == 1500);
    CHECK(value("2 h", s) == 7200);
    CHECK(value("5 MHz", hz) == 5e6);
    CHECK(value("10 mW", w) == 0.01);
    CHECK(value("312 TFLOP/s", flop_per_s) == 312e12);
    CHECK(value("1.2 km", m) == 1200);
}

TEST_CASE("what is no number with a unit of the kind is refused, with the nearest unit") {
    CHECK(refused("5 GiBs", bytes, "GiBs is no unit of it; did you mean GiB"));
    CHECK(refused("5 gib", bytes, "did you mean GiB"));
    CHECK(refused("5 KB", bytes, "did you mean kB"));
    CHECK(refused("500 Mbit", bits_per_s, "did you mean Mbit/s"));
    CHECK(refused("500 Mbit/s", bytes, "Mbit/s is no unit of it"));
    CHECK(refused("5 parsecs", bytes, "choose B, kB"));
    CHECK(refused("5 GB GB", bytes, "GB GB is no unit"));
    CHECK(refused("5  GB", bytes, " GB is no unit"));  // two spaces
    CHECK(refused("5 GB ", bytes, "GB  is no unit"));
    CHECK(refused("NaN", share, "a number comes first, for example \"25%\""));
    CHECK(refused("nan%", share, "a number comes first"));
    CHECK(refused("inf B", bytes, "a number comes first"));
    CHECK(refused("-inf%", share, "a number comes first"));
    CHECK(refused("+3%", share, "a number comes first"));
    CHECK(refused("", bytes, "a number comes first"));
    CHECK(refused(" 5 GB", bytes, "a number comes first"));
    CHECK(refused("-", bytes, "a number comes first"));
    CHECK(refused("GB", bytes, "a number comes first"));
    CHECK(refused("0x10 B", bytes, "x10 B is no unit"));
    CHECK(refused("1_000 B", bytes, "_000 B is no unit"));
    CHECK(refused("96", bytes, "its unit is missing, for example \"5 GiB\""));
    CHECK(refused("1e400", bytes, "too large"));
    CHECK(refused("1e400 B", bytes, "too large"));
    CHECK(refused("1e-400 B", bytes, "too close to 0"));
    CHECK(refused("1e308 PB", bytes, "too large"));  // in bytes beyond 1.8e308
    CHECK(refused("5 s", none, "no unit"));
}

TEST_CASE("a key's unit is what its name ends in, the longest that fits") {
    CHECK(unit_of_name("expert_memory_bytes") == bytes);
    CHECK(unit_of_name("bytes") == bytes);
    CHECK(unit_of_name("load_bytes_per_s") == bytes_per_s);
    CHECK(unit_of_name("bits_per_s") == bits_per_s);
    CHECK(unit_of_name("latency_s") == s);
    CHECK(unit_of_name("call_limit_ms") == ms);
    CHECK(unit_of_name("memory_share") == share);
    CHECK(unit_of_name("share") == share);
    CHECK(unit_of_name("experts") == none);
    CHECK(unit_of_name("w") == none);
    CHECK(unit_of_name("remote_calls_per_s") == none);
    CHECK(unit_of_name("noise_w_per_hz") == none);
    CHECK(unit_of_name("cpu_flops_per_s") == flop_per_s);
}

}  // namespace quantity_test
