// Goal: compare the results of SlimCaching's policies with the true optimum, found by another
// program. Method: GLPK solves the placement problem as an integer program. Its columns are copies
// and, for each call, every way to serve it. Costs come from the slow reference. Brute force checks
// the program. The policies are compared with it and its linear relaxation, and slim_bound.h lies
// between the two. Built where GLPK is installed.
#include <doctest/doctest.h>
#include <glpk.h>

#include "slim_bound.h"
#include "slim_reference.h"

namespace {

using namespace moorage::test;

// Least latency under memory limits. If messages dominate, the search order serves in the cheapest
// way.
class placement_program {
public:
    explicit placement_program(placement_scene &scene) : scene_(scene), reference_(scene) {
        glp_term_out(GLP_OFF);
        program_ = glp_create_prob();
        glp_set_obj_dir(program_, GLP_MIN);
        rows_.emplace_back(), columns_.emplace_back(), values_.emplace_back();
        add_copies();
        double total = 0;
        for (const double tokens : scene.home_tokens_per_s) total += tokens;
        for (uint32_t h = 0; h < scene.homes; ++h)
            for (uint64_t c = scene.home_first_call[h]; c < scene.home_first_call[h + 1]; ++c)
                add_call(h, scene.call_group[c],
                         scene.call_share[c] * scene.home_tokens_per_s[h] / total);
        glp_load_matrix(program_, static_cast<int>(rows_.size()) - 1, rows_.data(), columns_.data(),
                        values_.data());
    }
    placement_program(const placement_program &) = delete;
    ~placement_program() { glp_delete_prob(program_); }

    // Seconds a token: of the linear relaxation, then of the integer optimum.
    double relaxed_s() {
        glp_smcp glpk_options;
        glp_init_smcp(&glpk_options);
        REQUIRE(glp_simplex(program_, &glpk_options) == 0);
        REQUIRE(glp_get_status(program_) == GLP_OPT);
        return glp_get_obj_val(program_);
    }
    double optimum_s() {
        glp_iocp glpk_options;
        glp_init_iocp(&glpk_options);
        glpk_options.presolve = GLP_ON;
        glpk_options.tm_lim = 120'000;  // then not optimal, and the test fails instead of staying
        REQUIRE(glp_intopt(program_, &glpk_options) == 0);
        REQUIRE(glp_mip_status(program_) == GLP_OPT);
        return glp_mip_obj_val(program_);
    }

private:
    int copy_column(uint32_t server, uint32_t expert) const {
        return static_cast<int>(server * scene_.expert_count() + expert) + 1;
    }
    void add_coefficient(int row, int column, double value) {
        rows_.push_back(row), columns_.push_back(column), values_.push_back(value);
    }
    void add_copies() {
        glp_add_cols(program_, static_cast<int>(scene_.servers * scene_.expert_count()));
        for (uint32_t n = 0; n < scene_.servers; ++n) {
            const int row = glp_add_rows(program_, 1);
            glp_set_row_bnds(program_, row, GLP_UP, 0, static_cast<double>(scene_.device_bytes[n]));
            for (uint32_t x = 0; x < scene_.expert_count(); ++x) {
                glp_set_col_kind(program_, copy_column(n, x), GLP_BV);
                add_coefficient(row, copy_column(n, x),
                                static_cast<double>(scene_.expert_bytes[reference_.model_of(x)]));
            }
        }
    }
    // One column for every way to serve it, the cloud being the server after the last.
    void add_call(uint32_t home, uint32_t group, double weight) {
        const std::vector<uint32_t> chosen(
            scene_.group_experts.begin() + static_cast<ptrdiff_t>(scene_.group_first[group]),
            scene_.group_experts.begin() + static_cast<ptrdiff_t>(scene_.group_first[group + 1]));
        const int once = glp_add_rows(program_, 1);
        glp_set_row_bnds(program_, once, GLP_FX, 1, 1);
        const int needs = glp_add_rows(program_, static_cast<int>(chosen.size() * scene_.servers));
        for (uint32_t i = 0; i < chosen.size(); ++i) {
            for (uint32_t n = 0; n < scene_.servers; ++n) {
                const int row = needs + static_cast<int>(i * scene_.servers + n);
                glp_set_row_bnds(program_, row, GLP_UP, 0, 0);
                add_coefficient(row, copy_column(n, chosen[i]), -1);
            }
        }
        std::vector<uint32_t> holders(chosen.size(), 0);
        while (true) {
            slim_placement placed = reference_.empty();
            const int column = glp_add_cols(program_, 1);
            glp_set_col_bnds(program_, column, GLP_LO, 0, 0);
            add_coefficient(once, column, 1);
            for (uint32_t i = 0; i < chosen.size(); ++i) {
                if (holders[i] == scene_.servers) continue;
                placed[holders[i]][chosen[i]] = holders[i];
                add_coefficient(needs + static_cast<int>(i * scene_.servers + holders[i]), column,
                                1);
            }
            glp_set_obj_coef(program_, column, weight * reference_.layer_s(home, chosen, placed));
            size_t i = 0;
            while (i < holders.size() && ++holders[i] > scene_.servers) holders[i++] = 0;
            if (i == holders.size()) return;
        }
    }

    placement_scene &scene_;
    const slim_reference reference_;
    glp_prob *program_;
    std::vector<int> rows_, columns_;
    std::vector<double> values_;
};

double saved_by(const char *name, placement_scene &scene) {
    placement_policy policy(name);
    CHECK(plan_fault(scene, policy.plan(scene)) == "");
    return policy.facts().at("saved_s");
}

}  // namespace

TEST_CASE("the program is the problem: brute force finds the same optimum") {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 2, shape.experts = 4, shape.room = 2;
        shape.top_k = {1 + static_cast<uint32_t>(seed % 3)};
        shape.equal_sizes = false;
        placement_scene scene = random_scene(shape, seed);
        const slim_reference reference(scene);
        double least = infinite;
        for (uint32_t plan = 0; plan < 256; ++plan) {
            slim_placement placed = reference.empty();
            uint64_t used[2] = {0, 0};
            for (uint32_t place = 0; place < 8; ++place) {
                if ((plan >> place & 1) == 0) continue;
                placed[place / 4][place % 4] = place / 4, used[place / 4] += scene.expert_bytes[0];
            }
            if (used[0] <= scene.device_bytes[0] && used[1] <= scene.device_bytes[1])
                least = std::min(least, reference.token_s(placed));
        }
        placement_program program(scene);
        const double relaxed = program.relaxed_s(), optimum = program.optimum_s();
        CHECK(optimum == doctest::Approx(least).epsilon(1e-9));
        CHECK(relaxed <= optimum * (1 + 1e-9));
    }
}

TEST_CASE("one expert a token: policies, optimum, Lagrangian bound, linear bound in this order") {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 3, shape.experts = 4, shape.homes = 5, shape.room = 2;
        shape.top_k = {1, 1}, shape.equal_sizes = seed % 2 == 0;
        placement_scene scene = random_scene(shape, seed);
        const double empty = slim_reference(scene).token_s(slim_reference(scene).empty());
        placement_program program(scene);
        const double linear = empty - program.relaxed_s(), optimum = empty - program.optimum_s();
        const double greedy = saved_by("slim_greedy", scene);
        const double bound = slim_bound(scene).saved_s(greedy, 400);
        CHECK(greedy <= optimum * (1 + 1e-9));
        CHECK(optimum <= bound * (1 + 1e-9));
        CHECK(bound <= linear * (1 + 1e-3));  // subgradient steps come near, not to the end
        if (shape.equal_sizes) CHECK(greedy >= 0.5 * optimum);
        CHECK(saved_by("slim_dp", scene) >= 0.5 * optimum);
        CHECK(saved_by("slim_maxconv", scene) >= 0.5 * optimum);
    }
}

TEST_CASE("two experts a token: guarantees against the optimum") {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        scene_shape shape;
        shape.servers = 2 + seed % 2, shape.experts = 5, shape.homes = 4, shape.room = 3;
        shape.top_k = {2, 1}, shape.equal_sizes = false;
        placement_scene scene = random_scene(shape, seed);
        const double empty = slim_reference(scene).token_s(slim_reference(scene).empty());
        placement_program program(scene);
        program.relaxed_s();
        const double optimum = empty - program.optimum_s();
        for (const char *name : {"slim_greedy", "slim_dp", "slim_maxconv", "lfu", "random"})
            CHECK(saved_by(name, scene) <= optimum * (1 + 1e-9));
        placement_policy policy("slim_maxconv");
        policy.plan(scene);
        CHECK(policy.facts().at("saved_s") >= policy.facts().at("guarantee") * optimum);
    }
}
