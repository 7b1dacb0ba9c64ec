// arrivals.h - the source of one home of a cluster: requests arrive at their own times and are
// decoded side by side.
//
//   auto source = arrival_source::make(phases, {.seed = 1, .home = 3, .end_ns = hour}, &now);
//   while (source->next(pass)) ...                     // false: nothing until wakes_ns()
//   source->pass_done(pass, now);                      // fills in the times of requests()
//
// The prompt of a request is prefilled in passes of its own. Requests that already decode wait for
// them. The pass with the prompt's last token yields the first output token. Each further output
// token takes a pass together with the tokens of the other live requests. The last token goes
// through no layer. The choices of experts are read from a trace, which many homes share, or drawn
// (drawn_routing.h). Everything follows from the seed and the home alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/random.h"
#include "core/base/result.h"
#include "tools/cluster/drawn_routing.h"
#include "tools/placement/arrivals.h"
#include "core/source/source.h"
#include "core/source/trace.h"

namespace moorage::core {

// The requests from a time on, until the next phase begins.
struct arrival_phase {
    uint64_t begin_ns = 0;
    // One of these gives the choices of experts. A trace is borrowed for as long as the source
    // lives.
    const trace *rows = nullptr;
    std::optional<drawn_routing> drawn = {};
    // Requests of the trace to draw from, each with the same probability. Empty: all.
    std::vector<uint64_t> requests = {};
    double poisson_s = 0;  // mean time between requests; 0: as `arrivals` of the options
    // Tokens of each request for which no list gives them. If one is 0, a trace's request has that
    // many as in the trace. If both are 0, all tokens but the last are input. A request that is too
    // short begins again.
    uint32_t input_tokens = 0, output_tokens = 0;
};

// Requests of a trace with these domains. Without domains: all. The error names the domain.
result<std::vector<uint64_t>> requests_of(const trace &trace, std::span<const std::string> domains);

struct arrival_options {
    uint64_t seed = 0;
    uint32_t home = 0;
    uint64_t begin_ns = 0;                  // nothing arrives before that
    uint64_t end_ns = MOORAGE_NEVER;        // nothing arrives then or later; requests under way
                                            // still end
    uint64_t requests_max = MOORAGE_NEVER;  // limit for the number of arrivals
    uint32_t batch = 8;                     // requests under way together
    uint32_t prefill_max = 512;             // tokens of one prefill pass
    // Ascending by time. Used if a phase has no poisson_s.
    std::vector<arrival> arrivals = {};
};

// The times of a request. MOORAGE_NEVER: has not happened yet.
struct request_times {
    uint64_t arrived_ns = 0;
    uint64_t started_ns = MOORAGE_NEVER;  // its first pass was handed out
    uint64_t first_ns = MOORAGE_NEVER;    // its first output token was there
    uint64_t ended_ns = MOORAGE_NEVER;
    uint32_t input_tokens = 0, output_tokens = 0;
    uint32_t phase = 0;
    uint64_t trace_request = 0;
};

class arrival_source final : public source {
public:
    // `now_ns` is the run's clock. Errors: phases that do not ascend or differ in their shape,
    // options out of range.
    static result<arrival_source> make(std::vector<arrival_phase> phases,
                                       const arrival_options &options, const uint64_t *now_ns);

    uint32_t layers() const override { return layers_; }
    uint32_t experts() const override { return experts_; }
    uint32_t top_k() const override { return top_k_; }
    uint32_t tokens_max() const override;
    uint32_t streams() const override { return options_.batch; }
    uint32_t predictions_max() const override { return predictions_; }
    uint32_t offers() const override { return offers_; }
    bool idle() override { return live_ == 0; }
    bool scored_predictions() const override { return scored_; }
    bool next(pass &pass) override;
    uint64_t wakes_ns() const override;
    void pass_done(const pass &pass, uint64_t now_ns) override;
    void route(const pass &pass, uint32_t layer, uint32_t *chosen) override;
    void weights(const pass &pass, uint32_t layer, float *weights) override;
    void gate_scores(const pass &pass, uint32_t layer, float *scores) override;
    void weigh(const pass &pass, uint32_t layer, const uint32_t *chosen, float *weights) override;
    uint32_t predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) override;

    // The times of all requests that began, in order of arrival.
    std::span<const request_times> requests() const { return requests_; }

    // Numbers of rows in passes: the phase and the row in its trace, or the number of a drawn
    // token.
    static uint64_t row_of(uint32_t phase, uint64_t row) { return uint64_t{phase} << 48 | row; }
    static uint32_t phase_of(uint64_t row) { return static_cast<uint32_t>(row >> 48); }
    static uint64_t row_in_phase(uint64_t row) { return row & ((uint64_t{1} << 48) - 1); }

private:
    struct stream {
        bool live = false;
        uint64_t request = 0;
        uint64_t begin = 0, length = 0;  // rows of the trace, or numbers of drawn tokens
        uint32_t done = 0;               // tokens handed out
    };
    arrival_source(std::vector<arrival_phase> phases, const arrival_options &options,
                   const uint64_t *now_ns);
    status check_shape();
    void find_arrival();
    bool draw_arrival(uint64_t until_ns);
    bool list_arrival(uint64_t until_ns);
    void admit();
    void begin_request(stream &stream);
    uint64_t row_at(const stream &stream, uint64_t position) const;
    void add_token(pass &pass, stream &stream, bool decoded);
    bool prefill_pass(pass &pass);

    std::vector<arrival_phase> phases_;
    arrival_options options_;
    const uint64_t *now_ns_;
    uint32_t layers_ = 0, experts_ = 0, top_k_ = 0, predictions_ = 0, offers_ = 0;
    bool scored_ = false;
    random_stream gaps_, choices_;
    uint64_t draw_seed_;
    uint64_t drawn_tokens_ = 0;
    // The next arrival: its time (MOORAGE_NEVER: none), and its lengths if a list has them.
    struct next_arrival {
        uint64_t at_ns = MOORAGE_NEVER;
        uint32_t input_tokens = 0, output_tokens = 0;
    };
    next_arrival next_;
    uint32_t next_phase_ = 0;
    size_t next_listed_ = 0;
    uint64_t cursor_ns_ = 0, arrived_ = 0;
    std::vector<stream> streams_;
    uint32_t live_ = 0;
    std::vector<request_times> requests_;
};

}  // namespace moorage::core
