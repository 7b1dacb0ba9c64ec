// result.h - the value of a call that can fail for reasons outside the program: a value or an
// error.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace moorage::core {

// What went wrong, for a person: names thing, place, value, limit and remedy; lower case, no full
// stop. `usage` errors (exit code 2) are mistakes in what was asked, the others (exit code 1)
// happen.
struct error {
    std::string text;
    bool usage = false;
};

template <class Value>
class [[nodiscard]] result {
public:
    result(Value value) : content_(std::in_place_index<0>, std::move(value)) {}
    result(error failure) : content_(std::in_place_index<1>, std::move(failure)) {}

    bool ok() const { return content_.index() == 0; }
    explicit operator bool() const { return ok(); }

    // Requires: ok().
    Value &value() & {
        assert(ok());
        return *std::get_if<0>(&content_);
    }
    const Value &value() const & {
        assert(ok());
        return *std::get_if<0>(&content_);
    }
    Value &&value() && {
        assert(ok());
        return std::move(*std::get_if<0>(&content_));
    }
    Value &operator*() & { return value(); }
    const Value &operator*() const & { return value(); }
    Value *operator->() { return &value(); }
    const Value *operator->() const { return &value(); }

    // Requires: !ok().
    const error &failure() const {
        assert(!ok());
        return *std::get_if<1>(&content_);
    }

private:
    std::variant<Value, error> content_;
};

struct nothing {};
using status = result<nothing>;
inline status success() { return nothing{}; }

}  // namespace moorage::core
