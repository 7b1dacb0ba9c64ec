// log_csv.cpp - routing logs as CSV: the first line names the columns.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/csv_reader.h"
#include "core/base/log.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/source/log_reader.h"

namespace moorage::core {

namespace {

template <class Value>
result<Value> number(std::string_view text, std::string_view column) {
    Value value{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || code != std::errc() || end != text.data() + text.size())
        return error{format("column {}: {} is not a {}", column,
                            text.empty() ? "an empty cell" : printable(text),
                            std::is_floating_point_v<Value> ? "number" : "whole number in range")};
    return value;
}

// The cell numbers of the values of a row.
struct csv_columns {
    std::optional<size_t> token, layer, request, token_id, experts, weights;
    std::vector<size_t> expert, weight;  // of expert0, expert1, ...
};

// Finds columns expert0, expert1, ... without gaps.
status numbered(const std::map<std::string, size_t> &cell_of_column, const std::string &name,
                std::vector<size_t> &cells) {
    const auto found = [&](size_t k) { return cell_of_column.find(format("{}{}", name, k)); };
    for (size_t k = 0; found(k) != cell_of_column.end(); ++k) cells.push_back(found(k)->second);
    for (const auto &[column, cell] : cell_of_column) {
        uint64_t k = 0;
        if (!column.starts_with(name)) continue;
        const char *begin = column.data() + name.size(), *end = column.data() + column.size();
        const auto [stop, code] = std::from_chars(begin, end, k);
        if (begin != end && stop == end && (code != std::errc() || k >= cells.size()))
            return error{format("column {}: there is no {}{} before it", printable(column), name,
                                cells.size())};
    }
    return success();
}

result<csv_columns> find_columns(const std::vector<std::string> &names) {
    csv_columns columns;
    std::map<std::string, size_t> cell_of_column;
    for (size_t cell = 0; cell < names.size(); ++cell) cell_of_column.emplace(names[cell], cell);
    const auto take = [&cell_of_column](const char *name) {
        const auto found = cell_of_column.find(name);
        return found == cell_of_column.end() ? std::optional<size_t>()
                                             : std::optional(found->second);
    };
    columns.token = take("token");
    columns.layer = take("layer");
    columns.request = take("request");
    columns.token_id = take("token_id");
    columns.experts = take("experts");
    columns.weights = take("weights");
    if (const status right = numbered(cell_of_column, "expert", columns.expert); !right)
        return right.failure();
    if (const status right = numbered(cell_of_column, "weight", columns.weight); !right)
        return right.failure();

    const std::optional<size_t> needed[] = {columns.token, columns.layer};
    for (size_t i = 0; i < 2; ++i) {
        const std::string name = i == 0 ? "token" : "layer";
        if (!needed[i])
            return error{format("column {} is missing{}", name, did_you_mean(name, names))};
    }
    if (columns.expert.empty() == !columns.experts.has_value())
        return error{"exactly one of the columns expert0, expert1, ... and experts is needed"};
    if (!columns.weight.empty() && columns.weights)
        return error{"only one of the columns weight0, weight1, ... and weights can be read"};
    if (!columns.weight.empty() && !columns.expert.empty() &&
        columns.weight.size() != columns.expert.size())
        return error{format("columns weight: {} for {} experts", columns.weight.size(),
                            columns.expert.size())};
    std::string ignored;
    for (const auto &[name, cell] : cell_of_column) {
        const std::optional<size_t> known[] = {columns.token,    columns.layer,   columns.request,
                                               columns.token_id, columns.experts, columns.weights};
        const bool used = std::ranges::find(known, std::optional(cell)) != std::end(known) ||
                          std::ranges::find(columns.expert, cell) != columns.expert.end() ||
                          std::ranges::find(columns.weight, cell) != columns.weight.end();
        if (!used) ignored += (ignored.empty() ? "" : ", ") + printable(name);
    }
    if (!ignored.empty()) log_warning(format("columns without a meaning here: {}", ignored));
    return columns;
}

template <class Value>
status read_list(const std::vector<std::string> &cells, const std::vector<size_t> &single,
                 std::optional<size_t> list, const std::string &name, std::vector<Value> &values) {
    values.clear();
    for (size_t k = 0; k < single.size(); ++k) {
        const result<Value> value = number<Value>(cells[single[k]], format("{}{}", name, k));
        if (!value) return value.failure();
        values.push_back(*value);
    }
    if (!list) return success();
    const std::string_view text = cells[*list];
    for (size_t position = 0; position < text.size();) {
        const size_t end = std::min(text.find_first_of(" ;|,", position), text.size());
        if (end > position) {
            const result<Value> value =
                number<Value>(text.substr(position, end - position), name + "s");
            if (!value) return value.failure();
            values.push_back(*value);
        }
        position = end + 1;
    }
    return success();
}

status read_row(const std::vector<std::string> &cells, const csv_columns &columns,
                const log_builder &builder, log_row &row) {
    const result<uint64_t> token = number<uint64_t>(cells[*columns.token], "token");
    if (!token) return token.failure();
    const result<uint64_t> layer = number<uint64_t>(cells[*columns.layer], "layer");
    if (!layer) return layer.failure();
    row.token = *token;
    row.layer = *layer;
    if (columns.request) row.request = cells[*columns.request];
    if (columns.token_id) {
        const result<int64_t> id = number<int64_t>(cells[*columns.token_id], "token_id");
        if (!id) return id.failure();
        row.token_id = *id;
    }
    row.experts.clear(), row.weights.clear();
    if (!builder.keeps(row.layer)) return success();
    if (const status read =
            read_list(cells, columns.expert, columns.experts, "expert", row.experts);
        !read)
        return read;
    return read_list(cells, columns.weight, columns.weights, "weight", row.weights);
}

}  // namespace

status read_csv(line_reader &lines, log_builder &builder) {
    csv_reader records(lines, {.separators = ",;\t", .blanks = csv_blanks::remove});
    const result<bool> has_columns = records.read_columns();
    if (!has_columns) return has_columns.failure();
    if (!*has_columns) return error{"the file is empty; its first line names the columns"};
    const result<csv_columns> columns = find_columns(records.columns());
    if (!columns) return columns.failure();
    std::vector<std::string> cells;
    log_row row;
    for (;;) {
        const result<bool> has_record = records.next(cells);
        if (!has_record) return has_record.failure();
        if (!*has_record) return success();
        if (const status right = read_row(cells, *columns, builder, row); !right) return right;
        if (const status added = builder.add(row, false); !added) return added;
    }
}

}  // namespace moorage::core
