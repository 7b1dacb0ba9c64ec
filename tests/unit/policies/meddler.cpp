// meddler.cpp - a cache policy whose advice is right. Once, within a call of victims, it writes to
// a file that the host reads: it cuts it off or fills it with 0xff bytes from `from` on.

#include <moorage/moorage.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

class meddler {
public:
    static constexpr moorage::about about{.name = "meddler", .summary = "writes to a file"};
    static constexpr moorage::param params[] = {
        moorage::text("file", "", nullptr, "the file; empty: none"),
        moorage::text("how", "fill", "fill|cut", "what is done to it"),
        moorage::integer("from", 0, 0, 1 << 30, "first byte that is changed"),
        moorage::integer("at", 3, 0, 1'000'000, "the call of victims in which it happens"),
    };

    explicit meddler(const moorage::setup &setup)
        : host_(setup.host),
          file_(setup.text("file")),
          cuts_(setup.text("how") == "cut"),
          first_byte_(setup.integer("from")),
          meddling_call_(static_cast<uint64_t>(setup.integer("at"))) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pages_ = limits.layers * limits.experts;
        pools_ = limits.pools;
        state_ = host_.residency()->host_state;
    }
    void reset() {}

    void victims(const moorage::room &room, moorage::pages &victims) {
        if (calls_++ == meddling_call_ && !file_.empty()) meddle();
        const uint32_t begin = pools_ == 1 ? 0 : room.pool * experts_;
        const uint32_t end = pools_ == 1 ? pages_ : begin + experts_;
        for (uint32_t page = begin; page < end && !victims.full(); ++page)
            if (moorage::evictable(state_[page])) victims.push(page);
    }

private:
    void meddle() const {
        const int file = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
        struct stat about {};
        if (file < 0 || ::fstat(file, &about) != 0) return;
        const std::vector<char> ones(about.st_size > first_byte_ ? about.st_size - first_byte_ : 0,
                                     '\xff');
        const bool done = cuts_ ? ::ftruncate(file, first_byte_) == 0
                                : ::pwrite(file, ones.data(), ones.size(), first_byte_) > 0;
        ::close(file);
        if (!done) _exit(99);  // the test itself is broken
    }

    moorage::host host_;
    std::string file_;
    bool cuts_;
    int64_t first_byte_;
    uint64_t meddling_call_, calls_ = 0;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pages_ = 0, pools_ = 1;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.meddler", "1.0.0", meddler)
