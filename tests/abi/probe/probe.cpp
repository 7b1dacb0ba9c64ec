// probe.cpp - a sound policy for the host's own tests. It has parameters of every type, two kinds
// in one library, and log lines or failures on demand.
#include <moorage/moorage.hpp>

#include <string>

namespace {

class probe {
public:
    static constexpr moorage::about about{.name = "probe",
                                          .summary = "shows what it is given",
                                          .version = "2.1.0",
                                          .flags = MOORAGE_POLICY_RANDOMISED};
    static constexpr moorage::param params[] = {
        moorage::integer("window_tokens", 8, 1, 64, "tokens that count"),
        moorage::real("half_life", 0.5, 0, 10, "a real number"),
        moorage::flag("forget", true, "a flag"),
        moorage::text("mode", "calm", "calm|loud|refuse_create|refuse_activate|throw_activate",
                      "what to do"),
        moorage::text("note", "", nullptr, "any text"),
    };

    explicit probe(const moorage::setup &setup) : host_(setup.host), mode_(setup.text("mode")) {
        if (mode_ == "refuse_create")
            throw std::invalid_argument("mode = refuse_create was asked for");
        sum_ = static_cast<uint32_t>(setup.integer("window_tokens")) +
               static_cast<uint32_t>(setup.real("half_life")) + (setup.flag("forget") ? 1000 : 0) +
               static_cast<uint32_t>(setup.text("note").size());
    }
    void activate(const moorage::limits &limits) {
        if (mode_ == "refuse_activate")
            throw std::invalid_argument("slots = " + std::to_string(limits.slots) + " is too few");
        if (mode_ == "throw_activate") throw 7;
    }
    void reset() {}
    // The victim shows a value: the host's random number, the clock, or the sum of the parameters.
    void victims(const moorage::room &room, moorage::pages &victims) {
        if (room.pool == 0)
            victims.push(static_cast<uint32_t>(host_.random()));
        else if (room.pool == 1)
            victims.push(static_cast<uint32_t>(host_.now_ns()));
        else if (room.pool == 2)
            victims.push(sum_);
        else if (room.pool == 3)
            victims.push(host_.residency()->layers);
        else
            victims.push(thread_answer());
    }
    void fill(const moorage::room &, moorage::pages &pages) { pages.push(thread_answer()); }

private:
    uint32_t thread_answer() const {
        const auto *check = host_.service<moorage_thread_check>(MOORAGE_SERVICE_THREAD_CHECK);
        return check->in_step(host_.table()) * 2 + check->in_control(host_.table());
    }
    moorage::host host_;
    std::string mode_;
    uint32_t sum_ = 0;
};

// A second policy of another kind, which needs the future.
class oracle {
public:
    static constexpr moorage::about about{
        .name = "probe_oracle", .summary = "needs the future", .needs = MOORAGE_NEEDS_FUTURE};
    explicit oracle(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t horizon() { return 1; }
    void plan(const moorage::step &step, const moorage::forecast &, moorage::orders &orders) {
        const uint64_t next = host_.next_use(0, step.index);
        if (!orders.full() && next != moorage::never) orders.push(static_cast<uint32_t>(next));
    }

private:
    moorage::host host_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.probe", "2.1.0", probe, oracle)
