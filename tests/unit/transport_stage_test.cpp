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
    std::vector<uint32_t> arrived_transfers;

    two_at_once() : timed_executor(nullptr) {}
    uint32_t pieces_at_once(uint32_t) const override { return 2; }
    void send(const link_piece &piece) override { sent.push_back(piece); }
    void arrived(uint32_t transfer) override { arrived_transfers.push_back(transfer); }
    void expect(uint32_t) override {}
    void attention(uint32_t, const pass &) override {}
    void expert_on_device(const expert_work &) override {}
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
                      settings params = {}) requires std::is_same_v<Machine, emulator>
        : machine(costs, 8, nullptr) {
        connect(name, params);
    }
    explicit bench_on(const char *name, settings params = {}) { connect(name, params); }
    void connect(const char *name, const settings &params) {
        const std::filesystem::path folder = std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins";
        REQUIRE(policies.scan(std::vector{folder}).ok());
        auto created = instance::create(**policies.find(name, "transport"), params, {});
        REQUIRE(created.ok());
        policy = std::move(created).value();
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
    bench fixture("direct");
    const uint32_t a = fixture.stage->submit(owner::prefetch, link_h2d, 0, MOORAGE_WHOLE, 100'000);
    const uint32_t b = fixture.stage->submit(owner::prefetch, link_h2d, 1, MOORAGE_WHOLE, 100'000);
    const uint32_t c = fixture.stage->submit(owner::demand, link_h2d, 2, MOORAGE_WHOLE, 50'000);
    CHECK(fixture.stage->demand_backlog_bytes(link_h2d) == 50'000);
    CHECK(fixture.next_end() == a);
    CHECK(fixture.now() == 11'000);
    CHECK(fixture.next_end() == c);
    CHECK(fixture.now() == 17'000);
    CHECK(fixture.next_end() == b);
    CHECK(fixture.now() == 28'000);
    CHECK(fixture.stage->demand_backlog_bytes(link_h2d) == 0);
    CHECK(fixture.stage->record(a).prefetch_bytes == 100'000);
    CHECK(fixture.stage->record(c).prefetch_bytes == 0);
    CHECK(fixture.stage->moved_bytes(link_h2d) == 250'000);
    CHECK(fixture.faults.counts().empty());
}

TEST_CASE("chunked: demand overtakes a prefetch after the piece under way") {
    bench fixture("chunked", {{"chunk_bytes", int64_t{10'000}, "test"}});
    const uint32_t a = fixture.stage->submit(owner::prefetch, link_h2d, 0, MOORAGE_WHOLE, 100'000);
    const uint32_t c = fixture.stage->submit(owner::demand, link_h2d, 2, MOORAGE_WHOLE, 100'000);
    CHECK(fixture.next_end() == c);  // 1000 + 1000 for a's first piece, then 1000 + 10,000
    CHECK(fixture.now() == 13'000);
    CHECK(fixture.next_end() == a);  // nine more pieces of 2000
    CHECK(fixture.now() == 31'000);
}

TEST_CASE("a cancelled transfer ends with its piece, a promoted one goes to the front") {
    bench fixture("chunked", {{"chunk_bytes", int64_t{10'000}, "test"}});
    const uint32_t a = fixture.stage->submit(owner::prefetch, link_h2d, 0, MOORAGE_WHOLE, 100'000);
    const uint32_t b = fixture.stage->submit(owner::prefetch, link_h2d, 1, MOORAGE_WHOLE, 20'000);
    const uint32_t c = fixture.stage->submit(owner::prefetch, link_h2d, 2, MOORAGE_WHOLE, 20'000);
    fixture.stage->promote(c);
    CHECK(fixture.stage->demand_backlog_bytes(link_h2d) == 20'000);
    fixture.stage->cancel(a);
    CHECK(fixture.stage->record(a).bytes - fixture.stage->record(a).unsent_bytes == 10'000);
    CHECK(fixture.next_end() == c);  // a's piece until 2000, then c whole: 1000 + 2000
    CHECK(fixture.now() == 5000);
    CHECK(fixture.next_end() == b);
    CHECK(fixture.now() == 9000);
    CHECK(fixture.stage->moved_bytes(link_h2d) == 50'000);
}

TEST_CASE("ids run out and come back") {
    bench fixture("direct");
    std::vector<uint32_t> ids;
    for (int i = 0; i < 8; ++i)
        ids.push_back(fixture.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000));
    CHECK(fixture.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == MOORAGE_NONE);
    fixture.stage->release(ids[0]);  // before its end: free after it
    CHECK(fixture.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == MOORAGE_NONE);
    CHECK(fixture.next_end() == ids[0]);
    CHECK(fixture.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == ids[0]);
    fixture.stage->cancel(ids[7]);
    fixture.stage->release(ids[7]);
    CHECK(fixture.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000) == ids[7]);
}

TEST_CASE("wrong pieces are faults and are replaced") {
    bench fixture("direct");
    static moorage_transport broken;
    broken = *fixture.policy->transport;
    fixture.policy->transport = &broken;
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
    const uint32_t id = fixture.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 10'000);
    CHECK(fixture.faults.count("direct") == 1);
    CHECK(fixture.next_end() == id);  // replaced by the transfer, whole
    CHECK(fixture.now() == 2000);
    CHECK_FALSE(fixture.faults.ended());
    // Among several waiting transfers the most urgent one goes, though a prefetch came before it.
    const auto submit = [&](owner purpose, uint32_t page) {
        return fixture.stage->submit(purpose, link_h2d, page, MOORAGE_WHOLE, 10'000);
    };
    const uint32_t first = submit(owner::demand, 1);
    submit(owner::prefetch, 2);
    const uint32_t urgent = submit(owner::demand, 3);
    CHECK(fixture.next_end() == first);
    CHECK(fixture.next_end() == urgent);
}

TEST_CASE("two pieces at once: they end in order, and a cancelled transfer ends with its last") {
    bench_on<two_at_once> fixture("chunked", {{"chunk_bytes", int64_t{10'000}, "test"}});
    const auto submit = [&](owner purpose, uint32_t page, uint64_t bytes) {
        return fixture.stage->submit(purpose, link_h2d, page, MOORAGE_WHOLE, bytes);
    };
    CHECK(fixture.stage->is_idle(link_h2d));
    const uint32_t a = submit(owner::prefetch, 0, 15'000), b = submit(owner::prefetch, 1, 20'000);
    // Both pieces of a set out before there was anything else.
    REQUIRE(fixture.machine.sent.size() == 2);
    CHECK(fixture.machine.sent[1].offset_bytes == 10'000);
    CHECK(fixture.machine.sent[1].bytes == 5'000);
    CHECK(fixture.stage->piece_bytes(link_h2d) == 10'000);
    CHECK(fixture.stage->piece_done(link_h2d, 7) == MOORAGE_NONE);
    CHECK(fixture.machine.sent[2].page == 1);
    CHECK(fixture.stage->piece_bytes(link_h2d) == 5'000);
    CHECK(fixture.stage->piece_done(link_h2d, 7) == a);
    CHECK(fixture.machine.arrived_transfers == std::vector{a});
    CHECK(fixture.stage->record(a).busy_ns == 14);
    // All of b is under way. Its bytes cross, but nothing waits for them any more.
    REQUIRE(fixture.machine.sent[3].page == 1);
    const uint32_t c = submit(owner::demand, 2, 8'000);
    fixture.stage->cancel(b);
    CHECK(fixture.stage->demand_backlog_bytes(link_h2d) == 8'000);
    fixture.stage->release(b);
    CHECK(fixture.stage->piece_done(link_h2d, 7) == MOORAGE_NONE);
    CHECK(fixture.stage->record(b).live);
    CHECK(fixture.stage->piece_done(link_h2d, 7) == MOORAGE_NONE);
    CHECK_FALSE(fixture.stage->record(b).live);
    REQUIRE(fixture.machine.sent.size() == 5);
    CHECK(fixture.stage->piece_done(link_h2d, 7) == c);
    CHECK(fixture.machine.arrived_transfers == std::vector{a, c});
    CHECK(fixture.stage->is_idle(link_h2d));
    CHECK(fixture.stage->moved_bytes(link_h2d) == 43'000);
    CHECK(fixture.faults.counts().empty());
}

TEST_CASE("a policy may leave a link with one piece where two could go") {
    bench_on<two_at_once> fixture("direct");
    static moorage_transport broken;
    broken = *fixture.policy->transport;
    broken.next = [](moorage_plugin *, uint32_t, moorage_piece *) -> uint32_t { return 0; };
    const auto submit = [&](owner purpose, uint32_t page) {
        return fixture.stage->submit(purpose, link_h2d, page, MOORAGE_WHOLE, 10'000);
    };
    submit(owner::demand, 0);
    fixture.policy->transport = &broken;
    submit(owner::prefetch, 1);
    CHECK(fixture.machine.sent.size() == 1);
    CHECK(fixture.faults.counts().empty());
}

namespace {

// A second account of the transfers that the stage was given. Each has a page of its own.
class drawn_transfers {
public:
    drawn_transfers(const char *policy, settings params, uint64_t seed)
        : fixture_(policy, params), chance_(seed, 0) {}

    void do_random_action() {
        const uint64_t action = chance_.below(8);
        if (action < 3)
            submit();
        else if (action < 6)
            finish_piece();
        else if (const uint32_t page = random_page(); page != MOORAGE_NONE)
            chance_.below(2) == 0 ? promote(page) : give_up(page);
        check_sent();
        check();
    }
    // Everything that is still wanted arrives, and ids come back.
    void drain() {
        while (crossed_ < fixture_.machine.sent.size()) finish_piece(), check_sent(), check();
        uint64_t ended = 0;
        for (transfer &entry : transfers_) {
            CHECK(entry.ended != entry.cancelled);
            ended += entry.ended ? 1 : 0;
            if (!entry.released) fixture_.stage->release(entry.id);
        }
        CHECK(fixture_.machine.arrived_transfers.size() == ended);
        std::set<uint32_t> ids;
        for (int i = 0; i < 8; ++i)
            ids.insert(fixture_.stage->submit(owner::demand, link_h2d, 0, MOORAGE_WHOLE, 1));
        CHECK(ids.size() == 8);
        CHECK(ids.count(MOORAGE_NONE) == 0);
        CHECK(fixture_.faults.counts().empty());
    }

private:
    struct transfer {
        uint32_t id;
        owner purpose;
        uint64_t bytes, sent = 0, moved = 0, prefetched = 0;
        bool cancelled = false, ended = false, released = false;
        bool is_live() const { return !ended && (!cancelled || sent != moved); }
        bool is_ahead() const {
            return purpose == owner::prefetch || purpose == owner::slot_prefetch ||
                   purpose == owner::behind;
        }
    };

    uint32_t random_page() {
        return transfers_.empty() ? MOORAGE_NONE
                                  : static_cast<uint32_t>(chance_.below(transfers_.size()));
    }
    void submit() {
        const auto purpose = static_cast<owner>(chance_.below(owner_count));
        const uint64_t bytes = 1 + chance_.below(40'000);
        std::set<uint32_t> taken;
        for (const transfer &entry : transfers_)
            if (entry.is_live() || !entry.released) taken.insert(entry.id);
        const auto page = static_cast<uint32_t>(transfers_.size());
        const uint32_t id = fixture_.stage->submit(purpose, link_h2d, page, MOORAGE_WHOLE, bytes);
        CHECK((id == MOORAGE_NONE) == (taken.size() == 8));
        if (id == MOORAGE_NONE) return;
        CHECK(taken.count(id) == 0);
        transfers_.push_back({id, purpose, bytes});
    }
    void promote(uint32_t page) {
        transfer &entry = transfers_[page];
        if (entry.released) return;
        fixture_.stage->promote(entry.id);
        if (entry.is_live()) entry.purpose = owner::demand;
    }
    // A transfer that ended, or that is no longer wanted, gives its id back.
    void give_up(uint32_t page) {
        transfer &entry = transfers_[page];
        if (entry.released) return;
        if (!entry.ended) {
            fixture_.stage->cancel(entry.id);
            entry.cancelled = true;
        }
        fixture_.stage->release(entry.id);
        entry.released = true;
    }
    // Pieces belong to wanted transfers, lie side by side, and no byte goes twice.
    void check_sent() {
        for (; seen_ < fixture_.machine.sent.size(); ++seen_) {
            const link_piece &piece = fixture_.machine.sent[seen_];
            transfer &entry = transfers_.at(piece.page);
            CHECK(piece.offset_bytes == entry.sent);
            entry.sent += piece.bytes;
            CHECK(entry.sent <= entry.bytes);
            CHECK_FALSE(entry.ended);
        }
        CHECK(seen_ - crossed_ <= 2);
    }
    void finish_piece() {
        if (crossed_ == seen_) return;
        const link_piece piece = fixture_.machine.sent[crossed_++];
        transfer &entry = transfers_.at(piece.page);
        entry.moved += piece.bytes;
        if (entry.is_ahead()) entry.prefetched += piece.bytes;
        const uint64_t prefetched = entry.prefetched;
        const bool ends = !entry.cancelled && entry.moved == entry.bytes;
        CHECK(fixture_.stage->piece_done(link_h2d, 1) == (ends ? entry.id : MOORAGE_NONE));
        entry.ended = entry.ended || ends;
        if (!entry.released) CHECK(fixture_.stage->record(entry.id).prefetch_bytes == prefetched);
    }
    void check() {
        uint64_t backlog = 0, moved = 0;
        for (const transfer &entry : transfers_) {
            moved += entry.moved;
            if (!entry.cancelled && !entry.is_ahead()) backlog += entry.bytes - entry.moved;
            if (!entry.released) CHECK(fixture_.stage->record(entry.id).live == entry.is_live());
        }
        CHECK(fixture_.stage->demand_backlog_bytes(link_h2d) == backlog);
        CHECK(fixture_.stage->moved_bytes(link_h2d) == moved);
    }

    bench_on<two_at_once> fixture_;
    random_stream chance_;
    std::vector<transfer> transfers_;  // by page
    size_t seen_ = 0, crossed_ = 0;
};

}  // namespace

TEST_CASE("drawn transfers: none is lost, none ends twice, every byte crosses once") {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        const bool chunks = seed % 2 == 0;
        drawn_transfers transfers(
            chunks ? "chunked" : "direct",
            chunks ? settings{{"chunk_bytes", int64_t{7'000}, "test"}} : settings{}, seed);
        for (int i = 0; i < 300; ++i) transfers.do_random_action();
        transfers.drain();
    }
}

}  // namespace transport_stage_test
