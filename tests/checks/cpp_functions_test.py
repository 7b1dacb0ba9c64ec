#!/usr/bin/env python3
"""cpp_functions_test - goal: tools/cpp_functions.py finds the functions of a text, and nothing else. Method: a text
with what is easily mistaken for a function or for its end; the bodies are known by the marks in them."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from cpp_functions import functions  # noqa: E402

TEXT = r'''
#define BRACE {
// a comment with { and f() {
namespace one::two {
namespace {
constexpr int table[] = {1, 2, three(3)};
const auto later = [] { return mark_of_lambda; };
struct record {
    int value{0};
    std::vector<int> list = {1, 2};
    explicit record(int start) : value{start}, list(make({start})) { mark_of_constructor; }
    ~record() { mark_of_destructor; }
    int get() const noexcept { return "}{"[0] + '{' + mark_of_get; }
    bool operator==(const record &other) const { return mark_of_equal; }
    int operator()(int a) { return mark_of_call; }
    template <class Work, class = std::enable_if_t<(1 > 0)>>
    void each(Work &&work) {
        for (int i : list) {
            work(i);
        }
        if (value) { mark_of_each; }
    }
    enum class kind { first, second };
};
}  // namespace

static std::map<int, std::vector<int>> make_map(
    const std::function<int(int)> &use) {
    struct inside { int method() { return mark_of_inside; } };
    return {{1, {mark_of_map}}};
}
template <>
result<int> record::get<int>(int a) { R"(}{)"; mark_of_get_too; }
auto trailing(int a) -> std::pair<int, int> { return {a, mark_of_trailing}; }
extern "C" int outside(void) { return mark_of_outside; }
}  // namespace one::two
'''
WANTED = {"table": None, "lambda": None, "constructor": "record", "destructor": "~record", "get": "get",
          "equal": "operator==", "call": "operator()", "each": "each", "inside": "make_map", "map": "make_map",
          "get_too": "get", "trailing": "trailing", "outside": "outside"}

found = functions(TEXT)
wrong = []
for mark, wanted in WANTED.items():
    place = TEXT.find(f"mark_of_{mark};" if f"mark_of_{mark};" in TEXT else f"mark_of_{mark}")
    names = {name for name, bodies in found.items() for begin, end in bodies if begin <= place < end}
    if names != ({wanted} if wanted else set()):
        wrong.append(f"mark_of_{mark} is in {names or 'no function'}, not in {wanted}")
unknown = set(found) - {name for name in WANTED.values() if name}
if unknown:
    wrong.append(f"{unknown} are no functions")
if len(found.get("get", [])) != 2:
    wrong.append("get is defined twice")
for text in wrong:
    print(text)
print(f"{len(WANTED)} places, {len(wrong)} wrong")
sys.exit(bool(wrong))
