// disk_link.h - the link from disk to host memory: a thread that reads experts from the model's
// files, past the page cache, a piece at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/result.h"
#include "core/execute/executor.h"
#include "core/execute/expert_reader.h"
#include "core/model/model.h"

namespace moorage::core {

class disk_link {
public:
    // Borrowed. An error when the experts lie in no file as they are used.
    static result<std::unique_ptr<disk_link>> create(const model &of);
    ~disk_link();
    disk_link(const disk_link &) = delete;

    // Starts to read the piece into the image at `target`: the first `top_rows` of the expert, and
    // the rest of it behind them. Requires: no piece is under way.
    void send(const link_piece &piece, uint32_t top_rows, std::byte *target);
    bool busy() const { return busy_; }
    // Whether the piece under way has ended; then busy() ends, too, and failure() says how it went.
    bool ended();
    uint64_t duration_ns() const { return duration_ns_; }
    const std::string &failure() const { return failure_; }  // empty: none

private:
    disk_link(const model &of, std::unique_ptr<expert_reader> reader)
        : of_(of), moe_layers_(of.config().moe_layers()), reader_(std::move(reader)) {}
    void loop();
    std::string read();

    const model &of_;
    const std::vector<uint32_t> moe_layers_;
    const std::unique_ptr<expert_reader> reader_;

    // Of the piece; the thread's from send() until it says that it has finished.
    link_piece piece_;
    uint32_t top_rows_ = 0;
    std::byte *target_ = nullptr;
    uint64_t duration_ns_ = 0;
    std::string failure_;

    bool busy_ = false;  // the caller's
    std::atomic<bool> finished_{false};
    std::mutex mutex_;
    std::condition_variable wanted_;
    bool pending_ = false, stop_ = false;
    std::thread thread_;
};

}  // namespace moorage::core
