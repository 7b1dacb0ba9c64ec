// log.cpp - the only file that includes spdlog.
#include "core/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "core/base/visible.h"

namespace moorage::core {

namespace {

spdlog::logger &logger() {
    static const auto instance = [] {
        auto stderr_logger = std::make_shared<spdlog::logger>(
            "moorage", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        stderr_logger->set_pattern("moorage: %l: %v");
        stderr_logger->set_level(spdlog::level::warn);
        return stderr_logger;
    }();
    return *instance;
}

void log(spdlog::level::level_enum level, std::string_view text) {
    if (logger().should_log(level)) logger().log(level, "{}", visible(with_short_words(text)));
}

}  // namespace

namespace {

spdlog::level::level_enum spdlog_level(log_level level) {
    static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug,
                                                           spdlog::level::info, spdlog::level::warn,
                                                           spdlog::level::err, spdlog::level::off};
    return levels[static_cast<size_t>(level)];
}

}  // namespace

void set_log_level(log_level level) { logger().set_level(spdlog_level(level)); }
silent_log::silent_log() {
    for (const log_level level :
         {log_level::error, log_level::warning, log_level::info, log_level::debug})
        if (is_logged(level)) previous_level_ = level;
    set_log_level(log_level::off);
}
bool is_logged(log_level level) { return logger().should_log(spdlog_level(level)); }
void log_debug(std::string_view text) { log(spdlog::level::debug, text); }
void log_info(std::string_view text) { log(spdlog::level::info, text); }
void log_warning(std::string_view text) { log(spdlog::level::warn, text); }
void log_error(std::string_view text) { log(spdlog::level::err, text); }

}  // namespace moorage::core
