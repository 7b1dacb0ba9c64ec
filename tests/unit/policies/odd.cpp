// odd.cpp - a router and a prefetch policy with answers that no rule allows, for advice_test.
#include <moorage/moorage.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

namespace {

constexpr const char router_ways[] = "class|flags|facts";
constexpr const char prefetch_ways[] = "many|twice|beyond|nan";

class odd_router {
public:
    static constexpr moorage::about about{.name = "odd_router", .summary = "answers oddly"};
    static constexpr moorage::param params[] = {
        moorage::text("does", "class", router_ways, "what is odd")};
    explicit odd_router(const moorage::setup &setup) : does_(setup.text("does")) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    uint32_t select(const moorage::step &step, moorage::route &route) {
        std::copy_n(step.host_chosen, step.token_count * step.top_k, route.host_experts);
        if (does_ == "class") route.host_classes[0] = 99;
        if (does_ == "flags") route.flags = 0xff00;
        return step.token_count;
    }
    uint32_t facts(std::span<moorage_fact>) { return does_ == "facts" ? 99 : 0; }

private:
    std::string does_;
};

class odd_prefetch {
public:
    static constexpr moorage::about about{.name = "odd_prefetch", .summary = "answers oddly"};
    static constexpr moorage::param params[] = {
        moorage::text("does", "many", prefetch_ways, "what is odd")};
    explicit odd_prefetch(const moorage::setup &setup) : does_(setup.text("does")) {}
    void reset() {}
    void activate(const moorage::limits &) {}
    uint32_t horizon() { return 1; }
    uint32_t predict(const moorage::step &, uint32_t, uint32_t, std::span<uint32_t> experts,
                     std::span<float> scores) {
        const auto expert_count = static_cast<uint32_t>(experts.size());
        for (uint32_t i = 0; i < expert_count; ++i) experts[i] = i, scores[i] = 1;
        if (does_ == "many") return expert_count + 5;
        if (does_ == "twice") experts[1] = 0;
        if (does_ == "beyond") experts[1] = expert_count;
        if (does_ == "nan") scores[1] = std::nanf("");
        return 2;
    }
    void plan(const moorage::step &, const moorage::forecast &, moorage::orders &) {}

private:
    std::string does_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.odd", "1.0.0", odd_router, odd_prefetch)
