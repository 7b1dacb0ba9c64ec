// published_trace_test.cpp - goal: replays of a published model's trace have the counts of another
// simulator, and every trace beside the project opens. Method: the files belong to others and stay
// beside the project (../shared/data/traces). Skipped without them.
#include "tests/skip.h"
#include "tests/unit/replay_fixture.h"

namespace published_trace_test {

using namespace moorage;
using namespace moorage::core;
using namespace moorage::test;

namespace {

const std::filesystem::path folder = std::filesystem::path(MOORAGE_SHARED_DATA) / "traces";

}  // namespace

TEST_CASE("a trace that others have counted") {
    const std::filesystem::path file = folder / "gpt-oss-20b.a.safetensors";
    if (!std::filesystem::exists(file)) return skip(file.string() + " is not here");
    const auto source = trace::open(file);
    REQUIRE(source.ok());
    // 96 slots are one token's working set; the count is the study's, made with another simulator.
    CHECK(count_replay(*source, job_of("lru", 96)).misses == 1'477'478);
    CHECK(count_replay(*source, job_of("llru", 96)).misses == 1'477'478);
    CHECK(count_replay(*source, job_of("lru", 96, order::token, sharing::per_layer)).misses ==
          1'477'478);
}

TEST_CASE("the traces beside the project open, and one of another format is told") {
    if (!std::filesystem::exists(folder)) return skip(folder.string() + " is not here");
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
        const auto opened = trace::open(entry.path());
        if (entry.path().string().find("frequency") != std::string::npos) {
            REQUIRE_FALSE(opened.ok());
            CHECK(opened.failure().text.find("moorage.frequency") != std::string::npos);
            continue;
        }
        CHECK_MESSAGE(opened.ok(), opened.failure().text);
    }
}

}  // namespace published_trace_test
