// What `mytorch check --compiled` finds of a case.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/check.h"
#include "conformance/inputs.h"

namespace mytorch::conformance {
namespace {

const std::vector<OpRecord>& catalog() {
  static const std::vector<OpRecord> all = load_catalog(share_folder());
  return all;
}

// Runs the first case of the operator that is to give a result.
InGraphs checked(const std::string& name, std::string* failures) {
  for (const OpRecord& op : catalog()) {
    if (op.name != name) continue;
    for (const Case& c : cases_of(op)) {
      if (c.sample->contains("error")) continue;
      return check_compiled(c, make_arguments(c, 0, kCPU, c.dtype),
                            [&](const std::string& check, const std::string& what) {
                              *failures += check + ": " + what + "\n";
                            });
    }
  }
  ADD_FAILURE() << "no case of " << name;
  return {};
}

TEST(CheckCompiled, SaysWhyGraphsRefuseAnOperator) {
  std::string failures;
  const InGraphs found = checked("nonzero", &failures);
  EXPECT_FALSE(found.held);
  EXPECT_NE(found.refusal.find("depends on values"), std::string::npos) << found.refusal;
  EXPECT_EQ(failures, "");
  EXPECT_NE(std::string(not_in_graphs("nonzero", false).why), "");
  EXPECT_EQ(std::string(not_in_graphs("add.Tensor", false).why), "");
}

TEST(CheckCompiled, RunsRandomOperators) {
  for (const char* name : {"randn", "dropout", "rand_like", "normal_"}) {
    std::string failures;
    EXPECT_TRUE(checked(name, &failures).held) << name;
    EXPECT_EQ(failures, "") << name;
  }
}

}  // namespace
}  // namespace mytorch::conformance
