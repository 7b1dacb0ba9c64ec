// misfits.cpp - one policy, compiled once per case below. `refused`: a member has the name of a
// call but would never be called. So the class must not compile, and the message must hold the text
// that follows. `accepted`: it must compile.
#include <moorage/moorage.hpp>
#include <moorage/wire.hpp>

struct base {
#ifdef refused_inherited  // void on_load(uint32_t page, uint32_t segments, int32_t cause)
    void on_load(uint32_t) {}
#endif
};

class policy : public base {
#ifdef refused_private  // void on_evict(uint32_t page, int32_t cause)
    void on_evict(uint32_t, int32_t) {}
#endif
#ifdef refused_private_params  // static constexpr moorage::param params[] = {...}
    static constexpr moorage::param params[] = {moorage::flag("on", true, "")};
#endif

public:
    static constexpr moorage::about about{.name = "policy"};
    explicit policy(const moorage::setup &) {}
#ifdef refused_activate  // void activate(const moorage::limits &)
    void activate(uint32_t) {}
#elif defined(refused_reset)  // void reset()
    void reset(uint32_t) {}
#else
    void activate(const moorage::limits &) {}
    void reset() {}
#endif
    // The methods of most kinds, so that the wrapper checks the calls of each.
#ifdef refused_plan  // bool plan(const moorage::budget_request &, moorage::budget_plan &)
    void plan(uint32_t) {}
#else
    bool plan(const moorage::budget_request &, moorage::budget_plan &) { return true; }
    void plan(const moorage_cluster &, const moorage_demand &, std::span<const moorage_copy>,
              moorage::copies &) {}
    void plan(const moorage::step &, const moorage::forecast &, moorage::orders &) {}
#endif
#ifdef refused_no_horizon       // a prefetch policy lacks, public: uint32_t horizon()
#elif defined(refused_horizon)  // a prefetch policy lacks, public: uint32_t horizon()
    uint32_t horizon(const moorage::step &) { return 1; }
#elif !defined(refused_plan)
    uint32_t horizon() { return 1; }
#endif
#ifdef refused_victims  // void victims(const moorage::room &, moorage::pages &)
    void victims(const moorage::room &, uint32_t *) {}
#else
    void victims(const moorage::room &, moorage::pages &) {}
#endif
    uint32_t assign(const moorage::step &, const moorage::items &, std::span<uint32_t>,
                    std::span<uint32_t>) {
        return 0;
    }

#ifdef refused_observe  // void observe(const moorage::step &)
    void observe(moorage::step &) {}
#endif
#ifdef refused_variable  // void observe(const moorage::step &)
    int observe = 0;
#endif
#ifdef refused_overloads  // void observe(const moorage::step &)
    void observe(uint32_t) {}
    void observe(uint32_t, uint32_t) {}
#endif
#ifdef refused_template  // void observe(const moorage::step &)
    template <class Step>
    requires(sizeof(Step) == 1) void observe(const Step &) {}
#endif
#ifdef refused_deactivate  // void deactivate()
    void deactivate(int) {}
#endif
#ifdef refused_admit  // bool admit(const moorage::admission &)
    bool admit(uint32_t) { return true; }
#endif
#ifdef refused_admit_of_nothing  // bool admit(const moorage::admission &)
    void admit(const moorage::admission &) {}
#endif
#ifdef refused_on_load  // void on_load(uint32_t page, uint32_t segments, int32_t cause)
    void on_load(uint32_t) {}
#endif
#ifdef refused_on_evict  // void on_evict(uint32_t page, int32_t cause)
    void on_evict(uint32_t) {}
#endif
#ifdef refused_fill  // void fill(const moorage::room &, moorage::pages &)
    void fill(moorage::pages &) {}
#endif
#ifdef refused_hold  // bool hold(uint32_t page)
    void hold(uint32_t) {}
#endif
#ifdef refused_give_up  // void give_up(const moorage::room &, moorage::pages &)
    void give_up(const moorage::room &) {}
#endif
#ifdef refused_single_requests  // uint32_t request(uint32_t page, uint32_t missed)
    int single_requests() { return 0; }
#endif
#ifdef refused_replay  // member replay would never be called
    void replay(const moorage_replay &) {}
#endif
#ifdef refused_interval  // uint64_t interval()
    uint64_t interval(const moorage::budget_request &) { return 1; }
#endif
#ifdef refused_predict  // std::span<uint32_t> experts, std::span<float> scores)
    uint32_t predict(const moorage::step &, std::span<uint32_t>) { return 0; }
#endif
#ifdef refused_prediction  // uint32_t prediction()
    void prediction() {}
#endif
#ifdef refused_outcome  // void outcome(const moorage::dispatched &)
    void outcome(const moorage::step &) {}
#endif
#ifdef refused_transport  // void submit(const moorage::transfer &)
    void submit(const moorage::transfer &) {}
    void cancel(uint32_t) {}
    void promote(uint32_t) {}
    bool next(uint32_t, moorage::piece &) { return false; }
#endif
#ifdef refused_wire  // wire.hpp has the functions of a wire
    uint64_t listen(std::string_view) { return 1; }
    uint64_t connect(std::string_view) { return 1; }
    uint32_t send(uint64_t) { return 0; }
    uint32_t poll() { return 0; }
#endif
#ifdef refused_adopt  // bool adopt(const moorage_move &)
    bool adopt() { return true; }
#endif
#ifdef refused_facts  // uint32_t facts(std::span<moorage_fact>)
    uint32_t facts(moorage_fact *, uint32_t) { return 0; }
#endif
#ifdef accepted_overloads
    void observe(const moorage::step &) {}
    void observe(uint32_t) {}
    void outcome(const moorage::prefetch_outcome &) {}
    uint32_t next(uint32_t page) { return page; }  // a helper
#endif
#ifdef accepted_template
    template <class Step>
    void observe(const Step &) {}
    bool admit(moorage::admission) const { return true; }
    void on_load(size_t, uint32_t, int) {}
#endif
};

// Helper classes may have functions named like calls of other kinds. A class of no kind is told
// what it lacks.
class helper {
    void fill(uint32_t) {}
    struct prediction {};

public:
    uint32_t interval = 0;
    static constexpr moorage::about about{.name = "helper"};
    explicit helper(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}
#ifdef refused_select  // uint32_t select(const moorage::step &, moorage::route &)
    void select(const moorage::step &, moorage::route &) {}
#elif defined(refused_assign)  // uint32_t assign(const moorage::step &, const moorage::items &
    uint32_t assign(const moorage::step &, const moorage::items &) { return 0; }
#else
    uint32_t select(const moorage::step &, moorage::route &) { return 0; }
    void assign(size_t) {}
#endif
};

// Everything of a wire.
class cable {
public:
    static constexpr moorage::about about{.name = "cable"};
    explicit cable(const moorage::setup &) {}
    void open(const moorage_wire_limits &) {}
    uint64_t listen(std::string_view, std::string &) { return 1; }
    uint64_t connect(const moorage::wire_target &) { return 1; }
    uint32_t send(uint64_t, std::span<const moorage_wire_part>, uint64_t) { return 0; }
    uint32_t poll(std::span<moorage_wire_event>, uint64_t) { return 0; }
    void wake() {}
    void release(uint64_t) {}
    void close(uint64_t, bool) {}
#ifdef refused_pace  // void pace(uint64_t connection, uint64_t bytes_per_s)
    void pace(uint64_t) {}
#endif
#ifdef refused_remember  // uint64_t remember(const void *memory, uint64_t bytes), beside void
                         // forget
    uint64_t remember(const void *, uint64_t) { return 1; }
#endif
};

#ifdef refused_final  // a policy class is not final
class last final : public helper {
    void observe(uint32_t) {}

public:
    static constexpr moorage::about about{.name = "last"};
    using helper::helper;
};
#else
using last = helper;
#endif

MOORAGE_POLICIES("org.example.policy", "0.1.0", policy, last, cable)
