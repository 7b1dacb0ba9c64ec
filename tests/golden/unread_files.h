// unread_files.h - golden models as files in both forms, with a tensor more, a key more or a key
// less, and the result of opening one.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tools/convert/convert.h"
#include "core/model/gguf.h"
#include "tests/golden/golden_fixture.h"
#include "tests/unit/gguf_files.h"
#include "tests/unit/model_files.h"

namespace moorage::test {

inline std::vector<float> logits_of(const model &model, const std::vector<int32_t> &ids) {
    thread_pool pool(1);
    compute_limits limits;
    limits.tokens_max = limits.outputs_max = limits.context_max = static_cast<uint32_t>(ids.size());
    const auto compute = compute_of(model, pool, limits);
    forward run(*compute, model);
    run(prompt_pass(ids, 0, 0, true));
    return copied(compute->logits());
}

// A model's weights under rules that a test changes.
struct ruled_model final : model {
    ruled_model(const model &source, const std::function<void(model_config &)> &change) {
        directory_ = source.directory();
        config_ = source.config();
        weights_ = source.weights();
        change(config_);
    }
};

// One golden model in one form, and files that differ from it in one place.
class nearly_golden {
public:
    nearly_golden(const std::string &name, bool is_gguf)
        : is_gguf_(is_gguf), place_(golden_path(name)), ids_(golden_ids(name)) {
        if (is_gguf_) {
            thread_pool pool(1);
            const auto file = place_.path() / "as.gguf";
            const auto done = convert_model(
                {.source = golden_path(name), .target = file, .format = "bf16"}, pool);
            REQUIRE_MESSAGE(done.ok(), (done ? "" : done.failure().text));
            bytes_ = read_file(file);
            const auto header = parse_gguf(std::as_bytes(std::span(bytes_)), "as.gguf");
            REQUIRE(header.ok());
            for (const gguf_tensor &tensor : header->tensors) tensors_.push_back(tensor.name);
            for (const gguf_key &key : header->keys) keys_.push_back(key.name);
            const auto &last = header->keys.back().bytes;
            tensors_at_ = static_cast<size_t>(last.data() + last.size() -
                                              std::as_bytes(std::span(bytes_)).data());
            data_at_ = header->data_offset;
        } else {
            weights_ = place_.read_weights();
            for (const raw_tensor &tensor : weights_.tensors) tensors_.push_back(tensor.name);
            config_ = parse_json(read_file(place_.path() / "config.json"));
        }
        original_ = open_or_fail(path());
        logits_ = logits_of(*original_, ids_);
    }

    const model &original() const { return *original_; }
    const std::vector<float> &logits() const { return logits_; }
    std::vector<float> logits_by(const std::function<void(model_config &)> &change) const {
        return logits_of(ruled_model(*original_, change), ids_);
    }
    bool has_tensor(const std::string &name) const {
        return std::ranges::find(tensors_, name) != tensors_.end();
    }
    // The keys of a GGUF file, with their prefix.
    const std::vector<std::string> &keys() const { return keys_; }
    const json &config() const { return config_; }
    std::string prefix() const {  // of its own keys in GGUF
        constexpr std::string_view common = "block_count";
        for (const std::string &key : keys_)
            if (key.ends_with(common)) return key.substr(0, key.size() - common.size());
        return "";
    }

    struct outcome {
        std::string error;          // empty: it was read ...
        std::vector<float> logits;  // ... and computes these
    };
    // With one more vector of float32; each element is `value`.
    outcome with_tensor(const std::string &name, float value) const {
        const std::vector<float> values(16, value);
        if (is_gguf_) return opened(gguf_with_tensor(name, values));
        raw_file file = weights_;
        file.tensors.push_back({name, "F32", "[16]", raw(values)});
        // Elsewhere: the original stays mapped.
        write_file(changed_.path() / "config.json", config_.dump());
        changed_.write_weights(file);
        return open(changed_.path());
    }
    outcome with_keys_of(const gguf_maker &further) const {
        return opened(with_keys(bytes_, further));
    }
    // A tensor's entry says one dimension more, of extent 1.
    outcome with_last_one(const std::string &name) const {
        constexpr size_t alignment = 32, key_count_at = 16, keys_at = 24;
        std::string file = bytes_;
        gguf_bytes written;
        written.text(name);
        const std::string text(reinterpret_cast<const char *>(written.bytes.data()),
                               written.bytes.size());
        const size_t count_at = file.find(text, keys_at) + text.size();
        uint32_t count;
        std::memcpy(&count, file.data() + count_at, sizeof count);
        file.insert(count_at + sizeof count + count * sizeof(uint64_t),
                    std::string("\1\0\0\0\0\0\0\0", 8));
        ++count;
        std::memcpy(file.data() + count_at, &count, sizeof count);
        gguf_bytes padding;
        padding.text("padding").put(uint32_t{8});
        const size_t odd = (8 + padding.bytes.size() + 8) % alignment;
        padding.text(std::string((alignment - odd) % alignment, ' '));
        file.insert(keys_at, reinterpret_cast<const char *>(padding.bytes.data()),
                    padding.bytes.size());
        uint64_t keys;
        std::memcpy(&keys, file.data() + key_count_at, sizeof keys);
        ++keys;
        std::memcpy(file.data() + key_count_at, &keys, sizeof keys);
        return opened(file);
    }
    // With the key under another name, so that the file keeps its length.
    outcome without_key(const std::string &key) const {
        std::string file = bytes_;
        gguf_bytes written;
        written.text(key);
        const std::string text(reinterpret_cast<const char *>(written.bytes.data()),
                               written.bytes.size());
        const size_t position = file.find(text);
        REQUIRE(position != std::string::npos);
        file[position + 8] = '#';
        return opened(file);
    }
    outcome with_config(const json &config) const {
        write_file(place_.path() / "config.json", config.dump());
        const outcome result = open();
        write_file(place_.path() / "config.json", config_.dump());
        return result;
    }

private:
    static std::vector<int32_t> golden_ids(const std::string &name) {
        return golden_of(*open_or_fail(golden_path(name))).input_ids;
    }
    std::filesystem::path path() const {
        return is_gguf_ ? place_.path() / "as.gguf" : place_.path();
    }
    outcome opened(const std::string &file) const {
        write_file(place_.path() / "changed.gguf", file);
        return open(place_.path() / "changed.gguf");
    }
    outcome open() const { return open(path()); }
    outcome open(const std::filesystem::path &file) const {
        const auto loaded = open_model(file);
        if (!loaded) return {loaded.failure().text, {}};
        return {"", logits_of(**loaded, ids_)};
    }
    // With the entry of a new tensor before the others, its bytes behind theirs, and a key that
    // keeps the data aligned.
    std::string gguf_with_tensor(const std::string &name, const std::vector<float> &values) const {
        constexpr size_t alignment = 32, tensor_count_at = 8, key_count_at = 16, keys_at = 24;
        std::string file = bytes_;
        file.resize((file.size() + alignment - 1) / alignment * alignment);
        gguf_bytes entry;
        entry.text(name).put(uint32_t{1}).put(uint64_t{values.size()}).put(uint32_t{0});
        entry.put(uint64_t{file.size() - data_at_});
        file.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
        file.insert(tensors_at_, reinterpret_cast<const char *>(entry.bytes.data()),
                    entry.bytes.size());
        gguf_bytes padding;
        padding.text("padding").put(uint32_t{8});
        const size_t odd = (entry.bytes.size() + padding.bytes.size() + 8) % alignment;
        padding.text(std::string((alignment - odd) % alignment, ' '));
        file.insert(keys_at, reinterpret_cast<const char *>(padding.bytes.data()),
                    padding.bytes.size());
        for (const size_t position : {tensor_count_at, key_count_at}) {
            uint64_t count;
            std::memcpy(&count, file.data() + position, sizeof count);
            ++count;
            std::memcpy(file.data() + position, &count, sizeof count);
        }
        return file;
    }

    bool is_gguf_;
    scratch_directory place_, changed_;
    std::vector<int32_t> ids_;
    std::string bytes_;  // of the GGUF file
    size_t tensors_at_ = 0, data_at_ = 0;
    raw_file weights_;  // of the directory
    json config_;
    std::vector<std::string> tensors_, keys_;
    std::unique_ptr<model> original_;
    std::vector<float> logits_;
};

}  // namespace moorage::test
