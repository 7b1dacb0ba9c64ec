// completion_command.cpp - moorage completion and moorage man: scripts for shells and the page for
// man(1), made from the declared command line. --help shows neither, because packages run them.
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include "core/base/text.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

// Today, or SOURCE_DATE_EPOCH for a reproducible build.
std::string date_of_page() {
    const char *epoch_text = std::getenv("SOURCE_DATE_EPOCH");
    const std::time_t page_time =
        epoch_text && *epoch_text ? std::strtoll(epoch_text, nullptr, 10) : std::time(nullptr);
    std::tm parts{};
    gmtime_r(&page_time, &parts);
    char text[40];
    std::strftime(text, sizeof(text), "%B ", &parts);  // the locale is C
    return core::format("{}{}, {}", text, parts.tm_mday, parts.tm_year + 1900);
}

}  // namespace

command install_completion(parser &app) {
    parser *sub = app.add_subcommand("completion", "write a script that completes command lines");
    sub->hide();
    const auto shell = std::make_shared<std::string>();
    sub->add_option("shell", *shell, "name of the shell")
        ->required()
        ->type_name("SHELL")
        ->one_of({"bash", "zsh", "fish"});
    return [shell, &app] {
        print(completion_of(app.described(), *shell));
        return exit_ok;
    };
}

command install_man(parser &app) {
    app.add_subcommand("man", "write the manual page, in mdoc")->hide();
    return [&app] {
        print(manual_of(app.described(), date_of_page()));
        return exit_ok;
    };
}

}  // namespace moorage::tool
