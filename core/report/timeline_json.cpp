// timeline_json.cpp - Chrome trace events, written by hand: a document in memory would not hold
// millions of them.
#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "core/base/json_fwd.h"
#include "core/report/timeline_format.h"

namespace moorage::core {

namespace {

void append_text(std::string &buffer, std::string_view text) {
    const bool plain = std::all_of(text.begin(), text.end(), [](char character) {
        return character >= ' ' && character < '\x7f' && character != '"' && character != '\\';
    });
    if (plain) {
        buffer += '"';
        buffer += text;
        buffer += '"';
        return;
    }
    // Rare. Bytes that are no UTF-8 are replaced, or no reader would take the file.
    buffer += json_quoted(text);
}

template <class Number>
requires std::is_arithmetic_v<Number>
void append_number(std::string &buffer, Number number) {
    char digits[32];
    const auto [end, failure] = std::to_chars(digits, digits + sizeof digits, number);
    assert(failure == std::errc());
    buffer.append(digits, end);
}

void append_number_or_text(std::string &buffer, double number) {
    if (std::isfinite(number))
        append_number(buffer, number);
    else
        append_text(buffer, std::isnan(number) ? "not a number" : "infinite");
}

// The format counts in microseconds; three decimals keep the nanoseconds.
void append_microseconds(std::string &buffer, uint64_t ns) {
    append_number(buffer, ns / 1000);
    const uint64_t rest = ns % 1000;
    const char decimals[] = {'.', char('0' + rest / 100), char('0' + rest / 10 % 10),
                             char('0' + rest % 10)};
    buffer.append(decimals, sizeof decimals);
}

void append_arguments(std::string &buffer, timeline_arguments values) {
    if (values.size() == 0) return;
    buffer += ",\"args\":{";
    bool first = true;
    for (const timeline_argument &argument : values) {
        if (!std::exchange(first, false)) buffer += ',';
        append_text(buffer, argument.key);
        buffer += ':';
        std::visit(
            [&](const auto &value) {
                using type = std::decay_t<decltype(value)>;
                if constexpr (std::is_same_v<type, std::string_view>)
                    append_text(buffer, value);
                else if constexpr (std::is_same_v<type, double>)
                    append_number_or_text(buffer, value);
                else
                    append_number(buffer, value);
            },
            argument.value);
    }
    buffer += '}';
}

class trace_events final : public timeline_format {
public:
    void begin(std::string &buffer) override {
        buffer += "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    }
    void process(std::string &buffer, const timeline_place &place, std::string_view name) override {
        name_event(buffer, "process_name", place, name);
    }
    void row(std::string &buffer, const timeline_place &place, bool counts) override {
        if (counts) return;  // known by its name
        name_event(buffer, "thread_name", place, place.name);
        begin_event(buffer, 'M', place, "thread_sort_index");
        buffer += ",\"args\":{\"sort_index\":";
        append_number(buffer, place.thread);
        buffer += "}}";
    }
    void span(std::string &buffer, const timeline_place &place, std::string_view name,
              uint64_t start_ns, uint64_t duration_ns, timeline_arguments values,
              timeline_flow flow) override {
        begin_event(buffer, 'X', place, name);
        buffer += ",\"ts\":";
        append_microseconds(buffer, start_ns);
        buffer += ",\"dur\":";
        append_microseconds(buffer, duration_ns);
        append_arguments(buffer, values);
        buffer += '}';
        if (flow.id == 0) return;
        begin_event(buffer, flow.ends ? 'f' : 's', place, "transfer");
        buffer +=
            flow.ends ? ",\"bp\":\"e\",\"cat\":\"flow\",\"id\":" : ",\"cat\":\"flow\",\"id\":";
        append_number(buffer, flow.id);
        buffer += ",\"ts\":";
        append_microseconds(buffer, start_ns);
        buffer += '}';
    }
    void instant(std::string &buffer, const timeline_place &place, std::string_view name,
                 uint64_t at_ns, timeline_arguments values, bool everywhere) override {
        begin_event(buffer, 'i', place, name);
        buffer += everywhere ? ",\"s\":\"g\",\"ts\":" : ",\"s\":\"t\",\"ts\":";
        append_microseconds(buffer, at_ns);
        append_arguments(buffer, values);
        buffer += '}';
    }
    void value(std::string &buffer, const timeline_place &place, uint64_t at_ns,
               double value) override {
        begin_event(buffer, 'C', place, place.name);
        buffer += ",\"ts\":";
        append_microseconds(buffer, at_ns);
        buffer += ",\"args\":{\"value\":";
        append_number(buffer, value);
        buffer += "}}";
    }
    void end(std::string &buffer, uint64_t events, uint64_t left_out) override {
        buffer += "\n],\"otherData\":{\"events\":";
        append_number(buffer, events);
        buffer += ",\"events_left_out\":";
        append_number(buffer, left_out);
        buffer += "}}\n";
    }

private:
    void begin_event(std::string &buffer, char phase, const timeline_place &place,
                     std::string_view name) {
        buffer += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
        first_ = false;
        buffer += phase;
        buffer += "\",\"pid\":";
        append_number(buffer, place.process);
        buffer += ",\"tid\":";
        append_number(buffer, place.thread);
        buffer += ",\"name\":";
        append_text(buffer, name);
    }
    void name_event(std::string &buffer, std::string_view kind, const timeline_place &place,
                    std::string_view name) {
        begin_event(buffer, 'M', place, kind);
        buffer += ",\"args\":{\"name\":";
        append_text(buffer, name);
        buffer += "}}";
    }

    bool first_ = true;
};

}  // namespace

std::unique_ptr<timeline_format> json_timeline() { return std::make_unique<trace_events>(); }

}  // namespace moorage::core
