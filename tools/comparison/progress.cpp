// progress.cpp - draws the progress line with plain writes, past the buffers of any stream.
#include "tools/comparison/progress.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stop_token>
#include <system_error>
#include <utility>

#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds draw_interval = 100ms;
constexpr size_t what_columns_max = 30;
constexpr size_t line_columns_max = 79;

bool is_terminal(int descriptor) {
    const char *kind = std::getenv("TERM");
    return isatty(descriptor) == 1 && std::string_view(kind ? kind : "") != "dumb";
}

std::string clock_time(uint64_t seconds) {
    if (seconds >= 3600)
        return format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    return format("{}:{:02}", seconds / 60, seconds % 60);
}

// 950, 12.3 k, 4.56 M, 7.80 G: counts, three significant digits.
std::string short_count(uint64_t count) {
    static constexpr const char *suffixes[] = {"", " k", " M", " G", " T", " P", " E"};
    if (count < 1000) return format("{}", count);
    double value = double(count);
    size_t suffix = 0;
    while (value >= 999.5 && suffix + 1 < std::size(suffixes)) value /= 1000, ++suffix;
    const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return format("{:.{}f}{}", value, digits, suffixes[suffix]);
}

void write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(descriptor, text.data(), text.size());
        if (written <= 0) return;  // a lost progress line is no failure of the work
        text.remove_prefix(size_t(written));
    }
}

}  // namespace

std::string progress_line(std::string_view label, uint64_t done, uint64_t total,
                          std::chrono::nanoseconds elapsed) {
    constexpr size_t bar_columns = 20;
    constexpr double left_s_max = 1e9;  // 32 years: more is no use, and must fit an integer
    const std::string name = shortened(label, what_columns_max);
    if (total == 0) return format("{}  {}", name, short_count(done));
    const double share = std::min(1.0, double(done) / double(total));
    const size_t filled = size_t(share * double(bar_columns));
    std::string line = format("{}  [{}{}] {:3.0f} %  {}/{}", name, std::string(filled, '#'),
                              std::string(bar_columns - filled, '-'), std::floor(share * 100),
                              short_count(done), short_count(total));
    const double elapsed_s = std::chrono::duration<double>(elapsed).count();
    if (elapsed_s >= 1 && done > 0 && done < total)
        line += format(
            "  {} left",
            clock_time(uint64_t(std::min(elapsed_s * (1 - share) / share + 0.5, left_s_max))));
    return shortened(line, line_columns_max);  // a wrapped line could not be wiped
}

progress::progress(std::string label, uint64_t total, int descriptor)
    : label_(std::move(label)),
      total_(total),
      descriptor_(descriptor),
      shown_(is_terminal(descriptor)),
      begin_(std::chrono::steady_clock::now()),
      shared_(make_counters()) {
    // Short work shows nothing: the first line comes after one interval.
    shared_->next_draw_ns = draw_interval.count();
}

std::unique_ptr<progress::counters, progress::unmapping> progress::make_counters() {
    void *page =
        mmap(nullptr, sizeof(counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    return std::unique_ptr<counters, unmapping>(new (page) counters);
}

void progress::unmapping::operator()(counters *counters) const {
    munmap(counters, sizeof(*counters));
}

progress::~progress() {
    const std::lock_guard lock(drawing_);
    if (shared_->drawn) write_all(descriptor_, "\r\033[K");
}

void progress::advance(uint64_t steps) {
    const uint64_t done = shared_->done.fetch_add(steps, std::memory_order_relaxed) + steps;
    if (!shown_) return;
    const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - begin_;
    int64_t due_ns = shared_->next_draw_ns.load(std::memory_order_relaxed);
    if (elapsed.count() < due_ns) return;
    const int64_t next_ns = elapsed.count() + draw_interval.count();
    if (shared_->next_draw_ns.compare_exchange_strong(due_ns, next_ns)) draw(done, elapsed);
}

loading_line::loading_line(std::string label, bool hidden, int descriptor)
    : label_(std::move(label)), descriptor_(descriptor) {
    if (hidden || !is_terminal(descriptor)) return;
    const auto run = [this](std::stop_token stop) {
        std::mutex sleeping;
        std::condition_variable_any wake;
        const auto begin = std::chrono::steady_clock::now();
        std::unique_lock lock(sleeping);
        // Short work shows nothing.
        while (!wake.wait_for(lock, stop, draw_interval, [&] { return stop.stop_requested(); }))
            draw(std::chrono::steady_clock::now() - begin);
    };
    try {
        clock_ = std::jthread(run);
    } catch (const std::system_error &) {
        // No thread for it: the work goes on without the line.
    }
}

void loading_line::wipe() {
    if (!clock_.joinable()) return;
    clock_.request_stop();
    clock_.join();
    if (drawn_) write_all(descriptor_, "\r\033[K");
}

void loading_line::draw(std::chrono::nanoseconds elapsed) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(elapsed).count();
    const std::string text = format("{}  {}", label_, clock_time(static_cast<uint64_t>(seconds)));
    write_all(descriptor_, "\r" + shortened(text, line_columns_max) + "\033[K");
    drawn_ = true;
}

void progress::draw(uint64_t done, std::chrono::nanoseconds elapsed) {
    const std::lock_guard lock(drawing_);
    write_all(descriptor_, "\r" + progress_line(label_, done, total_, elapsed) + "\033[K");
    shared_->drawn = true;
}

}  // namespace moorage::core
