// no_kind.cpp - must not compile: `victim` is not `victims`, so the class answers for no kind.
#include <moorage/moorage.hpp>

class misspelt {
public:
    static constexpr moorage::about about{.name = "misspelt"};
    explicit misspelt(const moorage::setup &) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    void observe(const moorage::step &) {}
    void victim(const moorage::room &, moorage::pages &) {}
};

MOORAGE_POLICIES("org.example.misspelt", "0.1.0", misspelt)
