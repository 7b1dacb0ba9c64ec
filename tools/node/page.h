// page.h - the page that a node serves at "/": holders, links and their times, drawn anew every
// second from /status. One file that loads nothing else.
#pragma once

#include <string_view>

namespace moorage::core {

extern const std::string_view node_page;

}  // namespace moorage::core
