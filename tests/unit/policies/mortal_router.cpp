// mortal_router.cpp - a router policy that takes the model's choice until, at a chosen step, it
// ends the process or does not return. For homes, which call a router in every step.
#include <moorage/moorage.hpp>

#include <algorithm>
#include <csignal>
#include <string>

#include <unistd.h>

namespace {

class mortal_router {
public:
    static constexpr moorage::about about{.name = "mortal_router", .summary = "dies to order"};
    static constexpr moorage::param params[] = {
        moorage::text("way", "none", "none|segv|wait|vfork", "how it ends"),
        moorage::integer("at", 0, 0, 1'000'000, "the step that does it"),
    };

    explicit mortal_router(const moorage::setup &setup)
        : way_(setup.text("way")), fatal_step_(static_cast<uint64_t>(setup.integer("at"))) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t select(const moorage::step &step, moorage::route &route) {
        if (steps_++ == fatal_step_ && way_ == "segv") std::raise(SIGSEGV);
        // The parent of vfork() takes no signal until its child ends.
        if (steps_ == fatal_step_ + 1 && way_ == "vfork")
            if (::vfork() == 0) {
                ::sleep(60);
                ::_exit(0);
            }
        while (steps_ > fatal_step_ && way_ == "wait") ::sleep(60);
        std::copy_n(step.host_chosen, size_t{step.token_count} * step.top_k, route.host_experts);
        return step.token_count;
    }

private:
    const std::string way_;
    const uint64_t fatal_step_;
    uint64_t steps_ = 0;
};

}  // namespace

MOORAGE_POLICIES("test.mortal_router", "1.0.0", mortal_router)
