// document.cpp - TOML text to a plain tree, with limits. The only file that includes toml++.
#include "core/config/document.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "core/base/foreign_file.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/config/toml_text.h"

// Version 3.3 of the library asserts things that depend on the text, for example what follows a
// `[`. Without assertions it assumes them, which is undefined behaviour for `[=]`. So assertions
// stay on in every build, and throw. Nesting is limited because the library frees its tree
// recursively.
namespace {
struct broken_assumption {};
[[noreturn]] void fail_assumption() { throw broken_assumption{}; }
}  // namespace
#undef NDEBUG
#define TOML_ASSERT(expression) ((expression) ? static_cast<void>(0) : fail_assumption())
#define TOML_EXCEPTIONS 1
#define TOML_HEADER_ONLY 1
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>

namespace moorage::core {

namespace {

node convert(const toml::node &source);

void convert_table(const toml::table &source, node &target) {
    for (const auto &[key, value] : source)
        target.entries.push_back({std::string(key.str()), convert(value)});
    std::stable_sort(target.entries.begin(), target.entries.end(),
                     [](const entry &a, const entry &b) { return a.value.line < b.value.line; });
}

template <class Date>
std::string date_text(const Date &date) {
    std::ostringstream stream;
    stream << date;
    return stream.str();
}

// Recursion is limited: at most TOML_MAX_NESTED_VALUES values, each of at most dots_max tables.
node convert(const toml::node &source) {
    node target;
    target.line = static_cast<uint32_t>(source.source().begin.line);
    source.visit([&target](const auto &value) {
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (toml::is_table<Value>) {
            target.type = node_type::table;
            convert_table(value, target);
        } else if constexpr (toml::is_array<Value>) {
            target.type = node_type::list;
            for (const toml::node &item : value) target.items.push_back(convert(item));
        } else if constexpr (toml::is_boolean<Value>) {
            target.type = node_type::boolean, target.boolean = value.get();
        } else if constexpr (toml::is_integer<Value>) {
            target.type = node_type::integer, target.integer = value.get();
        } else if constexpr (toml::is_floating_point<Value>) {
            target.type = node_type::number, target.number = value.get();
        } else if constexpr (toml::is_string<Value>) {
            target.type = node_type::text, target.text = decoded_text(value.get());
        } else {
            target.type = node_type::date, target.text = date_text(value.get());
        }
    });
    return target;
}

// The line of the first key that is no bare key; 0: none. No key here needs quotes, and a line
// break in a key would break a message apart.
uint32_t line_of_quoted_key(const node &value) {
    for (const node &item : value.items)
        if (const uint32_t line = line_of_quoted_key(item); line != 0) return line;
    for (const entry &inner : value.entries) {
        if (!is_bare_key(inner.key)) return std::max<uint32_t>(inner.value.line, 1);
        if (const uint32_t line = line_of_quoted_key(inner.value); line != 0) return line;
    }
    return 0;
}

// Fits the library's sentence to our messages: lower case, no full stop, one line.
std::string tidy_message(std::string_view text) {
    std::string tidied = decoded_text(text);
    std::replace_if(
        tidied.begin(), tidied.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    while (!tidied.empty() && tidied.back() == '.') tidied.pop_back();
    // Lowers "Error while ..." but not "TOML": only the capital of an ordinary word.
    if (tidied.size() > 1 && tidied[0] >= 'A' && tidied[0] <= 'Z' && tidied[1] >= 'a' &&
        tidied[1] <= 'z')
        tidied[0] = static_cast<char>(tidied[0] - 'A' + 'a');
    return tidied;
}

bool breaks_assumption(std::string_view text) {
    try {
        static_cast<void>(toml::parse(text));
    } catch (const toml::parse_error &) {
    } catch (const broken_assumption &) {
        return true;
    }
    return false;
}

// The line at which the library fails without telling its number. The library reads forward only.
// So texts that end with this line or a later one break its assumption, and shorter ones do not.
size_t line_of_broken_assumption(std::string_view text) {
    std::vector<size_t> ends;
    for (size_t newline = text.find('\n'); newline != std::string_view::npos;
         newline = text.find('\n', newline + 1))
        ends.push_back(newline + 1);
    const auto first = std::partition_point(ends.begin(), ends.end(), [&](size_t end) {
        return !breaks_assumption(text.substr(0, end));
    });
    return static_cast<size_t>(first - ends.begin()) + 1;
}

// Catches all exceptions of the library.
result<node> parse_with_library(std::string_view text, std::string_view name) {
    try {
        node root;
        root.type = node_type::table;
        convert_table(toml::parse(text), root);
        return root;
    } catch (const toml::parse_error &failure) {
        return error{format("{}:{}: not valid TOML: {}", name, failure.source().begin.line,
                            tidy_message(failure.description())),
                     true};
    } catch (const broken_assumption &) {
        return error{format("{}:{}: not valid TOML: unexpected character", name,
                            line_of_broken_assumption(text)),
                     true};
    }
}

}  // namespace

bool is_bare_key(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    });
}

const char *name_of(node_type type) {
    static constexpr const char *names[] = {"a boolean", "an integer", "a number", "text",
                                            "a date",    "a list",     "a table"};
    return names[static_cast<size_t>(type)];
}

namespace {

// A cache: rows of a comparison read the same few files and values again and again.
class parsed_documents {
public:
    std::optional<node> find(const std::string &key) {
        const std::lock_guard lock(mutex_);
        const auto found = known_.find(key);
        return found == known_.end() ? std::nullopt : std::optional(found->second);
    }
    void keep(const std::string &key, const node &root) {
        const std::lock_guard lock(mutex_);
        if (known_.size() == documents_max) known_.clear();
        known_.emplace(key, root);
    }

private:
    static constexpr size_t documents_max = 128;
    std::mutex mutex_;
    std::unordered_map<std::string, node> known_;  // by name and text
};
parsed_documents &parsed() {
    static parsed_documents &documents = *new parsed_documents;
    return documents;
}

result<node> parse_checked(std::string_view text, std::string_view name) {
    text = without_byte_order_mark(text);
    if (const status sound = check_text(text, name); !sound) return sound.failure();
    result<node> root = parse_with_library(encoded_text(text), name);
    if (!root) return root;
    if (const uint32_t line = line_of_quoted_key(*root); line != 0)
        return error{
            format("{}:{}: a key holds more than letters, digits, _ and -; rename it", name, line),
            true};
    return root;
}

}  // namespace

result<node> parse_document(std::string_view text, std::string_view name) {
    if (text.size() > document_bytes_max)
        return error{
            format("{}: {} bytes, and the limit is {}; a configuration is a small TOML file", name,
                   text.size(), document_bytes_max),
            true};
    const std::string key = std::string(name) + '\0' + std::string(text);
    if (auto known = parsed().find(key)) return std::move(*known);
    result<node> root = parse_checked(text, name);
    if (root) parsed().keep(key, *root);
    return root;
}

error no_such_file(const std::filesystem::path &file, std::string_view key) {
    constexpr size_t looked_at_max = 10'000;
    std::vector<std::string> names;
    std::error_code code;
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
    for (std::filesystem::directory_iterator found(folder, code), end;
         !code && found != end && names.size() < looked_at_max; found.increment(code))
        names.push_back(found->path().filename().string());
    std::ranges::sort(names);  // so that equally near names always give the same result
    const std::string best = nearest(file.filename().string(), names);
    const std::string hint =
        best.empty() ? "" : "; did you mean " + (file.parent_path() / best).string();
    return error{format("{}{}{}: no such file{}", key, key.empty() ? "" : " ", file.string(), hint),
                 true};
}

result<std::string> read_document(const std::filesystem::path &file) {
    std::error_code code;
    const auto kind = std::filesystem::status(file, code).type();
    if (kind == std::filesystem::file_type::not_found) return no_such_file(file);
    if (kind == std::filesystem::file_type::directory)
        return error{format("{}: is a directory, a TOML file is needed", file.string()), true};
    const result<mapped_file> mapped = mapped_file::open(file);
    if (!mapped) return mapped.failure();
    const size_t bytes = std::min<size_t>(mapped->bytes().size(), document_bytes_max + 1);
    return std::string(reinterpret_cast<const char *>(mapped->bytes().data()), bytes);
}

node parse_value(std::string_view text) {
    node plain;
    plain.text = text;
    // After a line break the text would be read as further keys.
    if (text.find_first_of("\r\n") != std::string_view::npos) return plain;
    const result<node> parsed = parse_document("value = " + std::string(text), "value");
    if (!parsed || parsed->entries.size() != 1) return plain;
    node value = parsed->entries[0].value;
    const bool has_comment = text.find('#') != std::string_view::npos;
    const bool is_figure = value.type == node_type::boolean || value.type == node_type::integer ||
                           value.type == node_type::number;
    if (value.type == node_type::date || (is_figure && has_comment)) return plain;
    const auto clear_lines = [](auto &self, node &tree) -> void {
        tree.line = 0;
        for (node &item : tree.items) self(self, item);
        for (entry &inner : tree.entries) self(self, inner.value);
    };
    clear_lines(clear_lines, value);
    return value;
}

}  // namespace moorage::core
