// trace_test.cpp - goal: a right trace is read exactly, a wrong one is refused with the place
// named, and no bytes make the reader leave the file. Method: a file of 3 tokens built byte by
// byte, read back value by value; one mutation of it per malformed case; all truncations and bit
// flips.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/half.h"
#include "core/base/safetensors.h"
#include "core/source/trace.h"
#include "core/source/trace_stats.h"
#include "moorage/module.h"
#include "tests/unit/trace_file.h"

namespace trace_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

// Reads every value; a sanitizer build sees a read outside the file.
double read_all(const trace &source) {
    double sum = 0;
    std::vector<float> row(source.experts());
    for (uint64_t token = 0; token < source.tokens(); ++token)
        for (uint32_t layer = 0; layer < source.layers(); ++layer) {
            for (uint32_t k = 0; k < source.top_k(); ++k) {
                CHECK(source.expert(token, layer, k) < source.experts());
                sum += source.has_weights() ? source.weight(token, layer, k) : 0;
            }
            for (uint32_t k = 0; k < source.predictions(); ++k) {
                CHECK(source.predicted(token, layer, k) < source.experts());
                sum +=
                    source.has_prediction_scores() ? source.prediction_score(token, layer, k) : 0;
            }
            if (source.has_gate_scores()) source.gate_scores(token, layer, row.data());
            sum += source.has_token_ids() ? source.token_id(token) : 0;
        }
    return sum;
}

void check_good(const trace &source) {
    CHECK(source.tokens() == 3);
    CHECK(source.layers() == 2);
    CHECK(source.experts() == 4);
    CHECK(source.top_k() == 2);
    CHECK(source.predictions() == 3);
    CHECK(source.requests() == 2);
    CHECK(source.request_offsets()[1] == 1);
    CHECK(source.request_domain()[0] == 1);
    CHECK(source.domains() == std::vector<std::string>{"law", "code"});
    CHECK(source.meta("model") == "hand");
    CHECK(source.meta("nothing") == "");
    CHECK(source.expert(0, 1, 0) == 2);
    CHECK(source.expert(2, 0, 1) == 2);
    CHECK(source.expert(2, 1, 1) == 3);
    CHECK(source.weight(0, 0, 0) == .9f);
    CHECK(source.weight(2, 1, 1) == .49f);
    CHECK(source.predicted(1, 0, 2) == 3);
    CHECK(source.predicted(2, 1, 0) == 3);
    CHECK(source.prediction_score(2, 1, 2) == .125f);
    float row[4] = {};
    source.gate_scores(2, 1, row);
    CHECK(row[0] == .5f);
    CHECK(row[3] == .0625f);
    CHECK(source.token_id(1) == -1);
    CHECK(source.token_id(2) == 99);
    uint32_t chosen[8] = {};
    source.read_experts(1, 2, chosen);
    CHECK(chosen[0] == 1);
    CHECK(chosen[7] == 3);
    CHECK(source.offers() == (MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS |
                              MOORAGE_NEEDS_PREDICTIONS | MOORAGE_NEEDS_FUTURE));
}

void refuse(const std::vector<std::byte> &bytes, const std::string &part) {
    const auto opened = trace::from_bytes("bad.safetensors", bytes);
    REQUIRE_FALSE(opened.ok());
    const std::string &text = opened.failure().text;
    INFO(text);
    CHECK(text.starts_with("bad.safetensors: "));
    CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a right trace is read value by value") {
    const auto opened = trace::from_bytes("good", good_file().build());
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    check_good(*opened);
}

TEST_CASE("tensors need no alignment") {
    raw_file file = good_file();
    file.tensors.insert(file.tensors.begin(), {"other", "U8", "[1]", raw<uint8_t>({7})});
    for (int spaces = 0; spaces < 8; ++spaces) {
        const auto opened =
            trace::from_bytes("good", file.build(file.header() + std::string(spaces, ' ')));
        REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
        check_good(*opened);
    }
}

TEST_CASE("a file is mapped, and released pages come back") {
    const auto path = std::filesystem::temp_directory_path() / "moorage-trace-test.safetensors";
    const std::vector<std::byte> bytes = good_file().build();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes.data()), static_cast<int64_t>(bytes.size()));
    const auto opened = trace::open(path);
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    CHECK(opened->path() == path);
    CHECK(opened->file_bytes() == bytes.size());
    opened->release_before(3);
    check_good(*opened);
    std::filesystem::remove(path);
}

TEST_CASE("places that are no regular file are refused") {
    CHECK_FALSE(trace::open("/nonexistent/trace.safetensors").ok());
    CHECK_FALSE(trace::open("/").ok());
    CHECK_FALSE(trace::open("/dev/null").ok());
}

TEST_CASE("optional tensors may be missing; wide ids and f32 scores are read") {
    raw_file file = plain_file(1, 1, 2, 300, {});
    file["experts"] = {"experts", "U16", "[1,1,2]", raw<uint16_t>({299, 256})};
    const auto opened = trace::from_bytes("plain", file.build());
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    CHECK(opened->expert(0, 0, 0) == 299);
    CHECK(opened->expert(0, 0, 1) == 256);
    CHECK(opened->offers() == MOORAGE_NEEDS_FUTURE);
    CHECK(opened->request_domain().empty());
}

TEST_CASE("weights come from the gate scores where there is no tensor of them") {
    raw_file file = good_file();
    file.remove("weights");
    const auto opened = trace::from_bytes("good", file.build());
    REQUIRE(opened.ok());
    CHECK(opened->weight(0, 1, 0) == .125f);  // expert 2
    CHECK(opened->weight(0, 1, 1) == .0625f);
}

TEST_CASE(
    "the number of experts comes from metadata, gate scores or the largest id, in this order") {
    raw_file file = good_file();
    file.metadata.erase("experts");
    file["gate_scores"] = {"gate_scores", "F32", "[3,2,5]", raw(std::vector<float>(30, .2f))};
    CHECK(trace::from_bytes("five", file.build()).value().experts() == 5);
    file.remove("gate_scores");
    CHECK(trace::from_bytes("four", file.build()).value().experts() == 4);
    file.metadata["experts"] = "9";
    CHECK(trace::from_bytes("nine", file.build()).value().experts() == 9);
}

// One mutation of the good file each. `file` is the file as parts.
#define MALFORMED(name, part, ...)   \
    TEST_CASE("malformed: " name) {  \
        raw_file file = good_file(); \
        __VA_ARGS__;                 \
        refuse(file.build(), part);  \
    }

MALFORMED("another format", "metadata format is moorage.frequency",
          file.metadata["format"] = "moorage.frequency")
MALFORMED("no format", "metadata format is missing", file.metadata.erase("format"))
MALFORMED("a later version", "metadata version is 2", file.metadata["version"] = "2")
MALFORMED("no experts", "tensor experts is missing", file.remove("experts"))
MALFORMED("experts of a wrong type", "tensor experts: dtype is I8", file["experts"].dtype = "I8")
MALFORMED("experts of two dimensions", "tensor experts: shape is [6, 2]",
          file["experts"].shape = "[6, 2]")
MALFORMED("an empty trace", "tensor experts: shape is [0, 2, 2]",
          (file["experts"].shape = "[0, 2, 2]", file["experts"].bytes.clear()))
MALFORMED("layers against metadata", "metadata layers is 3, but tensor experts has 2",
          file.metadata["layers"] = "3")
MALFORMED("top_k against metadata", "metadata top_k is 1", file.metadata["top_k"] = "1")
MALFORMED("metadata that is no number", "metadata experts is four",
          file.metadata["experts"] = "four")
MALFORMED("metadata above 64 bits", "metadata experts is 99999999999999999999",
          file.metadata["experts"] = "99999999999999999999")
MALFORMED("more experts than tables hold", "experts in each of 2 layers",
          file.metadata["experts"] = "4000000000")
MALFORMED("fewer experts than top_k",
          "tensor experts: 2 experts a token and layer, but a layer has 1",
          (file.metadata["experts"] = "1"))
MALFORMED("expert id at the limit",
          "tensor experts: expert 4 at token 2, layer 1, rank 0 is out of range, the limit is 4",
          file["experts"].bytes[10] = std::byte{4})
MALFORMED("expert id far out", "expert 255 at token 0, layer 0, rank 1",
          file["experts"].bytes[1] = std::byte{255})
MALFORMED("the same expert twice",
          "tensor experts: expert 3 at token 1, layer 1, rank 1 is there at rank 0",
          file["experts"].bytes[7] = std::byte{3})
MALFORMED("predicted id out of range", "tensor pred_experts: expert 9 at token 2, layer 1, rank 2",
          file["pred_experts"].bytes[17] = std::byte{9})
MALFORMED("predicted twice",
          "tensor pred_experts: expert 0 at token 0, layer 0, rank 2 is there at rank 0",
          file["pred_experts"].bytes[2] = std::byte{0})
MALFORMED("more predicted than experts", "tensor pred_experts: 5 experts predicted",
          (file["pred_experts"] = {"pred_experts", "U8", "[3,2,5]", raw(std::vector<uint8_t>(30))}))
MALFORMED("prediction scores of another width",
          "tensor pred_scores: shape is [3, 2, 2], not [3, 2, 3]",
          (file["pred_scores"] = {"pred_scores", "F16", "[3,2,2]", raw(std::vector<uint16_t>(12))}))
MALFORMED("prediction scores alone", "pred_experts is missing", file.remove("pred_experts"))
MALFORMED("a weight that is not a number", "tensor weights: value nan at token 1, layer 1, rank 0",
          {
              const float nan = NAN;
              std::memcpy(file["weights"].bytes.data() + 24, &nan, 4);
          })
MALFORMED("an infinite weight", "tensor weights: value -inf at token 0, layer 0, rank 0", {
    const float inf = -INFINITY;
    std::memcpy(file["weights"].bytes.data(), &inf, 4);
})
MALFORMED("an infinite half", "tensor gate_scores: value inf at token 2, layer 1, rank 3",
          file["gate_scores"].bytes[47] = std::byte{0x7c},
          file["gate_scores"].bytes[46] = std::byte{0})
MALFORMED("a half that is not a number",
          "tensor pred_scores: value nan at token 0, layer 0, rank 1",
          file["pred_scores"].bytes[3] = std::byte{0x7e})
MALFORMED("gate scores of other experts", "tensor gate_scores: shape is [3, 4, 2], not [3, 2, 4]",
          file["gate_scores"].shape = "[3, 4, 2]")
MALFORMED("weights of a wrong type", "tensor weights: dtype is I32, not F16 or F32",
          file["weights"].dtype = "I32")
MALFORMED("token ids of other tokens", "tensor token_ids: shape is [2]",
          (file["token_ids"] = {"token_ids", "I32", "[2]", raw<int32_t>({1, 2})}))
MALFORMED("no request offsets", "tensor request_offsets is missing", file.remove("request_offsets"))
MALFORMED("no request", "holds no request",
          (file["request_offsets"] = {"request_offsets", "I64", "[1]", raw<int64_t>({0})}))
MALFORMED("no request offset at all", "tensor request_offsets: shape is [0]",
          (file["request_offsets"] = {"request_offsets", "I64", "[0]", {}}))
MALFORMED("request offsets of a wrong type", "dtype is U64, not I64",
          file["request_offsets"].dtype = "U64")
MALFORMED("first request late", "tensor request_offsets: value 1 at index 0",
          file["request_offsets"].bytes = raw<int64_t>({1, 2, 3}))
MALFORMED("an empty request", "value 1 at index 2 equals the one before: request 1 is empty",
          (file["request_offsets"] = {"request_offsets", "I64", "[4]", raw<int64_t>({0, 1, 1, 3})}))
MALFORMED("falling offsets", "value 1 at index 2 is below 2",
          (file["request_offsets"] = {"request_offsets", "I64", "[4]", raw<int64_t>({0, 2, 1, 3})}))
MALFORMED("a negative offset", "value -4 at index 1 is below 0",
          file["request_offsets"].bytes = raw<int64_t>({0, -4, 3}))
MALFORMED("offsets above the tokens", "value 9 at index 1 is above the limit of 3 tokens",
          file["request_offsets"].bytes = raw<int64_t>({0, 9, 3}))
MALFORMED("last request short", "the last value, at index 2, is 2, not the 3 tokens",
          file["request_offsets"].bytes = raw<int64_t>({0, 1, 2}))
MALFORMED("more requests than tokens", "4 requests for 3 tokens",
          (file["request_offsets"] = {"request_offsets", "I64", "[5]",
                                      raw<int64_t>({0, 1, 2, 3, 3})}))
MALFORMED("a domain out of range",
          "tensor request_domain: value 2 at request 1 is out of range, metadata domains names 2",
          file["request_domain"].bytes = raw<int32_t>({0, 2}))
MALFORMED("a negative domain", "value -1 at request 0",
          file["request_domain"].bytes = raw<int32_t>({-1, 0}))
MALFORMED("domains of other requests", "tensor request_domain: shape is [3], not [2]",
          (file["request_domain"] = {"request_domain", "I32", "[3]", raw<int32_t>({0, 0, 0})}))

// The container itself: mutations of the header's text.
#define MALFORMED_HEADER(name, part, from, to)                \
    TEST_CASE("malformed header: " name) {                    \
        const raw_file file = good_file();                    \
        std::string text = file.header();                     \
        const size_t position = text.find(from);              \
        REQUIRE(position != std::string::npos);               \
        text.replace(position, std::string(from).size(), to); \
        refuse(file.build(text), part);                       \
    }

MALFORMED_HEADER("bad JSON", "not valid JSON at byte", "\"shape\":", "\"shape\"")
MALFORMED_HEADER("text behind the object", "not valid JSON", "[198,206]}}", "[198,206]}} x")
MALFORMED_HEADER("a tensor twice", "tensor experts is declared twice",
                 "\"weights\":", "\"experts\":")
MALFORMED_HEADER("a metadata key twice", "metadata layers is given twice",
                 "\"model\":", "\"layers\":")
MALFORMED_HEADER("metadata that is no string", "metadata layers is 2, not a string",
                 "\"layers\":\"2\"", "\"layers\":2")
MALFORMED_HEADER("nested metadata", "metadata layers is an object, not a string",
                 "\"layers\":\"2\"", "\"layers\":{}")
MALFORMED_HEADER("unknown type", "tensor weights: unknown dtype F31", "F32", "F31")
MALFORMED_HEADER("missing shape", "tensor experts: shape is missing", "\"shape\":[3, 2, 2],", "")
MALFORMED_HEADER("a key twice", "tensor experts: shape is given twice",
                 "\"shape\":", "\"shape\":[3,2,2],\"shape\":")
MALFORMED_HEADER("unknown key", "tensor experts: unknown key shapes", "\"shape\":", "\"shapes\":")
MALFORMED_HEADER("negative dimension", "tensor experts: shape holds -3", "[3, 2, 2]", "[-3, 2, 2]")
MALFORMED_HEADER("fractional dimension", "tensor experts: shape holds 3.5", "[3, 2, 2]",
                 "[3.5, 2, 2]")
MALFORMED_HEADER("dimension above 64 bits", "tensor experts: shape holds 99999999999999999999",
                 "[3, 2, 2]", "[99999999999999999999, 2, 2]")
MALFORMED_HEADER("nested shape", "tensor experts: shape holds a list", "[3, 2, 2]", "[[3], 2, 2]")
MALFORMED_HEADER("many dimensions", "shape has more than 8 numbers", "[3, 2, 2]",
                 "[3, 2, 2,1,1,1,1,1,1]")
MALFORMED_HEADER("a product that overflows to the right size", "more bits than 64 bits can count",
                 "[3, 2, 2]", "[12, 4294967296, 4294967296]")
MALFORMED_HEADER("shape larger than the bytes", "takes 16 bytes, but data_offsets [0, 12] hold 12",
                 "[3, 2, 2]", "[4, 2, 2]")
MALFORMED_HEADER("three offsets", "data_offsets has more than 2", "[0,12]", "[0,12,12]")
MALFORMED_HEADER("one offset", "data_offsets has 1 numbers", "[0,12]", "[12]")
MALFORMED_HEADER("offsets backwards", "end before they begin", "[0,12]", "[12,0]")
MALFORMED_HEADER("offsets outside the file", "leave the file", "[198,206]", "[198,20600]")
MALFORMED_HEADER("offset near 2^64", "leave the file", "[198,206]", "[198,18446744073709551615]")
MALFORMED_HEADER("overlapping tensors",
                 "tensor pred_experts: data offset 11 is inside tensor experts", "[12,30]",
                 "[11,29]")
MALFORMED_HEADER("a tensor that is a number", "tensor experts is 1, not an object",
                 "\"experts\":{\"dtype\"", "\"experts\":1,\"more\":{\"dtype\"")

TEST_CASE("malformed header: a gap between tensors") {
    raw_file file = good_file();
    file.tensors.insert(file.tensors.begin() + 1, {"gap", "U8", "[2]", raw<uint8_t>({1, 2})});
    std::string text = file.header();
    const size_t gap_begin = text.find(",\"gap\""), gap_end = text.find(",\"pred_experts\"");
    refuse(file.build(text.erase(gap_begin, gap_end - gap_begin)),
           "tensor pred_experts: data offset 14 leaves a gap");
}

TEST_CASE("malformed container: lengths, beginning and end of the file") {
    const raw_file file = good_file();
    const std::string header = file.header();
    refuse({}, "has 0 bytes");
    refuse(raw<uint32_t>({1}), "has 4 bytes");
    refuse(raw<uint64_t>({0}), "does not begin with {");
    refuse(file.build(header, UINT64_MAX), "header length 18446744073709551615 is above the limit");
    refuse(file.build(header, uint64_t{1} << 62), "is above the limit");
    refuse(file.build(header, 50'000'000), "more than the");
    refuse(file.build(header, header.size() - 1), "not valid JSON");
    refuse(file.build(" " + header), "does not begin with {");
    refuse(file.build("[1,2]"), "does not begin with {");
    refuse(file.build("{\"a\":" + std::string(100'000, '[')), "tensor a is a list");
    std::vector<std::byte> bytes = file.build();
    bytes.push_back(std::byte{0});
    refuse(bytes, "the tensors end at byte 206 of the data, but the file has 207");
}

TEST_CASE("a trace cut short anywhere is refused") {
    const std::vector<std::byte> whole = good_file().build();
    for (size_t size = 0; size < whole.size(); ++size)
        CHECK_FALSE(
            trace::from_bytes("cut", {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)})
                .ok());
}

TEST_CASE("any flipped bit gives an error or a trace that reads within the file") {
    const std::vector<std::byte> whole = good_file().build();
    for (size_t position = 0; position < whole.size(); ++position)
        for (int bit = 0; bit < 8; ++bit) {
            std::vector<std::byte> bytes = whole;
            bytes[position] ^= static_cast<std::byte>(1 << bit);
            const auto opened = trace::from_bytes("flip", std::move(bytes));
            if (opened) read_all(*opened);
        }
}

// The quick checks differ by number of experts and rank. Each must find the only wrong id, wherever
// it is, and must not find one if there is none.
TEST_CASE("a single wrong id is found at any place of a large trace") {
    for (const uint32_t experts : {3u, 8u, 64u, 65u, 200u})
        for (const uint32_t top_k : {1u, 2u, 3u}) {
            const uint64_t tokens = 150'000;
            std::vector<uint8_t> chosen(tokens * 2 * top_k);
            for (size_t i = 0; i < chosen.size(); ++i)
                chosen[i] = static_cast<uint8_t>((i / top_k + i % top_k) % experts);
            CHECK(trace::from_bytes("large", plain_file(tokens, 2, top_k, experts, chosen).build())
                      .ok());
            for (const size_t place :
                 {size_t{0}, size_t{262'143}, size_t{262'144}, chosen.size() - 1}) {
                std::vector<uint8_t> wrong = chosen;
                wrong[place] = static_cast<uint8_t>(experts);
                CHECK_FALSE(
                    trace::from_bytes("out", plain_file(tokens, 2, top_k, experts, wrong).build())
                        .ok());
                if (top_k == 1) continue;
                wrong[place] = chosen[place % top_k == 0 ? place + 1 : place - 1];
                CHECK_FALSE(
                    trace::from_bytes("twice", plain_file(tokens, 2, top_k, experts, wrong).build())
                        .ok());
            }
        }
}

TEST_CASE("every half converts as its definition says, and back") {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const int exponent = static_cast<int>(bits >> 10 & 31),
                  fraction = static_cast<int>(bits & 1023);
        const float value = float_of_half(static_cast<uint16_t>(bits));
        CHECK(std::signbit(value) == (bits >= 0x8000));
        if (exponent == 31) {
            CHECK((fraction == 0 ? std::isinf(value) : std::isnan(value)));
            continue;
        }
        const double expected =
            exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
        CHECK(std::fabs(value) == expected);
        CHECK(half_of_float(value) == bits);
    }
}

TEST_CASE("a float becomes the nearest half, the even one of two") {
    for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
        const float low = float_of_half(static_cast<uint16_t>(bits));
        const float high = float_of_half(static_cast<uint16_t>(bits + 1));
        const float middle = (low + high) / 2;  // exact in float
        CHECK(half_of_float(middle) == bits + (bits & 1));
        CHECK(half_of_float(std::nextafter(middle, low)) == bits);
        CHECK(half_of_float(std::nextafter(middle, high)) == bits + 1);
    }
    CHECK(half_of_float(65519.99f) == 0x7bff);
    CHECK(half_of_float(65520.0f) == 0x7c00);
    CHECK(half_of_float(-1e30f) == 0xfc00);
    CHECK((half_of_float(NAN) & 0x7fff) > 0x7c00);
}

TEST_CASE("statistics of the hand-made trace, counted by hand") {
    const auto opened = trace::from_bytes("good", good_file().build());
    REQUIRE(opened.ok());
    const trace_statistics found = measure(*opened);
    CHECK(found.length_min == 1);
    CHECK(found.length_median == 1.5);
    CHECK(found.length_max == 2);
    CHECK(found.distinct == std::vector<uint32_t>{3, 3});
    // The quarter of four experts is one: expert 0 in layer 0, expert 3 in layer 1.
    CHECK(found.top_count == 1);
    CHECK(found.top_share == std::vector<double>{.5, .5});
    // Only token 2 follows another of its request; one of two experts stays in each layer.
    CHECK(found.reuse == std::vector<double>{.5, .5});
    CHECK(found.accuracy == std::vector<double>{4. / 6, 3. / 6});
    CHECK(mean_from(found.accuracy, 1) == .5);
    CHECK(std::isnan(mean_from(found.accuracy, 2)));
}

}  // namespace trace_test
