// program_part_test.cpp - parts of the program in libraries of their own: found, refused by name.
#include <doctest/doctest.h>

#include "core/host/program_part.h"
#include "core/host/registry.h"

using namespace moorage::core;

namespace {

std::string refusal_of(std::string_view file) {
    const auto entry = open_program_part(file);
    REQUIRE_FALSE(entry.ok());
    const std::string text = entry.failure().text;
    CHECK_MESSAGE(text.find(file) != text.npos, text);
    return text;
}

}  // namespace

TEST_CASE("a part of this build opens; what is missing, no part or of another build is refused") {
    const auto entry = open_program_part("registry/etcd.so");
    REQUIRE(entry.ok());
    CHECK((*entry != nullptr));
    const std::string missing = refusal_of("registry/missing.so");
    CHECK_MESSAGE(missing.find("cannot be opened") != missing.npos, missing);
    const std::string policy = refusal_of("cache/lru.so");
    CHECK_MESSAGE(policy.find("exports no moorage_program_part") != policy.npos, policy);
    const std::string other_build = refusal_of("../tests/parts/other_build.so");
    CHECK_MESSAGE(other_build.find("another build of the program: 0.0.0, another compiler") !=
                      other_build.npos,
                  other_build);
}

TEST_CASE("the search for policies passes parts of the program by") {
    registry policies;
    REQUIRE(policies.scan(registry::default_paths()).ok());
    CHECK(policies.policies().size() > 40);
    for (const moorage::core::refusal &refused : policies.refusals())
        CHECK_MESSAGE(refused.path.filename() != "etcd.so", refused.reason);
}
