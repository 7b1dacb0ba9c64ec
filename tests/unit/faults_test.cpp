// faults_test.cpp - goal: wrong advice is counted per policy and ends the run or does not, as
// asked. Method: short sequences of reports, worked by hand.
#include <doctest/doctest.h>

#include "core/base/log.h"
#include "core/host/faults.h"

namespace faults_test {

using moorage::core::fault_log;
using moorage::core::on_fault;

TEST_CASE("replace counts every fault and goes on") {
    moorage::core::set_log_level(moorage::core::log_level::off);
    fault_log log(on_fault::replace);
    CHECK(log.report("lru", "victim 17 is pinned"));
    CHECK(log.report("lru", "victim 18 is pinned"));
    CHECK(log.report("topk", "expert 9 is none"));
    CHECK(log.count("lru") == 2);
    CHECK(log.count("topk") == 1);
    CHECK(log.count("lfu") == 0);
    CHECK(log.counts().size() == 2);
    CHECK(log.fatal().empty());
}

TEST_CASE("abort ends the run and keeps the first fault") {
    moorage::core::set_log_level(moorage::core::log_level::off);
    fault_log log;
    CHECK(log.fatal().empty());
    CHECK_FALSE(log.report("lru", "victim 17 is pinned"));
    CHECK_FALSE(log.report("topk", "expert 9 is none"));
    CHECK(log.fatal() == "policy lru: victim 17 is pinned");
    CHECK(log.count("lru") == 1);
    CHECK(log.count("topk") == 1);
}

}  // namespace faults_test
