// replay_account_test.cpp - goal: impossible outcomes of a fast replay are refused, while pools
// fill and when they are full. Method: by hand, one wrong outcome each. The policy's states and
// counts are written as if the outcome were true, so that only following the outcomes can find the
// fault.
#include <doctest/doctest.h>

#include <vector>

#include "core/cache/replay_account.h"
#include "moorage/cache.h"

namespace replay_account_test {

using namespace moorage::core;

namespace {

constexpr uint32_t kept = MOORAGE_REPLAY_KEPT, bypass = MOORAGE_REPLAY_BYPASS;
using list = std::vector<uint32_t>;

// One layer of six experts in one pool; steps of `width` requests, a token each.
bool follows(uint32_t slots, uint32_t width, const list &experts, const list &outcomes,
             const list &resident) {
    ledger truth(1, 6, {slots});
    replay_account account(truth, {1, 1, width});
    for (const uint32_t page : resident) {
        truth.admit(page);
        truth.land(page, MOORAGE_WHOLE);
    }
    return account.follow(experts.data(), outcomes.data(),
                          static_cast<uint32_t>(experts.size()) / width);
}

}  // namespace

TEST_CASE("one request at a time") {
    CHECK(follows(3, 1, {0, 1, 0}, {kept, kept, kept}, {0, 1}));
    CHECK(follows(2, 1, {0, 1, 2, 2}, {kept, kept, 0, kept}, {1, 2}));
    // Filling: an eviction at a hit, one though there is room, one of an absent page.
    CHECK_FALSE(follows(3, 1, {0, 1, 0}, {kept, kept, 1}, {0, 1}));
    CHECK_FALSE(follows(3, 1, {0, 1}, {kept, 0}, {1}));
    CHECK_FALSE(follows(3, 1, {0, 1}, {kept, 5}, {0, 1}));
    CHECK_FALSE(follows(3, 1, {0, 1}, {kept, bypass}, {0}));
    // Full: the same.
    CHECK_FALSE(follows(2, 1, {0, 1, 1}, {kept, kept, 0}, {1}));
    CHECK_FALSE(follows(2, 1, {0, 1, 2}, {kept, kept, 5}, {0, 1, 2}));
    CHECK_FALSE(follows(2, 1, {0, 1, 2}, {kept, kept, kept}, {0, 1, 2}));
    CHECK_FALSE(follows(2, 1, {0, 1, 2}, {kept, kept, bypass}, {0, 1}));
}

TEST_CASE("steps wider than the pool leave requests without a slot, and no more than they must") {
    CHECK(follows(1, 2, {0, 1, 2, 3}, {kept, bypass, 0, bypass}, {2}));
    // A page of an earlier step could go, so no request may be left without a slot.
    CHECK_FALSE(follows(1, 2, {0, 1, 2, 3}, {kept, bypass, bypass, bypass}, {0}));
    // A page of this step may not.
    CHECK_FALSE(follows(1, 2, {0, 1}, {kept, 0}, {1}));
}

TEST_CASE("states and counts that the policy left otherwise are seen") {
    CHECK_FALSE(follows(3, 1, {0, 1}, {kept, kept}, {0}));
    CHECK_FALSE(follows(3, 1, {0, 1}, {kept, kept}, {0, 1, 2}));
}

}  // namespace replay_account_test
