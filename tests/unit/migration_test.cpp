// Goal: a migration goes from any plan to any other. Every expert stays reachable and no device is
// above its memory at any moment. It ends with the new plan, or with a true account of the missing
// parts. Method: small moves worked out by hand; thousands of random pairs of plans. A bookkeeper
// of the test checks each step, lets copies arrive in random order and refuses to drop copies "in
// use".
#include "tools/cluster/migration.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "core/base/random.h"

namespace migration_test {

using namespace moorage::core;

namespace {

using copy_set = std::set<std::pair<uint32_t, uint32_t>>;  // expert, device

struct world {
    cluster_arrays cluster;
    demand_arrays demand;
};

// Servers of one device each, with a link of 1 byte a nanosecond between any two. One model of one
// layer. Each has a home that asks for nothing.
world make_world(const std::vector<uint64_t> &device_bytes, uint32_t experts, uint64_t bytes) {
    world test_world;
    const auto servers = static_cast<uint32_t>(device_bytes.size());
    cluster_arrays &cluster = test_world.cluster;
    cluster.servers = cluster.homes = servers;
    cluster.models = 1;
    cluster.device_bytes = device_bytes;
    for (uint32_t server = 0; server < servers; ++server) {
        cluster.device_server.push_back(server);
        cluster.home_server.push_back(server);
    }
    cluster.link_bytes_per_s.assign(size_t{servers} * servers, 1e9);
    cluster.link_s.assign(size_t{servers} * servers, 1e-3);
    demand_arrays &demand = test_world.demand;
    demand.models = 1, demand.homes = servers;
    demand.model_first = {0, experts};
    demand.model_layers = {1}, demand.model_experts = {experts}, demand.model_top_k = {1};
    demand.expert_bytes = {bytes};
    demand.home_tokens_per_s.assign(servers, 1);
    demand.frequency.assign(size_t{servers} * experts, 0);
    return test_world;
}

void add_cloud(cluster_arrays &cluster) {
    cluster.cloud_s.assign(cluster.servers, 1);
    cluster.cloud_up_bytes_per_s.assign(cluster.servers, 1e9);
    cluster.cloud_down_bytes_per_s.assign(cluster.servers, 1e9);
    cluster.cloud_call_s.assign(1, 1);
}

std::vector<moorage_copy> plan_of(const copy_set &copies) {
    std::vector<moorage_copy> plan;
    for (const auto &[expert, device] : copies) plan.push_back({expert, device});
    return plan;
}

copy_set set_of(std::span<const moorage_copy> copies) {
    copy_set unique_copies;
    for (const moorage_copy &copy : copies) unique_copies.emplace(copy.expert, copy.device);
    return unique_copies;
}

// Knows the place of each copy by itself, and checks every step.
class bookkeeper {
public:
    bookkeeper(const world &test_world, const copy_set &current, const copy_set &target,
               uint32_t at_once, uint32_t refusals_of_8, uint64_t seed)
        : test_world_(test_world),
          target_(target),
          held_(current),
          at_once_(at_once),
          refusals_(refusals_of_8),
          random_(seed, 9),
          order_(test_world.cluster, test_world.demand, plan_of(current), plan_of(target),
                 [this](const moorage_copy &copy) { return dropped(copy); }, {at_once}) {
        for (const auto &[expert, device] : target) needed_.insert(expert);
    }

    // Runs to the end. Returns the number of copies that were started.
    uint64_t go() {
        uint64_t calm = 0;
        while (!order_.done()) {
            REQUIRE(calm < 10'000);
            while (const auto step = order_.next()) started(*step), calm = 0;
            CHECK(order_.under_way() == flying_.size());
            if (!flying_.empty() && (!order_.blocked() || random_.below(2))) {
                const size_t which = random_.below(flying_.size());
                const migration_step step = flying_[which];
                flying_.erase(flying_.begin() + static_cast<ptrdiff_t>(which));
                held_.emplace(step.expert, step.target);
                order_.arrived(step.id);
                calm = 0;
            } else if (!order_.done()) {
                CHECK(order_.blocked());  // else it would stand still for ever
                ++calm;
            }
            CHECK(set_of(order_.copies()) == held_);
        }
        check_end();
        return order_.copied();
    }
    std::string story;  // "x:a>b " of each start, "-x@a " of each drop
    const copy_set &held() const { return held_; }
    const migration_order &order() const { return order_; }

private:
    uint64_t bytes_of(uint32_t expert) const {
        const auto &first = test_world_.demand.model_first;
        const auto model = std::ranges::upper_bound(first, expert) - first.begin() - 1;
        return test_world_.demand.expert_bytes[static_cast<size_t>(model)];
    }
    bool cloud() const { return test_world_.cluster.has_cloud(); }
    uint64_t used(uint32_t device) const {
        uint64_t bytes = 0;
        for (const auto &[expert, holder] : held_) bytes += holder == device ? bytes_of(expert) : 0;
        for (const migration_step &transfer : flying_)
            bytes += transfer.target == device ? bytes_of(transfer.expert) : 0;
        return bytes;
    }
    bool dropped(const moorage_copy &copy) {
        REQUIRE(held_.contains({copy.expert, copy.device}));
        for (const migration_step &transfer : flying_)
            CHECK_FALSE((transfer.expert == copy.expert && transfer.source == copy.device));
        if (random_.below(8) < refusals_) return false;
        held_.erase({copy.expert, copy.device});
        story += "-" + std::to_string(copy.expert) + "@" + std::to_string(copy.device) + " ";
        // Still reachable, or no longer wanted by anyone.
        const auto found = held_.lower_bound({copy.expert, 0});
        CHECK((cloud() || !needed_.contains(copy.expert) ||
               (found != held_.end() && found->first == copy.expert)));
        return true;
    }
    void started(const migration_step &step) {
        if (step.source == MOORAGE_NONE)
            CHECK(cloud());
        else
            CHECK(held_.contains({step.expert, step.source}));
        CHECK_FALSE(held_.contains({step.expert, step.target}));
        uint32_t to_it = 1;
        for (const migration_step &transfer : flying_) {
            CHECK_FALSE((transfer.expert == step.expert && transfer.target == step.target));
            to_it += transfer.target == step.target;
        }
        if (target_.contains({step.expert, step.target})) CHECK(to_it <= at_once_);
        CHECK(step.bytes == bytes_of(step.expert));
        flying_.push_back(step);
        CHECK(used(step.target) <= test_world_.cluster.device_bytes[step.target]);
        story += std::to_string(step.expert) + ":" +
                 (step.source == MOORAGE_NONE ? "c" : std::to_string(step.source)) + ">" +
                 std::to_string(step.target) + " ";
    }
    // Held are the copies of the new plan that were not given up. Beside them there are only last
    // copies of experts that lost all their wanted copies.
    void check_end() const {
        const copy_set given_up = set_of(order_.given_up());
        CHECK(given_up.size() == order_.given_up().size());
        for (const auto &copy : given_up) CHECK(target_.contains(copy));
        for (const auto &copy : target_) CHECK(held_.contains(copy) != given_up.contains(copy));
        for (const auto &copy : held_) {
            if (target_.contains(copy)) continue;
            const auto found = held_.lower_bound({copy.first, 0});
            CHECK(*found == copy);
            CHECK((std::next(found) == held_.end() || std::next(found)->first != copy.first));
            CHECK(needed_.contains(copy.first));
        }
    }

    const world &test_world_;
    copy_set target_, held_;
    std::set<uint32_t> needed_;
    uint32_t at_once_, refusals_;
    random_stream random_;
    std::vector<migration_step> flying_;
    migration_order order_;
};

}  // namespace

TEST_CASE("nothing to do is done at once") {
    const world test_world = make_world({100, 100}, 2, 100);
    bookkeeper move(test_world, {{0, 0}, {1, 1}}, {{0, 0}, {1, 1}}, 1, 0, 0);
    CHECK(move.go() == 0);
    CHECK(move.story.empty());
}

TEST_CASE("the largest gain per byte first, from the nearest device") {
    world test_world = make_world({300, 300, 300}, 3, 100);
    test_world.demand.frequency = {0, 0, 0, 0, 0, 0, 0.25, 0.5, 0.25};  // home 2
    test_world.cluster.link_s[1 * 3 + 2] = 0.5e-3;  // 1 is nearer to 2 than 0 is
    bookkeeper move(test_world, {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}},
                    {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 2}}, 1, 0, 0);
    move.go();
    CHECK(move.story == "1:1>2 0:1>2 2:0>2 ");
    CHECK(move.order().detours() == 0);
}

TEST_CASE("copies of one expert for several devices come from different ones") {
    world test_world = make_world({100, 100, 100, 100}, 1, 100);
    bookkeeper move(test_world, {{0, 0}, {0, 1}}, {{0, 0}, {0, 1}, {0, 2}, {0, 3}}, 1, 0, 0);
    move.go();
    CHECK(move.story == "0:0>2 0:1>3 ");
}

TEST_CASE("what goes makes room, the least used first, and not before others are there") {
    world test_world = make_world({200, 200}, 4, 100);
    test_world.demand.frequency = {0.5, 0.25, 0, 0, 0, 0, 0, 0};
    // 0 and 1 have copies elsewhere; device 0 gets 2 and 3.
    bookkeeper move(test_world, {{0, 0}, {0, 1}, {1, 0}, {2, 1}}, {{0, 1}, {1, 0}, {2, 0}, {2, 1}},
                    1, 0, 0);
    move.go();
    CHECK(move.story == "-0@0 2:1>0 ");
    // An expert that moves stays where it was until it has arrived.
    bookkeeper shift(test_world, {{0, 0}}, {{0, 1}}, 1, 0, 0);
    shift.go();
    CHECK(shift.story == "0:0>1 -0@0 ");
}

TEST_CASE("two full devices swap their only copies") {
    const copy_set current = {{0, 0}, {1, 1}}, target = {{0, 1}, {1, 0}};
    SUBCASE("by a spare place on a third device") {
        const world test_world = make_world({100, 100, 100}, 2, 100);
        bookkeeper move(test_world, current, target, 1, 0, 0);
        CHECK(move.go() == 3);
        CHECK(move.order().given_up().empty());
        CHECK(move.order().detours() == 1);
        CHECK(move.story == "0:0>2 -0@0 1:1>0 -1@1 0:2>1 -0@2 ");
    }
    SUBCASE("with the cloud") {
        world test_world = make_world({100, 100}, 2, 100);
        add_cloud(test_world.cluster);
        bookkeeper move(test_world, current, target, 1, 0, 0);
        CHECK(move.go() == 2);
        CHECK(move.order().given_up().empty());
    }
    SUBCASE("by dropping for a while what another device has too") {
        const world test_world = make_world({200, 200}, 3, 100);
        bookkeeper move(test_world, {{0, 0}, {1, 1}, {2, 0}, {2, 1}},
                        {{0, 1}, {1, 0}, {2, 0}, {2, 1}}, 1, 0, 0);
        CHECK(move.go() == 3);
        CHECK(move.order().given_up().empty());
        CHECK(move.story == "-2@0 1:1>0 -1@1 0:0>1 -0@0 2:1>0 ");
    }
    SUBCASE("by a third device that drops for a while what another has too") {
        const world test_world = make_world({100, 100, 100, 100}, 3, 100);
        bookkeeper move(test_world, {{0, 0}, {1, 1}, {2, 2}, {2, 3}},
                        {{0, 1}, {1, 0}, {2, 2}, {2, 3}}, 1, 0, 0);
        CHECK(move.go() == 4);
        CHECK(move.order().given_up().empty());
    }
    SUBCASE("not at all, where nothing helps; the rest moves on") {
        const world test_world = make_world({100, 100, 200}, 4, 100);
        copy_set full = current, want = target;
        for (const uint32_t expert : {2u, 3u}) full.emplace(expert, 2), want.emplace(expert, 2);
        bookkeeper move(test_world, full, want, 1, 0, 0);
        CHECK(move.go() == 0);
        CHECK(set_of(move.order().given_up()) == target);
        CHECK(move.held() == full);
    }
}

TEST_CASE("a copy that is in use goes when it no longer is") {
    const world test_world = make_world({100, 100}, 2, 100);
    bool in_use = true;
    uint32_t asked = 0;
    migration_order order(test_world.cluster, test_world.demand, plan_of({{0, 0}, {0, 1}, {1, 0}}),
                          plan_of({{0, 0}, {1, 1}}), [&](const moorage_copy &) {
                              ++asked;
                              return !in_use;
                          });
    // Expert 1 is on device 0 beside its memory: only device 1 is of interest here.
    CHECK_FALSE(order.next());
    CHECK(order.blocked());
    CHECK_FALSE(order.next());
    CHECK(asked == 2);
    in_use = false;
    const auto step = order.next();
    REQUIRE(step);
    CHECK(step->expert == 1);
    CHECK_FALSE(order.blocked());
    order.stop();
    CHECK_FALSE(order.next());
    CHECK_FALSE(order.done());
    order.arrived(step->id);
    CHECK_FALSE(order.next());
    CHECK(order.done());
}

TEST_CASE("what nothing has, and no cloud, is given up") {
    const world test_world = make_world({200, 200}, 2, 100);
    bookkeeper move(test_world, {{0, 0}}, {{0, 1}, {1, 1}}, 1, 0, 0);
    move.go();
    CHECK(set_of(move.order().given_up()) == copy_set{{1, 1}});
    world clouded = test_world;
    add_cloud(clouded.cluster);
    bookkeeper load(clouded, {{0, 0}}, {{0, 1}, {1, 1}}, 2, 0, 0);
    load.go();
    CHECK(load.order().given_up().empty());
}

TEST_CASE("an expert that the new plan has nowhere makes room as any other") {
    const world test_world = make_world({100, 100}, 2, 100);
    bookkeeper move(test_world, {{0, 0}, {1, 1}}, {{1, 0}, {1, 1}}, 1, 0, 0);
    move.go();
    CHECK(move.story == "-0@0 1:1>0 ");
    bookkeeper gone(test_world, {{0, 0}, {1, 1}}, {{1, 1}}, 1, 0, 0);
    gone.go();
    CHECK(gone.story == "-0@0 ");
}

namespace {

// Copies at random, within memory; every expert has one.
std::optional<copy_set> random_plan(random_stream &random, const world &test_world,
                                    const std::vector<uint64_t> &capacity, uint64_t extra) {
    const auto &first = test_world.demand.model_first;
    std::vector<uint64_t> left = capacity;
    copy_set plan;
    std::vector<std::pair<uint32_t, uint64_t>> experts;
    for (uint32_t model = 0; model < test_world.demand.models; ++model)
        for (uint32_t x = first[model]; x < first[model + 1]; ++x)
            experts.emplace_back(x, test_world.demand.expert_bytes[model]);
    for (size_t i = experts.size(); i > 1; --i) std::swap(experts[i - 1], experts[random.below(i)]);
    std::ranges::stable_sort(experts,
                             [](const auto &a, const auto &b) { return a.second > b.second; });
    for (const auto &[expert, bytes] : experts) {
        std::vector<uint32_t> fits;
        for (uint32_t device = 0; device < left.size(); ++device)
            if (left[device] >= bytes) fits.push_back(device);
        if (fits.empty()) return std::nullopt;
        const uint32_t device = fits[random.below(fits.size())];
        left[device] -= bytes;
        plan.emplace(expert, device);
    }
    for (uint64_t i = 0; i < extra; ++i) {
        const auto &[expert, bytes] = experts[random.below(experts.size())];
        const auto device = static_cast<uint32_t>(random.below(left.size()));
        if (left[device] < bytes || !plan.emplace(expert, device).second) continue;
        left[device] -= bytes;
    }
    return plan;
}

world random_world(random_stream &random, bool one_size) {
    const auto devices = static_cast<uint32_t>(2 + random.below(5));
    const auto models = static_cast<uint32_t>(one_size ? 1 : 1 + random.below(3));
    world test_world = make_world(std::vector<uint64_t>(devices, 0), 0, 0);
    demand_arrays &demand = test_world.demand;
    test_world.cluster.models = demand.models = models;
    demand.model_first = {0};
    demand.expert_bytes.clear();
    uint64_t bytes = 0;
    for (uint32_t model = 0; model < models; ++model) {
        const auto experts = static_cast<uint32_t>(1 + random.below(8));
        demand.model_first.push_back(demand.model_first.back() + experts);
        demand.expert_bytes.push_back(one_size ? 10 : 5 + random.below(20));
        bytes += experts * demand.expert_bytes.back();
    }
    demand.frequency.resize(size_t{devices} * demand.experts());
    for (double &frequency : demand.frequency) frequency = static_cast<double>(random.below(8));
    // Some servers have two devices.
    for (uint32_t device = 1; device < devices; ++device)
        test_world.cluster.device_server[device] =
            test_world.cluster.device_server[device - 1] + (random.below(3) != 0);
    // From hardly enough to plenty.
    const uint64_t slack = random.below(3) == 0 ? bytes : 24;
    for (uint64_t &device_bytes : test_world.cluster.device_bytes) {
        device_bytes = bytes / devices + random.below(slack);
        if (one_size) device_bytes -= device_bytes % 10;
    }
    if (random.below(4) == 0) add_cloud(test_world.cluster);
    return test_world;
}

}  // namespace

TEST_CASE("random plans: always reachable, within memory, to the end") {
    uint64_t moved = 0, pairs = 0, complete = 0, detours = 0;
    for (uint64_t seed = 0; seed < 4000; ++seed) {
        CAPTURE(seed);
        random_stream random(seed, 0);
        const world test_world = random_world(random, random.below(2) == 0);
        std::optional<copy_set> current, target;
        for (int attempt = 0; attempt < 20 && !(current && target); ++attempt) {
            current =
                random_plan(random, test_world, test_world.cluster.device_bytes, random.below(40));
            target =
                random_plan(random, test_world, test_world.cluster.device_bytes, random.below(40));
        }
        if (!current || !target) continue;
        if (random.below(4) == 0)  // one is no longer wanted by anyone
            std::erase_if(*target, [](const auto &copy) { return copy.first == 0; });
        const auto at_once = static_cast<uint32_t>(1 + random.below(3));
        bookkeeper move(test_world, *current, *target, at_once, random.below(2) ? 0 : 4, seed);
        moved += move.go();
        ++pairs;
        complete += move.order().given_up().empty();
        detours += move.order().detours();
        if (test_world.cluster.has_cloud()) CHECK(move.order().given_up().empty());
        // No copy is made twice without need, none goes round in circles.
        uint64_t added = 0;
        for (const auto &copy : *target) added += !current->contains(copy);
        CHECK(move.order().copied() <= added + move.order().detours());
        CHECK(move.order().detours() <= current->size() + test_world.demand.experts());
    }
    MESSAGE(pairs, " pairs, ", complete, " complete, ", moved, " copies, ", detours, " detours");
    CHECK(pairs > 1500);
    CHECK(detours > 100);
    CHECK(complete < pairs);  // some cannot be done
}

TEST_CASE("with experts of one size and a place to spare every plan is reached") {
    uint64_t detours = 0;
    for (uint64_t seed = 0; seed < 2000; ++seed) {
        CAPTURE(seed);
        random_stream random(seed, 1);
        world test_world = random_world(random, /*one_size=*/true);
        // As tight as possible, all in use, with one free place on one device.
        std::vector<uint64_t> tight(test_world.cluster.device_bytes.size(), 0);
        for (uint32_t expert = 0; expert < test_world.demand.experts(); ++expert)
            tight[random.below(tight.size())] += 10;
        const auto current = random_plan(random, test_world, tight, 0);
        const auto target = random_plan(random, test_world, tight, 0);
        REQUIRE((current && target));
        test_world.cluster.device_bytes = tight;
        test_world.cluster.device_bytes[random.below(tight.size())] += 10;
        bookkeeper move(test_world, *current, *target, 1, 0, seed);
        move.go();
        CHECK(move.order().given_up().empty());
        CHECK(move.held() == *target);
        detours += move.order().detours();
    }
    CHECK(detours > 200);
}

namespace {

// A tiny cluster as bits: bit x * devices + g is a copy of expert x on device g.
struct tiny {
    uint32_t devices, experts;
    std::vector<uint64_t> bytes, capacity;

    bool fits(uint32_t state, uint32_t device) const {
        uint64_t used = 0;
        for (uint32_t x = 0; x < experts; ++x)
            used += state >> (x * devices + device) & 1 ? bytes[x] : 0;
        return used <= capacity[device];
    }
    copy_set copies(uint32_t state) const {
        copy_set copies;
        for (uint32_t bit = 0; bit < devices * experts; ++bit)
            if (state >> bit & 1) copies.emplace(bit / devices, bit % devices);
        return copies;
    }
    // Whether any order of copies and drops leads there; tries all.
    bool can_reach(uint32_t start, uint32_t goal) const {
        std::vector<uint8_t> seen(size_t{1} << (devices * experts), 0);
        std::vector<uint32_t> open = {start};
        seen[start] = 1;
        while (!open.empty() && !seen[goal]) {
            const uint32_t state = open.back();
            open.pop_back();
            for (uint32_t bit = 0; bit < devices * experts; ++bit) {
                const uint32_t next = state ^ 1u << bit, first = bit / devices * devices;
                const uint32_t expert_mask = ((1u << devices) - 1) << first;
                if (seen[next] || (next & expert_mask) == 0 || !fits(next, bit % devices)) continue;
                seen[next] = 1;
                open.push_back(next);
            }
        }
        return seen[goal];
    }
    // Every expert at least once, up to `extra` copies more.
    std::optional<uint32_t> draw(random_stream &random, uint64_t extra) const {
        uint32_t state = 0;
        for (uint32_t x = 0; x < experts; ++x) {
            const auto device = static_cast<uint32_t>(random.below(devices));
            state |= 1u << (x * devices + device);
            if (!fits(state, device)) return std::nullopt;
        }
        for (; extra > 0; --extra) {
            const auto bit = static_cast<uint32_t>(random.below(devices * experts));
            if (fits(state | 1u << bit, bit % devices)) state |= 1u << bit;
        }
        return state;
    }
};

}  // namespace

TEST_CASE("hardly anything is given up that a search over all states can do") {
    uint64_t possible = 0, done = 0, impossible = 0;
    for (uint64_t seed = 0; seed < 12'000 && possible < 500; ++seed) {
        CAPTURE(seed);
        random_stream random(seed, 3);
        tiny tiny_cluster{static_cast<uint32_t>(2 + random.below(2)),
                          static_cast<uint32_t>(2 + random.below(3)),
                          {},
                          {}};
        uint64_t bytes = 0;
        for (uint32_t x = 0; x < tiny_cluster.experts; ++x)
            tiny_cluster.bytes.push_back(1 + random.below(3));
        for (const uint64_t size : tiny_cluster.bytes) bytes += size;
        for (uint32_t g = 0; g < tiny_cluster.devices; ++g)
            tiny_cluster.capacity.push_back(bytes / tiny_cluster.devices + random.below(3));
        const auto start = tiny_cluster.draw(random, random.below(4)),
                   goal = tiny_cluster.draw(random, random.below(4));
        if (!start || !goal) continue;
        world around = make_world(tiny_cluster.capacity, tiny_cluster.experts, 0);
        demand_arrays &demand = around.demand;
        demand.models = tiny_cluster.experts;
        demand.expert_bytes = tiny_cluster.bytes;
        demand.model_first.clear();
        for (uint32_t x = 0; x <= tiny_cluster.experts; ++x) demand.model_first.push_back(x);
        bookkeeper move(around, tiny_cluster.copies(*start), tiny_cluster.copies(*goal), 1, 0,
                        seed);
        move.go();
        const bool complete = move.order().given_up().empty(),
                   can = tiny_cluster.can_reach(*start, *goal);
        if (complete) CHECK(can);
        possible += can;
        done += complete;
        impossible += !can;
    }
    MESSAGE(done, " of ", possible, " done, ", impossible, " impossible");
    CHECK(possible == 500);
    CHECK(impossible > 50);
    CHECK(done >= possible * 95 / 100);
}

TEST_CASE("equal moves take equal steps") {
    for (uint64_t seed = 0; seed < 50; ++seed) {
        random_stream random(seed, 2);
        const world test_world = random_world(random, false);
        const auto current = random_plan(random, test_world, test_world.cluster.device_bytes, 8);
        const auto target = random_plan(random, test_world, test_world.cluster.device_bytes, 8);
        if (!current || !target) continue;
        bookkeeper first(test_world, *current, *target, 2, 2, seed),
            second(test_world, *current, *target, 2, 2, seed);
        first.go();
        second.go();
        CHECK(first.story == second.story);
    }
}

}  // namespace migration_test
