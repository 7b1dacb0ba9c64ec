// log.h - the program's log: one line per message on standard error, through spdlog.
#pragma once

#include <cstdint>
#include <string_view>

namespace moorage::core {

enum class log_level { debug, info, warning, error, off };

// Messages below the level are dropped. Default: warning. Thread-safe.
void set_log_level(log_level level);

// Nothing is logged while it lives. For work that is done a second time and was logged the first
// time.
class silent_log {
public:
    silent_log();
    ~silent_log() { set_log_level(previous_level_); }
    silent_log(const silent_log &) = delete;
    silent_log &operator=(const silent_log &) = delete;

private:
    log_level previous_level_ = log_level::off;
};

// Are messages of this level written? Ask before building a text that is expensive.
bool is_logged(log_level level);
void log_debug(std::string_view text);
void log_info(std::string_view text);
void log_warning(std::string_view text);
void log_error(std::string_view text);

}  // namespace moorage::core
