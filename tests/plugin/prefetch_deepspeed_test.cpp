// Goal: deepspeed_stream orders every absent expert of the next layer, in their order. Method: by
// hand, at the end of the model too.
#include <doctest/doctest.h>

#include "any_policy.h"
#include "order_bytes.h"

namespace prefetch_deepspeed_test {

using namespace moorage::test;

TEST_CASE("all absent experts of the next layer, from the first to the last") {
    world test_world(2, 4, 1, true, 1);
    any_policy policy("prefetch/deepspeed_stream", test_world);
    CHECK(policy.prefetch->horizon(policy.plugin) == 1);
    test_world.state[5] = MOORAGE_WHOLE;
    test_world.state[6] = MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    for (const uint32_t layer : {0u, 1u}) {
        step_data data;
        fill_step(data, test_world, layer, layer, {{0}});
        const uint32_t next = 1 - layer, offsets[] = {0, 0};
        moorage_forecast forecast{};
        forecast.size = sizeof(forecast);
        forecast.target_count = 1;
        forecast.buffer_free = 8;
        forecast.host_layers = &next;
        forecast.host_offsets = offsets;
        std::vector<uint32_t> pages(4);
        std::vector<uint8_t> segments(4, MOORAGE_WHOLE);
        moorage_orders orders{sizeof(orders), 0, 4, 0, pages.data(), segments.data(), order_bytes(),
                              order_bytes()};
        pages.resize(policy.prefetch->plan(policy.plugin, &data.step, &forecast, &orders));
        CHECK(pages ==
              (layer == 0 ? std::vector<uint32_t>{4, 7} : std::vector<uint32_t>{0, 1, 2, 3}));
    }
}

}  // namespace prefetch_deepspeed_test
