"""cpp_functions - where the functions of a C++ text are. No parser: it follows braces, and looks at what stands
before each. That suffices for code of one format (.clang-format)."""
import re

TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
                   r"""|^[ \t]*\#(?:\\\n|[^\n])*|\w+|::|[^\w\s]""", re.S | re.M)
SCOPES = {"namespace", "class", "struct", "union", "enum"}
NO_NAMES = {"decltype", "__attribute__", "alignas", "noexcept", "requires", "explicit", "sizeof"}


def functions(text):
    """{name: [(begin, end)]} of all definitions of functions, each from its return type to its last brace. The name
    has no class in front of it. Functions within functions are parts of these."""
    found, open_braces = {}, []
    statement = []  # (token, place) since the last end of a statement
    for match in TOKEN.finditer(text):
        token, place = match[0], match.start()
        if token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        words = [word for word, _ in statement]
        if token == "{":
            kind, name = opened(words, open_braces[-1][0] if open_braces else "scope")
            open_braces.append((kind, name, statement[0][1] if statement else place))
        elif token == "}" and open_braces:
            kind, name, begin = open_braces.pop()
            if kind == "function":
                found.setdefault(name, []).append((begin, match.end()))
        elif token == ";" and words.count("(") <= words.count(")"):
            kind = "end"
        elif token == ":" and words in (["public"], ["private"], ["protected"]):
            kind = "end"
        else:
            kind = "value"
        if kind == "value":
            statement.append((token, place))
        else:
            statement = []
    return found


def opened(words, outer):
    """What a brace behind these words opens: a scope, a function with its name, a block in one, or a value."""
    if outer in ("function", "block"):
        return "block", None
    words = without_template(words)
    if outer == "value" or words.count("(") > words.count(")"):
        return "value", None
    if "(" not in words:
        is_scope = not words or words[0] == "extern" or SCOPES & set(words)
        return "scope" if is_scope else "value", None
    name, depth = None, 0  # depth: of template arguments
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        if "operator" in words[max(0, i - 3):i]:
            if word != "(" or before == "operator":
                continue
            name = "operator" + "".join(words[len(words) - words[::-1].index("operator"):i])
            break
        if word == "<" and re.match(r"\w", before):
            depth += 1
            if depth == 1:
                template = before
        elif word == ">" and depth:
            depth -= 1
        elif word == "=" and not depth:
            return "value", None
        elif word == "(" and not depth:
            candidate = template if before == ">" else before
            if re.match(r"[A-Za-z_]", candidate) and candidate not in NO_NAMES:
                name = ("~" if words[i - 2:i - 1] == ["~"] else "") + candidate
                break
    if not name:
        return "value", None
    # A value in braces of a constructor's list, not yet the body.
    if members_begin(words[i:]) and re.match(r"\w|>", words[-1]):
        return "value", None
    return "function", name


def members_begin(words):
    """Whether the list of a constructor's members begins behind these parameters."""
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word == ":" and depth == 0:
            return True
    return False


def without_template(words):
    """Without `template <...>` at the beginning."""
    while words[:2] == ["template", "<"]:
        depth = 0
        for i, word in enumerate(words):
            depth += (word == "<") - (word == ">")
            if word == ">" and depth == 0:
                words = words[i + 1:]
                break
        else:
            return words
    return words
