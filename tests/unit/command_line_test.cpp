// Goal: a command line that cannot be read is refused with the nearest that can.
// Method: the program with words misspelt by hand.
#include <doctest/doctest.h>

#include "tests/unit/program.h"

TEST_CASE("unknown commands and options get the nearest known one") {
    const moorage::test::program on;
    const auto refused = [&](const std::vector<std::string> &words, const std::string &part) {
        const moorage::test::ended how = on.run(words);
        CAPTURE(how.errors);
        CHECK(how.code == 2);
        CHECK(how.out.empty());
        CHECK(how.errors.find(part) != std::string::npos);
    };
    refused({"rum"}, "rum: no command of moorage; did you mean run");
    refused({"plugins", "lisst"}, "lisst: no command of plugins; did you mean list");
    refused({"xyzzyx"}, "xyzzyx: no command of moorage; moorage --help lists them");
    refused({"run", "c.toml", "--sett", "a.b=c"}, "--sett: no option of run; did you mean --set");
    refused({"run", "c.toml", "--jsn=x"}, "--jsn: no option of run; did you mean --json");
    // An option's own value is no word of its own, and what is missing is still said.
    refused({"run", "--json", "rum"}, "config is required");
    refused({"tune", "c.toml", "--samples", "many"}, "--samples");
}
