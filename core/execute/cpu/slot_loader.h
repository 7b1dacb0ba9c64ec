// slot_loader.h - expert slots in main memory, and the thread that copies experts there from where
// the model has them: the mapped files, read past the page cache where those are larger than
// memory (expert_reader.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/memory_block.h"
#include "core/execute/executor.h"
#include "core/execute/expert_reader.h"
#include "core/model/model.h"
#include "core/store/arena.h"

namespace moorage::core {

class slot_loader {
public:
    // Of a piece: times since the loader was made, and what went wrong, or nothing.
    struct copied {
        uint32_t link = 0;
        uint64_t started_ns = 0, ended_ns = 0;
        std::string failure{};
    };

    // Both borrowed. Without slots it has no memory and copies nothing.
    slot_loader(const model &of, const arena &places);
    ~slot_loader();
    slot_loader(const slot_loader &) = delete;
    // Takes the memory; once, before the rest. An error when it would be more than the machine
    // has, or experts are to come from disk that lie in no file.
    status take_slots(bool from_disk);

    // One at a time on a link.
    void send(const link_piece &piece);
    // A piece that has been copied, if there is one.
    bool take(copied &out);
    // Until there is one. Requires: one is under way.
    void wait();

    std::byte *address(uint32_t page, uint8_t segment) const;
    std::byte *row(uint64_t row) const { return memory_.data() + row * row_bytes_; }
    const mlp_weights &expert_of(uint32_t page) const;
    uint64_t elapsed_ns() const;
    uint64_t bytes() const { return memory_.bytes(); }

private:
    struct link_state {
        bool busy = false;  // from send() until it is taken
        link_piece piece;
        std::byte *targets[2] = {nullptr, nullptr};  // of the top and the bottom segment
        uint32_t top_rows = 0;
        copied done;
    };

    void loop();
    std::string copy(const link_state &link);

    const model &of_;
    const arena &places_;
    std::vector<uint32_t> moe_layers_;
    uint32_t experts_, intermediate_;
    bool has_slots_ = false;
    uint64_t row_bytes_ = 0;
    memory_block memory_;
    std::chrono::steady_clock::time_point begun_;

    // The thread's; no reader: it copies from the mapping.
    std::unique_ptr<expert_reader> reader_;

    // Pieces on their way to the thread, one a link, and back.
    link_state links_[link_count];
    std::mutex mutex_;
    std::condition_variable wanted_, finished_;
    bool pending_[link_count] = {}, copied_[link_count] = {}, stop_ = false;
    std::thread thread_;
};

}  // namespace moorage::core
