// substitute.cpp - routers that change the model's choice to order, for the tests of the account.
//
// `substitute` replaces the last-ranked `count` experts of every `every`-th token (counted over all
// layers, with the first one) by the smallest experts that the model did not choose. `undeclared`
// does the same and does not declare itself lossy. `infinite` and `huge` keep the choice and give
// every expert a weight that is infinite, or near the largest finite one. `reweigh` keeps the
// experts and scales the weight of the last-ranked one. `restate` does so too and declares itself
// lossless. `small` allows a second version of the experts.

#include <moorage/moorage.hpp>

#include <algorithm>
#include <limits>

namespace {

class substitute {
public:
    static constexpr moorage::about about{
        .name = "substitute", .summary = "substitutes to order", .flags = MOORAGE_POLICY_LOSSY};
    static constexpr moorage::param params[] = {
        moorage::integer("every", 1, 1, 1'000'000, "tokens from one changed to the next"),
        moorage::integer("count", 1, 0, 64, "experts replaced in each"),
        moorage::flag("weights", false, "gives weights of its own, all alike"),
    };

    explicit substitute(const moorage::setup &setup)
        : every_(static_cast<uint64_t>(setup.integer("every"))),
          count_(static_cast<uint32_t>(setup.integer("count"))),
          weights_(setup.flag("weights")) {}

    void activate(const moorage::limits &) { reset(); }
    void reset() { rows_ = 0; }

    uint32_t select(const moorage::step &step, moorage::route &route) {
        const uint32_t k = step.top_k;
        for (uint32_t token = 0; token < step.token_count; ++token) {
            const auto chosen = step.chosen(token);
            uint32_t *experts = route.host_experts + size_t{token} * k;
            std::copy(chosen.begin(), chosen.end(), experts);
            if (weights_) std::fill_n(route.host_weights + size_t{token} * k, k, 1.0f / 8);
            if (rows_++ % every_ != 0) continue;
            uint32_t next = 0;
            for (uint32_t rank = k - std::min(count_, k); rank < k; ++rank) {
                while (std::find(chosen.begin(), chosen.end(), next) != chosen.end()) ++next;
                if (next >= step.experts) break;
                route.host_classes[size_t{token} * k + rank] = MOORAGE_CLASS_SUBSTITUTE;
                experts[rank] = next++;
            }
        }
        return step.token_count;
    }

private:
    uint64_t every_, rows_ = 0;
    uint32_t count_;
    bool weights_;
};

class undeclared : public substitute {
public:
    static constexpr moorage::about about{.name = "undeclared",
                                          .summary = "substitutes and does not say so"};
    using substitute::substitute;
};

class infinite {
public:
    static constexpr moorage::about about{
        .name = "infinite", .summary = "infinite weights", .flags = MOORAGE_POLICY_LOSSY};
    explicit infinite(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t select(const moorage::step &step, moorage::route &route) {
        const size_t count = size_t{step.token_count} * step.top_k;
        std::copy_n(step.host_chosen, count, route.host_experts);
        std::fill_n(route.host_weights, count, weight_);
        return step.token_count;
    }

protected:
    float weight_ = std::numeric_limits<float>::infinity();
};

class huge : public infinite {
public:
    static constexpr moorage::about about{
        .name = "huge", .summary = "huge weights", .flags = MOORAGE_POLICY_LOSSY};
    explicit huge(const moorage::setup &setup) : infinite(setup) {
        weight_ = std::numeric_limits<float>::max();
    }
};

class reweigh {
public:
    static constexpr moorage::about about{.name = "reweigh",
                                          .summary = "scales a weight of each row",
                                          .flags = MOORAGE_POLICY_LOSSY,
                                          .needs = MOORAGE_NEEDS_WEIGHTS};
    static constexpr moorage::param params[] = {
        moorage::real("factor", 1, 0, 2, "of the last-ranked expert's weight"),
    };

    explicit reweigh(const moorage::setup &setup)
        : factor_(static_cast<float>(setup.real("factor"))) {}
    void activate(const moorage::limits &) {}
    void reset() {}

    uint32_t select(const moorage::step &step, moorage::route &route) {
        const size_t k = step.top_k, count = step.token_count * k;
        std::copy_n(step.host_chosen, count, route.host_experts);
        std::copy_n(step.host_weights, count, route.host_weights);
        for (size_t i = k - 1; i < count; i += k) route.host_weights[i] *= factor_;
        return step.token_count;
    }

private:
    const float factor_;
};

class restate : public reweigh {
public:
    static constexpr moorage::about about{.name = "restate",
                                          .summary = "scales a weight, and claims to be lossless",
                                          .needs = MOORAGE_NEEDS_WEIGHTS};
    using reweigh::reweigh;
};

// Keeps the choice and lets the second version do, from token `from` on.
class small {
public:
    static constexpr moorage::about about{
        .name = "small", .summary = "second versions to order", .flags = MOORAGE_POLICY_LOSSY};
    static constexpr moorage::param params[] = {
        moorage::integer("from", 0, 0, 1'000'000, "the first token whose experts may be small")};

    explicit small(const moorage::setup &setup)
        : first_small_row_(static_cast<uint64_t>(setup.integer("from"))) {}
    void activate(const moorage::limits &) { reset(); }
    void reset() { rows_ = 0; }

    uint32_t select(const moorage::step &step, moorage::route &route) {
        const size_t k = step.top_k, count = step.token_count * k;
        std::copy_n(step.host_chosen, count, route.host_experts);
        for (size_t i = 0; i < count; ++i)
            route.host_classes[i] =
                rows_ + i / k < first_small_row_ ? MOORAGE_CLASS_TOP : MOORAGE_CLASS_SMALL;
        rows_ += step.token_count;
        return step.token_count;
    }

private:
    const uint64_t first_small_row_;
    uint64_t rows_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.substitute", "1.0.0", substitute, undeclared, infinite, huge,
                 reweigh, restate, small)
