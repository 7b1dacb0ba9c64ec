// text.h - formatting, and helpers for error messages. The only file that includes the format
// library.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moorage::core {

// The library's function as an object. A function would be subject to argument-dependent lookup:
// with a std::string argument, the call would also find the compiler's std::format().
struct text_formatter {
    template <class... Values>
    std::string operator()(fmt::format_string<Values...> form, Values &&...values) const {
        return fmt::format(form, std::forward<Values>(values)...);
    }
};
inline constexpr text_formatter format{};

// The candidate with the smallest edit distance to `word`. "" if none is near: the limit is a third
// of the longer length, but at least 2.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// "; did you mean lru" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);
// "a, b and c": `last` is the word before the last item.
std::string listed(std::span<const std::string> words, std::string_view last);
std::vector<std::string> split(std::string_view text, char separator);
// 12.3 GB, 4.56 MB, 789 B: three significant digits, powers of ten.
std::string human_bytes(double bytes);

}  // namespace moorage::core
