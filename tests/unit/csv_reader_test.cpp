// csv_reader_test.cpp - goal: lines and records are those of RFC 4180, and an error has its line
// and cell. Method: texts and their cells worked out by hand, one wrong text per rule.
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "core/base/csv_reader.h"

namespace csv_reader_test {

using namespace moorage::core;

namespace {

using record = std::vector<std::string>;

// All records, the names of the columns first. Then, if it fails, "LINE: the error".
std::vector<record> read(const std::string &text, const csv_rules &rules = {}) {
    std::istringstream input(text);
    line_reader lines(input);
    csv_reader records(lines, rules);
    std::vector<record> found;
    record cells;
    result<bool> has_record = records.read_columns();
    if (has_record && *has_record) {
        found.push_back(records.columns());
        while ((has_record = records.next(cells)).ok() && *has_record) found.push_back(cells);
    }
    if (!has_record)
        found.push_back({std::to_string(lines.number()) + ": " + has_record.failure().text});
    return found;
}

std::string failure(const std::string &text, const csv_rules &rules = {}) {
    return read(text, rules).back().front();
}

}  // namespace

TEST_CASE("lines have their numbers, and blank ones are skipped") {
    std::istringstream input("\xef\xbb\xbfone\r\n\n \t\r\n two \r\r\nthree");
    line_reader lines(input);
    std::string line;
    CHECK(lines.number() == 0);
    REQUIRE(lines.next(line).value());
    CHECK(line == "one");
    CHECK(lines.number() == 1);
    REQUIRE(lines.next(line).value());
    CHECK(line == " two \r");  // one \r belongs to the line end
    CHECK(lines.number() == 4);
    REQUIRE(lines.next(line).value());
    CHECK(line == "three");
    CHECK(lines.number() == 5);
    CHECK_FALSE(lines.next(line).value());
    CHECK(lines.number() == 5);
    CHECK(without_blanks(" \t a b\t") == "a b");
    CHECK(without_blanks("\t ").empty());
}

TEST_CASE("a byte order mark counts before the first line only") {
    const std::string mark = "\xef\xbb\xbf";
    CHECK(read(mark + "\na\n" + mark + "1\n") == std::vector<record>{{"a"}, {mark + "1"}});
    CHECK(read(mark).empty());
}

TEST_CASE("a line has at most 16 MiB") {
    const std::string longest(line_reader::line_bytes_max, 'x');
    CHECK(read("a\n" + longest + "\n")[1] == record{longest});
    CHECK(failure("a\n" + longest + "x\n") == "2: the line is longer than 16777216 bytes");
}

TEST_CASE("cells, quoted or not") {
    CHECK(read("").empty());
    CHECK(read("\r\n \n").empty());
    CHECK(read("a,b\n1,2\n") == std::vector<record>{{"a", "b"}, {"1", "2"}});
    CHECK(read("a,b,c\r\n,,\r\n\"\",x,\"\"") ==
          std::vector<record>{{"a", "b", "c"}, {"", "", ""}, {"", "x", ""}});
    CHECK(read("a,b\n\"1,2\",\"say \"\"3\"\"\"\n\"\"\"\",4\"5\n") ==
          std::vector<record>{{"a", "b"}, {"1,2", "say \"3\""}, {"\"", "4\"5"}});
    CHECK(read("\"a,b\"\n1\n") == std::vector<record>{{"a,b"}, {"1"}});
}

TEST_CASE("blanks around cells stay, or go") {
    const std::string text = "a, b \n 1,\t2 3 \n";
    CHECK(read(text) == std::vector<record>{{"a", " b "}, {" 1", "\t2 3 "}});
    const csv_rules without = {.blanks = csv_blanks::remove};
    CHECK(read(text, without) == std::vector<record>{{"a", "b"}, {"1", "2 3"}});
    CHECK(read("a,b\n \"1 , \" ,\" 2\"\n", without) ==
          std::vector<record>{{"a", "b"}, {"1 , ", " 2"}});
    // A quote behind a blank is part of the cell if blanks stay.
    CHECK(read("a\n \"1\"\n") == std::vector<record>{{"a"}, {" \"1\""}});
}

TEST_CASE("the first line decides on the separator") {
    const csv_rules rules = {.separators = ",;\t", .blanks = csv_blanks::remove};
    CHECK(read("a;b\tc\n1,2;3\t4\n", rules) == std::vector<record>{{"a", "b\tc"}, {"1,2", "3\t4"}});
    CHECK(read("a,b;c\n1;2,3\n", rules) == std::vector<record>{{"a", "b;c"}, {"1;2", "3"}});
    // A tab that separates is no blank: the cells between are empty.
    CHECK(read("a\tb\tc\n\t\t\"1\"\n", rules) ==
          std::vector<record>{{"a", "b", "c"}, {"", "", "1"}});
    CHECK(read("a\n1;2\n", rules) == std::vector<record>{{"a"}, {"1;2"}});
    CHECK(read("a;b\n1;2\n") == std::vector<record>{{"a;b"}, {"1;2"}});
}

TEST_CASE("wrong texts: the line, the cell and why") {
    CHECK(failure("a,b,a\n") == "1: column a is named twice");
    CHECK(failure("\na,b\n\n1\n") == "4: 1 cells, the first line names 2 columns");
    CHECK(failure("a,b\n1,2,\n") == "2: 3 cells, the first line names 2 columns");
    CHECK(failure("a,b\n1,\"2\n3\",4\n") == "2: cell 2: the quote is not closed");
    CHECK(failure("a,\"b") == "1: cell 2: the quote is not closed");
    CHECK(failure("a,b\n\"1\"x,2\n") == "2: cell 1: text behind the closing quote");
    CHECK(failure("a,b\n\"1\" ,2\n") == "2: cell 1: text behind the closing quote");
    CHECK(failure("a,b\n\"1\" \"\",2\n", {.blanks = csv_blanks::remove}) ==
          "2: cell 1: text behind the closing quote");
}

TEST_CASE("limits of a record") {
    const csv_rules rules = {.cells_max = 2, .cell_bytes_max = 3};
    CHECK(read("abc,b\n\"1\"\"2\",\n", rules) == std::vector<record>{{"abc", "b"}, {"1\"2", ""}});
    CHECK(failure("a,b,c\n", rules) == "1: more than 2 cells");
    CHECK(failure("a,b\n1,2,3\n", rules) == "2: more than 2 cells");
    CHECK(failure("a,b\n1,2345\n", rules) == "2: cell 2: 4 characters, 3 is the limit");
    CHECK(failure("a,b\n\"1234\",2\n", rules) == "2: cell 1: 4 characters, 3 is the limit");
}

}  // namespace csv_reader_test
