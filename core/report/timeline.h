// timeline.h - the work of every device over time, for ui.perfetto.dev. Written as Perfetto's
// protobuf or as Chrome trace events in JSON, compressed or not.
//
//     auto opened = timeline::open("run.pftrace");
//     timeline &shown = **opened;
//     const uint32_t compute = shown.track("GPU compute", "gpu 0");
//     shown.span(compute, "expert 5", 1200, 800, {{"layer", 3}, {"tokens", 1}});
//     shown.close();
//
// The file's name gives the format: .pftrace or .perfetto-trace, otherwise JSON. A further .gz
// compresses it. Events go to a temporary file as they come, in any order of time, and are not
// kept. close() gives the file its name; without close() no file is left. One thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/atomic_file.h"
#include "core/base/result.h"

namespace moorage::core {

// One named value shown with an event. The text is borrowed for the call.
struct timeline_argument {
    std::string_view key;
    std::variant<int64_t, uint64_t, double, std::string_view> value;

    template <std::signed_integral Integer>
    timeline_argument(std::string_view name, Integer number) : key(name), value(int64_t(number)) {}
    template <std::unsigned_integral Integer>
    timeline_argument(std::string_view name, Integer number) : key(name), value(uint64_t(number)) {}
    timeline_argument(std::string_view name, double number) : key(name), value(number) {}
    timeline_argument(std::string_view name, std::string_view text) : key(name), value(text) {}
    timeline_argument(std::string_view name, const char *text)
        : key(name), value(std::string_view(text)) {}
};
using timeline_arguments = std::initializer_list<timeline_argument>;

// An arrow from the event that begins it to the one that ends it; id 0: none.
struct timeline_flow {
    uint64_t id = 0;
    bool ends = false;
};

class timeline_format;
class gzip_writer;

class timeline {
public:
    using arguments = timeline_arguments;

    // Perfetto reads a few million events before it becomes slow. Further events are counted and
    // left out.
    static constexpr uint64_t events_max_default = 4'000'000;

    static result<std::unique_ptr<timeline>> open(const std::filesystem::path &path,
                                                  uint64_t events_max = events_max_default);
    ~timeline();
    timeline(const timeline &) = delete;
    timeline &operator=(const timeline &) = delete;

    // A row of spans, such as "GPU compute", "copy host to GPU" or "CPU pool", in the named process
    // (a device or a host). Rows are shown in the order of the first request. Asking again gives
    // the same row.
    uint32_t track(std::string_view name, std::string_view process = "device");
    // A row of values over time.
    uint32_t counter(std::string_view name, std::string_view process = "device");

    // Spans of one track either follow each other or lie within each other.
    void span(uint32_t track, std::string_view name, uint64_t start_ns, uint64_t duration_ns,
              arguments values = {}, timeline_flow flow = {});
    void instant(uint32_t track, std::string_view name, uint64_t at_ns, arguments values = {});
    // The counter has the value from then on. Infinite values are left out.
    void value(uint32_t counter, uint64_t at_ns, double value);

    // While it is off, events are left out and not counted.
    void show(bool enabled) { shown_ = enabled; }
    uint64_t events() const { return events_; }
    uint64_t events_left_out() const { return left_out_; }

    // Ends the file. Later events are ignored. Closing again returns the same status. An error says
    // that the file could not be written, now or earlier; then there is no file.
    status close();

private:
    struct row {
        uint32_t process, thread;
        std::string name;
    };

    timeline(atomic_file file, std::unique_ptr<timeline_format> format,
             std::unique_ptr<gzip_writer> compress, uint64_t events_max);
    uint32_t row_of(std::string_view name, std::string_view process, bool counts);
    bool admit(uint32_t track, uint64_t time_ns);
    void written();
    void flush(bool last);

    std::optional<atomic_file> file_;  // empty once closed
    std::unique_ptr<timeline_format> format_;
    std::unique_ptr<gzip_writer> compress_;  // null: written without compression
    status ended_ = success();
    const uint64_t events_max_;
    uint64_t events_ = 0, left_out_ = 0;
    bool shown_ = true;
    std::string buffer_;
    std::vector<row> rows_;
    std::map<std::string, uint32_t, std::less<>> processes_;
    std::map<std::pair<uint32_t, std::string>, uint32_t> tracks_;
};

}  // namespace moorage::core
