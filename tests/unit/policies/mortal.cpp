// mortal.cpp - a cache policy that evicts the oldest load until, at a chosen call, it ends in a
// chosen way. Its texts would paint a terminal red. `mortal_plan` is a placement policy that dies
// of its first plan.
#include <moorage/moorage.hpp>

#include <csignal>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

class mortal {
public:
    static constexpr moorage::about about{.name = "mortal", .summary = "dies\x1b[31m to order\x07"};
    static constexpr moorage::param params[] = {
        moorage::text("way", "none", "none|segv|abort|exit|few|wait|cry|close|replace|scribble",
                      "how it ends\x1b[31m"),
        moorage::integer("at", 0, 0, 1'000'000, "the call of victims that does it"),
    };

    explicit mortal(const moorage::setup &setup)
        : host_(setup.host),
          way_(setup.text("way")),
          fatal_call_(static_cast<uint64_t>(setup.integer("at"))) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        shared_ = limits.pools == 1;
        state_ = host_.residency()->host_state;
        reset();
    }
    void reset() { calls_ = 0, loaded_.clear(); }
    void on_load(uint32_t page, uint32_t, int32_t) { loaded_.push_back(page); }
    void on_evict(uint32_t page, int32_t) { std::erase(loaded_, page); }

    void victims(const moorage::room &room, moorage::pages &victims) {
        if (calls_++ == fatal_call_ && !die()) return;
        for (const uint32_t page : loaded_)
            if (!victims.full() && moorage::evictable(state_[page]) &&
                (shared_ || page / experts_ == room.pool))
                victims.push(page);
    }

private:
    bool die() const {
        if (way_ == "segv") std::raise(SIGSEGV);
        if (way_ == "abort") std::abort();
        if (way_ == "exit") ::_exit(0);
        if (way_ == "wait") ::sleep(60);
        // The process ends later, in the host's own code.
        for (int descriptor = 3; descriptor < 256; ++descriptor) {
            if (way_ == "close") ::close(descriptor);
            if (way_ == "replace" && ::fcntl(descriptor, F_GETFD) >= 0) ::dup2(1, descriptor);
            if (way_ == "scribble") static_cast<void>(::write(descriptor, "{\"junk\":1}", 10) + 1);
        }
        if (way_ == "cry") host_.log(MOORAGE_LOG_WARNING, "\x1b[31mred \xC2\x9B and \x07 loud");
        return way_ != "few";  // none named: wrong advice
    }

    moorage::host host_;
    std::string way_;
    uint64_t fatal_call_, calls_ = 0;
    const uint32_t *state_ = nullptr;
    std::vector<uint32_t> loaded_;  // the oldest first
    uint32_t experts_ = 0;
    bool shared_ = true;
};

class mortal_plan {
public:
    static constexpr moorage::about about{.name = "mortal_plan", .summary = "dies planning"};
    explicit mortal_plan(const moorage::setup &) {}
    void plan(const moorage_cluster &, const moorage_demand &, std::span<const moorage_copy>,
              moorage::copies &) {
        std::abort();
    }
};

}  // namespace

MOORAGE_POLICIES("test.mortal", "1.0.0", mortal, mortal_plan)
