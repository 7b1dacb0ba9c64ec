// timeline.cpp - rows, limits and the file of a timeline; what stands in it is the format's.
#include "core/report/timeline.h"

#include <cassert>
#include <cmath>
#include <span>

#include "core/base/mapped_file.h"
#include "core/base/partial_files.h"
#include "core/base/text.h"
#include "core/report/timeline_format.h"

namespace moorage::core {

namespace {

constexpr size_t buffer_bytes = 1 << 20;

bool is_perfetto(const std::filesystem::path &path) {
    return path.extension() == ".pftrace" || path.extension() == ".perfetto-trace";
}

}  // namespace

timeline::timeline(atomic_file file, std::unique_ptr<timeline_format> format,
                   std::unique_ptr<gzip_writer> compress, uint64_t events_max)
    : file_(std::move(file)),
      format_(std::move(format)),
      compress_(std::move(compress)),
      events_max_(events_max) {
    buffer_.reserve(buffer_bytes + 4096);
    format_->begin(buffer_);
}

timeline::~timeline() = default;

result<std::unique_ptr<timeline>> timeline::open(const std::filesystem::path &path,
                                                 uint64_t events_max) {
    if (was_file_read(output_path(path)))
        return error{format("timeline {}: this run reads that file; name another", path.string()),
                     true};
    auto file = atomic_file::create(path);
    if (!file)
        return error{format("timeline {}; name a file in a folder that exists and is writable",
                            file.failure().text)};
    const bool compressed = path.extension() == ".gz";
    const std::filesystem::path plain = compressed ? path.stem() : path;
    return std::unique_ptr<timeline>(new timeline(
        std::move(file).value(), is_perfetto(plain) ? perfetto_timeline() : json_timeline(),
        compressed ? std::make_unique<gzip_writer>() : nullptr, events_max));
}

uint32_t timeline::row_of(std::string_view name, std::string_view process, bool counts) {
    auto known = processes_.find(process);
    const bool new_process = known == processes_.end();
    if (new_process) known = processes_.emplace(process, uint32_t(processes_.size() + 1)).first;
    const auto [entry, inserted] =
        tracks_.try_emplace({known->second, std::string(name)}, uint32_t(rows_.size()));
    if (!inserted) return entry->second;
    rows_.push_back({known->second, uint32_t(rows_.size() + 1), std::string(name)});
    if (!file_) return entry->second;
    const row &row = rows_.back();
    if (new_process) format_->process(buffer_, {row.process, row.thread, row.name}, process);
    format_->row(buffer_, {row.process, row.thread, row.name}, counts);
    return entry->second;
}

uint32_t timeline::track(std::string_view name, std::string_view process) {
    return row_of(name, process, false);
}

uint32_t timeline::counter(std::string_view name, std::string_view process) {
    return row_of(name, process, true);
}

// False: the event is left out. The first event that is left out leaves a mark in its place.
bool timeline::admit(uint32_t track, uint64_t time_ns) {
    assert(track < rows_.size());
    if (!file_ || !shown_) return false;
    if (events_ < events_max_) {
        ++events_;
        return true;
    }
    if (left_out_++ == 0) {
        const row &row = rows_[track];
        format_->instant(buffer_, {row.process, row.thread, row.name},
                         format("limit of {} events reached", events_max_), time_ns, {},
                         /*everywhere=*/true);
    }
    return false;
}

void timeline::written() {
    if (buffer_.size() >= buffer_bytes) flush(false);
}

void timeline::span(uint32_t track, std::string_view name, uint64_t start_ns, uint64_t duration_ns,
                    arguments values, timeline_flow flow) {
    if (!admit(track, start_ns)) return;
    const row &row = rows_[track];
    format_->span(buffer_, {row.process, row.thread, row.name}, name, start_ns, duration_ns, values,
                  flow);
    written();
}

void timeline::instant(uint32_t track, std::string_view name, uint64_t at_ns, arguments values) {
    if (!admit(track, at_ns)) return;
    const row &row = rows_[track];
    format_->instant(buffer_, {row.process, row.thread, row.name}, name, at_ns, values, false);
    written();
}

void timeline::value(uint32_t counter, uint64_t at_ns, double value) {
    if (!std::isfinite(value) || !admit(counter, at_ns)) return;
    const row &row = rows_[counter];
    format_->value(buffer_, {row.process, row.thread, row.name}, at_ns, value);
    written();
}

void timeline::flush(bool last) {
    const std::string packed = compress_ ? (*compress_)(buffer_, last) : std::string();
    file_->write(std::as_bytes(std::span(compress_ ? packed : buffer_)));
    buffer_.clear();
}

status timeline::close() {
    if (file_) {
        format_->end(buffer_, events_, left_out_);
        flush(true);
        // Some inputs are opened after the timeline is.
        if (was_file_read(file_->final_path()))
            ended_ = error{file_->final_path() + ": this run reads that file; name another", true};
        else
            ended_ = file_->commit();
        if (!ended_) ended_ = error{"timeline " + ended_.failure().text, ended_.failure().usage};
        file_.reset();
    }
    return ended_;
}

}  // namespace moorage::core
