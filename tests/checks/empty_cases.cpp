// empty_cases.cpp - test cases that show nothing, for tests/main.cpp to refuse.
#include <doctest/doctest.h>

#include "tests/skip.h"

TEST_CASE("asserts nothing") {}
TEST_CASE("cannot run") { moorage::test::skip("there is no such machine"); }
TEST_CASE("asserts something") { CHECK(1 + 1 == 2); }
