// html_style.h - the style sheet of the HTML report.
#pragma once

#include <string>

namespace moorage::core {

// For a <style> element. Light, dark and print; series colours after Okabe and Ito.
std::string html_style();

}  // namespace moorage::core
