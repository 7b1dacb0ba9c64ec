// side_thread_test.cpp - goal: each part of a side thread's work is done once, by the thread or by
// a helper, and nothing has ended before all of it has. A load by many threads has the same bytes
// as by one. Method: counts over many starts with helpers on several threads; a thread that is held
// inside its part; segments of random experts in random pieces compared with their copy in one go.
// Run it under the thread sanitizer too.
#include "core/execute/side_thread.h"

#include <doctest/doctest.h>

#include <vector>

#include "core/base/random.h"
#include "core/execute/measure_models.h"
#include "core/execute/load_link.h"
#include "core/model/segment.h"

namespace side_thread_test {

using namespace moorage::core;

TEST_CASE("each part is done once, whoever does it, and is seen by who waits") {
    thread_pool pool(3);
    // Plain integers: a part done twice, or an end told too early, would also be a data race.
    std::vector<uint32_t> counts(40), expected(40);
    side_thread beside([&](uint32_t part) { ++counts[part]; });
    random_stream random(1, 1);
    for (uint32_t start = 0; start < 3000; ++start) {
        const auto parts = static_cast<uint32_t>(1 + random.below(40));
        for (uint32_t part = 0; part < parts; ++part) ++expected[part];
        CHECK_FALSE(beside.busy());
        beside.start(parts);
        CHECK(beside.busy());
        switch (random.below(3)) {
            case 0:  // the thread alone
                break;
            case 1:
                while (beside.help()) {
                }
                break;
            default:
                pool.parallel_for(3, [&](uint32_t) {
                    while (beside.help()) {
                    }
                });
        }
        beside.wait();
        CHECK(beside.try_finish());
        CHECK_FALSE(beside.try_finish());  // told once
        if (start % 100 == 0) CHECK(counts == expected);
    }
    CHECK(counts == expected);
}

TEST_CASE("who helps takes what nobody has begun, in its order, and the rest is waited for") {
    std::atomic<bool> inside{false}, leave{false};
    std::atomic<uint32_t> done{0};
    std::vector<uint32_t> order;
    const auto owner = std::this_thread::get_id();
    side_thread beside([&](uint32_t part) {
        if (std::this_thread::get_id() == owner) return order.push_back(part);
        inside = true;
        while (!leave) std::this_thread::yield();
        ++done;
    });
    CHECK_FALSE(beside.help());  // nothing was started
    beside.start(5);
    while (!inside) std::this_thread::yield();
    while (beside.help()) {
    }
    CHECK(order == std::vector<uint32_t>{1, 2, 3, 4});
    CHECK_FALSE(beside.try_finish());
    leave = true;
    beside.wait();
    CHECK(done == 1);
    CHECK(beside.try_finish());
}

TEST_CASE("a load that many bring has the bytes that one would bring") {
    const auto model = probe_model({1, 320, 288, 3, 1, 64});  // 553 kB an expert: nine parts
    REQUIRE(model.ok());
    auto link = load_link::create(**model, /*from_disk=*/false);
    REQUIRE(link.ok());
    thread_pool pool(2);
    random_stream random(2, 2);
    for (const uint32_t top_rows : {288u, 96u}) {
        const mlp_weights &expert = (*model)->weights().layers[0].experts[2];
        const segment_image top(expert, 0, top_rows), bottom(expert, top_rows, 288 - top_rows);
        std::vector<std::byte> wanted[2], brought[2];
        for (uint32_t i = 0; i < 2; ++i) {
            const segment_image &image = i == 0 ? top : bottom;
            wanted[i].resize(image.bytes());
            brought[i].resize(image.bytes());
            image.copy(0, image.bytes(), wanted[i].data());
        }
        const uint64_t total_bytes = top.bytes() + bottom.bytes();
        for (uint64_t begin = 0, end; begin < total_bytes; begin = end) {
            end = std::min(total_bytes, begin + 1 + random.below(300'000));
            link->get()->send({link_h2d, 2, MOORAGE_WHOLE, begin, end - begin}, top_rows,
                              {brought[0].data(), brought[1].data()});
            link->get()->help(pool);
            CHECK(link->get()->try_finish());
        }
        CHECK(brought[0] == wanted[0]);
        CHECK(brought[1] == wanted[1]);
    }
}

}  // namespace side_thread_test
