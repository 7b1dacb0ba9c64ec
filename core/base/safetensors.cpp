// safetensors.cpp - parses the header event by event, so that hostile JSON never becomes a tree.
#include "core/base/safetensors.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

struct type_entry {
    const char *name;
    uint64_t bits;
};
// In the order of `dtype`.
constexpr auto types = std::to_array<type_entry>(
    {{"BOOL", 8},        {"U8", 8},      {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
     {"U16", 16},        {"I16", 16},    {"F16", 16},    {"BF16", 16},   {"U32", 32},
     {"I32", 32},        {"F32", 32},    {"U64", 64},    {"I64", 64},    {"F64", 64},
     {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"C64", 64}});
static_assert(types.size() == static_cast<size_t>(dtype::c64) + 1);

constexpr size_t dimensions_max = 8;

// A tensor as the header declares it, before it is checked against the file.
struct declared_tensor {
    std::string name;
    std::string type;
    std::vector<uint64_t> shape, offsets;
    bool has_type = false, has_shape = false, has_offsets = false;
};

// Receives the JSON events. Every function returns false once `problem` is set.
class header_reader final : public nlohmann::json_sax<json> {
public:
    std::vector<declared_tensor> tensors;
    std::map<std::string, std::string> metadata;
    std::string problem;

    bool null() override { return unexpected("null"); }
    bool boolean(bool) override { return unexpected("a truth value"); }
    bool number_integer(number_integer_t value) override { return unexpected(format("{}", value)); }
    bool number_float(number_float_t, const string_t &text) override {
        return unexpected(printable(text));
    }
    bool binary(binary_t &) override { return unexpected("binary data"); }

    bool number_unsigned(number_unsigned_t value) override {
        if (place_ != place::list) return unexpected(format("{}", value));
        std::vector<uint64_t> &list =
            key_ == "shape" ? tensors.back().shape : tensors.back().offsets;
        const size_t limit = key_ == "shape" ? dimensions_max : 2;
        if (list.size() == limit)
            return fail(format("{}: {} has more than {} numbers", subject(), key_, limit));
        list.push_back(value);
        return true;
    }

    bool string(string_t &value) override {
        if (place_ == place::metadata) {
            metadata[key_] = value;
            return true;
        }
        if (place_ != place::tensor || key_ != "dtype") return unexpected("a string");
        tensors.back().type = value;
        tensors.back().has_type = true;
        return true;
    }

    bool start_object(size_t) override {
        if (place_ == place::outside) {
            place_ = place::top;
            return true;
        }
        if (place_ != place::top) return unexpected("an object");
        place_ = name_ == "__metadata__" ? place::metadata : place::tensor;
        if (place_ == place::tensor) tensors.push_back({}), tensors.back().name = name_;
        return true;
    }

    bool end_object() override {
        place_ = place_ == place::top ? place::outside : place::top;
        return true;
    }

    bool start_array(size_t) override {
        if (place_ != place::tensor || (key_ != "shape" && key_ != "data_offsets"))
            return unexpected("a list");
        place_ = place::list;
        (key_ == "shape" ? tensors.back().has_shape : tensors.back().has_offsets) = true;
        return true;
    }

    bool end_array() override {
        place_ = place::tensor;
        return true;
    }

    bool key(string_t &value) override {
        if (place_ == place::top) {
            if (!names_.insert(value).second)
                return fail(format("tensor {} is declared twice", printable(value)));
            name_ = value;
            return true;
        }
        key_ = value;
        if (place_ == place::metadata)
            return !metadata.contains(value) ||
                   fail(format("metadata {} is given twice", printable(value)));
        const declared_tensor &now = tensors.back();
        const bool known = value == "dtype" || value == "shape" || value == "data_offsets";
        if (!known)
            return fail(format("{}: unknown key {}; dtype, shape and data_offsets are known",
                               subject(), printable(value)));
        const bool twice = value == "dtype"   ? now.has_type
                           : value == "shape" ? now.has_shape
                                              : now.has_offsets;
        return !twice || fail(format("{}: {} is given twice", subject(), value));
    }

    bool parse_error(size_t position, const std::string &,
                     const nlohmann::detail::exception &about) override {
        return fail(format("not valid JSON at byte {} of the header: {}", position,
                           json_problem(about.what())));
    }

private:
    enum class place { outside, top, metadata, tensor, list };

    std::string subject() const {
        return place_ == place::metadata ? "metadata" : "tensor " + printable(name_);
    }
    bool fail(std::string text) {
        if (problem.empty()) problem = std::move(text);
        return false;
    }
    bool unexpected(const std::string &found) {
        switch (place_) {
            case place::outside:
                return fail(format("the header is {}, not an object", found));
            case place::top:
                return fail(format("tensor {} is {}, not an object", printable(name_), found));
            case place::metadata:
                return fail(format("metadata {} is {}, not a string", printable(key_), found));
            case place::list:
                return fail(format("{}: {} holds {}, not a whole number from 0 to 2^64 - 1",
                                   subject(), key_, found));
            case place::tensor:
                break;
        }
        return fail(format("{}: {} is {}, which has no meaning there", subject(), key_, found));
    }

    place place_ = place::outside;
    std::string name_, key_;
    std::set<std::string> names_;
};

// The tensor's bytes by type and shape. Fails if the product does not fit in 64 bits.
result<uint64_t> tensor_bytes(const declared_tensor &declaration, dtype type) {
    uint64_t bits = bits_of(type);
    // A dimension of 0 makes the tensor empty, however large the others are.
    if (std::ranges::find(declaration.shape, uint64_t{0}) != declaration.shape.end())
        return uint64_t{0};
    for (const uint64_t dimension : declaration.shape)
        if (__builtin_mul_overflow(bits, dimension, &bits))
            return error{format("tensor {}: shape {} has more bits than 64 bits can count",
                                printable(declaration.name), shape_text(declaration.shape))};
    if (bits % 8 != 0)
        return error{format("tensor {}: shape {} of {} has {} bits, no whole bytes",
                            printable(declaration.name), shape_text(declaration.shape),
                            declaration.type, bits)};
    return bits / 8;
}

// `data`: the file after the header.
result<tensor> check_tensor(const declared_tensor &declaration, std::span<const std::byte> data) {
    const std::string name = "tensor " + printable(declaration.name);
    if (!declaration.has_type || !declaration.has_shape || !declaration.has_offsets)
        return error{format("{}: {} is missing", name,
                            !declaration.has_type    ? "dtype"
                            : !declaration.has_shape ? "shape"
                                                     : "data_offsets")};
    const auto entry = std::ranges::find(types, declaration.type, &type_entry::name);
    if (entry == types.end()) {
        std::vector<std::string> known;
        for (const type_entry &known_type : types) known.emplace_back(known_type.name);
        return error{format("{}: unknown dtype {}; safetensors have {}", name,
                            printable(declaration.type), listed(known, "and"))};
    }
    const dtype type = static_cast<dtype>(entry - types.begin());
    if (declaration.offsets.size() != 2)
        return error{
            format("{}: data_offsets has {} numbers, not 2", name, declaration.offsets.size())};
    const auto [begin, end] = std::pair(declaration.offsets[0], declaration.offsets[1]);
    if (begin > end)
        return error{format("{}: data_offsets [{}, {}] end before they begin", name, begin, end)};
    if (end > data.size())
        return error{
            format("{}: data_offsets [{}, {}] leave the file, which has {} bytes of data; "
                   "is it truncated?",
                   name, begin, end, data.size())};
    const result<uint64_t> bytes = tensor_bytes(declaration, type);
    if (!bytes) return bytes.failure();
    if (*bytes != end - begin)
        return error{format("{}: shape {} of {} takes {} bytes, but data_offsets [{}, {}] hold {}",
                            name, shape_text(declaration.shape), declaration.type, *bytes, begin,
                            end, end - begin)};
    return tensor{declaration.name, type, declaration.shape, data.subspan(begin, end - begin)};
}

// Requires: sorted by offset in `data`.
status check_cover(const std::vector<tensor> &tensors, std::span<const std::byte> data) {
    uint64_t covered_bytes = 0;
    const tensor *previous = nullptr;
    for (const tensor &current : tensors) {
        const uint64_t begin = static_cast<uint64_t>(current.bytes.data() - data.data());
        if (begin < covered_bytes)
            return error{format("tensor {}: data offset {} is inside tensor {}, which ends at {}",
                                printable(current.name), begin, printable(previous->name),
                                covered_bytes)};
        if (begin > covered_bytes)
            return error{
                format("tensor {}: data offset {} leaves a gap behind byte {}, where the "
                       "tensor before it ends",
                       printable(current.name), begin, covered_bytes)};
        covered_bytes = begin + current.bytes.size();
        previous = &current;
    }
    if (covered_bytes != data.size())
        return error{format("the tensors end at byte {} of the data, but the file has {}",
                            covered_bytes, data.size())};
    return success();
}

result<uint64_t> header_length(std::span<const std::byte> file) {
    if (file.size() < 8)
        return error{format("has {} bytes; a safetensors file has at least 8", file.size())};
    uint64_t length = 0;
    for (size_t i = 0; i < 8; ++i) length |= static_cast<uint64_t>(file[i]) << (8 * i);
    if (length > header_bytes_max)
        return error{
            format("header length {} is above the limit of {} bytes; not a safetensors "
                   "file?",
                   length, header_bytes_max)};
    if (length > file.size() - 8)
        return error{
            format("header length {} is more than the {} bytes that follow; is the file "
                   "truncated?",
                   length, file.size() - 8)};
    if (length == 0 || static_cast<char>(file[8]) != '{')
        return error{"the header does not begin with {; not a safetensors file?"};
    return length;
}

result<safetensors> parse(std::span<const std::byte> file) {
    const result<uint64_t> length = header_length(file);
    if (!length) return length.failure();
    const char *text = reinterpret_cast<const char *>(file.data()) + 8;
    header_reader reader;
    if (!json::sax_parse(text, text + *length, &reader)) return error{reader.problem};

    const std::span<const std::byte> data = file.subspan(8 + *length);
    safetensors parsed;
    parsed.metadata = std::move(reader.metadata);
    for (const declared_tensor &declaration : reader.tensors) {
        result<tensor> checked = check_tensor(declaration, data);
        if (!checked) return checked.failure();
        parsed.tensors.push_back(std::move(*checked));
    }
    std::ranges::stable_sort(parsed.tensors, {}, [](const tensor &entry) {
        return std::pair(entry.bytes.data(), entry.bytes.size());
    });
    const status covered = check_cover(parsed.tensors, data);
    if (!covered) return covered.failure();
    return parsed;
}

}  // namespace

uint64_t bits_of(dtype type) { return types[static_cast<size_t>(type)].bits; }
uint64_t bytes_of(dtype type) { return (bits_of(type) + 7) / 8; }
const char *name_of(dtype type) { return types[static_cast<size_t>(type)].name; }

const tensor *safetensors::find(const std::string &name) const {
    const auto found = std::ranges::find(tensors, name, &tensor::name);
    return found == tensors.end() ? nullptr : &*found;
}

result<safetensors> parse_safetensors(std::span<const std::byte> file, const std::string &name) {
    result<safetensors> parsed = parse(file);
    if (!parsed) return error{format("{}: {}", name, parsed.failure().text)};
    return parsed;
}

std::string shape_text(std::span<const uint64_t> shape) {
    std::string text = "[";
    for (const uint64_t dimension : shape)
        text += format("{}{}", text.size() == 1 ? "" : ", ", dimension);
    return text + "]";
}

std::string printable(std::string_view text) {
    std::string clean(text.substr(0, 60));
    for (char &letter : clean)
        if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
    return text.size() > 60 ? clean + "..." : clean;
}

}  // namespace moorage::core
