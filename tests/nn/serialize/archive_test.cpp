// libtorch's save and load, and its archives.
#include "mytorch/nn/archive.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "mytorch/nn/linear.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/ops/sum.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"
#include "tests/nn/values.h"

namespace mytorch {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::filled;
using mytorch::testing::values;

TEST(Save, ATensorRoundTripsThroughAFileAndAStream) {
  const testing::TempDirectory directory;
  const std::string path = directory.path() + "/x.safetensors";
  const Tensor x = filled({2, 2}, {1, 2, 3, 4}, kFloat64);
  Tensor y, z;
  save(x, path);
  load(y, path);
  std::stringstream stream;
  save(x, stream);
  load(z, stream, kCPU);
  for (const Tensor& loaded : {y, z}) {
    EXPECT_EQ(values(loaded), values(x));
    EXPECT_TRUE(loaded.sizes() == x.sizes());
    EXPECT_EQ(loaded.dtype(), kFloat64);
  }
}

TEST(Save, AListKeepsItsOrderBeyondTenTensors) {
  std::vector<Tensor> list, loaded;
  for (int i = 0; i < 12; ++i) list.push_back(filled({1}, {i + 0.5}, kFloat64));
  std::stringstream stream;
  save(list, stream);
  load(loaded, stream);
  ASSERT_EQ(loaded.size(), 12u);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(values(loaded[i])[0], i + 0.5);
}

TEST(Save, ModulesAndOptimizersRoundTrip) {
  nn::Linear a(2, 1), b(2, 1);
  std::stringstream stream;
  save(a, stream);
  load(b, stream);
  EXPECT_EQ(values(b.weight), values(a.weight));

  auto shared = std::make_shared<nn::Linear>(2, 1);
  std::stringstream other;
  save(shared, other);
  load(b, other);
  EXPECT_EQ(values(b.weight), values(shared->weight));

  nn::optim::SGD first(a.parameters(), {.lr = 0.5, .momentum = 0.5}), second(b.parameters());
  a.weight.set_grad(filled({1, 2}, {1, 2}, kFloat32));
  first.step();
  std::stringstream state;
  save(first, state);
  load(second, state);
  EXPECT_EQ(second.lr(), 0.5);
  EXPECT_EQ(second.state_dict().count("parameter0.momentum"), 1u);
}

TEST(Load, RefusesWhatIsNotOneTensorOrAList) {
  std::stringstream stream;
  save(std::vector<Tensor>{filled({1}, {1}), filled({1}, {2})}, stream);
  Tensor x;
  expect_error(ErrorCode::kValue, {"2 tensors", "std::vector"}, [&] { load(x, stream); });
  EXPECT_FALSE(x.defined());
  nn::Linear net(2, 1);
  std::stringstream state;
  save(net, state);
  std::vector<Tensor> list;
  expect_error(ErrorCode::kValue, {"no tensor '0'"}, [&] { load(list, state); });
}

TEST(Load, RefusesDamagedStreams) {
  std::stringstream whole;
  save(filled({4}, {1, 2, 3, 4}), whole);
  const std::string bytes = whole.str();
  for (size_t length : {size_t{0}, size_t{7}, size_t{20}, bytes.size() - 1}) {
    std::stringstream part(bytes.substr(0, length));
    Tensor x;
    expect_error(ErrorCode::kIo, {"stream"}, [&] { load(x, part); });
  }
}

TEST(Archive, ReadsWhatWasWritten) {
  serialize::OutputArchive out, inner;
  const Tensor x = filled({2}, {1, 2});
  inner.write("x", x);
  out.write("inner", inner);
  out.write("y", x);
  expect_error(ErrorCode::kValue, {"'y'", "before"}, [&] { out.write("y", x); });
  nn::Linear net(2, 1), other(2, 1);
  net.save(inner = {});
  out.write("net", inner);
  std::stringstream stream;
  out.save_to(stream);

  serialize::InputArchive in, part;
  in.load_from(stream);
  EXPECT_EQ(in.keys(), (std::vector<std::string>{"inner", "net", "y"}));
  Tensor y;
  in.read("y", y);
  EXPECT_EQ(values(y), values(x));
  in.read("inner", part);
  EXPECT_TRUE(part.try_read("x", y));
  EXPECT_FALSE(part.try_read("y", y));
  in.read("net", part);
  other.load(part);
  EXPECT_EQ(values(other.weight), values(net.weight));
  expect_error(ErrorCode::kValue, {"no 'z'", "inner, net, y"}, [&] { in.read("z", y); });
}

}  // namespace
}  // namespace mytorch
