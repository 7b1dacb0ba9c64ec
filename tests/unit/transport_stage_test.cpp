// Goal: bytes cross the links in the order of the transport policies, ids come back, and wrong
// advice is caught. Method: the bundled direct and chunked policies over the toy machine, times
// worked by hand; a broken policy made of a table with one wrong function.
#include "core/transport/transport_stage.h"

#include <doctest/doctest.h>

#include <set>

#include "core/base/random.h"
#include "core/execute/emulator.h"
#include "toy_machine.h"

namespace transport_stage_test {

using namespace moorage::core;

namespace {

// Carries two pieces at once, and reports them; they cross when the test says so.
struct two_at_once final : timed_executor {
    std::vector<link_piece> sent;
    std::vector<uint32_t> there;

    two_at_once() : timed_executor(nullptr) {}
    uint32_t pieces_at_once(uint32_t) const override { return 2; }
    void send(const link_piece &piece) override { sent.push_back(piece); }
    void arrived(uint32_t transfer) override { there.push_back(transfer); }
    void expect(uint32_t) override {}
    void attention(uint32_t, const pass &) override {}
    void expert_on_gpu(const expert_work &) override {}
    void expert_on_cpu(const expert_work &) override {}
    void move_top(const expert_work &, uint64_t) override {}
    void head(uint32_t) override {}
    uint64_t due() const override { return MOORAGE_NEVER; }
    void catch_up() override {}
    std::optional<completion> step() override { return {}; }
    busy_ns busy() const override { return {}; }
    bool unified_memory() const override { return false; }
};

template <class Machine>
struct bench_on {
    registry policies;
    cost_model costs{toy::hardware(), toy::shape(2, 4, 1)};
    Machine machine;
    fault_log faults{on_fault::replace};
    std::unique_ptr<instance> policy;
    std::unique_ptr<transport_stage> stage;

    explicit bench_on(const char *name,
                      settings given = {}) requires std::is_same_v<Machine, emulator>
        : machine(costs, 8, nullptr) {
        connect(name, given);
    }
    explicit bench_on(const char *name, settings given = {}) { connect(name, given); }
    void connect(const char *name, const settings &given) {
        const std::filesystem::path folder = std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins";
        REQUIRE(policies.scan(std::vector{folder}).ok());
        auto made = instance::create(**policies.find(name, "transport"), given, {});
        REQUIRE(made.ok());
        policy = std::move(made).value();
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.links = link_count;
        limits.transfers_max = 8;
        REQUIRE(policy->activate(limits).ok());
        stage = std::make_unique<transport_stage>(*policy, machine, faults, 8, /*layers=*/1,
                                                  /*experts=*/1000);
    }
    // Runs until a transfer ends; returns its id.
    uint32_t next_end() {
        for (;;) {
            const completion done = machine.wait();
            const uint32_t ended = stage->piece_done(done.tag, done.duration_ns);
            if (ended != MOORAGE_NONE) return ended;
        }
    }
    uint64_t now() const { return *machine.clock(); }
};
using bench = bench_on<emulator>;

}  // namespace

TEST_CASE("direct: demand first, but a prefetch under way is not interrupted") {
    bench on("direct");
    const uint32_t a = on.stage->submit(owner::prefetch, link_h2d, 0, MOORAGE_WHOLE, 100'000);
    const uint32_t b = on.stage->submit(owner::prefetch, link_h2d, 1, MOORAGE_WHOLE, 100'000);
    const uint32_t c = on.stage->submit(owner::demand, link_h2d, 2, MOORAGE_WHOLE, 50'000);
    CHECK(on.stage->demand_backlog_bytes(link_h2d) == 50'000);
    CHECK(on.next_end() == a);
    CHECK(on.now() == 11'000);
    CHECK(on.next_end() == c);
    CHECK(on.now() == 17'000);
    CHECK(on.next_end() == b);
    CHECK(on.now() == 28'000);
    CHECK(on.stage->demand_backlog_bytes(link_h2d) == 0);
    CHECK(on.stage->record(a).prefetch_bytes == 100'000);
    CHECK(on.stage->record(c).prefetch_bytes == 0);
    CHECK(on.stage->moved_bytes(link_h2d) == 250'000);
    CHECK(on.faults.counts().empty());
}

TEST_CASE("chunked: demand overtakes a prefetch after the piece under way") {
    bench on("chunked", {{"chunk_bytes", int64_t{10'000}, "test"}});
    const uint32_t a = on.stage->submit(owner::prefetch, link_h2d, 0, MOORAGE_WHOLE, 100'000);
    const uint32_t c = on.stage->submit(owner::demand, link_h2d, 2, MOORAGE_WHOLE, 100'000);
    CHECK(on.next_end() == c);  // 1000 + 1000 for a's first piece, then 1000 + 10,000
    CHECK(on.now() == 13'000);
    CHECK(on.next_end() == a);  // nine more pieces of 2000
    CHECK(on.now() == 31'000);
}

TEST_CASE("a cancelled transfer ends with its piece, a promoted one goes to the front") {
    bench on("chunked", {{"chunk_bytes", int64_t{10'000}, "test"}});
    const uint32_t a = on.stage->submit(owner::prefetch, link_h2d, 0, MOORAGE_WHOLE, 100'000);
    const uint32_t b = on.stage->submit(owner::prefetch, link_h2d, 1, MOORAGE_WHOLE, 20'000);
    const uint32_t c = on.stage->submit(owner::prefetch, link_h2d, 2, MOORAGE_WHOLE, 20'000);
    on.stage->promote(c);
    CHECK(on.stage->demand_backlog_bytes(link_h2d) == 20'000);
    on.stage->cancel(a);
    CHECK(on.stage->record(a).bytes - on.stage->record(a).unsent_bytes == 10'000);
    CHECK(on.next_end() == c);  // a's piece until 2000, then c whole: 1000 + 2000
    CHECK(on.now() == 5000);
    CHECK(on.next_end() == b);
    CHECK(on.now() == 9000);
    CHECK(on.stage->moved_bytes(link_h2d) == 50'000);
}

TEST_CASE("ids run out and come back") {
    bench on("direct");
    std::vector<uint32_t> ids;
    for (int i = 0; i < 8; ++i)
        ids.push_back(on.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000));
    CHECK(on.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == MOORAGE_NONE);
    on.stage->release(ids[0]);  // before its end: free after it
    CHECK(on.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == MOORAGE_NONE);
    CHECK(on.next_end() == ids[0]);
    CHECK(on.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == ids[0]);
    on.stage->cancel(ids[7]);
    on.stage->release(ids[7]);
    CHECK(on.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == ids[7]);
}

TEST_CASE("wrong pieces are faults and are replaced") {
    bench on("direct");
    static moorage_transport broken;
    broken = *on.policy->transport;
    on.policy->transport = &broken;
    SUBCASE("more bytes than there are") {
        broken.next = [](moorage_plugin *, uint32_t, moorage_piece *piece) -> uint32_t {
            piece->id = 0, piece->bytes = 1'000'000;
            return 1;
        };
    }
    SUBCASE("a transfer that does not exist") {
        broken.next = [](moorage_plugin *, uint32_t, moorage_piece *piece) -> uint32_t {
            piece->id = 77, piece->bytes = 1;
            return 1;
        };
    }
    SUBCASE("no bytes") {
        broken.next = [](moorage_plugin *, uint32_t, moorage_piece *piece) -> uint32_t {
            piece->id = 0, piece->bytes = 0;
            return 1;
        };
    }
    SUBCASE("nothing, while demand waits") {
        broken.next = [](moorage_plugin *, uint32_t, moorage_piece *) -> uint32_t { return 0; };
    }
    const uint32_t id = on.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000);
    CHECK(on.faults.count("direct") == 1);
    CHECK(on.next_end() == id);  // replaced by the transfer, whole
    CHECK(on.now() == 2000);
    CHECK_FALSE(on.faults.ended());
    // Among several waiting transfers the most urgent one goes, though a prefetch came before it.
    const auto submit = [&](owner of, uint32_t page) {
        return on.stage->submit(of, link_h2d, page, MOORAGE_WHOLE, 10'000);
    };
    const uint32_t first = submit(owner::demand, 1);
    submit(owner::prefetch, 2);
    const uint32_t urgent = submit(owner::demand, 3);
    CHECK(on.next_end() == first);
    CHECK(on.next_end() == urgent);
}

TEST_CASE("two pieces at once: they end in order, and a cancelled transfer ends with its last") {
    bench_on<two_at_once> on("chunked", {{"chunk_bytes", int64_t{10'000}, "test"}});
    const auto submit = [&](owner of, uint32_t page, uint64_t bytes) {
        return on.stage->submit(of, link_h2d, page, MOORAGE_WHOLE, bytes);
    };
    CHECK(on.stage->idle(link_h2d));
    const uint32_t a = submit(owner::prefetch, 0, 15'000), b = submit(owner::prefetch, 1, 20'000);
    // Both pieces of a set out before there was anything else.
    REQUIRE(on.machine.sent.size() == 2);
    CHECK(on.machine.sent[1].offset_bytes == 10'000);
    CHECK(on.machine.sent[1].bytes == 5'000);
    CHECK(on.stage->piece_bytes(link_h2d) == 10'000);
    CHECK(on.stage->piece_done(link_h2d, 7) == MOORAGE_NONE);
    CHECK(on.machine.sent[2].page == 1);
    CHECK(on.stage->piece_bytes(link_h2d) == 5'000);
    CHECK(on.stage->piece_done(link_h2d, 7) == a);
    CHECK(on.machine.there == std::vector{a});
    CHECK(on.stage->record(a).busy_ns == 14);
    // All of b is under way. Its bytes cross, but nothing waits for them any more.
    REQUIRE(on.machine.sent[3].page == 1);
    const uint32_t c = submit(owner::demand, 2, 8'000);
    on.stage->cancel(b);
    CHECK(on.stage->demand_backlog_bytes(link_h2d) == 8'000);
    on.stage->release(b);
    CHECK(on.stage->piece_done(link_h2d, 7) == MOORAGE_NONE);
    CHECK(on.stage->record(b).live);
    CHECK(on.stage->piece_done(link_h2d, 7) == MOORAGE_NONE);
    CHECK_FALSE(on.stage->record(b).live);
    REQUIRE(on.machine.sent.size() == 5);
    CHECK(on.stage->piece_done(link_h2d, 7) == c);
    CHECK(on.machine.there == std::vector{a, c});
    CHECK(on.stage->idle(link_h2d));
    CHECK(on.stage->moved_bytes(link_h2d) == 43'000);
    CHECK(on.faults.counts().empty());
}

TEST_CASE("a policy may leave a link with one piece where two could go") {
    bench_on<two_at_once> on("direct");
    static moorage_transport broken;
    broken = *on.policy->transport;
    broken.next = [](moorage_plugin *, uint32_t, moorage_piece *) -> uint32_t { return 0; };
    const auto submit = [&](owner of, uint32_t page) {
        return on.stage->submit(of, link_h2d, page, MOORAGE_WHOLE, 10'000);
    };
    submit(owner::demand, 0);
    on.policy->transport = &broken;
    submit(owner::prefetch, 1);
    CHECK(on.machine.sent.size() == 1);
    CHECK(on.faults.counts().empty());
}

namespace {

// A second account of the transfers that the stage was given. Each has a page of its own.
class drawn_transfers {
public:
    drawn_transfers(const char *policy, settings given, uint64_t seed)
        : on_(policy, given), chance_(seed, 0) {}

    void act() {
        const uint64_t what = chance_.below(8);
        if (what < 3)
            submit();
        else if (what < 6)
            cross();
        else if (const uint32_t page = any(); page != MOORAGE_NONE)
            chance_.below(2) == 0 ? promote(page) : give_up(page);
        take_sent();
        check();
    }
    // Everything that is still wanted arrives, and ids come back.
    void drain() {
        while (crossed_ < on_.machine.sent.size()) cross(), take_sent(), check();
        uint64_t ended = 0;
        for (transfer &one : all_) {
            CHECK(one.ended != one.cancelled);
            ended += one.ended ? 1 : 0;
            if (!one.released) on_.stage->release(one.id);
        }
        CHECK(on_.machine.there.size() == ended);
        std::set<uint32_t> ids;
        for (int i = 0; i < 8; ++i)
            ids.insert(on_.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 1));
        CHECK(ids.size() == 8);
        CHECK(ids.count(MOORAGE_NONE) == 0);
        CHECK(on_.faults.counts().empty());
    }

private:
    struct transfer {
        uint32_t id;
        owner of;
        uint64_t bytes, sent = 0, moved = 0, prefetched = 0;
        bool cancelled = false, ended = false, released = false;
        bool live() const { return !ended && (!cancelled || sent != moved); }
        bool ahead() const {
            return of == owner::prefetch || of == owner::slot_prefetch || of == owner::behind;
        }
    };

    uint32_t any() {
        return all_.empty() ? MOORAGE_NONE : static_cast<uint32_t>(chance_.below(all_.size()));
    }
    void submit() {
        const auto of = static_cast<owner>(chance_.below(owner_count));
        const uint64_t bytes = 1 + chance_.below(40'000);
        std::set<uint32_t> taken;
        for (const transfer &one : all_)
            if (one.live() || !one.released) taken.insert(one.id);
        const auto page = static_cast<uint32_t>(all_.size());
        const uint32_t id = on_.stage->submit(of, link_h2d, page, MOORAGE_WHOLE, bytes);
        CHECK((id == MOORAGE_NONE) == (taken.size() == 8));
        if (id == MOORAGE_NONE) return;
        CHECK(taken.count(id) == 0);
        all_.push_back({id, of, bytes});
    }
    void promote(uint32_t page) {
        transfer &one = all_[page];
        if (one.released) return;
        on_.stage->promote(one.id);
        if (one.live()) one.of = owner::demand;
    }
    // A transfer that ended, or that is no longer wanted, gives its id back.
    void give_up(uint32_t page) {
        transfer &one = all_[page];
        if (one.released) return;
        if (!one.ended) {
            on_.stage->cancel(one.id);
            one.cancelled = true;
        }
        on_.stage->release(one.id);
        one.released = true;
    }
    // Pieces belong to wanted transfers, lie side by side, and no byte goes twice.
    void take_sent() {
        for (; seen_ < on_.machine.sent.size(); ++seen_) {
            const link_piece &piece = on_.machine.sent[seen_];
            transfer &one = all_.at(piece.page);
            CHECK(piece.offset_bytes == one.sent);
            one.sent += piece.bytes;
            CHECK(one.sent <= one.bytes);
            CHECK_FALSE(one.ended);
        }
        CHECK(seen_ - crossed_ <= 2);
    }
    void cross() {
        if (crossed_ == seen_) return;
        const link_piece piece = on_.machine.sent[crossed_++];
        transfer &one = all_.at(piece.page);
        one.moved += piece.bytes;
        if (one.ahead()) one.prefetched += piece.bytes;
        const uint64_t prefetched = one.prefetched;
        const bool ends = !one.cancelled && one.moved == one.bytes;
        CHECK(on_.stage->piece_done(link_h2d, 1) == (ends ? one.id : MOORAGE_NONE));
        one.ended = one.ended || ends;
        if (!one.released) CHECK(on_.stage->record(one.id).prefetch_bytes == prefetched);
    }
    void check() {
        uint64_t backlog = 0, moved = 0;
        for (const transfer &one : all_) {
            moved += one.moved;
            if (!one.cancelled && !one.ahead()) backlog += one.bytes - one.moved;
            if (!one.released) CHECK(on_.stage->record(one.id).live == one.live());
        }
        CHECK(on_.stage->demand_backlog_bytes(link_h2d) == backlog);
        CHECK(on_.stage->moved_bytes(link_h2d) == moved);
    }

    bench_on<two_at_once> on_;
    random_stream chance_;
    std::vector<transfer> all_;  // by page
    size_t seen_ = 0, crossed_ = 0;
};

}  // namespace

TEST_CASE("drawn transfers: none is lost, none ends twice, every byte crosses once") {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        const bool chunks = seed % 2 == 0;
        drawn_transfers all(chunks ? "chunked" : "direct",
                            chunks ? settings{{"chunk_bytes", int64_t{7'000}, "test"}} : settings{},
                            seed);
        for (int i = 0; i < 300; ++i) all.act();
        all.drain();
    }
}

}  // namespace transport_stage_test
