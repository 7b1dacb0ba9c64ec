// machine_speed_test.cpp - goal: measuring ends at once without time, and finds rates above zero.
// Method: no time at all. tests/perf shows the rates to people.
#include <doctest/doctest.h>

#include "core/execute/cpu/machine_speed.h"

namespace moorage::core::machine_speed_test {

TEST_CASE("rates are found without being given time") {
    thread_pool pool(2);
    CHECK(measure_read_bandwidth(pool, 0) > 0);
    CHECK(measure_multiply_add_rate(pool, 0) > 0);
}

}  // namespace moorage::core::machine_speed_test
