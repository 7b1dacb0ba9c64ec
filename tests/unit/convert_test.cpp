// convert_test.cpp - goal: logs become exactly the trace that they describe, or an error at their
// line. Traces keep their content when written and cut. Method: small logs with the result worked
// out by hand. One wrong log per rule, with the line and the words of its error. Write, open,
// compare value by value.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/source/convert.h"
#include "core/source/trace_write.h"
#include "tests/unit/trace_file.h"

namespace convert_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

result<trace_data> read(const std::string &log, const std::string &format, uint32_t experts = 0) {
    std::istringstream input(log);
    return convert_stream(input, "log", {.format = format, .experts = experts});
}

trace_data right(const std::string &log, const std::string &format, uint32_t experts = 0) {
    auto trace = read(log, format, experts);
    REQUIRE_MESSAGE(trace.ok(), trace.failure().text);
    return std::move(*trace);
}

void wrong(const std::string &log, const std::string &format, const std::string &place,
           const std::string &part, uint32_t experts = 0) {
    const auto trace = read(log, format, experts);
    REQUIRE_FALSE(trace.ok());
    const std::string &text = trace.failure().text;
    INFO(text);
    CHECK(text.starts_with("log:" + place + ": "));
    CHECK(text.find(part) != std::string::npos);
}

struct temporary_file {
    std::filesystem::path path;
    explicit temporary_file(const std::string &name)
        : path(std::filesystem::temp_directory_path() / ("moorage-convert-test-" + name)) {}
    ~temporary_file() { std::filesystem::remove(path); }
};

// Written, opened again, and cut whole: the same values must come out.
trace_data through_file(const trace_data &data) {
    const temporary_file file("round.safetensors");
    const status written = write_trace(data, file.path);
    REQUIRE_MESSAGE(written.ok(), written.failure().text);
    const auto opened = trace::open(file.path);
    REQUIRE_MESSAGE(opened.ok(), opened.failure().text);
    return cut_trace(*opened, 0, opened->tokens());
}

void check_equal(const trace_data &actual, const trace_data &expected) {
    CHECK(actual.tokens == expected.tokens);
    CHECK(actual.layers == expected.layers);
    CHECK(actual.experts == expected.experts);
    CHECK(actual.top_k == expected.top_k);
    CHECK(actual.predictions == expected.predictions);
    CHECK(actual.chosen == expected.chosen);
    CHECK(actual.predicted == expected.predicted);
    CHECK(actual.weights.values == expected.weights.values);
    CHECK(actual.gate_scores.values == expected.gate_scores.values);
    CHECK(actual.prediction_scores.values == expected.prediction_scores.values);
    CHECK(actual.token_ids == expected.token_ids);
    CHECK(actual.request_offsets == expected.request_offsets);
    CHECK(actual.request_domain == expected.request_domain);
}

trace good_trace() { return std::move(trace::from_bytes("good", good_file().build()).value()); }

const std::string two_layers =
    "request,token,layer,expert0,expert1,weight0,weight1,token_id\n"
    "a,0,3,0,2,0.5,0.25,11\n"
    "a,0,5,1,0,0.25,0.75,11\n"  // the heavier one comes second
    "a,1,3,2,1,0.5,0.5,-1\n"
    "a,1,5,0,3,1,0,-1\n"
    "b,7,3,3,1,0.5,0.125,12\n"
    "b,7,5,2,1,0.5,0.125,12\n";

}  // namespace

TEST_CASE("a CSV with a column for each expert") {
    const trace_data data = right(two_layers, "csv");
    CHECK(data.tokens == 3);
    CHECK(data.layers == 2);
    CHECK(data.experts == 4);
    CHECK(data.top_k == 2);
    CHECK(data.chosen == std::vector<uint16_t>{0, 2, 0, 1, 2, 1, 0, 3, 3, 1, 2, 1});
    CHECK(data.weights.values ==
          std::vector<float>{.5, .25, .75, .25, .5, .5, 1, 0, .5, .125, .5, .125});
    CHECK(data.request_offsets == std::vector<uint64_t>{0, 2, 3});
    CHECK(data.token_ids == std::vector<int32_t>{11, -1, 12});
    CHECK(right(two_layers, "csv", 60).experts == 60);
    check_equal(data, through_file(data));
}

TEST_CASE("a CSV with lists, quotes, other separators, blank lines and windows line ends") {
    const trace_data data = right(
        "\xef\xbb\xbf\"token\"; layer ;experts;comment\r\n0;0;\"3 1\";\"a \"\"b\"\"; "
        "c\"\r\n\r\n1;0; 0|2 ;x\r\n",
        "csv");
    CHECK(data.chosen == std::vector<uint16_t>{3, 1, 0, 2});
    CHECK(data.request_offsets == std::vector<uint64_t>{0, 2});
    CHECK(data.token_ids.empty());
    CHECK(right("token\tlayer\texperts\n0\t0\t5,4\n", "csv").chosen == std::vector<uint16_t>{5, 4});
    CHECK(right("token,layer,experts\n0,0,1;0", "csv").chosen == std::vector<uint16_t>{1, 0});
}

TEST_CASE("JSON lines, one per token or one per token and layer, say the same as a CSV") {
    const trace_data data = right(two_layers, "csv");
    check_equal(data, right("{\"request\":\"a\",\"token_id\":11,\"experts\":[[0,2],[1,0]],"
                            "\"weights\":[[0.5,0.25],[0.25,0.75]]}\n"
                            "{\"request\":\"a\",\"token_id\":-1,\"experts\":[[2,1],[0,3]],"
                            "\"weights\":[[0.5,0.5],[1,0]]}\n"
                            "\n"
                            "{\"request\":\"b\",\"token_id\":12,\"experts\":[[3,1],[2,1]],"
                            "\"weights\":[[0.5,0.125],[0.5,0.125]],\"more\":{}}\n",
                            "jsonl"));
    trace_data plain = data;
    plain.weights.values.clear();
    plain.token_ids.clear();
    plain.chosen[2] = 1, plain.chosen[3] = 0;  // without weights the order stays
    check_equal(plain, right("{\"request\":4,\"token\":0,\"layer\":1,\"experts\":[0,2]}\n"
                             "{\"request\":4,\"token\":0,\"layer\":2,\"experts\":[1,0]}\n"
                             "{\"request\":4,\"token\":1,\"layer\":1,\"experts\":[2,1]}\n"
                             "{\"request\":4,\"token\":1,\"layer\":2,\"experts\":[0,3]}\n"
                             "{\"request\":9,\"token\":1,\"layer\":1,\"experts\":[3,1]}\n"
                             "{\"request\":9,\"token\":1,\"layer\":2,\"experts\":[2,1]}\n",
                             "jsonl"));
}

TEST_CASE("tokens of objects without a number are told apart line by line") {
    const trace_data data = right("{\"experts\":[[1]]}\n{\"experts\":[[1]]}\n", "jsonl");
    CHECK(data.tokens == 2);
}

TEST_CASE("wrong CSV headers") {
    wrong("", "csv", "0", "the file is empty");
    wrong("tokens,layer,expert0\n", "csv", "1", "column token is missing; did you mean tokens");
    wrong("token,expert0\n", "csv", "1", "column layer is missing");
    wrong("token,layer\n", "csv", "1", "exactly one of the columns");
    wrong("token,layer,expert0,experts\n", "csv", "1", "exactly one of the columns");
    wrong("token,layer,expert0,expert2\n", "csv", "1", "column expert2: there is no expert1");
    wrong("token,layer,token,expert0\n", "csv", "1", "column token is named twice");
    wrong("token,layer,expert0,expert1,weight0\n", "csv", "1", "columns weight: 1 for 2 experts");
    wrong("token,layer,\"expert0\n", "csv", "1", "the quote is not closed");
    wrong("token,layer,expert0\n", "csv", "1", "no row");
}

TEST_CASE("wrong CSV rows") {
    const std::string head = "token,layer,expert0,expert1,weight0,weight1\n0,0,1,2,.5,.5\n";
    wrong(head + "1,0,1,2,.5\n", "csv", "3", "5 cells, the first line names 6 columns");
    wrong(head + "x,0,1,2,.5,.5\n", "csv", "3", "column token: x is not a whole number");
    wrong(head + "1,-1,1,2,.5,.5\n", "csv", "3", "column layer: -1 is not");
    wrong(head + "1,0,,2,.5,.5\n", "csv", "3", "column expert0: an empty cell");
    wrong(head + "1,0,1,2.0,.5,.5\n", "csv", "3", "column expert1: 2.0 is not");
    wrong(head + "1,0,1,99999999999999999999,.5,.5\n", "csv", "3",
          "column expert1: 99999999999999999999");
    wrong(head + "1,0,1,65536,.5,.5\n", "csv", "3", "column expert1: 65536 is out of range");
    wrong(head + "1,0,2,2,.5,.5\n", "csv", "3", "column expert1: 2 is named twice");
    wrong(head + "1,0,1,2,nan,.5\n", "csv", "3", "column weight0: nan is not a finite");
    wrong(head + "1,0,1,2,.5,1e6\n", "csv", "3",
          "column weight1: 1000000 is not a finite number up to 65504");
    wrong(head + "1,0,1,2,.5,half\n", "csv", "3", "column weight1: half is not a number");
    wrong(head + "2,0,1,2,.5,.5\n", "csv", "3", "column token: 2 after 0");
    wrong(head + "0,0,1,2,.5,.5\n", "csv", "3", "column layer: 0 after 0");
    wrong(head + "0,1,1,2,.5,.5\n1,0,1,2,.5,.5\n2,0,1,2,.5,.5\n", "csv", "5",
          "token 1 ends after 1 layers, the first token has 2");
    wrong(head + "1,1,1,2,.5,.5\n", "csv", "3",
          "column layer: 1 as number 0 of this token, the first token has 0 there");
    wrong(head + "1,0,1,2,.5,.5\n1,1,1,2,.5,.5\n", "csv", "4", "the first token has 1 layers");
    wrong(head + "1,0,\"1\"2,2,.5,.5\n", "csv", "3", "text behind the closing quote");
    // At the row that has it, also if others follow.
    wrong(head + "1,0,0,1,.5,.5\n", "csv", "2",
          "column expert1: 2 is out of range, the limit is 1: --experts gives 2 experts a layer",
          2);
    wrong("token,layer,experts\n0,0,1 2\n1,0,1 2 3\n", "csv", "3",
          "column experts: 3 experts, the first row has 2");
    wrong("token,layer,experts\n0,0,\n", "csv", "2", "no expert is named");
    wrong("token,layer,experts,weights\n0,0,1 2,1\n", "csv", "2", "1 weights for 2 experts");
    wrong("request,token,layer,expert0\na,0,0,1\nb,0,0,1\na,1,0,1\n", "csv", "4",
          "column request: a comes again");
    wrong("token,layer,expert0,token_id\n0,0,1,3000000000\n", "csv", "2",
          "column token_id: 3000000000 does not fit");
}

TEST_CASE("wrong JSON lines") {
    const std::string head = "{\"experts\":[[1,2],[0,3]]}\n";
    wrong("", "jsonl", "0", "no row");
    wrong(head + "{\"experts\":[[1,2],[0,3]]\n", "jsonl", "2", "not valid JSON");
    wrong(head + "[1]\n", "jsonl", "2", "is not an object");
    wrong(head + "{\"expert\":[[1,2]]}\n", "jsonl", "2", "key experts is missing");
    wrong(head + "{\"experts\":[]}\n", "jsonl", "2", "column experts: [] is not a list");
    wrong(head + "{\"experts\":[[1,2]]}\n{\"experts\":[[1,2],[0,3]]}\n", "jsonl", "3",
          "ends after 1 layers");
    wrong(head + "{\"experts\":[[1,2],[0,3],[1,2]]}\n", "jsonl", "2",
          "the first token has 2 layers");
    wrong(head + "{\"experts\":[[1,2],3]}\n", "jsonl", "2", "column experts[1]: 3 is not a list");
    wrong(head + "{\"experts\":[[1,2],[0,-3]]}\n", "jsonl", "2",
          "column experts[1][1]: -3 is not a whole number");
    wrong(head + "{\"experts\":[[1,2],[0,1.5]]}\n", "jsonl", "2",
          "column experts[1][1]: 1.5 is not a whole number");
    wrong(head + "{\"experts\":[1,2]}\n", "jsonl", "2", "key layer is missing");
    wrong("{\"layer\":0,\"experts\":[1,2]}\n", "jsonl", "1", "key token is missing");
    wrong(head + "{\"experts\":[[1,2],[0,3]],\"weights\":[[1,2]]}\n", "jsonl", "2",
          "column weights");
    wrong("{\"experts\":[[1,2],[0,3]],\"weights\":[[1,2],[1,\"x\"]]}\n", "jsonl", "1",
          "column weights[1][1]: \"x\" is not a number");
    wrong(head + "{\"experts\":[[1,2],[0,3]],\"token_id\":1.5}\n", "jsonl", "2",
          "column token_id: 1.5");
    wrong(head + "{\"experts\":[[1,2],[0,3]],\"token\":-1}\n", "jsonl", "2", "column token: -1");
    wrong(head + "{\"experts\":[[1,2],[0,3]],\"weights\":[[1e999,2],[1,2]]}\n", "jsonl", "2",
          "not valid JSON");
    wrong("{\"experts\":" + std::string(200'000, '['), "jsonl", "1", "not valid JSON");
}

TEST_CASE("layers that have no experts are left out") {
    const auto kept = [](const std::string &log, const std::string &format,
                         const std::vector<layer_range> &layers) {
        std::istringstream input(log);
        return convert_stream(input, "log", {.format = format, .layers = layers});
    };
    const std::vector<layer_range> behind_first = {{1, UINT64_MAX}};
    const trace_data wanted =
        right("{\"experts\":[[0,2],[1,0]]}\n{\"experts\":[[2,1],[0,3]]}\n", "jsonl");
    // Logs have these values for a layer without experts: zeros, nothing, null, ids out of range.
    for (const char *dense : {"[0,0]", "[]", "null", "[99999,99999]"}) {
        CAPTURE(dense);
        const std::string log = format(
            "{{\"experts\":[{0},[0,2],[1,0]]}}\n"
            "{{\"experts\":[{0},[2,1],[0,3]]}}\n",
            dense);
        const auto trace = kept(log, "jsonl", behind_first);
        REQUIRE_MESSAGE(trace.ok(), trace.failure().text);
        check_equal(*trace, wanted);
    }
    const auto rows = kept(
        "{\"token\":0,\"layer\":0,\"experts\":null}\n"
        "{\"token\":0,\"layer\":1,\"experts\":[0,2]}\n{\"token\":0,\"layer\":3,\"experts\":[1,0]}\n"
        "{\"token\":1,\"layer\":0,\"experts\":[7]}\n"
        "{\"token\":1,\"layer\":1,\"experts\":[2,1]}\n{\"token\":1,\"layer\":3,\"experts\":[0,3]}"
        "\n",
        "jsonl", {{1, 2}, {3, 4}});
    REQUIRE_MESSAGE(rows.ok(), rows.failure().text);
    check_equal(*rows, wanted);
    const auto cells =
        kept("token,layer,expert0,expert1\n0,0,,\n0,1,0,2\n0,2,1,0\n1,0,x,0\n1,1,2,1\n1,2,0,3\n",
             "csv", behind_first);
    REQUIRE_MESSAGE(cells.ok(), cells.failure().text);
    check_equal(*cells, wanted);
    const auto none = kept("{\"experts\":[[0,2]]}\n", "jsonl", behind_first);
    REQUIRE_FALSE(none.ok());
    CHECK(none.failure().text.find("none of the first token's layers is kept") !=
          std::string::npos);
    wrong("{\"experts\":[[0,0],[1,2]]}\n", "jsonl", "1",
          "are distinct; if layer 0 has no experts, leave it out (--layers)");
    wrong("{\"experts\":[[1,2],[]]}\n", "jsonl", "1", "if layer 1 has no experts");
}

TEST_CASE("odd numbers in keys without a meaning are passed over, elsewhere named") {
    const trace_data plain = right("{\"experts\":[[0,2]]}\n", "jsonl");
    check_equal(plain, right("{\"experts\":[[0,2]],\"logprob\":-Infinity,\"x\":[NaN,Infinity],"
                             "\"said\":\"NaN \\\" Infinity\"}\n",
                             "jsonl"));
    wrong("{\"experts\":[[0,2]],\"weights\":[[NaN,1]]}\n", "jsonl", "1",
          "column weights[0][0]: \"NaN\" is not a number");
    wrong("{\"experts\":[[0,2]],\"a\":nan}\n", "jsonl", "1", "not valid JSON");
}

TEST_CASE("logs that are no text are told by what they are") {
    const temporary_file file("log.jsonl"), packed("log.jsonl.gz");
    const auto said = [](const temporary_file &target, const std::string &bytes) {
        std::ofstream(target.path, std::ios::binary | std::ios::trunc) << bytes;
        const auto trace = convert_log(target.path, {});
        return trace.ok() ? std::string() : trace.failure().text;
    };
    const auto has = [](const std::string &text, const char *part) {
        CAPTURE(text);
        return text.find(part) != std::string::npos;
    };
    const std::string log = "{\"experts\":[[0,2]]}\n";
    CHECK(said(file, log).empty());
    std::string wide = "\xff\xfe", narrow;
    for (const char letter : log) wide += letter, wide += '\0', narrow += '\0', narrow += letter;
    CHECK(has(said(file, wide), "is UTF-16; UTF-8 is needed"));
    CHECK(has(said(file, narrow), "is UTF-16"));
    CHECK(
        has(said(packed, std::string("\x1f\x8b\x08\0", 4)), "is packed by gzip; unpack it first"));
    CHECK(has(said(file, "\x28\xb5\x2f\xfdxx"), "is packed by zstd"));
    CHECK(has(said(file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4711\n"),
              "is a pointer of Git LFS to 4711 bytes that are not here"));
}

TEST_CASE("a line beyond the limit is refused before it fills the memory") {
    wrong("token,layer,expert0\n" + std::string(17 << 20, '1'), "csv", "2",
          "longer than 16777216 bytes");
}

TEST_CASE("the format follows the name of the file, and a missing one is an error") {
    const temporary_file csv("log.csv"), text_file("log.txt");
    std::ofstream(csv.path) << "token,layer,expert0\n0,0,1\n";
    std::ofstream(text_file.path) << "token,layer,expert0\n0,0,1\n";
    CHECK(convert_log(csv.path, {}).ok());
    CHECK_FALSE(convert_log(csv.path, {.format = "jsonl"}).ok());
    CHECK(convert_log(text_file.path, {.format = "csv"}).ok());
    const auto refused = convert_log(text_file.path, {});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().usage);
    CHECK_FALSE(convert_log("/nonexistent.csv", {}).ok());
    CHECK_FALSE(convert_log(std::filesystem::temp_directory_path(), {.format = "csv"}).ok());
}

TEST_CASE("a trace with every tensor survives writing, and is written alike twice") {
    const trace_data data = cut_trace(good_trace(), 0, 3);
    CHECK_FALSE(data.weights.half);
    CHECK(data.gate_scores.half);
    check_equal(data, through_file(data));
    CHECK(through_file(data).metadata.at("model") == "hand");
    const auto bytes_of = [&data](const char *name) {
        const temporary_file file(name);
        REQUIRE(write_trace(data, file.path).ok());
        std::ifstream input(file.path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(input), {});
    };
    CHECK(bytes_of("one") == bytes_of("two"));
}

TEST_CASE("more than 256 experts are written as 16-bit ids") {
    const trace_data data = right("token,layer,experts\n0,0,256 0\n", "csv");
    CHECK(data.experts == 257);
    check_equal(data, through_file(data));
}

TEST_CASE("cutting keeps the tokens and splits requests at the ends") {
    const trace whole = good_trace();
    const trace_data data = cut_trace(whole, 0, 2);  // request 0, and half of request 1
    CHECK(data.request_offsets == std::vector<uint64_t>{0, 1, 2});
    CHECK(data.request_domain == std::vector<int32_t>{1, 0});
    CHECK(data.chosen == std::vector<uint16_t>{0, 1, 2, 3, 1, 0, 3, 2});
    CHECK(data.token_ids == std::vector<int32_t>{17, -1});
    check_equal(data, through_file(data));
    const trace_data end = cut_trace(whole, 2, 1);
    CHECK(end.request_offsets == std::vector<uint64_t>{0, 1});
    CHECK(end.request_domain == std::vector<int32_t>{0});
    CHECK(end.weights.values == std::vector<float>{.55f, .45f, .51f, .49f});
    CHECK(end.predicted == std::vector<uint16_t>{2, 1, 0, 3, 0, 1});
    check_equal(end, through_file(end));
}

TEST_CASE("optional tensors can be dropped, others not") {
    trace_data data = cut_trace(good_trace(), 0, 3);
    for (const char *name :
         {"weights", "gate_scores", "pred_experts", "token_ids", "request_domain"})
        CHECK(drop_tensor(data, name).ok());
    const trace_data left = through_file(data);
    CHECK(left.weights.values.empty());
    CHECK(left.gate_scores.values.empty());
    CHECK(left.predictions == 0);
    CHECK(left.prediction_scores.values.empty());
    CHECK(left.token_ids.empty());
    CHECK(left.request_domain.empty());
    CHECK(left.chosen == data.chosen);
    const status refused = drop_tensor(data, "experts");
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().text.find("tensor experts is not optional") != std::string::npos);
    CHECK(drop_tensor(data, "token_id").failure().text.find("did you mean token_ids") !=
          std::string::npos);
}

TEST_CASE("a failed write leaves the old file and nothing beside it") {
    const trace_data data = cut_trace(good_trace(), 0, 3);
    CHECK_FALSE(write_trace(data, "/nonexistent/folder/x.safetensors").ok());
    CHECK_FALSE(write_trace(data, "/dev/null").ok());
    CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("numbers that no token and no layer has are refused, not renumbered") {
    wrong("token,layer,expert0\n4000000000,0,1\n", "csv", "2",
          "column token: 4000000000 is out of range, the limit is 2147483647");
    wrong("token,layer,expert0\n0,4000000000,1\n", "csv", "2",
          "column layer: 4000000000 is out of range, the limit is 65535");
    wrong(R"({"token": 4000000000, "layer": 0, "experts": [1]})", "jsonl", "1",
          "column token: 4000000000");
    wrong(R"({"token": 0, "layer": 4000000000, "experts": [1]})", "jsonl", "1",
          "column layer: 4000000000");
    CHECK(right("token,layer,expert0\n2147483647,65535,1\n", "csv").tokens == 1);
}

}  // namespace convert_test
