// tokenizer_decode.cpp - the stages of decoding.
#include "core/model/tokenizer_decode.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "core/model/tokenizer_steps.h"
#include "core/model/unicode.h"

namespace moorage::core {

struct growth {
    size_t pushed = 0;  // bytes since the chain began
    size_t added = 0;   // further bytes added by replacements
    size_t bytes_left() const { return grown_bytes_max(pushed) - added; }
};

struct decode_chain::shared_state {
    std::string text;  // written by the last stage
    growth text_growth;
};

// A stage receives each token as text in pieces of whole characters, then the token's end. It
// passes on the same.
class decode_stage {
public:
    virtual ~decode_stage() = default;
    virtual void text(std::string_view piece) = 0;
    virtual void token_end() = 0;
    // There are no more tokens. Passes on everything held back, then calls finish() of the next
    // stage.
    virtual void finish() { next->finish(); }
    decode_stage *next = nullptr;

protected:
    void pass_token(std::string_view token) {
        next->text(token);
        next->token_end();
    }
};

namespace {

// The end of the chain.
class text_collector final : public decode_stage {
public:
    text_collector(std::string &output, bool spaces) : output_(output), spaces_(spaces) {}
    void text(std::string_view piece) override {
        if (spaces_ && !first_ && !begun_) output_ += ' ';
        begun_ = true;
        output_ += piece;
    }
    void token_end() override { first_ = begun_ = false; }
    void finish() override {}

private:
    std::string &output_;
    bool spaces_, first_ = true, begun_ = false;
};

// Joins the bytes of all tokens. A token with a character outside the byte alphabet is taken as
// UTF-8.
class byte_level final : public decode_stage {
public:
    void text(std::string_view piece) override { token_ += piece; }
    void token_end() override {
        const size_t previous_bytes = bytes_.size();
        for (size_t position = 0; position < token_.size();) {
            const int byte = byte_of_character(next_character(token_, position));
            if (byte < 0) {
                bytes_.resize(previous_bytes);
                bytes_ += token_;
                break;
            }
            bytes_ += static_cast<char>(byte);
        }
        token_.clear();
        size_t whole_bytes = 0;  // bytes before an incomplete character
        while (whole_bytes < bytes_.size()) {
            const int bytes = character_bytes(std::string_view(bytes_).substr(whole_bytes));
            if (bytes == 0) break;
            whole_bytes += bytes > 0 ? bytes : -bytes;
        }
        if (whole_bytes > 0)
            next->text(to_valid_utf8(std::string_view(bytes_).substr(0, whole_bytes)));
        bytes_.erase(0, whole_bytes);
    }
    void finish() override {
        if (!bytes_.empty()) next->text(replacement_character);
        next->token_end();
        next->finish();
    }

private:
    std::string token_, bytes_;
};

// Turns the replacement into a space, and removes it in the first token.
class metaspace final : public decode_stage {
public:
    explicit metaspace(const decoder_step &step)
        : character_(step.character), drop_(step.prepended) {}
    void text(std::string_view piece) override {
        std::string output;
        for (size_t position = 0; position < piece.size();) {
            const char32_t character = next_character(piece, position);
            if (character != character_)
                append_character(output, character);
            else if (!drop_)
                output += ' ';
        }
        next->text(output);
    }
    void token_end() override {
        drop_ = false;
        next->token_end();
    }

private:
    char32_t character_;
    bool drop_;
};

// <0xE4><0xBD><0xA0>: bytes of a run of such tokens. The run is UTF-8 as a whole, or one U+FFFD for
// each byte. So no part of it is certain before its end.
class byte_fallback final : public decode_stage {
public:
    void text(std::string_view piece) override {
        if (passing_) return next->text(piece);
        token_ += piece;
        if (token_.size() <= 6) return;
        end_run();
        next->text(token_);
        passing_ = true;
    }
    void token_end() override {
        const std::optional<uint8_t> byte = passing_ ? std::nullopt : parse_byte(token_);
        if (byte) {
            run_ += static_cast<char>(*byte);
        } else {
            if (!passing_) {
                end_run();
                next->text(token_);
            }
            next->token_end();
        }
        token_.clear();
        passing_ = false;
    }
    void finish() override {
        end_run();
        next->finish();
    }

private:
    static std::optional<uint8_t> parse_byte(std::string_view token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
        int value = 0;
        for (const char c : token.substr(3, 2)) {
            if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
            value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        return static_cast<uint8_t>(value);
    }
    void end_run() {
        if (run_.empty()) return;
        if (is_valid_utf8(run_))
            pass_token(run_);
        else
            for (size_t i = 0; i < run_.size(); ++i) pass_token(replacement_character);
        run_.clear();
    }

    std::string token_, run_;
    bool passing_ = false;  // the current token is too long to be a byte
};

// Joins all tokens into one.
class fuse final : public decode_stage {
public:
    void text(std::string_view piece) override { next->text(piece); }
    void token_end() override {}
    void finish() override {
        next->token_end();
        next->finish();
    }
};

class replace final : public decode_stage {
public:
    replace(const decoder_step &step, growth &total_growth)
        : match_pattern_(step.match_pattern), content_(step.content), growth_(total_growth) {
        const std::string &literal = match_pattern_->literal_text();
        one_character_ =
            !literal.empty() && character_bytes(literal) == static_cast<int>(literal.size());
    }
    void text(std::string_view piece) override {
        if (one_character_)
            next->text(replace_matches(piece));
        else
            token_ += piece;  // it may contain the beginning of a longer match
    }
    void token_end() override {
        if (!one_character_) next->text(replace_matches(token_));
        token_.clear();
        next->token_end();
    }

private:
    // If a pattern gives up, the text stays unchanged: decoding has no errors.
    std::string replace_matches(std::string_view text) {
        result<std::string> done =
            replace_all(text, *match_pattern_, content_, text.size() + growth_.bytes_left());
        if (!done) return std::string(text);
        growth_.added += std::max(done->size(), text.size()) - text.size();
        return std::move(done).value();
    }

    std::shared_ptr<const pattern> match_pattern_;
    std::string content_, token_;
    growth &growth_;
    bool one_character_;
};

// Removes up to `start` and `stop` copies of a character from the beginning and the end of each
// token.
class strip final : public decode_stage {
public:
    explicit strip(const decoder_step &step)
        : character_(step.character),
          start_(step.start),
          stop_(step.stop),
          removable_(step.start) {}
    void text(std::string_view piece) override {
        std::string output;
        for (size_t position = 0; position < piece.size();) {
            const char32_t character = next_character(piece, position);
            if (character != character_) {
                removable_ = 0;
                for (; held_back_ > 0; --held_back_) append_character(output, character_);
                append_character(output, character);
            } else if (removable_ > 0) {
                --removable_;
            } else {
                removable_ = 0;
                if (held_back_ < stop_)
                    ++held_back_;
                else
                    append_character(output, character);
            }
        }
        next->text(output);
    }
    void token_end() override {
        removable_ = start_;
        held_back_ = 0;
        next->token_end();
    }

private:
    char32_t character_;
    uint32_t start_, stop_;
    uint32_t removable_;      // still to be removed from the beginning
    uint32_t held_back_ = 0;  // at the end so far; dropped if the token ends here
};

std::unique_ptr<decode_stage> make_stage(const decoder_step &step, growth &total_growth) {
    using kind = decoder_step::kind;
    switch (step.operation) {
        case kind::byte_level:
            return std::make_unique<byte_level>();
        case kind::metaspace:
            return std::make_unique<metaspace>(step);
        case kind::byte_fallback:
            return std::make_unique<byte_fallback>();
        case kind::fuse:
            return std::make_unique<fuse>();
        case kind::replace:
            return std::make_unique<replace>(step, total_growth);
        case kind::strip:
            return std::make_unique<strip>(step);
    }
    return nullptr;
}

}  // namespace

decode_chain::decode_chain(std::span<const decoder_step> steps)
    : shared_(std::make_unique<shared_state>()) {
    for (const decoder_step &step : steps)
        stages_.push_back(make_stage(step, shared_->text_growth));
    stages_.push_back(std::make_unique<text_collector>(shared_->text, steps.empty()));
    for (size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->next = stages_[i + 1].get();
}

decode_chain::~decode_chain() = default;
decode_chain::decode_chain(decode_chain &&) noexcept = default;

std::string decode_chain::push(std::string_view token) {
    shared_->text_growth.pushed += token.size();
    stages_[0]->text(token);
    stages_[0]->token_end();
    return std::exchange(shared_->text, {});
}

std::string decode_chain::finish() {
    stages_[0]->finish();
    return std::exchange(shared_->text, {});
}

}  // namespace moorage::core
