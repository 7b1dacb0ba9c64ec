// plugins_new_test.cpp - goal: `plugins new` writes nothing that does not compile. Method: run the
// program with reserved words of each language, which it refuses, and with names that mean
// something to the wrapper or to the standard library. The compiler must accept their files.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace plugins_new_test {

namespace {

namespace fs = std::filesystem;

struct program_result {
    int code;
    std::string text;
};
program_result run(const std::string &command) {
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string text;
    std::array<char, 4096> part;
    for (size_t got; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
        text.append(part.data(), got);
    const int state = pclose(pipe);
    return {WIFEXITED(state) ? WEXITSTATUS(state) : -1, text};
}

struct folder {
    folder() { fs::create_directories(path); }
    ~folder() { fs::remove_all(path); }
    program_result make(const std::string &kind, const std::string &name,
                        const std::string &language) {
        return run("'" MOORAGE_BINARY_DIR "/bin/moorage' plugins new " + kind + " " + name +
                   " --lang " + language + " --dir '" + path.string() + "'");
    }
    fs::path path = fs::temp_directory_path() / ("moorage-new-" + std::to_string(getpid()));
};

}  // namespace

TEST_CASE("a word of the language is no name for a policy in it") {
    folder directory;
    const std::pair<const char *, const char *> words[] = {
        {"cpp", "class"},   {"cpp", "operator"}, {"cpp", "xor"},    {"cpp", "co_await"},
        {"cpp", "int"},     {"cpp", "while"},    {"cpp", "and"},    {"cpp", "requires"},
        {"cpp", "alignas"}, {"c", "restrict"},   {"c", "auto"},     {"c", "while"},
        {"rust", "match"},  {"rust", "fn"},      {"rust", "yield"}, {"rust", "abstract"}};
    for (const auto &entry : words) {
        const auto &language = entry.first;
        const auto &word = entry.second;
        const program_result result = directory.make("cache", word, language);
        CHECK_MESSAGE(result.code == 2, language, " ", word);
        CHECK(result.text.find(std::string(word) + " is a word of ") != std::string::npos);
    }
    const std::string endless(300, 'a');
    for (const char *wrong :
         {"Mine", "9mine", "mine_", "my-policy", "''", "all", "host", endless.c_str()})
        CHECK(directory.make("cache", wrong, "cpp").code == 2);
    CHECK(fs::is_empty(directory.path));
}

TEST_CASE("whatever is no word of the language compiles, though others use it") {
    folder directory;
    const std::pair<const char *, const char *> names[] = {{"cache", "activate"},
                                                           {"router", "moorage"},
                                                           {"budget", "record"},
                                                           {"transport", "restrict"},
                                                           {"dispatch", "log"}};
    for (const auto &[kind, name] : names) {
        REQUIRE(directory.make(kind, name, "cpp").code == 0);
        const program_result compiled =
            run("c++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I '" MOORAGE_SOURCE_DIR
                "/sdk/include' '" +
                (directory.path / (std::string(name) + ".cpp")).string() + "'");
        CHECK_MESSAGE(compiled.code == 0, compiled.text);
    }
    REQUIRE(directory.make("cache", "class", "c").code == 0);  // names appear in texts only
    const program_result compiled =
        run("cc -std=c11 -fsyntax-only -Wall -Wextra -Werror -I '" MOORAGE_SOURCE_DIR
            "/sdk/include' '" +
            (directory.path / "class.c").string() + "'");
    CHECK_MESSAGE(compiled.code == 0, compiled.text);
}

}  // namespace plugins_new_test
