// gguf.cpp - reads a header in one pass without leaving the file, then finds the tensors' bytes and
// the files of a split model.
#include "core/model/gguf.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cctype>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "core/base/foreign_file.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 4> magic = {'G', 'G', 'U', 'F'};
constexpr uint64_t name_bytes_max = 1 << 16, alignment_max = 1 << 20, parts_max = 9999;
constexpr uint32_t dimensions_max = 4, list_depth_max = 16;

using value_type = gguf_type;
constexpr uint32_t value_types = 13;
constexpr std::array<uint32_t, value_types> value_bytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// A type of tensors: bytes per block, and values per block of a row.
struct tensor_type {
    uint32_t id;
    const char *name;
    uint32_t block, bytes;  // 0: removed from ggml
};
// Types that nothing here computes with (ggml.h, ggml-common.h).
constexpr tensor_type other_types[] = {
    {4, "Q4_2", 0, 0},        {5, "Q4_3", 0, 0},        {9, "Q8_1", 32, 36},
    {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},
    {40, "NVFP4", 64, 36}};

const weight_format *format_of_id(uint32_t id) {
    const auto *found = std::ranges::find(weight_formats, id, &weight_format::gguf_id);
    return id == no_gguf_id || found == std::end(weight_formats) ? nullptr : found;
}

template <class Value>
Value read_at(const std::byte *bytes) {
    Value value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

double number_at(value_type type, const std::byte *bytes) {
    switch (type) {
        case value_type::u8:
        case value_type::boolean:
            return read_at<uint8_t>(bytes);
        case value_type::i8:
            return read_at<int8_t>(bytes);
        case value_type::u16:
            return read_at<uint16_t>(bytes);
        case value_type::i16:
            return read_at<int16_t>(bytes);
        case value_type::u32:
            return read_at<uint32_t>(bytes);
        case value_type::i32:
            return read_at<int32_t>(bytes);
        case value_type::f32:
            return read_at<float>(bytes);
        case value_type::u64:
            return static_cast<double>(read_at<uint64_t>(bytes));
        case value_type::i64:
            return static_cast<double>(read_at<int64_t>(bytes));
        case value_type::f64:
            return read_at<double>(bytes);
        default:
            return 0;
    }
}

gguf_value value_of(value_type type, const std::byte *bytes) {
    switch (type) {
        case value_type::boolean:
            return read_at<uint8_t>(bytes) != 0;
        case value_type::f32:
        case value_type::f64:
            return number_at(type, bytes);
        case value_type::u64:
            return read_at<uint64_t>(bytes);
        case value_type::i64:
            return read_at<int64_t>(bytes);
        default:
            return static_cast<int64_t>(number_at(type, bytes));
    }
}

// Reads from the beginning. After the first failure everything is empty.
class header_reader {
public:
    header_reader(std::span<const std::byte> file, const std::string &name)
        : file_(file), name_(name) {}

    bool failed() const { return failure_.has_value(); }
    const error &failure() const { return *failure_; }
    uint64_t position() const { return position_; }
    uint64_t bytes_left() const { return file_.size() - position_; }
    std::span<const std::byte> bytes_since(uint64_t begin) const {
        return file_.subspan(begin, position_ - begin);
    }
    void fail(const std::string &problem) {
        if (!failure_) failure_ = error{format("{}: {}", name_, problem)};
    }

    std::span<const std::byte> take(uint64_t bytes, const std::string &label) {
        if (failed()) return {};
        if (bytes > bytes_left()) {
            fail(file_.empty() ? "is empty; was it downloaded?"
                               : format("{} of {} bytes at {} reaches beyond the {} bytes of the "
                                        "file; is the file complete?",
                                        label, bytes, position_, file_.size()));
            return {};
        }
        const auto taken = file_.subspan(position_, bytes);
        position_ += bytes;
        return taken;
    }
    template <class Value>
    Value number(const std::string &label) {
        const auto bytes = take(sizeof(Value), label);
        return bytes.empty() ? Value{} : read_at<Value>(bytes.data());
    }
    std::string_view text(const std::string &label, uint64_t bytes_max = UINT64_MAX) {
        const auto length = number<uint64_t>("the length of " + label);
        if (!failed() && length > bytes_max)
            fail(format("{} has {} bytes; {} is the limit", label, length, bytes_max));
        const auto bytes = take(length, label);
        return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
    }
    // Reads a count of items that take at least `element_bytes` bytes.
    uint64_t count(const std::string &label, uint64_t element_bytes) {
        const auto elements = number<uint64_t>(label);
        if (!failed() && elements > bytes_left() / element_bytes)
            fail(format(
                "{} is {}, more than the {} bytes that follow can hold; is the file complete?",
                label, elements, bytes_left()));
        return failed() ? 0 : elements;
    }

private:
    std::span<const std::byte> file_;
    const std::string &name_;
    std::optional<error> failure_;
    uint64_t position_ = 0;
};

gguf_value read_array(header_reader &reader, const std::string &key, uint32_t depth = 0);

// Skips the arrays in an array. Each has its own type and number of elements.
gguf_value skip_lists(header_reader &reader, const std::string &key, uint32_t depth) {
    constexpr uint64_t header_bytes = sizeof(uint32_t) + sizeof(uint64_t);
    if (depth == list_depth_max) {
        reader.fail(format("{}: lists lie in lists {} deep; {} is the limit", key, depth + 1,
                           list_depth_max));
        return false;
    }
    const uint64_t count = reader.count("the number of elements of " + key, header_bytes);
    for (uint64_t i = 0; i < count && !reader.failed(); ++i) read_array(reader, key, depth + 1);
    return gguf_lists{count};
}

gguf_value read_array(header_reader &reader, const std::string &key, uint32_t depth) {
    const auto type = reader.number<uint32_t>("the type of the elements of " + key);
    if (reader.failed()) return false;
    if (type >= value_types) {
        reader.fail(format("{}: elements of type {}, which does not exist", key, type));
        return false;
    }
    if (type == static_cast<uint32_t>(value_type::array)) return skip_lists(reader, key, depth);
    if (type == static_cast<uint32_t>(value_type::text)) {
        gguf_texts texts;
        const uint64_t count = reader.count("the number of elements of " + key, sizeof(uint64_t));
        texts.reserve(count);
        const std::string label = "a text of " + key;
        for (uint64_t i = 0; i < count && !reader.failed(); ++i)
            texts.push_back(reader.text(label));
        return texts;
    }
    const uint64_t count = reader.count("the number of elements of " + key, value_bytes[type]);
    return gguf_numbers{type, reader.take(count * value_bytes[type], "the elements of " + key),
                        count};
}

void read_metadata(header_reader &reader, uint64_t count, gguf_header &header) {
    for (uint64_t i = 0; i < count && !reader.failed(); ++i) {
        const std::string key(reader.text(format("key {}", i), name_bytes_max));
        const uint64_t begin = reader.position();
        const auto type = reader.number<uint32_t>("the type of a key");
        if (reader.failed()) return;
        if (key.empty()) return reader.fail(format("key {} has no name", i));
        const std::string label = printable(key);
        gguf_value value;
        if (type == static_cast<uint32_t>(value_type::text)) {
            value = reader.text(label);
        } else if (type == static_cast<uint32_t>(value_type::array)) {
            value = read_array(reader, label);
        } else if (type < value_types) {
            const auto bytes = reader.take(value_bytes[type], label);
            if (!reader.failed()) value = value_of(static_cast<value_type>(type), bytes.data());
        } else {
            return reader.fail(format("{} is of type {}, which does not exist", label, type));
        }
        if (reader.failed()) return;
        header.keys.push_back({key, reader.bytes_since(begin)});
        if (!header.metadata.emplace(key, std::move(value)).second)
            reader.fail(format("{} is there twice", label));
    }
}

// Bytes of a tensor, with its dimensions checked; 0 after a failure.
uint64_t bytes_of_tensor(header_reader &reader, const gguf_tensor &tensor,
                         const tensor_type &type) {
    const std::string label = printable(tensor.name);
    uint64_t values = 1;
    for (const uint64_t extent : tensor.shape) {
        if (extent == 0 || extent > (uint64_t{1} << 56) / values) {
            reader.fail(format("tensor {}: the shape {} is of no tensor that fits a file", label,
                               shape_text(tensor.shape)));
            return 0;
        }
        values *= extent;
    }
    if (tensor.shape.back() % type.block == 0) return values / type.block * type.bytes;
    reader.fail(format("tensor {}: rows of {} values are no whole blocks of {}, which have {}",
                       label, tensor.shape.back(), type.name, type.block));
    return 0;
}

// Reads an entry of the tensor table. Its bytes are found later.
gguf_tensor read_tensor(header_reader &reader, uint64_t number, gguf_reading reading) {
    gguf_tensor tensor;
    tensor.name = reader.text(format("the name of tensor {}", number), name_bytes_max);
    const std::string label = format("tensor {}", printable(tensor.name));
    const auto dimensions = reader.number<uint32_t>(label);
    if (!reader.failed() && dimensions > dimensions_max)
        reader.fail(format("{} has {} dimensions; at most {} are supported", label, dimensions,
                           dimensions_max));
    for (uint32_t i = 0; i < dimensions && !reader.failed(); ++i)
        tensor.shape.push_back(reader.number<uint64_t>(label));
    if (tensor.shape.empty()) tensor.shape = {1};
    std::ranges::reverse(tensor.shape);
    const auto id = reader.number<uint32_t>(label);
    tensor.offset_bytes = reader.number<uint64_t>(label);
    if (reader.failed()) return tensor;
    if (const weight_format *known = format_of_id(id)) {
        tensor.type = known->type;
        tensor.stored_bytes =
            bytes_of_tensor(reader, tensor, {id, known->name, known->block, known->bytes});
        return tensor;
    }
    const auto *unsupported = std::ranges::find(other_types, id, &tensor_type::id);
    const bool named = unsupported != std::end(other_types);
    tensor.other_type = named ? format("{} ({})", id, unsupported->name) : format("{}", id);
    if (named && unsupported->block != 0)
        tensor.stored_bytes = bytes_of_tensor(reader, tensor, *unsupported);
    else if (reading == gguf_reading::sizes)
        reader.fail(format("{} is of type {}; supported are {}", label, tensor.other_type,
                           supported_gguf_types()));
    return tensor;
}

uint64_t read_alignment(header_reader &reader, const gguf_metadata &metadata) {
    if (!metadata.contains("general.alignment")) return 32;
    const auto alignment = gguf_count(metadata, "general.alignment");
    if (alignment && *alignment >= 4 && *alignment <= alignment_max &&
        (*alignment & (*alignment - 1)) == 0)
        return *alignment;
    reader.fail(format("general.alignment is {}; a power of two from 4 to {} is needed",
                       alignment ? format("{}", *alignment) : "no whole number", alignment_max));
    return 32;
}

// Gives every tensor its bytes. They must be within the file, aligned, and not overlap.
void place_tensors(header_reader &reader, std::span<const std::byte> file, uint64_t alignment,
                   gguf_header &header) {
    const std::span<const std::byte> data =
        file.subspan(std::min<uint64_t>(header.data_offset, file.size()));
    std::vector<size_t> order(header.tensors.size());
    for (size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
        gguf_tensor &tensor = header.tensors[i];
        if (tensor.offset_bytes % alignment != 0)
            return reader.fail(
                format("tensor {}: the offset {} is no multiple of the alignment, {}",
                       printable(tensor.name), tensor.offset_bytes, alignment));
        if (tensor.offset_bytes > data.size() ||
            tensor.stored_bytes > data.size() - tensor.offset_bytes)
            return reader.fail(format(
                "tensor {}: {} bytes at {} reach beyond the {} bytes of data; is "
                "the file complete?",
                printable(tensor.name), tensor.stored_bytes, tensor.offset_bytes, data.size()));
        tensor.bytes = data.subspan(tensor.offset_bytes, tensor.stored_bytes);
    }
    std::ranges::sort(order, {}, [&](size_t i) { return header.tensors[i].offset_bytes; });
    for (size_t i = 1; i < order.size(); ++i) {
        const gguf_tensor &previous = header.tensors[order[i - 1]],
                          &tensor = header.tensors[order[i]];
        if (previous.offset_bytes + previous.bytes.size() > tensor.offset_bytes)
            return reader.fail(format("tensors {} and {} share bytes", printable(previous.name),
                                      printable(tensor.name)));
    }
}

}  // namespace

double gguf_numbers::at(uint64_t index) const {
    assert(index < count);
    return number_at(static_cast<value_type>(type), bytes.data() + index * value_bytes[type]);
}

std::string supported_gguf_types() {
    std::vector<std::string> names;
    for (const weight_format &format : weight_formats) {
        if (format.gguf_id == no_gguf_id) continue;
        names.emplace_back(format.name);
        for (char &letter : names.back()) letter = static_cast<char>(std::toupper(letter));
    }
    return listed(names, "and");
}

bool is_same_shape(std::span<const uint64_t> left, std::span<const uint64_t> right) {
    while (!left.empty() && left.front() == 1) left = left.subspan(1);
    while (!right.empty() && right.front() == 1) right = right.subspan(1);
    return std::ranges::equal(left, right);
}

uint64_t gguf_tensor::values() const {
    uint64_t product = 1;
    for (const uint64_t extent : shape) product *= extent;
    return product;
}

result<gguf_header> parse_gguf(std::span<const std::byte> file, const std::string &name,
                               gguf_reading reading) {
    header_reader reader(file, name);
    const auto first = reader.take(magic.size(), "the magic number");
    if (!reader.failed() && std::memcmp(first.data(), magic.data(), magic.size()) != 0) {
        const std::string foreign = non_text_problem(file);
        reader.fail(!foreign.empty() ? foreign
                    : first[0] == std::byte{'<'}
                        ? "is no GGUF file but a page of the web; download it again"
                        : "is no GGUF file: it does not begin with GGUF");
    }
    const auto version = reader.number<uint32_t>("the version");
    if (!reader.failed() && (version == 0x03000000u || version == 0x02000000u))
        reader.fail(
            "its numbers have their highest byte first; files of such machines are not "
            "supported");
    if (!reader.failed() && version != 2 && version != 3)
        reader.fail(format("GGUF version {}; 2 and 3 are supported", version));
    // A tensor takes at least a name, a dimension, a type and an offset. A key takes its name and
    // value.
    const uint64_t tensors = reader.count("the number of tensors", 32);
    const uint64_t keys = reader.count("the number of keys", 13);
    gguf_header header;
    read_metadata(reader, keys, header);
    for (uint64_t i = 0; i < tensors && !reader.failed(); ++i)
        header.tensors.push_back(read_tensor(reader, i, reading));
    const uint64_t alignment = reader.failed() ? 32 : read_alignment(reader, header.metadata);
    header.data_offset = (reader.position() + alignment - 1) / alignment * alignment;
    if (!reader.failed() && reading == gguf_reading::weights)
        place_tensors(reader, file, alignment, header);
    if (reader.failed()) return reader.failure();
    return header;
}

bool is_gguf(const fs::path &path) {
    std::error_code code;
    if (path.extension() == ".gguf") return !fs::is_directory(path, code);
    if (!fs::is_regular_file(path, code)) return false;
    std::array<char, 4> first{};
    std::ifstream(path, std::ios::binary).read(first.data(), first.size());
    return first == magic;
}

result<gguf_header> gguf_files::add(const fs::path &path) {
    auto opened = std::make_unique<file>();
    opened->path = path.string();
    result<mapped_file> mapped = mapped_file::open(path);
    if (!mapped) return mapped.failure();
    opened->mapped = std::move(*mapped);
    files_.push_back(std::move(opened));
    return add(files_.back()->mapped.bytes());
}

// Reads the header of the last of files_ and adds its tensors.
result<gguf_header> gguf_files::add(std::span<const std::byte> bytes) {
    const file &kept = *files_.back();
    result<gguf_header> header = parse_gguf(bytes, kept.path, reading_);
    if (!header) return header;
    for (gguf_tensor &tensor : header->tensors) {
        tensor.file = &kept.path;
        tensors_.push_back(std::move(tensor));
    }
    return header;
}

// Adds the other parts of "NAME-00001-of-00003.gguf".
status gguf_files::add_split_parts(const fs::path &path) {
    const auto count = gguf_count(metadata_, "split.count");
    if (!count || *count <= 1) return success();
    const auto number = gguf_count(metadata_, "split.no");
    if (*count > parts_max)
        return error{format("{}: split.count is {}; at most {} parts are supported", first_path(),
                            *count, parts_max)};
    if (number != 0)
        return error{format("{}: is part {} of {}; name the first part, which has the metadata",
                            first_path(), number.value_or(0) + 1, *count)};
    const std::string name = path.filename().string(), end = format("-00001-of-{:05}.gguf", *count);
    if (!name.ends_with(end))
        return error{
            format("{}: is the first of {} parts, but its name does not end in {}, so the "
                   "others cannot be found",
                   first_path(), *count, end)};
    for (uint64_t i = 1; i < *count; ++i) {
        const fs::path part =
            path.parent_path() / format("{}-{:05}-of-{:05}.gguf",
                                        name.substr(0, name.size() - end.size()), i + 1, *count);
        const result<gguf_header> header = add(part);
        if (!header) return header.failure();
        if (gguf_count(header->metadata, "split.no") != i ||
            gguf_count(header->metadata, "split.count") != count)
            return error{
                format("{}: does not say that it is part {} of {}", part.string(), i + 1, *count)};
    }
    const auto tensors = gguf_count(metadata_, "split.tensors.count");
    if (tensors && *tensors != tensors_.size())
        return error{format("{}: split.tensors.count is {}, and the {} parts have {} tensors",
                            first_path(), *tensors, *count, tensors_.size())};
    return success();
}

status gguf_files::index_tensors() {
    for (size_t i = 0; i < tensors_.size(); ++i)
        if (!indices_.emplace(tensors_[i].name, i).second)
            return error{format("{}: tensor {} is there twice", *tensors_[i].file,
                                printable(tensors_[i].name))};
    return success();
}

result<gguf_files> gguf_files::open(const fs::path &path, gguf_reading reading) {
    gguf_files opened;
    opened.reading_ = reading;
    result<gguf_header> first = opened.add(path);
    if (!first) return first.failure();
    opened.metadata_ = std::move(first->metadata);
    opened.keys_ = std::move(first->keys);
    if (const status added = opened.add_split_parts(path); !added) return added.failure();
    if (const status done = opened.index_tensors(); !done) return done.failure();
    return opened;
}

result<gguf_files> gguf_files::parse(std::span<const std::byte> bytes, const std::string &name,
                                     gguf_reading reading) {
    gguf_files opened;
    opened.reading_ = reading;
    opened.files_.push_back(std::make_unique<file>(file{name, {}}));
    result<gguf_header> header = opened.add(bytes);
    if (!header) return header.failure();
    opened.metadata_ = std::move(header->metadata);
    opened.keys_ = std::move(header->keys);
    if (const status done = opened.index_tensors(); !done) return done.failure();
    return opened;
}

gguf_tensor *gguf_files::find(std::string_view name) {
    const auto found = indices_.find(name);
    return found == indices_.end() ? nullptr : &tensors_[found->second];
}

std::string gguf_files::find_non_mtp_layer(uint64_t layers, uint64_t mtp_layers) const {
    for (uint64_t layer = layers - std::min(mtp_layers, layers); layer < layers; ++layer) {
        const std::string prefix = format("blk.{}.nextn.", layer);
        if (std::ranges::none_of(tensors_, [&](const gguf_tensor &tensor) {
                return tensor.name.starts_with(prefix);
            }))
            return format("layer {} has no tensor {}*, so it is an ordinary one", layer, prefix);
    }
    return "";
}

const gguf_tensor *gguf_files::find(std::string_view name) const {
    const auto found = indices_.find(name);
    return found == indices_.end() ? nullptr : &tensors_[found->second];
}

std::optional<double> gguf_number(const gguf_metadata &metadata, std::string_view key) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) return std::nullopt;
    if (const auto *whole = std::get_if<int64_t>(&found->second))
        return static_cast<double>(*whole);
    if (const auto *whole = std::get_if<uint64_t>(&found->second))
        return static_cast<double>(*whole);
    if (const auto *number = std::get_if<double>(&found->second)) return *number;
    return std::nullopt;
}

std::optional<uint64_t> gguf_count(const gguf_metadata &metadata, std::string_view key) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) return std::nullopt;
    if (const auto *whole = std::get_if<int64_t>(&found->second))
        return *whole < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(*whole));
    if (const auto *whole = std::get_if<uint64_t>(&found->second)) return *whole;
    return std::nullopt;
}

std::optional<std::string_view> gguf_text(const gguf_metadata &metadata, std::string_view key) {
    const auto found = metadata.find(key);
    const auto *text =
        found == metadata.end() ? nullptr : std::get_if<std::string_view>(&found->second);
    return text == nullptr ? std::nullopt : std::optional(*text);
}

}  // namespace moorage::core
