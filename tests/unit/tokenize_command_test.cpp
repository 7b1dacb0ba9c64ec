// tokenize_command_test.cpp - goal: `moorage tokenize` keeps its contract. Method: the program
// itself on the demo's tokenizer: ids there and back, known ids right and wrong, exit codes.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/json.h"

namespace tokenize_command_test {

using namespace moorage::core;

namespace {

struct outcome {
    int code = -1;
    std::string output;  // standard output, and with it the errors
};

const std::string demo = std::string(MOORAGE_SOURCE_DIR) + "/configs/demo";

outcome tokenize(const std::string &arguments, const std::string &input = "") {
    const std::string line = "printf '" + input + "' | " + MOORAGE_BINARY_DIR +
                             "/bin/moorage tokenize " + demo + " " + arguments + " 2>&1";
    std::FILE *pipe = popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    outcome result;
    char buffer[4096];
    for (size_t count; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        result.output.append(buffer, count);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
    return result;
}

struct vectors_file {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("moorage_vectors_" + std::to_string(getpid()));
    explicit vectors_file(const std::string &text) { std::ofstream(path) << text; }
    ~vectors_file() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("a text by argument and by standard input, and back") {
    const outcome by_argument = tokenize("--prompt 'To be, or not'");
    const outcome read = tokenize("", "To be, or not");
    CHECK(by_argument.code == 0);
    CHECK(by_argument.output == read.output);
    CHECK(tokenize("--decode " + by_argument.output.substr(0, by_argument.output.size() - 1))
              .output == "To be, or not\n");
    CHECK(tokenize("--prompt ''").output == "\n");
    const json figures = parse_json(tokenize("--json - --prompt '<|endoftext|>'").output);
    CHECK(figures["ids"] == json::array({0}));
    CHECK(figures["tokens"] == json::array({"<|endoftext|>"}));
    CHECK(parse_json(tokenize("--json - --plain --prompt '<|endoftext|>'").output)["ids"].size() >
          1);
    CHECK(tokenize("--decode 0").output == "<|endoftext|>\n");
    CHECK(tokenize("--decode 0 --plain").output == "\n");
}

TEST_CASE("known ids: equal, different, unreadable") {
    const vectors_file right(R"([{"text": "<|endoftext|>", "ids": [0]}, {"text": "", "ids": []}])");
    const outcome equal = tokenize("--vectors " + right.path.string());
    CHECK(equal.code == 0);
    CHECK(equal.output == "2 texts, 2 equal, 0 different\n");
    const vectors_file wrong(R"([{"text": "<|endoftext|>", "ids": [7]}])");
    const outcome different = tokenize("--json - --vectors " + wrong.path.string());
    CHECK(different.code == 1);
    const json row = parse_json(different.output)["mismatches"][0];
    CHECK(row["expected"] == json::array({7}));
    CHECK(row["got"] == json::array({0}));
    const vectors_file broken(R"([{"text": "a", "ids": [-1]}])");
    const outcome refused = tokenize("--vectors " + broken.path.string());
    CHECK(refused.code == 1);
    CHECK(refused.output.find("element 0: an id has to be") != std::string::npos);
}

TEST_CASE("what cannot be") {
    const outcome none = tokenize("--decode 4096");
    CHECK(none.code == 1);
    CHECK(none.output.find("no token has the id 4096; ids are below 4096") != std::string::npos);
    CHECK(tokenize("--prompt a --decode 1").code == 2);
    const outcome bytes = tokenize("", "a\\377b");
    CHECK(bytes.code == 2);
    CHECK(bytes.output.find("standard input: byte 1 is 0xff, which is not UTF-8") !=
          std::string::npos);
    CHECK(tokenize("--vectors /no/such/file").code == 1);
}

}  // namespace tokenize_command_test
