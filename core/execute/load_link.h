// load_link.h - the link into host memory: a thread that brings pieces of experts there. It copies
// them from the model's memory, or reads them from the model's files past the page cache
// (expert_reader.h). A caller that has to wait for a piece in memory helps to copy it, because
// waking a thread takes as long as copying.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/execute/thread_pool.h"
#include "core/execute/executor.h"
#include "core/execute/expert_reader.h"
#include "core/execute/side_thread.h"
#include "core/model/model.h"

namespace moorage::core {

class load_link {
public:
    // Borrowed. `small_model`: the experts' second version, or null. An error if experts have to
    // come from disk but no file has them in the form in which they are used.
    static result<std::unique_ptr<load_link>> create(const model &main_model, bool from_disk,
                                                     const model *small_model = nullptr);

    // Begins to bring the piece, of an expert whose top segment has `top_rows` rows, into the
    // images of its top and bottom segment. The images are fixed now. A piece under way goes on
    // even if its transfer is cancelled and the slot is given away. The next content of the slot
    // waits for the link. Requires: no piece is under way.
    void send(const link_piece &piece, uint32_t top_rows, std::array<std::byte *, 2> images);
    bool busy() const { return thread_.busy(); }
    // Whether the piece under way has ended. Then busy() ends, too, and failure() says how it went.
    bool try_finish() { return thread_.try_finish(); }
    // Helps until the piece has ended: the calling thread and `pool` copy the parts that the link's
    // thread has not begun. Only for pieces in memory. Requires: a piece is under way, the pool is
    // not.
    void help(thread_pool &pool);
    uint64_t duration_ns() const { return thread_.duration_ns(); }
    const std::string &failure() const { return failure_; }  // empty: none

private:
    load_link(const model &main_model, const model *small_model,
              std::unique_ptr<expert_reader> reader);
    void load_part(uint32_t part);

    const std::vector<const mlp_weights *> experts_[2];  // [version]
    const std::unique_ptr<expert_reader> reader_;        // null: from memory
    link_piece piece_;
    uint32_t top_rows_ = 0, parts_ = 1;
    std::array<std::byte *, 2> images_{};
    std::string failure_;
    side_thread thread_;
};

}  // namespace moorage::core
