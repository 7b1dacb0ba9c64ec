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

void append_arguments(std::string &out, timeline_arguments values) {
    if (values.size() == 0) return;
    out += ",\"args\":{";
    bool first = true;
    for (const timeline_argument &argument : values) {
        if (!std::exchange(first, false)) out += ',';
        append_text(out, argument.key);
        out += ':';
        std::visit(
            [&](const auto &value) {
                using type = std::decay_t<decltype(value)>;
                if constexpr (std::is_same_v<type, std::string_view>)
                    append_text(out, value);
                else if constexpr (std::is_same_v<type, double>)
                    append_number_or_text(out, value);
                else
                    append_number(out, value);
            },
            argument.value);
    }
    out += '}';
}

class trace_events final : public timeline_format {
public:
    void begin(std::string &out) override {
        out += "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    }
    void process(std::string &out, const timeline_place &of, std::string_view name) override {
        name_event(out, "process_name", of, name);
    }
    void row(std::string &out, const timeline_place &of, bool counts) override {
        if (counts) return;  // known by its name
        name_event(out, "thread_name", of, of.name);
        begin_event(out, 'M', of, "thread_sort_index");
        out += ",\"args\":{\"sort_index\":";
        append_number(out, of.thread);
        out += "}}";
    }
    void span(std::string &out, const timeline_place &at, std::string_view name, uint64_t start_ns,
              uint64_t duration_ns, timeline_arguments values, timeline_flow flow) override {
        begin_event(out, 'X', at, name);
        out += ",\"ts\":";
        append_microseconds(out, start_ns);
        out += ",\"dur\":";
        append_microseconds(out, duration_ns);
        append_arguments(out, values);
        out += '}';
        if (flow.id == 0) return;
        begin_event(out, flow.ends ? 'f' : 's', at, "transfer");
        out += flow.ends ? ",\"bp\":\"e\",\"cat\":\"flow\",\"id\":" : ",\"cat\":\"flow\",\"id\":";
        append_number(out, flow.id);
        out += ",\"ts\":";
        append_microseconds(out, start_ns);
        out += '}';
    }
    void instant(std::string &out, const timeline_place &at, std::string_view name, uint64_t at_ns,
                 timeline_arguments values, bool everywhere) override {
        begin_event(out, 'i', at, name);
        out += everywhere ? ",\"s\":\"g\",\"ts\":" : ",\"s\":\"t\",\"ts\":";
        append_microseconds(out, at_ns);
        append_arguments(out, values);
        out += '}';
    }
    void value(std::string &out, const timeline_place &at, uint64_t at_ns, double value) override {
        begin_event(out, 'C', at, at.name);
        out += ",\"ts\":";
        append_microseconds(out, at_ns);
        out += ",\"args\":{\"value\":";
        append_number(out, value);
        out += "}}";
    }
    void end(std::string &out, uint64_t events, uint64_t left_out) override {
        out += "\n],\"otherData\":{\"events\":";
        append_number(out, events);
        out += ",\"events_left_out\":";
        append_number(out, left_out);
        out += "}}\n";
    }

private:
    void begin_event(std::string &out, char phase, const timeline_place &of,
                     std::string_view name) {
        out += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
        first_ = false;
        out += phase;
        out += "\",\"pid\":";
        append_number(out, of.process);
        out += ",\"tid\":";
        append_number(out, of.thread);
        out += ",\"name\":";
        append_text(out, name);
    }
    void name_event(std::string &out, std::string_view kind, const timeline_place &of,
                    std::string_view name) {
        begin_event(out, 'M', of, kind);
        out += ",\"args\":{\"name\":";
        append_text(out, name);
        out += "}}";
    }

    bool first_ = true;
};

}  // namespace

std::unique_ptr<timeline_format> json_timeline() { return std::make_unique<trace_events>(); }

}  // namespace moorage::core
