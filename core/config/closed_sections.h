// closed_sections.h - which keys a configuration of a run may have where they are the host's.
#pragma once

#include <string>
#include <vector>

namespace moorage::core {

// Sections with a closed list of keys, in the order in which they are checked. The stages' keys are
// open: policies declare their own.
struct closed_section {
    std::string name;
    std::vector<std::string> keys;
};
const std::vector<closed_section> &closed_sections();

}  // namespace moorage::core
