// disk_reader.cpp - chooses the blocks of files, and reads them through a ring of kernel requests.
#include "core/store/disk_reader.h"

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/invariant.h"
#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/memory_block.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// Offsets, lengths and addresses of direct reads must be multiples of it. It is a multiple of every
// drive's sector size.
constexpr uint64_t alignment = 4096;

// A block being read: [begin, end) of range `number`, within `length` bytes at `file_offset`.
struct block {
    size_t number = 0;
    int file = -1;
    uint64_t begin = 0, end = 0;
    uint64_t file_offset = 0, skip = 0, length = 0;
    std::byte *buffer = nullptr;
};

error read_error(const disk_range &range, uint64_t offset, const std::string &reason) {
    const auto place = mapped_place_of(range.mapped);
    return error{format("{}: cannot read {} bytes at {}: {}", place ? place->name : "memory",
                        range.bytes - offset, place ? place->offset + offset : 0, reason)};
}

}  // namespace

// The files of the mappings, opened again for direct reads.
class disk_reader::files {
public:
    ~files() {
        for (const auto &[id, file] : open_files_) ::close(file);
    }
    result<int> open_file(const mapped_place &place) {
        if (const auto known = open_files_.find(place.id); known != open_files_.end())
            return known->second;
        const auto opened = open_mapped(place, O_DIRECT);
        if (opened) return open_files_[place.id] = *opened;
        const auto cached = open_mapped(place, 0);
        if (!cached) return cached;
        if (!std::exchange(reported_, true))
            log_info(format("{}: it cannot be read past the page cache ({})", place.name,
                            opened.failure().text));
        return open_files_[place.id] = *cached;
    }

private:
    std::unordered_map<const void *, int> open_files_;
    bool reported_ = false;
};

// The buffers, and the requests that fill them.
class disk_reader::ring {
public:
    ring(const disk_reader_options &options, memory_block memory)
        : memory_(std::move(memory)), blocks_(options.depth) {
        const uint64_t room = options.block_bytes + alignment;
        for (uint32_t i = 0; i < options.depth; ++i) {
            blocks_[i].buffer = memory_.data() + i * room;
            free_.push_back(i);
        }
        const int init_result = io_uring_queue_init(options.depth, &ring_, 0);
        has_ring_ = init_result == 0;
        if (!has_ring_)
            log_info(
                format("io_uring is not to be had ({}): blocks are read from disk one after "
                       "another",
                       std::strerror(-init_result)));
    }
    ~ring() {
        if (has_ring_) io_uring_queue_exit(&ring_);
    }

    bool full() const { return free_.empty() || (!has_ring_ && !idle()); }
    bool idle() const { return free_.size() == blocks_.size(); }
    // Requires: not full. Fills in the block's buffer.
    void start(block next) {
        const uint32_t slot = free_.back();
        free_.pop_back();
        next.buffer = blocks_[slot].buffer;
        blocks_[slot] = next;
        if (!has_ring_) {
            pending_block_ = slot;
            return;
        }
        io_uring_sqe *const entry = io_uring_get_sqe(&ring_);
        MOORAGE_INVARIANT(entry != nullptr && "the ring has an entry for every buffer");
        io_uring_prep_read(entry, next.file, next.buffer, static_cast<unsigned>(next.length),
                           next.file_offset);
        io_uring_sqe_set_data64(entry, slot);
    }
    // A finished block, with its bytes or -errno. Its buffer stays valid until release_buffer().
    // Requires: not idle.
    std::pair<const block *, int64_t> wait() {
        if (!has_ring_) {
            const block &current = blocks_[pending_block_];
            const ssize_t got = ::pread(current.file, current.buffer, current.length,
                                        static_cast<off_t>(current.file_offset));
            return {&current, got < 0 ? -errno : got};
        }
        io_uring_cqe *done = nullptr;
        int waited;
        do waited = io_uring_submit_and_wait(&ring_, 1);
        while (waited == -EINTR);
        if (waited < 0 || io_uring_peek_cqe(&ring_, &done) != 0) return {nullptr, waited};
        const auto slot = static_cast<uint32_t>(io_uring_cqe_get_data64(done));
        const int64_t got = done->res;
        io_uring_cqe_seen(&ring_, done);
        return {&blocks_[slot], got};
    }
    void release_buffer(const block *finished) {
        free_.push_back(static_cast<uint32_t>(finished - blocks_.data()));
    }
    // After a failure: waits until nothing writes into the buffers.
    void drain() {
        while (!idle()) {
            const auto [finished, got] = wait();
            if (finished == nullptr) return;
            release_buffer(finished);
        }
    }

private:
    memory_block memory_;
    std::vector<block> blocks_;
    std::vector<uint32_t> free_;
    io_uring ring_{};
    bool has_ring_ = false;
    uint32_t pending_block_ = 0;  // without a ring: the block that wait() reads
};

disk_reader::disk_reader(const disk_reader_options &options)
    : options_(options), files_(std::make_unique<files>()) {}

disk_reader::~disk_reader() = default;

result<std::unique_ptr<disk_reader>> disk_reader::create(const disk_reader_options &options) {
    MOORAGE_INVARIANT(options.depth != 0 && options.block_bytes != 0 &&
                      options.block_bytes % alignment == 0);
    auto memory = memory_block::create(options.depth * (options.block_bytes + alignment),
                                       "the buffers of reads from disk");
    if (!memory) return memory.failure();
    std::unique_ptr<disk_reader> reader(new disk_reader(options));
    reader->ring_ = std::make_unique<ring>(options, std::move(*memory));
    return reader;
}

status disk_reader::read(std::span<const disk_range> ranges, const taker &take) {
    size_t number = 0;
    uint64_t offset_bytes = 0;  // offset in the next range
    // The next block of all ranges. Opens its file.
    const auto prepare_block = [&](block &target) -> status {
        const disk_range &range = ranges[number];
        const auto place = mapped_place_of(range.mapped + offset_bytes);
        if (!place) return read_error(range, offset_bytes, "no file is mapped there");
        const auto file = files_->open_file(*place);
        if (!file) return file.failure();
        target = {number, *file, offset_bytes};
        target.skip = place->offset % alignment;
        target.file_offset = place->offset - target.skip;
        target.end = std::min(range.bytes, offset_bytes + options_.block_bytes - target.skip);
        const uint64_t wanted = target.skip + (target.end - offset_bytes);
        target.length = (wanted + alignment - 1) / alignment * alignment;
        offset_bytes = target.end;
        if (offset_bytes == range.bytes) ++number, offset_bytes = 0;
        return success();
    };
    status done = success();
    while (done.ok() && (number < ranges.size() || !ring_->idle())) {
        while (number < ranges.size() && !ring_->full() && done.ok()) {
            if (ranges[number].bytes == 0) {
                ++number;
                continue;
            }
            block new_block;
            done = prepare_block(new_block);
            if (done.ok()) ring_->start(new_block);
        }
        if (!done.ok() || ring_->idle()) break;
        const auto [finished, got] = ring_->wait();
        if (finished == nullptr)
            return error{format("reads from disk: {}", std::strerror(int(-got)))};
        const uint64_t wanted = finished->skip + (finished->end - finished->begin);
        if (got < 0 && got != -EAGAIN && got != -EINTR) {
            done = read_error(ranges[finished->number], finished->begin,
                              std::strerror(static_cast<int>(-got)));
        } else if (got < 0) {
            const block retry = *finished;
            ring_->release_buffer(finished);
            ring_->start(retry);
            continue;
        } else if (static_cast<uint64_t>(got) < wanted) {
            done = read_error(ranges[finished->number], finished->begin,
                              format("the file ends there: {} bytes of {} came", got, wanted));
        } else {
            take(finished->number, finished->begin,
                 {finished->buffer + finished->skip,
                  static_cast<size_t>(finished->end - finished->begin)});
        }
        ring_->release_buffer(finished);
    }
    if (!done.ok()) ring_->drain();
    return done;
}

}  // namespace moorage::core
