// wire_claims_identities.cpp - a wire that connects to peers that it cannot tell from others.
#include "wire_base.hpp"

namespace {

class bad : public wire_base {
public:
    static constexpr moorage::about about{.name = "wire_claims_identities",
                                          .summary = "breaks a rule"};
    using wire_base::wire_base;
    uint64_t connect(const moorage::wire_target &target) {
        moorage::wire_target anybody = target;
        anybody.host_identity = nullptr;
        return wire_base::connect(anybody);
    }
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.wire_claims_identities", "1.0.0", bad)
