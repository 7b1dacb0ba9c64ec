// timeline.cpp - writes trace events by hand: a document in memory would not hold millions of them.
#include "core/report/timeline.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <span>
#include <type_traits>

#include "core/base/json_fwd.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr size_t buffer_bytes = 1 << 20;

void append_text(std::string &out, std::string_view text) {
    const bool plain = std::all_of(text.begin(), text.end(), [](char character) {
        return character >= ' ' && character < '\x7f' && character != '"' && character != '\\';
    });
    if (plain) {
        out += '"';
        out += text;
        out += '"';
        return;
    }
    // Rare. Bytes that are no UTF-8 are replaced, or no reader would take the file.
    out += json_quoted(text);
}

template <class Number>
requires std::is_arithmetic_v<Number>
void append_number(std::string &out, Number number) {
    char digits[32];
    const auto [end, failure] = std::to_chars(digits, digits + sizeof digits, number);
    assert(failure == std::errc());
    out.append(digits, end);
}

void append_number_or_text(std::string &out, double number) {
    if (std::isfinite(number))
        append_number(out, number);
    else
        append_text(out, std::isnan(number) ? "not a number" : "infinite");
}

// The format counts in microseconds; three decimals keep the nanoseconds.
void append_microseconds(std::string &out, uint64_t ns) {
    append_number(out, ns / 1000);
    const uint64_t rest = ns % 1000;
    const char decimals[] = {'.', char('0' + rest / 100), char('0' + rest / 10 % 10),
                             char('0' + rest % 10)};
    out.append(decimals, sizeof decimals);
}

}  // namespace

timeline::timeline(atomic_file file, uint64_t events_max)
    : file_(std::move(file)), events_max_(events_max) {
    buffer_.reserve(buffer_bytes + 4096);
    buffer_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

result<std::unique_ptr<timeline>> timeline::open(const std::filesystem::path &path,
                                                 uint64_t events_max) {
    auto file = atomic_file::create(path);
    if (!file)
        return error{format("timeline {}; name a file in a folder that exists and is writable",
                            file.failure().text)};
    return std::unique_ptr<timeline>(new timeline(std::move(file).value(), events_max));
}

uint32_t timeline::track(std::string_view name, std::string_view process) {
    auto known = processes_.find(process);
    const bool new_process = known == processes_.end();
    if (new_process) known = processes_.emplace(process, uint32_t(processes_.size() + 1)).first;
    const auto [at, inserted] =
        tracks_.try_emplace({known->second, std::string(name)}, uint32_t(rows_.size()));
    if (!inserted) return at->second;
    const row made{known->second, uint32_t(rows_.size() + 1)};
    rows_.push_back(made);
    if (new_process) add_name_event("process_name", made, process);
    add_name_event("thread_name", made, name);
    if (file_) {
        begin_event('M', made, "thread_sort_index");
        buffer_ += ",\"args\":{\"sort_index\":";
        append_number(buffer_, made.thread);
        buffer_ += '}';
        end_event();
    }
    return at->second;
}

void timeline::add_name_event(std::string_view kind, const row &of, std::string_view name) {
    if (!file_) return;
    begin_event('M', of, kind);
    buffer_ += ",\"args\":{\"name\":";
    append_text(buffer_, name);
    buffer_ += '}';
    end_event();
}

// False when the event is to be left out. The first one left out leaves a mark where it would be.
bool timeline::admit(uint32_t track, uint64_t time_ns) {
    assert(track < rows_.size());
    if (!file_) return false;
    if (events_ < events_max_) {
        ++events_;
        return true;
    }
    if (left_out_++ == 0) {
        begin_event('i', rows_[track], format("limit of {} events reached", events_max_));
        buffer_ += ",\"s\":\"g\",\"ts\":";
        append_microseconds(buffer_, time_ns);
        end_event();
    }
    return false;
}

void timeline::begin_event(char phase, const row &of, std::string_view name) {
    buffer_ += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    first_ = false;
    buffer_ += phase;
    buffer_ += "\",\"pid\":";
    append_number(buffer_, of.process);
    buffer_ += ",\"tid\":";
    append_number(buffer_, of.thread);
    buffer_ += ",\"name\":";
    append_text(buffer_, name);
}

void timeline::end_event() {
    buffer_ += '}';
    if (buffer_.size() >= buffer_bytes) flush();
}

void timeline::add_arguments(arguments values) {
    if (values.size() == 0) return;
    buffer_ += ",\"args\":{";
    bool first = true;
    for (const timeline_argument &argument : values) {
        if (!std::exchange(first, false)) buffer_ += ',';
        append_text(buffer_, argument.key);
        buffer_ += ':';
        std::visit(
            [&](const auto &value) {
                using type = std::decay_t<decltype(value)>;
                if constexpr (std::is_same_v<type, std::string_view>)
                    append_text(buffer_, value);
                else if constexpr (std::is_same_v<type, double>)
                    append_number_or_text(buffer_, value);
                else
                    append_number(buffer_, value);
            },
            argument.value);
    }
    buffer_ += '}';
}

void timeline::span(uint32_t track, std::string_view name, uint64_t start_ns, uint64_t duration_ns,
                    arguments values) {
    if (!admit(track, start_ns)) return;
    begin_event('X', rows_[track], name);
    buffer_ += ",\"ts\":";
    append_microseconds(buffer_, start_ns);
    buffer_ += ",\"dur\":";
    append_microseconds(buffer_, duration_ns);
    add_arguments(values);
    end_event();
}

void timeline::flush() {
    file_->write(std::as_bytes(std::span(buffer_)));
    buffer_.clear();
}

status timeline::close() {
    if (file_) {
        buffer_ += "\n],\"otherData\":{\"events\":";
        append_number(buffer_, events_);
        buffer_ += ",\"events_left_out\":";
        append_number(buffer_, left_out_);
        buffer_ += "}}\n";
        flush();
        ended_ = file_->commit();
        if (!ended_) ended_ = error{"timeline " + ended_.failure().text};
        file_.reset();
    }
    return ended_;
}

}  // namespace moorage::core
