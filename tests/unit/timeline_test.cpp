// Goal: trace viewers can read a timeline, in every circumstance. Method: files are parsed back and
// compared with the given events: JSON by the library, protobuf by a decoder with the field numbers
// of Perfetto's published proto files.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include "core/base/json.h"
#include "core/pipeline/run.h"
#include "core/pipeline/timeline_sink.h"
#include "core/report/timeline.h"
#include "tests/unit/toy_run.h"

namespace timeline_test {

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
    auto opened_timeline = timeline::open(file.path, events_max);
    REQUIRE(opened_timeline.ok());
    return std::move(*opened_timeline);
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
    CHECK_FALSE(timeline::open("/dev/null").ok());  // a device cannot be replaced
    // A file that may not grow stands for a full disk.
    const scratch_file file("limited");
    const auto shown = opened(file);
    const uint32_t track = shown->track("a");
    for (uint64_t i = 0; i < 1000; ++i) shown->span(track, "s", i * 10, 5);
    rlimit old_limit{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    const rlimit small{4096, old_limit.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const status ended = shown->close();
    setrlimit(RLIMIT_FSIZE, &old_limit);
    std::signal(SIGXFSZ, handler);
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.failure().text.find(file.path.string()) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(file.path));
    CHECK_FALSE(shown->close().ok());
}

namespace {

// A protobuf message: each field's values in order. Numbers and fixed64 as integers.
struct decoded {
    std::map<uint32_t, std::vector<uint64_t>> numbers;
    std::map<uint32_t, std::vector<std::string>> texts;

    uint64_t number(uint32_t field) const { return numbers.at(field).at(0); }
    double real(uint32_t field) const {
        double value;
        std::memcpy(&value, &numbers.at(field).at(0), sizeof(value));
        return value;
    }
    std::string text(uint32_t field) const { return texts.at(field).at(0); }
    bool has(uint32_t field) const { return numbers.contains(field) || texts.contains(field); }
};

decoded decode(std::string_view bytes) {
    decoded result;
    const auto varint = [&] {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            REQUIRE(!bytes.empty());
            REQUIRE(shift < 64);
            const auto byte = static_cast<unsigned char>(bytes.front());
            bytes.remove_prefix(1);
            value |= uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return value;
        }
    };
    while (!bytes.empty()) {
        const uint64_t key = varint();
        const auto field = static_cast<uint32_t>(key >> 3);
        const uint64_t type = key & 7;
        REQUIRE((type == 0 || type == 1 || type == 2));
        if (type == 0) {
            result.numbers[field].push_back(varint());
            continue;
        }
        const uint64_t size = type == 1 ? 8 : varint();
        REQUIRE(size <= bytes.size());
        if (type == 1) {
            uint64_t value = 0;
            for (int i = 7; i >= 0; --i)
                value = value << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
            result.numbers[field].push_back(value);
        } else {
            result.texts[field].emplace_back(bytes.substr(0, size));
        }
        bytes.remove_prefix(size);
    }
    return result;
}

// protos/perfetto/trace: trace.proto, trace_packet.proto, track_event/*.proto.
enum : uint32_t {
    trace_packet = 1,
    packet_timestamp = 8,
    packet_sequence = 10,
    packet_event = 11,
    packet_track = 60,
    track_uuid = 1,
    track_name = 2,
    track_process = 3,
    track_parent = 5,
    track_counter = 8,
    process_pid = 1,
    process_name = 6,
    event_annotations = 4,
    event_type = 9,
    event_track = 11,
    event_name = 23,
    event_value = 44,
    event_flow = 47,
    event_flow_end = 48,
    annotation_uint = 3,
    annotation_int = 4,
    annotation_real = 5,
    annotation_text = 6,
    annotation_name = 10
};

struct shown_event {
    uint64_t ns = 0, type = 0;
    std::string track, name;
    decoded fields;
};

// Every track described once and before its use, every slice ended, on its own track.
std::vector<shown_event> checked(const std::string &bytes) {
    std::map<uint64_t, std::string> tracks;
    std::map<uint64_t, int> open;
    std::vector<shown_event> events;
    const decoded trace = decode(bytes);
    for (const std::string &encoded_packet : trace.texts.at(trace_packet)) {
        const decoded packet = decode(encoded_packet);
        CHECK(packet.number(packet_sequence) == 1);
        if (packet.has(packet_track)) {
            const decoded track = decode(packet.text(packet_track));
            const uint64_t uuid = track.number(track_uuid);
            CHECK_FALSE(tracks.contains(uuid));
            if (track.has(track_process)) {
                tracks[uuid] = decode(track.text(track_process)).text(process_name);
            } else {
                REQUIRE(tracks.contains(track.number(track_parent)));
                tracks[uuid] = tracks[track.number(track_parent)] + "/" + track.text(track_name);
            }
            continue;
        }
        const decoded event = decode(packet.text(packet_event));
        const uint64_t track = event.number(event_track), type = event.number(event_type);
        REQUIRE(tracks.contains(track));
        if (type == 1) ++open[track];
        if (type == 2) --open[track];
        CHECK(open[track] >= 0);
        events.push_back({packet.number(packet_timestamp), type, tracks[track],
                          event.has(event_name) ? event.text(event_name) : "", event});
    }
    for (const auto &[track, count] : open) CHECK(count == 0);
    return events;
}

std::string bytes_of(const std::filesystem::path &path) {
    std::ifstream input(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(input), {}};
}

std::string unzipped(const std::filesystem::path &path) {
    gzFile file = gzopen(path.c_str(), "rb");
    REQUIRE(file != nullptr);
    std::string content;
    char part[4096];
    for (int count; (count = gzread(file, part, sizeof(part))) > 0;)
        content.append(part, static_cast<size_t>(count));
    CHECK(gzclose(file) == Z_OK);
    return content;
}

}  // namespace

TEST_CASE("Perfetto's format says what was shown") {
    const scratch_file file("events.pftrace");
    const auto shown = opened(file);
    const uint32_t compute = shown->track("GPU compute", "gpu 0");
    const uint32_t copy = shown->track("copy", "gpu 0"), rate = shown->counter("GB/s", "host");
    shown->span(copy, "expert \xff", 7, 93, {{"bytes", uint64_t(18446744073709551615u)}},
                {5, false});
    shown->span(compute, "expert", 1'234'567, 1'005,
                {{"layer", 3}, {"by", -2}, {"share", 0.5}, {"of", "x"}}, {5, true});
    shown->instant(compute, "evicted", 300);
    shown->value(rate, 250, 12.5);
    shown->value(rate, 260, std::nan(""));
    CHECK(shown->events() == 4);
    REQUIRE(shown->close().ok());
    const std::vector<shown_event> events = checked(bytes_of(file.path));
    REQUIRE(events.size() == 6);
    CHECK(events[0].track == "gpu 0/copy");
    CHECK(events[0].ns == 7);
    CHECK(events[1].ns == 100);
    CHECK(events[0].name.starts_with("expert "));
    CHECK(events[0].fields.number(event_flow) == 5);
    CHECK(decode(events[0].fields.text(event_annotations)).number(annotation_uint) ==
          18446744073709551615u);
    CHECK(events[2].fields.number(event_flow_end) == 5);
    CHECK(events[3].ns == 1'235'572);
    const auto &values = events[2].fields.texts.at(event_annotations);
    REQUIRE(values.size() == 4);
    CHECK(decode(values[0]).text(annotation_name) == "layer");
    CHECK(static_cast<int64_t>(decode(values[1]).number(annotation_int)) == -2);
    CHECK(decode(values[2]).real(annotation_real) == 0.5);
    CHECK(decode(values[3]).text(annotation_text) == "x");
    CHECK(events[4].type == 3);
    CHECK(events[5].type == 4);
    CHECK(events[5].track == "host/GB/s");
    CHECK(events[5].fields.real(event_value) == 12.5);
}

TEST_CASE("compressed files hold the same bytes") {
    for (const char *name : {"z.json", "z.pftrace"}) {
        const scratch_file plain(name), packed(std::string(name) + ".gz");
        for (const scratch_file *file : {&plain, &packed}) {
            const auto shown = opened(*file);
            const uint32_t track = shown->track("a");
            for (uint64_t i = 0; i < 40'000; ++i) shown->span(track, "s", i * 10, 5, {{"i", i}});
            REQUIRE(shown->close().ok());
        }
        CHECK(unzipped(packed.path) == bytes_of(plain.path));
        CHECK(std::filesystem::file_size(packed.path) < std::filesystem::file_size(plain.path) / 4);
    }
}

// The run's report, its tokens of the window being shown in the file.
static run_report shown_in(const scratch_file &file, moorage::test::toy_run &fixture,
                           timeline_sink::window tokens = timeline_sink::everything) {
    const auto trace_file = opened(file);
    timeline_sink rows(*trace_file, 4, "GPU", "host", tokens);
    auto done = run(fixture.config, fixture.shared, {.rows = &rows});
    REQUIRE(done.ok());
    REQUIRE(trace_file->close().ok());
    return std::move(*done);
}

TEST_CASE("a run shows tokens, requests, causes, evictions, counters and arrows") {
    moorage::test::toy_run fixture;
    std::vector<std::vector<std::vector<uint16_t>>> chosen;
    for (uint16_t token = 0; token < 12; ++token)  // of three slots none is ever hit
        chosen.push_back({{static_cast<uint16_t>(token % 4)}});
    fixture.write(toy::routing(chosen, 4, {0, 6, 12}, false));
    fixture.config.experts = 3;
    fixture.config.cache.plugin = "lru";
    const scratch_file file("run.pftrace");
    const run_report done = shown_in(file, fixture);
    std::map<std::string, size_t> begun;
    std::set<uint64_t> flow_starts, flow_ends;
    uint64_t computed_ns = 0, caused_ns = 0, open_ns = 0;
    for (const shown_event &event : checked(bytes_of(file.path))) {
        if (event.type != 2) ++begun[event.track];
        if (event.track == "GPU/GPU compute")
            event.type == 1 ? void(open_ns = event.ns) : void(computed_ns += event.ns - open_ns);
        if (event.track == "GPU/causes, token by token")
            event.type == 1 ? void(open_ns = event.ns) : void(caused_ns += event.ns - open_ns);
        if (event.track == "GPU/copy host to GPU" && event.type == 1) {
            CHECK(event.name.starts_with("demand "));
            flow_starts.insert(event.fields.number(event_flow));
        }
        if (event.fields.has(event_flow_end)) flow_ends.insert(event.fields.number(event_flow_end));
    }
    CHECK(begun["GPU/tokens"] == 12);
    CHECK(begun["GPU/requests"] == 2);
    CHECK(begun["GPU/copy host to GPU"] == 12);
    CHECK(begun["GPU/evictions"] == 9);  // all loads but the first three
    CHECK(begun["GPU/resident experts"] == 12);
    CHECK(begun["GPU/hit rate, %"] == 12);
    CHECK(begun["GPU/loaded, GB/s"] == 12);
    CHECK(flow_starts.size() == 12);
    CHECK(flow_starts == flow_ends);  // each load is used
    CHECK(static_cast<double>(caused_ns) / 1e6 == doctest::Approx(done.total_ms));
    CHECK(static_cast<double>(computed_ns) / 1e6 == doctest::Approx(done.time.compute));

    // In pieces, each with its own bytes. Together they are the bytes on the link.
    fixture.config.transport.plugin = "chunked";
    fixture.config.transport.params = {{"chunk_bytes", int64_t{30'000}, "test"},
                                       {"demand_whole", false, "test"}};
    const scratch_file pieces("pieces.json");
    const run_report chunked = shown_in(pieces, fixture);
    uint64_t sum_bytes = 0, count = 0;
    const json document = json::parse(bytes_of(pieces.path));
    for (const json &event : document["traceEvents"])
        if (event.contains("args") && event["args"].contains("bytes"))
            sum_bytes += event["args"]["bytes"].get<uint64_t>(), ++count;
    CHECK(count == 12 * 4);
    CHECK(sum_bytes == chunked.bytes.h2d);

    // Only the tokens of a window.
    const scratch_file part("part.pftrace");
    shown_in(part, fixture, {3, 5});
    std::vector<std::string> tokens;
    for (const shown_event &event : checked(bytes_of(part.path)))
        if (event.track == "GPU/tokens" && event.type == 1) tokens.push_back(event.name);
    CHECK(tokens == std::vector<std::string>{"token 3", "token 4"});
}

TEST_CASE("a run shows what it prefetches into slots as prefetches") {
    moorage::test::toy_run fixture({"plugins", "tests/policies/wider.so"});
    fixture.config.experts = 4;
    fixture.config.buffer_experts = 1;
    fixture.config.cache.plugin = "lru";
    fixture.config.prefetch.plugin = "placer";
    fixture.config.prefetch.params = {{"page", int64_t{7}, "test"},
                                      {"place", int64_t{MOORAGE_PLACE_SLOT}, "test"}};
    fixture.write(toy::routing({{{0}, {1}}, {{0}, {3}}}, 4, {0, 2}, false));
    const scratch_file file("slots.json");
    shown_in(file, fixture);
    std::vector<std::string> copies;
    for (const json &event : events_of(file.parsed(), "X"))
        if (event["args"].contains("cause")) copies.push_back(event["name"]);
    // In the order of the link: the step's own load, the prefetch behind it, that of layer 1.
    CHECK(copies == std::vector<std::string>{"demand 0.0", "prefetch 1.3", "demand 1.1"});
}

}  // namespace timeline_test
