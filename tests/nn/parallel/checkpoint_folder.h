// A folder that checkpoints are written to, and parts of a tensor for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn {

class CheckpointFolder : public ::testing::Test {
 protected:
  std::string path() const { return directory_.file("saved"); }
  std::vector<std::string> names() const {
    std::vector<std::string> names = directory_.names();
    std::sort(names.begin(), names.end());
    return names;
  }
  // Elements [0, 4) of "x", of which two ranks have two each.
  static TensorPart part(const distributed::Group& g, double first) {
    const Tensor x = mytorch::arange(2).to(kFloat32) + (first + 2 * g.rank());
    return {"x", {4}, 0, 2 * g.rank(), 2 * g.rank() + 2, x};
  }
  void save(double first) {
    distributed::run_local(
        2, [&](const distributed::Group& g) { save_parts(path(), {part(g, first)}); });
  }
  // Returns the first of the elements, which are in order.
  double load() const {
    const Tensor x = mytorch::zeros({4});
    load_parts(path(), {{"x", {4}, TensorPart::kWhole, 0, 0, x}});
    EXPECT_TRUE(mytorch::equal(x, mytorch::arange(4).to(kFloat32) + x[0])) << x;
    return x[0].item<double>();
  }
  mytorch::testing::TempDirectory directory_;
};

}  // namespace mytorch::nn
