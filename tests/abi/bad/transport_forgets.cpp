// transport_forgets.cpp - breaks a rule: sends the first kilobyte of a transfer and forgets the
// rest.
#include <moorage/moorage.hpp>

#include <cstdint>

namespace {

class transport_forgets {
public:
    static constexpr moorage::about about{.name = "transport_forgets", .summary = "breaks a rule"};
    explicit transport_forgets(const moorage::setup &) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    void submit(const moorage::transfer &transfer) { last_ = transfer, waiting_ = true; }
    void cancel(uint32_t id) { waiting_ = waiting_ && last_.id != id; }
    void promote(uint32_t, int32_t) {}
    bool next(uint32_t link, moorage::piece &piece) {
        if (!waiting_ || last_.link != link) return false;
        piece.id = last_.id;
        piece.bytes = last_.bytes < 1024 ? last_.bytes : 1024;
        waiting_ = false;
        return true;
    }

private:
    moorage::transfer last_{};
    bool waiting_ = false;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.bad.transport_forgets", "1.0.0", transport_forgets)
