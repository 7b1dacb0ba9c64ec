// wrong_arguments.cpp - must not compile: victims takes a room and a list, not a count.
#include <moorage/moorage.hpp>

class mistaken {
public:
    static constexpr moorage::about about{.name = "mistaken"};
    explicit mistaken(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    void victims(uint32_t, moorage::pages &) {}
};

MOORAGE_POLICIES("org.example.mistaken", "0.1.0", mistaken)
