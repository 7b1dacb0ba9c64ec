// Goal: queues keep their order, gates and turns, and all time is accounted for. Method: rings
// compared with std::deque; a device that only writes down its work, under random work, compared
// with a simulation that looks at every queue anew for each turn.
#include "core/execute/stream_executor.h"

#include <deque>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/random.h"
#include "core/execute/turns_executor.h"

namespace stream_executor_test {

using namespace moorage::core;

namespace {

// A turn takes a nanosecond, and one more for each operation in it. A piece is copied when the
// device rests, a hundred later.
class written_down final : public turns_executor<written_down> {
public:
    explicit written_down(uint32_t transfers_max) : turns_executor(transfers_max, nullptr) {}
    const uint64_t *clock() const override { return &now_; }
    void send(const link_piece &piece) override {
        begin_piece(piece.link);
        sent_.push_back(piece);
    }
    bool virtual_time() const override { return true; }
    bool unified_memory() const override { return false; }
    std::vector<std::vector<uint32_t>> turns;  // tags

private:
    template <class, class>
    friend class moorage::core::stream_executor;
    friend turns_executor;
    uint64_t time_ns() const { return now_; }
    void compute(std::span<const operation> experts) {
        turns.emplace_back();
        for (const operation &work : experts) turns.back().push_back(work.tag);
        now_ += 1 + experts.size();
    }
    void compute(const operation &work) {
        turns.push_back({work.tag});
        now_ += 2;
    }
    bool take_piece(completion &ended) {
        if (!copied_) return false;
        copied_ = false;
        end_piece(sent_.front().link, 100, ended);
        sent_.pop_front();
        return true;
    }
    void wait_for_piece() {
        REQUIRE(!sent_.empty());
        copied_ = true;
        now_ += 100;
    }

    std::deque<link_piece> sent_;
    bool copied_ = false;
    uint64_t now_ = 0;
};

struct queued_work {
    expert_work work;
    bool moves = false;
};

// The turns of a list of work, when transfers arrive in the order of their numbers, each when
// nothing else can go on.
std::vector<std::vector<uint32_t>> turns_of(std::deque<queued_work> device,
                                            std::deque<queued_work> cpu) {
    std::vector<std::vector<uint32_t>> turns;
    uint32_t arrived_transfers = 0;  // transfers below it have arrived
    const auto ready = [&](const queued_work &queued) {
        return queued.work.transfer == MOORAGE_NONE || queued.work.transfer < arrived_transfers;
    };
    while (!device.empty() || !cpu.empty()) {
        std::deque<queued_work> &queue = !device.empty() && ready(device.front()) ? device : cpu;
        if (queue.empty()) {
            ++arrived_transfers;
            continue;
        }
        std::vector<queued_work> turn;
        while (!queue.empty() && ready(queue.front()) && (turn.empty() || !turn[0].moves) &&
               (turn.empty() || !queue.front().moves)) {
            bool follows = false;  // a bottom, and its top is in the turn
            for (const queued_work &queued : turn)
                follows |= queued.work.page == queue.front().work.page &&
                           queue.front().work.segments == MOORAGE_SEGMENT(1, 2);
            if (follows) break;
            turn.push_back(queue.front());
            queue.pop_front();
        }
        turns.emplace_back();
        for (const queued_work &queued : turn) turns.back().push_back(queued.work.tag);
    }
    return turns;
}

}  // namespace

TEST_CASE("a ring is a queue, however it grows") {
    random_stream random(7, 0);
    ring<uint64_t> tested;
    std::deque<uint64_t> known;
    for (uint64_t i = 0; i < 20'000; ++i) {
        if (known.empty() || random.below(100) < (i / 2'000 % 2 == 0 ? 60u : 45u)) {
            tested.push() = i;
            known.push_back(i);
        } else {
            REQUIRE(tested.front() == known.front());
            tested.pop();
            known.pop_front();
        }
        REQUIRE(tested.size() == known.size());
        REQUIRE(tested.empty() == known.empty());
    }
}

TEST_CASE("work drawn at random goes in the turns of a plain simulation, and no time is lost") {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        random_stream random(seed, 1);
        const auto transfers = static_cast<uint32_t>(1 + random.below(6));
        written_down machine(transfers);
        time_causes causes, later;
        machine.charge(causes);
        std::deque<queued_work> device, cpu;
        for (uint32_t id = 0; id < transfers; ++id) machine.expect(id);
        uint32_t waits = 0;  // a queue is in order, so later work does not wait for earlier copies
        for (uint32_t tag = 0; tag < 25; ++tag) {
            queued_work queued;
            queued.work.page = static_cast<uint32_t>(random.below(5));
            queued.work.tag = tag;
            queued.work.tokens = 1;
            queued.work.segments = random.below(2) == 0   ? MOORAGE_WHOLE
                                   : random.below(2) == 0 ? MOORAGE_SEGMENT(0, 2)
                                                          : MOORAGE_SEGMENT(1, 2);
            if (random.below(4) == 0) {
                cpu.push_back(queued);
                machine.expert_on_cpu(queued.work);
                continue;
            }
            if (random.below(3) == 0) {
                waits = std::min<uint32_t>(waits + random.below(3), transfers - 1);
                queued.work.transfer = waits;
            }
            queued.moves = random.below(8) == 0;
            device.push_back(queued);
            if (queued.moves)
                machine.move_top(queued.work, 0);
            else
                machine.expert_on_device(queued.work);
        }
        for (uint32_t id = 0; id < transfers; ++id) machine.send({.link = link_h2d, .bytes = 1});
        uint32_t arrived = 0;
        for (size_t left = device.size() + cpu.size(); left != 0;) {
            if (machine.wait().kind == event_kind::piece)
                machine.arrived(arrived++);
            else
                --left;
        }
        machine.charge(later);
        CHECK(machine.turns == turns_of(device, cpu));
        CHECK(causes.sum() == *machine.clock());
        CHECK(causes[cause::compute] == machine.busy().gpu);
        CHECK(causes[cause::cpu] == machine.busy().cpu);
        CHECK(causes[cause::link] == machine.busy().stall);
        CHECK(machine.busy().h2d == 100 * arrived);
    }
}

}  // namespace stream_executor_test
