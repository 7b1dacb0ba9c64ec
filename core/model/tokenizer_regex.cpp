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

    bool is_one_property() const {
        return inside.starts_with("\\p{") && inside.find('}') + 1 == inside.size();
    }
    std::string complement_of_property() const { return "\\P" + inside.substr(2); }
    std::string expression() const {
        if (is_one_property()) return negated ? complement_of_property() : inside;
        return (negated ? "[^" : "[") + inside + "]";
    }
};

constexpr const char *spaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr const char *words = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside of classes the reference has a table of its own for Latin-1, with six more numbers.
constexpr const char *words_alone =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
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
    result<std::string> translate();

private:
    bool is_at_end() const { return position_ >= pattern_.size(); }
    bool is_next(std::string_view text) const {
        return pattern_.substr(position_).starts_with(text);
    }
    bool consume(std::string_view text) {
        if (!is_next(text)) return false;
        position_ += text.size();
        return true;
    }
    void refuse(std::string problem) {
        if (!problem_) problem_ = error{format("{} at byte {}", problem, position_)};
    }
    void append_atom(std::string text) {
        atom_begin_ = translated_.size();
        translated_ += text;
    }
    static std::string literal(char32_t c) {
        return format("\\x{{{:x}}}", static_cast<uint32_t>(c));
    }

    void translate_next();
    void translate_group();
    void translate_group_flags();
    void translate_escape();
    bool translate_quantifier();
    void translate_interval(std::string_view bounds, bool comma);
    std::string translate_class(int depth);
    void add_class_set(const character_set &set, std::string &inside,
                       std::vector<std::string> &others);
    void read_class_item(std::string &inside, std::vector<std::string> &others, int depth);
    std::optional<char32_t> read_class_character();
    std::optional<character_set> read_set_escape();
    std::optional<char32_t> read_character_escape();
    std::optional<char32_t> read_hexadecimal(size_t count);
    character_set read_property(bool negated);
    character_set find_named_set(std::string name, bool negated);

    std::string_view pattern_;
    bool (*compiles_)(const std::string &);
    size_t position_ = 0;
    std::string translated_;
    size_t atom_begin_ = 0;  // in translated_: the beginning of what a quantifier would repeat
    // Open groups, the whole pattern first: the place in translated_, and how many PCRE2
    // groups were opened for a (?i) up to the group's end.
    struct open_group {
        size_t begin;
        int flags;
    };
    std::vector<open_group> groups_{{0, 0}};
    std::optional<error> problem_;
};

result<std::string> translator::translate() {
    while (!is_at_end() && !problem_) translate_next();
    if (!problem_ && groups_.size() > 1) refuse("a group without its end");
    if (problem_) return *problem_;
    translated_.append(groups_[0].flags, ')');
    return translated_;
}

void translator::translate_next() {
    const char c = pattern_[position_];
    if (c == '\\') return translate_escape();
    if (c == '[') {
        ++position_;
        return append_atom(translate_class(0));
    }
    if (c == '(') return translate_group();
    if (c == ')') {
        ++position_;
        if (groups_.size() == 1) return refuse("a group's end without its begin");
        translated_.append(groups_.back().flags + 1, ')');
        atom_begin_ = groups_.back().begin;
        groups_.pop_back();
        return;
    }
    if (translate_quantifier()) return;
    const size_t begin = position_;
    next_character(pattern_, position_);
    // A brace that does not open an interval is an ordinary character.
    append_atom(c == '{' ? "\\{" : std::string(pattern_.substr(begin, position_ - begin)));
}

void translator::translate_group() {
    if (groups_.size() > depth_max) return refuse(format("groups deeper than {}", depth_max));
    if (is_next("(*")) return refuse("(*...)");
    groups_.push_back({translated_.size(), 0});
    for (const char *known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
        if (consume(known)) {
            translated_ += known;
            return;
        }
    if (!consume("(?")) {
        ++position_;
        translated_ += "(";
        return;
    }
    if (consume("#")) {  // a comment
        groups_.pop_back();
        const size_t end = pattern_.find(')', position_);
        if (end == pattern_.npos) return refuse("a comment without its end");
        position_ = end + 1;
        return;
    }
    if (is_next("<")) {
        const size_t end = pattern_.find('>', position_);
        if (end == pattern_.npos) return refuse("a group's name without its end");
        translated_ += "(?" + std::string(pattern_.substr(position_, end + 1 - position_));
        position_ = end + 1;
        return;
    }
    translate_group_flags();
}

// Reads (?i), (?i:...), (?m-i:...). PCRE2 writes m as s.
void translator::translate_group_flags() {
    std::string flags = "(?";
    for (; !is_at_end(); ++position_) {
        const char c = pattern_[position_];
        if (c == 'i' || c == '-')
            flags += c;
        else if (c == 'm')
            flags += 's';
        else
            break;
    }
    if (consume(")")) {
        // a(?i)b|c means a(?i:b|c), not (?:a(?i)b|(?i)c) as in PCRE2.
        groups_.pop_back();
        ++groups_.back().flags;
        translated_ += flags + ":";
        return;
    }
    if (!consume(":")) return refuse("an unknown kind of group");
    translated_ += flags + ":";
}

// Reads *, +, ?, {n,m} and their suffixes. False: there is none here.
bool translator::translate_quantifier() {
    const char c = pattern_[position_];
    if (c == '*' || c == '+' || c == '?') {
        translated_ += c;
        ++position_;
        for (const char *mode : {"?", "+"})  // lazy, possessive
            if (consume(mode)) {
                translated_ += mode;
                break;
            }
        return true;
    }
    if (c != '{') return false;
    size_t end = position_ + 1;
    const auto digits = [&] {
        const size_t begin = end;
        while (end < pattern_.size() && is_digit(pattern_[end])) ++end;
        return pattern_.substr(begin, end - begin);
    };
    const std::string_view low = digits();
    std::string_view high = low;
    if (end < pattern_.size() && pattern_[end] == ',') {
        ++end;
        high = digits();
        if (low.empty() && high.empty()) return false;
    }
    const bool comma = pattern_.substr(position_, end - position_).find(',') != pattern_.npos;
    if (end >= pattern_.size() || pattern_[end] != '}' || (low.empty() && !comma)) return false;
    position_ = end + 1;
    translate_interval(comma ? format("{},{}", low.empty() ? "0" : low, high) : std::string(low),
                       comma);
    return true;
}

// `comma`: not {n}, where a following ? means "or not at all" instead of lazy.
void translator::translate_interval(std::string_view bounds, bool comma) {
    translated_ += format("{{{}}}", bounds);
    if (comma && consume("?")) {
        translated_ += '?';
        return;
    }
    // A quantifier after an interval repeats the whole repetition.
    if (is_next("+") || is_next("?") || is_next("*")) {
        translated_.insert(atom_begin_, "(?:");
        translated_ += ')';
        translate_quantifier();
    }
}

void translator::translate_escape() {
    const size_t begin = position_;
    if (auto set = read_set_escape()) {
        if (const char c = pattern_[begin + 1]; c == 'w' || c == 'W') set->inside = words_alone;
        return append_atom(set->expression());
    }
    if (problem_) return;
    if (const auto character = read_character_escape()) return append_atom(literal(*character));
    if (problem_) return;
    position_ = begin + 1;
    if (is_at_end()) return refuse("a backslash at the end");
    const char c = pattern_[position_++];
    if (c == 'b' || c == 'B') {
        const std::string word_class = format("[{}]", words_alone);
        const char *form = c == 'b' ? "(?:(?<={0})(?!{0})|(?<!{0})(?={0}))"
                                    : "(?:(?<={0})(?={0})|(?<!{0})(?!{0}))";
        return append_atom(format(fmt::runtime(form), word_class));
    }
    if (std::string_view("AzZGKXR").find(c) != std::string_view::npos || (c >= '1' && c <= '9'))
        return append_atom(std::string("\\") + c);
    position_ = begin;
    refuse(format("\\{}", c));
}

// Reads \s \w \d \h \p{} and their complements.
std::optional<character_set> translator::read_set_escape() {
    if (!is_next("\\") || position_ + 1 >= pattern_.size()) return std::nullopt;
    const char c = pattern_[position_ + 1];
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
            position_ += 2;
            return read_property(negated);
        default:
            return std::nullopt;
    }
    position_ += 2;
    return character_set{inside, negated};
}

// Reads an escape of one character. None: another escape, or a problem.
std::optional<char32_t> translator::read_character_escape() {
    if (!is_next("\\") || position_ + 1 >= pattern_.size()) return std::nullopt;
    const char c = pattern_[position_ + 1];
    constexpr std::string_view letters = "tnrfvae";
    constexpr char values[] = "\t\n\r\f\v\a\x1b";
    if (const size_t found = letters.find(c); found != letters.npos) {
        position_ += 2;
        return values[found];
    }
    if (c == '0') {
        position_ += 2;
        char32_t value = 0;
        for (int i = 0;
             i < 2 && !is_at_end() && pattern_[position_] >= '0' && pattern_[position_] < '8'; ++i)
            value = value * 8 + (pattern_[position_++] - '0');
        return value;
    }
    if (c == 'u') {
        position_ += 2;
        return read_hexadecimal(4);
    }
    if (c == 'x') {
        position_ += 2;
        if (!consume("{")) return read_hexadecimal(2);
        const size_t end = pattern_.find('}', position_);
        if (end == pattern_.npos || end == position_ || end - position_ > 8) {
            refuse("\\x{...}");
            return std::nullopt;
        }
        const auto value = read_hexadecimal(end - position_);
        ++position_;
        return value;
    }
    if (is_letter(c) || is_digit(c)) return std::nullopt;
    ++position_;
    return next_character(pattern_, position_);
}

std::optional<char32_t> translator::read_hexadecimal(size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i, ++position_) {
        const char c = is_at_end() ? ' ' : pattern_[position_];
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
character_set translator::read_property(bool negated) {
    if (!consume("{")) {
        refuse("\\p without {");
        return {};
    }
    if (consume("^")) negated = !negated;
    const size_t end = pattern_.find('}', position_);
    if (end == pattern_.npos) {
        refuse("\\p{ without }");
        return {};
    }
    std::string name(pattern_.substr(position_, end - position_));
    position_ = end + 1;
    return find_named_set(std::move(name), negated);
}

character_set translator::find_named_set(std::string name, bool negated) {
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
            std::string candidate = format(fmt::runtime(form), compared);
            if (compiles_(candidate)) return {std::move(candidate), negated};
        }
    refuse(format("the unknown property {}", name));
    return {};
}

// Starts after the opening bracket. Returns a PCRE2 expression for one character.
std::string translator::translate_class(int depth) {
    if (depth == depth_max) {
        refuse(format("classes deeper than {}", depth_max));
        return "";
    }
    const bool negated = consume("^");
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
    if (consume("]")) inside = "\\]";
    for (;;) {
        if (is_at_end()) refuse("a class without its end");
        if (problem_) return "";
        if (consume("]")) break;
        if (consume("&&")) {
            finish_side();
            inside.clear();
            others.clear();
            continue;
        }
        read_class_item(inside, others, depth);
    }
    if (sides.empty() && others.empty()) return (negated ? "[^" : "[") + inside + "]";
    finish_side();
    std::string combined;
    for (size_t i = 0; i + 1 < sides.size(); ++i) combined += "(?=" + sides[i] + ")";
    combined += sides.empty() ? "" : sides.back();
    return negated ? "(?:(?!" + combined + ")(?s:.))" : "(?:" + combined + ")";
}

// A set within a class. Goes to `inside` if PCRE2 can express it there.
void translator::add_class_set(const character_set &set, std::string &inside,
                               std::vector<std::string> &others) {
    if (!set.negated)
        inside += set.inside;
    else if (set.is_one_property())
        inside += set.complement_of_property();
    else
        others.push_back(set.expression());
}

// One item within a class. Goes to `inside`, or to `others` as a separate expression.
void translator::read_class_item(std::string &inside, std::vector<std::string> &others, int depth) {
    if (consume("[:")) {
        const bool negated = consume("^");
        const size_t end = pattern_.find(":]", position_);
        if (end == pattern_.npos) return refuse("[: without :]");
        const character_set set =
            find_named_set(std::string(pattern_.substr(position_, end - position_)), negated);
        position_ = end + 2;
        return add_class_set(set, inside, others);
    }
    if (consume("[")) return others.push_back(translate_class(depth + 1));
    if (const auto set = read_set_escape()) return add_class_set(*set, inside, others);
    const auto low = read_class_character();
    if (!low) return;
    inside += literal(*low);
    // A hyphen before the end or before a set is an ordinary character.
    if (!is_next("-") || is_next("-]") || is_next("-[") || is_next("-&&")) return;
    ++position_;
    if (const auto set = read_set_escape()) {
        inside += literal('-');
        return add_class_set(*set, inside, others);
    }
    if (const auto high = read_class_character()) {
        if (*high < *low) return refuse("a range whose end is before its begin");
        inside += "-" + literal(*high);
    }
}

std::optional<char32_t> translator::read_class_character() {
    if (problem_) return std::nullopt;
    if (is_at_end()) {
        refuse("a class without its end");
        return std::nullopt;
    }
    if (!is_next("\\")) return next_character(pattern_, position_);
    if (consume("\\b")) return U'\b';
    const auto character = read_character_escape();
    if (!character) refuse("an unknown escape in a class");
    return character;
}

}  // namespace

result<std::string> to_pcre2(std::string_view pattern, bool (*compiles)(const std::string &piece)) {
    return translator(pattern, compiles).translate();
}

}  // namespace moorage::core
