// tokenizer_regex.cpp - translates the pattern in one pass, piece by piece. A small recursive
// parser handles character classes.
#include "core/model/tokenizer_regex.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "core/base/text.h"
#include "core/model/unicode.h"

namespace moorage::core {

namespace {

constexpr int depth_max = 50;  // of nested groups, and of nested classes

// The content of a PCRE2 class, and whether its complement is meant.
struct character_set {
    std::string inside;
    bool negated = false;

    bool one_property() const {
        return inside.starts_with("\\p{") && inside.find('}') + 1 == inside.size();
    }
    std::string complement_of_property() const { return "\\P" + inside.substr(2); }
    std::string expression() const {
        if (one_property()) return negated ? complement_of_property() : inside;
        return (negated ? "[^" : "[") + inside + "]";
    }
};

constexpr const char *spaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr const char *words = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr const char *hexadecimal = "0-9a-fA-F";

struct named_set {
    const char *name, *inside;
};
// Names in the form for comparison: lower case, without space, hyphen and underscore.
constexpr named_set named_sets[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x{0}-\\x{7f}"},
    {"blank", "\\t\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}$+<=>\\^`|~"},
    {"space", spaces},
    {"upper", "\\p{Uppercase}"},
    {"word", words},
    {"xdigit", hexadecimal},
    {"any", "\\p{Any}"},
    {"letter", "\\p{L}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"modifierletter", "\\p{Lm}"},
    {"otherletter", "\\p{Lo}"},
    {"mark", "\\p{M}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"spacingmark", "\\p{Mc}"},
    {"enclosingmark", "\\p{Me}"},
    {"number", "\\p{N}"},
    {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"},
    {"othernumber", "\\p{No}"},
    {"punctuation", "\\p{P}"},
    {"connectorpunctuation", "\\p{Pc}"},
    {"dashpunctuation", "\\p{Pd}"},
    {"openpunctuation", "\\p{Ps}"},
    {"closepunctuation", "\\p{Pe}"},
    {"initialpunctuation", "\\p{Pi}"},
    {"finalpunctuation", "\\p{Pf}"},
    {"otherpunctuation", "\\p{Po}"},
    {"symbol", "\\p{S}"},
    {"mathsymbol", "\\p{Sm}"},
    {"currencysymbol", "\\p{Sc}"},
    {"modifiersymbol", "\\p{Sk}"},
    {"othersymbol", "\\p{So}"},
    {"separator", "\\p{Z}"},
    {"spaceseparator", "\\p{Zs}"},
    {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"other", "\\p{C}"},
    {"control", "\\p{Cc}"},
    {"format", "\\p{Cf}"},
    {"unassigned", "\\p{Cn}"},
    {"privateuse", "\\p{Co}"},
};
constexpr std::string_view categories[] = {"c",  "cc", "cf", "cn", "co", "l",  "ll", "lm", "lo",
                                           "lt", "lu", "m",  "mc", "me", "mn", "n",  "nd", "nl",
                                           "no", "p",  "pc", "pd", "pe", "pf", "pi", "po", "ps",
                                           "s",  "sc", "sk", "sm", "so", "z",  "zl", "zp", "zs"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class translator {
public:
    translator(std::string_view pattern, bool (*compiles)(const std::string &))
        : pattern_(pattern), compiles_(compiles) {}
    result<std::string> run();

private:
    bool at_end() const { return at_ >= pattern_.size(); }
    bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
    bool take(std::string_view text) {
        if (!next_is(text)) return false;
        at_ += text.size();
        return true;
    }
    void refuse(std::string what) {
        if (!problem_) problem_ = error{format("{} at byte {}", what, at_)};
    }
    void atom(std::string text) {
        atom_begin_ = out_.size();
        out_ += text;
    }
    static std::string literal(char32_t c) {
        return format("\\x{{{:x}}}", static_cast<uint32_t>(c));
    }

    void step();
    void group();
    void group_flags();
    void escape();
    bool quantifier();
    void interval(std::string_view bounds, bool comma);
    std::string character_class(int depth);
    void class_set(const character_set &set, std::string &inside, std::vector<std::string> &others);
    void class_item(std::string &inside, std::vector<std::string> &others, int depth);
    std::optional<char32_t> class_character();
    std::optional<character_set> set_escape();
    std::optional<char32_t> character_escape();
    std::optional<char32_t> hexadecimal_digits(size_t count);
    character_set property(bool negated);
    character_set named(std::string name, bool negated);

    std::string_view pattern_;
    bool (*compiles_)(const std::string &);
    size_t at_ = 0;
    std::string out_;
    size_t atom_begin_ = 0;  // in out_: the beginning of what a quantifier would repeat
    // Open groups, the whole pattern first: the place in out_, and how many PCRE2 groups were
    // opened for a (?i) up to the group's end.
    struct open_group {
        size_t begin;
        int flags;
    };
    std::vector<open_group> groups_{{0, 0}};
    std::optional<error> problem_;
};

result<std::string> translator::run() {
    while (!at_end() && !problem_) step();
    if (!problem_ && groups_.size() > 1) refuse("a group without its end");
    if (problem_) return *problem_;
    out_.append(groups_[0].flags, ')');
    return out_;
}

void translator::step() {
    const char c = pattern_[at_];
    if (c == '\\') return escape();
    if (c == '[') {
        ++at_;
        return atom(character_class(0));
    }
    if (c == '(') return group();
    if (c == ')') {
        ++at_;
        if (groups_.size() == 1) return refuse("a group's end without its begin");
        out_.append(groups_.back().flags + 1, ')');
        atom_begin_ = groups_.back().begin;
        groups_.pop_back();
        return;
    }
    if (quantifier()) return;
    const size_t from = at_;
    next_character(pattern_, at_);
    // A brace that does not open an interval is an ordinary character.
    atom(c == '{' ? "\\{" : std::string(pattern_.substr(from, at_ - from)));
}

void translator::group() {
    if (groups_.size() > depth_max) return refuse(format("groups deeper than {}", depth_max));
    if (next_is("(*")) return refuse("(*...)");
    groups_.push_back({out_.size(), 0});
    for (const char *known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
        if (take(known)) {
            out_ += known;
            return;
        }
    if (!take("(?")) {
        ++at_;
        out_ += "(";
        return;
    }
    if (take("#")) {  // a comment
        groups_.pop_back();
        const size_t end = pattern_.find(')', at_);
        if (end == pattern_.npos) return refuse("a comment without its end");
        at_ = end + 1;
        return;
    }
    if (next_is("<")) {
        const size_t end = pattern_.find('>', at_);
        if (end == pattern_.npos) return refuse("a group's name without its end");
        out_ += "(?" + std::string(pattern_.substr(at_, end + 1 - at_));
        at_ = end + 1;
        return;
    }
    group_flags();
}

// Reads (?i), (?i:...), (?m-i:...). PCRE2 writes m as s.
void translator::group_flags() {
    std::string flags = "(?";
    for (; !at_end(); ++at_) {
        const char c = pattern_[at_];
        if (c == 'i' || c == '-')
            flags += c;
        else if (c == 'm')
            flags += 's';
        else
            break;
    }
    if (take(")")) {
        // a(?i)b|c means a(?i:b|c), not (?:a(?i)b|(?i)c) as in PCRE2.
        groups_.pop_back();
        ++groups_.back().flags;
        out_ += flags + ":";
        return;
    }
    if (!take(":")) return refuse("an unknown kind of group");
    out_ += flags + ":";
}

// Reads *, +, ?, {n,m} and their suffixes. False: there is none here.
bool translator::quantifier() {
    const char c = pattern_[at_];
    if (c == '*' || c == '+' || c == '?') {
        out_ += c;
        ++at_;
        for (const char *mode : {"?", "+"})  // lazy, possessive
            if (take(mode)) {
                out_ += mode;
                break;
            }
        return true;
    }
    if (c != '{') return false;
    size_t end = at_ + 1;
    const auto digits = [&] {
        const size_t from = end;
        while (end < pattern_.size() && is_digit(pattern_[end])) ++end;
        return pattern_.substr(from, end - from);
    };
    const std::string_view low = digits();
    std::string_view high = low;
    if (end < pattern_.size() && pattern_[end] == ',') {
        ++end;
        high = digits();
        if (low.empty() && high.empty()) return false;
    }
    const bool comma = pattern_.substr(at_, end - at_).find(',') != pattern_.npos;
    if (end >= pattern_.size() || pattern_[end] != '}' || (low.empty() && !comma)) return false;
    at_ = end + 1;
    interval(comma ? format("{},{}", low.empty() ? "0" : low, high) : std::string(low), comma);
    return true;
}

// `comma`: not {n}, where a following ? means "or not at all" instead of lazy.
void translator::interval(std::string_view bounds, bool comma) {
    out_ += format("{{{}}}", bounds);
    if (comma && take("?")) {
        out_ += '?';
        return;
    }
    // A quantifier after an interval repeats the whole repetition.
    if (next_is("+") || next_is("?") || next_is("*")) {
        out_.insert(atom_begin_, "(?:");
        out_ += ')';
        quantifier();
    }
}

void translator::escape() {
    const size_t from = at_;
    if (const auto set = set_escape()) return atom(set->expression());
    if (problem_) return;
    if (const auto character = character_escape()) return atom(literal(*character));
    if (problem_) return;
    at_ = from + 1;
    if (at_end()) return refuse("a backslash at the end");
    const char c = pattern_[at_++];
    if (c == 'b' || c == 'B') {
        const std::string in = format("[{}]", words);
        const char *form = c == 'b' ? "(?:(?<={0})(?!{0})|(?<!{0})(?={0}))"
                                    : "(?:(?<={0})(?={0})|(?<!{0})(?!{0}))";
        return atom(format(fmt::runtime(form), in));
    }
    if (std::string_view("AzZGKXR").find(c) != std::string_view::npos || (c >= '1' && c <= '9'))
        return atom(std::string("\\") + c);
    at_ = from;
    refuse(format("\\{}", c));
}

// Reads \s \w \d \h \p{} and their complements.
std::optional<character_set> translator::set_escape() {
    if (!next_is("\\") || at_ + 1 >= pattern_.size()) return std::nullopt;
    const char c = pattern_[at_ + 1];
    const bool negated = c >= 'A' && c <= 'Z';
    const char *inside = nullptr;
    switch (c) {
        case 's':
        case 'S':
            inside = spaces;
            break;
        case 'w':
        case 'W':
            inside = words;
            break;
        case 'd':
        case 'D':
            inside = "\\p{Nd}";
            break;
        case 'h':
        case 'H':
            inside = hexadecimal;
            break;
        case 'p':
        case 'P':
            at_ += 2;
            return property(negated);
        default:
            return std::nullopt;
    }
    at_ += 2;
    return character_set{inside, negated};
}

// Reads an escape of one character. None: another escape, or a problem.
std::optional<char32_t> translator::character_escape() {
    if (!next_is("\\") || at_ + 1 >= pattern_.size()) return std::nullopt;
    const char c = pattern_[at_ + 1];
    constexpr std::string_view letters = "tnrfvae";
    constexpr char values[] = "\t\n\r\f\v\a\x1b";
    if (const size_t found = letters.find(c); found != letters.npos) {
        at_ += 2;
        return values[found];
    }
    if (c == '0') {
        at_ += 2;
        char32_t value = 0;
        for (int i = 0; i < 2 && !at_end() && pattern_[at_] >= '0' && pattern_[at_] < '8'; ++i)
            value = value * 8 + (pattern_[at_++] - '0');
        return value;
    }
    if (c == 'u') {
        at_ += 2;
        return hexadecimal_digits(4);
    }
    if (c == 'x') {
        at_ += 2;
        if (!take("{")) return hexadecimal_digits(2);
        const size_t end = pattern_.find('}', at_);
        if (end == pattern_.npos || end == at_ || end - at_ > 8) {
            refuse("\\x{...}");
            return std::nullopt;
        }
        const auto value = hexadecimal_digits(end - at_);
        ++at_;
        return value;
    }
    if (is_letter(c) || is_digit(c)) return std::nullopt;
    ++at_;
    return next_character(pattern_, at_);
}

std::optional<char32_t> translator::hexadecimal_digits(size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i, ++at_) {
        const char c = at_end() ? ' ' : pattern_[at_];
        if (!std::isxdigit(static_cast<unsigned char>(c))) {
            refuse(format("a hexadecimal number of {} digits", count));
            return std::nullopt;
        }
        value = value * 16 + (is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
        refuse(format("U+{:X}, which is no character", value));
        return std::nullopt;
    }
    return static_cast<char32_t>(value);
}

// Reads what follows \p or \P.
character_set translator::property(bool negated) {
    if (!take("{")) {
        refuse("\\p without {");
        return {};
    }
    if (take("^")) negated = !negated;
    const size_t end = pattern_.find('}', at_);
    if (end == pattern_.npos) {
        refuse("\\p{ without }");
        return {};
    }
    std::string name(pattern_.substr(at_, end - at_));
    at_ = end + 1;
    return named(std::move(name), negated);
}

character_set translator::named(std::string name, bool negated) {
    std::string compared;
    for (const char c : name) {
        if (is_letter(c) || is_digit(c))
            compared += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        else if (c != ' ' && c != '-' && c != '_')
            compared += '?';  // occurs in no name
    }
    for (const named_set &known : named_sets)
        if (compared == known.name) return {known.inside, negated};
    if (std::find(std::begin(categories), std::end(categories), compared) != std::end(categories)) {
        compared[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(compared[0])));
        return {format("\\p{{{}}}", compared), negated};
    }
    if (!compared.empty() && compared.find('?') == compared.npos)
        for (const char *form : {"\\p{{sc:{}}}", "\\p{{{}}}"}) {
            std::string item = format(fmt::runtime(form), compared);
            if (compiles_(item)) return {std::move(item), negated};
        }
    refuse(format("the unknown property {}", name));
    return {};
}

// Starts after the opening bracket. Returns a PCRE2 expression for one character.
std::string translator::character_class(int depth) {
    if (depth == depth_max) {
        refuse(format("classes deeper than {}", depth_max));
        return "";
    }
    const bool negated = take("^");
    std::vector<std::string> sides;  // operands of &&
    std::string inside;              // the content of a single PCRE2 class
    std::vector<std::string> others;
    const auto finish_side = [&] {
        if (!inside.empty()) others.insert(others.begin(), "[" + inside + "]");
        if (others.empty()) return refuse("an empty class");
        std::string side = others[0];
        for (size_t i = 1; i < others.size(); ++i) side += "|" + others[i];
        sides.push_back(others.size() == 1 ? side : "(?:" + side + ")");
    };
    // A bracket directly at the beginning is an ordinary character.
    if (take("]")) inside = "\\]";
    for (;;) {
        if (at_end()) refuse("a class without its end");
        if (problem_) return "";
        if (take("]")) break;
        if (take("&&")) {
            finish_side();
            inside.clear();
            others.clear();
            continue;
        }
        class_item(inside, others, depth);
    }
    if (sides.empty() && others.empty()) return (negated ? "[^" : "[") + inside + "]";
    finish_side();
    std::string all;
    for (size_t i = 0; i + 1 < sides.size(); ++i) all += "(?=" + sides[i] + ")";
    all += sides.empty() ? "" : sides.back();
    return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
}

// A set within a class. Goes to `inside` if PCRE2 can express it there.
void translator::class_set(const character_set &set, std::string &inside,
                           std::vector<std::string> &others) {
    if (!set.negated)
        inside += set.inside;
    else if (set.one_property())
        inside += set.complement_of_property();
    else
        others.push_back(set.expression());
}

// One item within a class. Goes to `inside`, or to `others` as a separate expression.
void translator::class_item(std::string &inside, std::vector<std::string> &others, int depth) {
    if (take("[:")) {
        const bool negated = take("^");
        const size_t end = pattern_.find(":]", at_);
        if (end == pattern_.npos) return refuse("[: without :]");
        const character_set set = named(std::string(pattern_.substr(at_, end - at_)), negated);
        at_ = end + 2;
        return class_set(set, inside, others);
    }
    if (take("[")) return others.push_back(character_class(depth + 1));
    if (const auto set = set_escape()) return class_set(*set, inside, others);
    const auto low = class_character();
    if (!low) return;
    inside += literal(*low);
    // A hyphen before the end or before a set is an ordinary character.
    if (!next_is("-") || next_is("-]") || next_is("-[") || next_is("-&&")) return;
    ++at_;
    if (const auto set = set_escape()) {
        inside += literal('-');
        return class_set(*set, inside, others);
    }
    if (const auto high = class_character()) {
        if (*high < *low) return refuse("a range whose end is before its begin");
        inside += "-" + literal(*high);
    }
}

std::optional<char32_t> translator::class_character() {
    if (problem_) return std::nullopt;
    if (at_end()) {
        refuse("a class without its end");
        return std::nullopt;
    }
    if (!next_is("\\")) return next_character(pattern_, at_);
    if (take("\\b")) return U'\b';
    const auto character = character_escape();
    if (!character) refuse("an unknown escape in a class");
    return character;
}

}  // namespace

result<std::string> to_pcre2(std::string_view pattern, bool (*compiles)(const std::string &piece)) {
    return translator(pattern, compiles).run();
}

}  // namespace moorage::core
