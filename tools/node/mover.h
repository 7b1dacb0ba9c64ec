// mover.h - brings the experts that a plan sends to this node, range by range from a node that has
// them. They come behind the demand and within a budget.
//
// One range is requested at a time, over a connection for bulk data. It is requested when the one
// before has come and the budgets of bytes and of delay (migration_debt.h) allow it, and never
// while calls of others wait here. Copies come in the plan's order. If a source fails, sends wrong
// data or stays silent, another holder is asked. If there is none, the expert is taken from the
// node's own model directory. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/node/expert_store.h"
#include "tools/node/links.h"
#include "tools/node/migration_debt.h"
#include "tools/node/plan_record.h"

namespace moorage::core {

struct mover_options {
    uint64_t bytes_per_s = 0;  // 0: a quarter of the measured rate of a range
    double delay_max = 0.1;    // share of the time of calls that ranges may add; above 0
    uint64_t range_bytes = 128 << 10;
    uint64_t answer_ns = 2'000'000'000;  // timeout of one range
    bool own_directory = true;           // experts may be taken from the own directory
};

struct mover_figures {
    uint64_t copies = 0, bytes = 0, ranges = 0;  // brought
    uint64_t from_own_directory = 0;             // from the own directory
    uint64_t failed = 0;                         // sources that were abandoned
    uint64_t busy_ns = 0;                        // time in which a range was under way
    uint64_t held_ns = 0;                        // time in which the budget of delay held a range
                                                 // back
};

class mover {
public:
    // All borrowed. `debts` [servers].
    mover(links &connections, const node_plan &plan, expert_store &store, uint32_t server,
          const mover_options &options, std::span<migration_debt> debts);

    // Sets the copies of the plan in force that come here, in place of earlier ones. A copy under
    // way that is no longer wanted is given up.
    void set_wanted(std::span<const moving_copy> copies);
    // Does the work that is due. `demand`: calls wait here.
    void turn(bool demand);
    // Time of its next work. UINT64_MAX: not before a message comes.
    uint64_t due_ns() const;
    // An answer on a connection for bulk.
    void answered(link &sender, const frame &message);
    void gone(const link &peer);
    // Copies that are wanted and here, but that the plan does not give this node yet.
    std::span<const uint32_t> arrived() const { return arrived_; }
    uint64_t waiting() const { return wanted_.size(); }
    const mover_figures &figures() const { return figures_; }

private:
    struct incoming_copy {  // the first of wanted_, once it has begun
        uint32_t page = 0, source = no_server;
        uint64_t connection = 0, id = 0;  // the range under way; id 0: none
        uint64_t offset = 0, asked_ns = 0;
        std::byte *target = nullptr;
        std::vector<uint32_t> tried;
    };
    bool choose_source();
    void begin();
    void ask(link &source);
    bool update_held_back(uint64_t now_ns);
    void range_over(uint64_t now_ns);
    void leave_source(const char *reason);
    void finish(bool from_own_directory);
    void log_progress(uint64_t now_ns);

    links &links_;
    const node_plan &plan_;
    expert_store &store_;
    const uint32_t server_;
    const mover_options options_;
    const std::span<migration_debt> debts_;
    std::vector<moving_copy> wanted_;
    std::optional<incoming_copy> under_way_;
    std::vector<uint32_t> arrived_;
    uint64_t next_ns_ = 0;  // when the budget allows a range
    uint64_t held_ns_ = 0;  // since when the budget of delay holds it back; 0: it does not
    uint64_t next_id_ = 1;
    mover_figures figures_;
    struct {  // since the last expert began to come
        uint64_t begun_ns = 0, reported_ns = 0, bytes = 0;
        size_t copies = 0;
    } progress_;
};

}  // namespace moorage::core
