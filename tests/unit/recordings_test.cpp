// recordings_test.cpp - which launches are replayed, and which recordings are dropped: a case
// worked by hand, random work compared with one launch at a time, and a device that cannot record.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <vector>

#include "core/execute/gpu/recordings.h"

namespace recordings_test {

namespace {

using namespace moorage::core::gpu;

// Launches are numbers; those that ran are written down.
struct device {
    bool begin_recording() {
        if (refuses) return false;
        recording = true;
        return true;
    }
    uint32_t end_recording() {
        recording = false;
        if (breaks) return recorded.clear(), not_recorded;
        kept.push_back(std::move(recorded));
        recorded.clear();
        return static_cast<uint32_t>(kept.size() - 1);
    }
    void replay(uint32_t number) {
        REQUIRE(dropped.count(number) == 0);
        ++replays;
        ran.insert(ran.end(), kept[number].begin(), kept[number].end());
    }
    void drop(uint32_t number) { dropped.insert(number); }
    void launch(int kernel) { (recording ? recorded : ran).push_back(kernel); }

    bool refuses = false, breaks = false, recording = false;
    std::vector<int> ran, recorded;
    std::vector<std::vector<int>> kept;
    std::set<uint32_t> dropped;
    uint32_t replays = 0;
};

recordings<device>::shape shape_of(uint32_t which) { return {which, 0, 1, 1, 1, 16}; }

void launch(recordings<device> &recorder, device &gpu, uint32_t sequence) {
    recorder.run(shape_of(sequence), [&] {
        gpu.launch(static_cast<int>(10 * sequence));
        gpu.launch(static_cast<int>(10 * sequence + 1));
    });
}

}  // namespace

TEST_CASE("the second time is recorded, the third replayed, and the one unused longest goes") {
    device gpu;
    recordings<device> recorder(gpu, {.recordings = 2, .shapes = 8});
    const auto pass = [&](std::vector<uint32_t> which) {
        recorder.begin_pass();
        for (const uint32_t sequence : which) launch(recorder, gpu, sequence);
    };
    pass({1, 2, 3});
    CHECK(recorder.live() == 0);
    CHECK(gpu.kept.empty());
    pass({1, 2});  // both recorded, as numbers 0 and 1
    CHECK(recorder.live() == 2);
    CHECK(gpu.replays == 2);
    pass({1});
    pass({3});  // its second time: the recording of 2 was used two passes ago, that of 1 one
    CHECK(gpu.dropped == std::set<uint32_t>{1});
    CHECK(recorder.live() == 2);
    pass({2});  // known no more: launched as it is, to be recorded the next time
    CHECK(gpu.kept.size() == 3);
    pass({2});  // the recording of 1 goes
    CHECK(gpu.dropped == std::set<uint32_t>{0, 1});
    CHECK(gpu.ran ==
          std::vector<int>{10, 11, 20, 21, 30, 31, 10, 11, 20, 21, 10, 11, 30, 31, 20, 21, 20, 21});
}

TEST_CASE("no recording of the pass under way goes: what has no room is launched as it is") {
    device gpu;
    recordings<device> recorder(gpu, {.recordings = 2, .shapes = 8});
    for (int i = 0; i < 5; ++i) {
        recorder.begin_pass();
        for (const uint32_t sequence : {1u, 2u, 3u, 4u}) launch(recorder, gpu, sequence);
        CHECK(recorder.live() <= 2);
        CHECK(gpu.ran.size() == static_cast<size_t>(8 * (i + 1)));
    }
    // The first two of a pass are its own, so they keep their places.
    CHECK(gpu.dropped.empty());
    CHECK(gpu.replays == 8);
}

TEST_CASE("random work runs as it would one by one, within the bounds") {
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        CAPTURE(round);
        device gpu, plain;
        const recording_limits limits{1 + random() % 5, 5 + random() % 10};
        recordings<device> recorder(gpu, limits);
        const uint32_t kinds = 2 + random() % 20;
        for (int pass = 0; pass < 30; ++pass) {
            recorder.begin_pass();
            for (uint32_t i = random() % 8; i-- > 0;) {
                const uint32_t which = random() % kinds;
                launch(recorder, gpu, which);
                plain.launch(static_cast<int>(10 * which));
                plain.launch(static_cast<int>(10 * which + 1));
                gpu.breaks = random() % 7 == 0;
                gpu.refuses = random() % 11 == 0;
            }
            CHECK(recorder.live() <= limits.recordings);
            CHECK(recorder.shapes() <= limits.shapes);
            CHECK(recorder.live() == gpu.kept.size() - gpu.dropped.size());
        }
        CHECK(gpu.ran == plain.ran);
    }
}

TEST_CASE("what could not be recorded once is not tried again") {
    device gpu;
    recordings<device> recorder(gpu);
    gpu.breaks = true;
    for (int i = 0; i < 3; ++i) {
        recorder.begin_pass();
        launch(recorder, gpu, 1);
    }
    gpu.breaks = false;
    recorder.begin_pass();
    launch(recorder, gpu, 1);
    CHECK(recorder.live() == 0);
    CHECK(gpu.replays == 0);
    CHECK(gpu.ran == std::vector<int>{10, 11, 10, 11, 10, 11, 10, 11});
}

}  // namespace recordings_test
