// plan_texts_test.cpp - plans and members of a cluster as texts: what is written is read again, and
// nothing else is believed.
#include <doctest/doctest.h>

#include "tests/golden/node_fixture.h"

namespace plan_texts_test {

using namespace moorage::test;

TEST_CASE("plans and members as texts: there and back, and nothing believed") {
    node_bench bench("mixtral");
    random_stream draw(3, 3);
    const node_plan plan = plan_of(*bench.loaded_model, 3, random_holders(bench.pages(), 3, draw));
    plan_record record = record_of(plan);
    record.epoch = 7;
    record.coming = {{1, 0, 2}, {2, no_server, 1}};
    const std::string text = to_text(record, plan);
    const auto back = read_plan_record(7, text, plan);
    REQUIRE(back.ok());
    CHECK(*back == record);
    const auto refuses = [&](const std::string &old_text, const std::string &new_text,
                             const char *says) {
        std::string changed = text;
        const size_t position = changed.find(old_text);
        REQUIRE(position != std::string::npos);
        changed.replace(position, old_text.size(), new_text);
        const auto read = read_plan_record(7, changed, plan);
        REQUIRE_FALSE(read.ok());
        CAPTURE(read.failure().text);
        CHECK(read.failure().text.find(says) != std::string::npos);
    };
    refuses("moorage.plan/1", "moorage.plan/2", "format");
    refuses("\"cluster\":\"", "\"cluster\":\"x", "is of cluster x");
    refuses("\"model\":\"", "\"model\":\"x", "is of model x");
    refuses("\"holders\":[[", "\"holders\":[[0],[", "experts, and there are");
    refuses("\"holders\":[[", "\"holders\":[[9,", "expert 0 of layer 0");
    refuses("\"holders\":[[", "\"holders\":[[-1,", "expert 0 of layer 0");
    refuses("\"coming\":[[1,0,2]", "\"coming\":[[1,0,3]", "what is not there");
    refuses("\"coming\":[[1,0,2]", "\"coming\":[[99999999,0,2]", "what is not there");
    refuses("\"coming\":[[1,0,2]", "\"coming\":[[1,2]", "a copy that is none");
    for (const std::string &bad : {std::string(), std::string("{"), std::string("null"),
                                   std::string(1 << 16, '['), text.substr(0, text.size() / 2)})
        CHECK_FALSE(read_plan_record(7, bad, plan).ok());

    const member_record member{5, 7, {1, 4}, 2, 12345, {0, 7, 8}, 1 << 20};
    const auto said = read_member_record(to_text(member), plan);
    REQUIRE(said.ok());
    CHECK(*said == member);
    const auto odd = read_member_record(
        "{\"format\":\"moorage.member/1\",\"epoch\":-4,\"arrived\":[1,\"x\",99999999,null],"
        "\"round_trip_ns\":[1,2,3,4,5,6]}",
        plan);
    REQUIRE(odd.ok());
    CHECK(odd->arrived == std::vector<uint32_t>{1});
    CHECK(odd->round_trip_ns.size() == 3);
    CHECK_FALSE(read_member_record("[]", plan).ok());
}

}  // namespace plan_texts_test
