// result.h - the result of a call that can fail for reasons outside the program: a value or an
// error.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace moorage::core {

// A message for a person. It names the thing, place, value, limit and remedy, in lower case without
// a full stop. `usage` errors (exit code 2) are mistakes in the request. Other errors have exit
// code 1.
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
