// Goal: a timeline is JSON that trace viewers read, in every circumstance. Method: files are parsed
// back with the JSON library and compared with the events that were given.
#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/report/timeline.h"

using namespace moorage::core;

namespace {

// A file of the test's own, gone afterwards.
struct scratch_file {
    std::filesystem::path path;
    explicit scratch_file(const std::string &name)
        : path(std::filesystem::temp_directory_path() /
               ("moorage-timeline-" + std::to_string(getpid()) + "-" + name)) {}
    ~scratch_file() { std::filesystem::remove(path); }
    json parsed() const { return json::parse(std::ifstream(path)); }
};

std::vector<json> events_of(const json &file, const std::string &phase) {
    std::vector<json> events;
    for (const json &event : file["traceEvents"])
        if (event["ph"] == phase) events.push_back(event);
    return events;
}

std::unique_ptr<timeline> opened(const scratch_file &file,
                                 uint64_t events_max = timeline::events_max_default) {
    auto made = timeline::open(file.path, events_max);
    REQUIRE(made.ok());
    return std::move(*made);
}

}  // namespace

TEST_CASE("spans come back with their times and values") {
    const scratch_file file("events");
    const auto shown = opened(file);
    const uint32_t compute = shown->track("GPU compute", "gpu 0");
    const uint32_t copy = shown->track("copy host to GPU", "gpu 0");
    const uint32_t pool = shown->track("CPU pool", "host");
    shown->span(compute, "layer", 1'234'567, 1'005, {{"layer", 3}, {"share", 0.5}, {"of", "x"}});
    shown->span(copy, "expert", 7, 0);
    shown->span(pool, "late", 1000, 1, {{"count", uint64_t(18446744073709551615u)}, {"by", -2}});
    CHECK(shown->events() == 3);
    REQUIRE(shown->close().ok());

    const json read = file.parsed();
    const std::vector<json> spans = events_of(read, "X");
    REQUIRE(spans.size() == 3);
    CHECK(spans[0]["name"] == "layer");
    CHECK(spans[0]["ts"].get<double>() == 1234.567);
    CHECK(spans[0]["dur"].get<double>() == 1.005);
    CHECK(spans[0]["args"] == json{{"layer", 3}, {"share", 0.5}, {"of", "x"}});
    CHECK(spans[1]["ts"].get<double>() == 0.007);
    CHECK(spans[1]["dur"].get<double>() == 0);
    CHECK(spans[0]["pid"] == spans[1]["pid"]);
    CHECK(spans[0]["tid"] != spans[1]["tid"]);

    CHECK(spans[2]["ts"].get<double>() == 1);
    CHECK(spans[2]["args"]["count"].get<uint64_t>() == 18446744073709551615u);
    CHECK(spans[2]["args"]["by"] == -2);
    CHECK(spans[2]["pid"] != spans[0]["pid"]);
}

TEST_CASE("tracks are named once, in order, within their processes") {
    const scratch_file file("tracks");
    const auto shown = opened(file);
    const uint32_t first = shown->track("GPU compute", "gpu 0");
    CHECK(shown->track("GPU compute", "gpu 1") != first);
    CHECK(shown->track("GPU compute", "gpu 0") == first);
    REQUIRE(shown->close().ok());
    std::vector<std::string> processes, threads;
    std::vector<int> order;
    for (const json &event : events_of(file.parsed(), "M")) {
        if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
        if (event["name"] == "thread_name") threads.push_back(event["args"]["name"]);
        if (event["name"] == "thread_sort_index") order.push_back(event["args"]["sort_index"]);
    }
    CHECK(processes == std::vector<std::string>{"gpu 0", "gpu 1"});
    CHECK(threads == std::vector<std::string>{"GPU compute", "GPU compute"});
    REQUIRE(order.size() == 2);
    CHECK(order[0] < order[1]);
}

TEST_CASE("any bytes in a name leave valid JSON") {
    const scratch_file file("names");
    const std::string odd = "quote \" slash \\ line\n tab\t null" + std::string(1, '\0') + " é";
    {
        const auto shown = opened(file);
        const uint32_t track = shown->track(odd, odd);
        shown->span(track, odd, 1, 1, {{odd, std::string_view(odd)}});
        shown->span(track, "broken \xff\xc3 utf-8", 2, 1);
        REQUIRE(shown->close().ok());
    }
    const std::vector<json> spans = events_of(file.parsed(), "X");
    REQUIRE(spans.size() == 2);
    CHECK(spans[0]["name"] == odd);
    CHECK(spans[0]["args"][odd] == odd);
    CHECK(spans[1]["name"].get<std::string>().starts_with("broken "));
}

TEST_CASE("values that are no numbers leave valid JSON") {
    const scratch_file file("infinite");
    {
        const auto shown = opened(file);
        const uint32_t track = shown->track("a");
        shown->span(track, "s", 1, 1, {{"x", std::nan("")}});
        REQUIRE(shown->close().ok());
    }
    const json read = file.parsed();
    CHECK(events_of(read, "X")[0]["args"]["x"] == "not a number");
}

TEST_CASE("a file without events is whole; one that is not closed leaves nothing") {
    const scratch_file file("empty");
    CHECK(opened(file)->close().ok());
    CHECK(file.parsed()["traceEvents"].empty());
    {
        const auto shown = opened(file);
        const uint32_t track = shown->track("a");
        for (uint64_t i = 0; i < 50'000; ++i)
            shown->span(track, "s", i * 10, 5);  // several buffers
    }
    CHECK(file.parsed()["traceEvents"].empty());  // the one before is as it was
    for (const auto &beside : std::filesystem::directory_iterator(file.path.parent_path()))
        CHECK_FALSE(beside.path().string().starts_with(file.path.string() + "."));
}

TEST_CASE("events over the limit are counted, and the file says so") {
    const scratch_file file("limit");
    const auto shown = opened(file, 3);
    const uint32_t track = shown->track("a");
    for (uint64_t i = 0; i < 3; ++i) shown->span(track, "s", i * 1000, 1);
    CHECK(shown->events_left_out() == 0);
    for (uint64_t i = 3; i < 10; ++i) shown->span(track, "s", i * 1000, 1);
    CHECK(shown->events() == 3);
    CHECK(shown->events_left_out() == 7);
    REQUIRE(shown->close().ok());
    const json read = file.parsed();
    CHECK(events_of(read, "X").size() == 3);
    const std::vector<json> notes = events_of(read, "i");
    REQUIRE(notes.size() == 1);
    CHECK(notes[0]["name"] == "limit of 3 events reached");
    CHECK(notes[0]["ts"].get<double>() == 3);
    CHECK(read["otherData"]["events_left_out"] == 7);
}

TEST_CASE("events after close are ignored, and closing again is no error") {
    const scratch_file file("closed");
    const auto shown = opened(file);
    const uint32_t track = shown->track("a");
    REQUIRE(shown->close().ok());
    shown->span(track, "s", 1, 1);
    shown->track("b", "late");
    CHECK(shown->close().ok());
    CHECK(events_of(file.parsed(), "X").empty());
}

TEST_CASE("files that cannot be written are reported with their name") {
    const auto refused = timeline::open("/nowhere/at/all/t.json");
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().text.find("/nowhere/at/all/t.json") != std::string::npos);
    CHECK_FALSE(timeline::open("/dev/null").ok());  // what is no file cannot be replaced
    // A file that may not grow stands for a full disk.
    const scratch_file file("limited");
    const auto shown = opened(file);
    const uint32_t track = shown->track("a");
    for (uint64_t i = 0; i < 1000; ++i) shown->span(track, "s", i * 10, 5);
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit small{4096, before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const status ended = shown->close();
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.failure().text.find(file.path.string()) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(file.path));
    CHECK_FALSE(shown->close().ok());
}
