// Programs of a GPU: saved, read and run, from C++ and from C.
#include "mytorch/program.h"

#include <string>

#include "mytorch/compile.h"
#include "mytorch/generator.h"
#include "mytorch/mytorch.h"
#include "mytorch/mytorch_c.h"
#include "tests/backends/cuda/gpu.h"
#include "tests/core/same_bits.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::testing {
namespace {

class Programs : public Gpu {
 protected:
  const TempDirectory folder_;
  const std::string path_ = folder_.path() + "/model.mtg";
};

TEST_F(Programs, ATrainingStepContinuesFromItsState) {
  nn::Sequential net(nn::Conv2d(3, 8, 3), nn::BatchNorm2d(8), nn::ReLU(), nn::Flatten(),
                     nn::Dropout(0.5), nn::Linear(8 * 36, 4));
  net.to("cuda");
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  const Tensor x = randn({5, 3, 8, 8}).to("cuda"), y = tensor({0, 1, 2, 3, 0}).to("cuda");
  auto step = compile([&](const Tensor& input, const Tensor& target) {
    optimizer.zero_grad();
    const Tensor loss = nn::functional::cross_entropy(net(input), target);
    loss.backward();
    optimizer.step();
    return loss.detach();
  });
  for (int i = 0; i < 3; ++i) step(x, y);
  step.save(path_, {.names = net.state_dict()});
  Program program = load(path_, CompileMode::kExact);
  EXPECT_EQ(program.inputs()[0].device, Device("cuda"));
  EXPECT_TRUE(program.state().at("0.weight").device().is_cuda());
  std::vector<Tensor> expected;
  manual_seed(5);
  for (int i = 0; i < 5; ++i) expected.push_back(step(x, y));
  manual_seed(5);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(program(x, y), expected[i])) << i;
  EXPECT_THROW(program(x.to(kCPU), y), Error);
}

TEST_F(Programs, TheCInterfaceTakesMemoryOfTheDevice) {
  auto f = compile([](const Tensor& x) { return (x * 2).t(); });
  const Tensor x = randn({3, 4}).to("cuda");
  const Tensor expected = f(x);
  f.save(path_);
  mytorch_program* program = mytorch_load(path_.c_str());
  ASSERT_NE(program, nullptr) << mytorch_last_error();
  int64_t shape[] = {3, 4}, result_shape[] = {4, 3};
  const Tensor given = x.clone(), on_host = zeros({4, 3});
  for (int i = 0; i < 4; ++i) {
    const mytorch_tensor in = {given.raw_mutable_data(), {2, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
    mytorch_tensor out = {};
    ASSERT_EQ(mytorch_run(program, &in, &out), 0) << mytorch_last_error();
    EXPECT_EQ(out.device.type, 2);
    EXPECT_EQ(out.strides[0], 1);
    out = {on_host.raw_mutable_data(), {1, 0}, 2, {2, 32, 1}, result_shape, nullptr, 0};
    ASSERT_EQ(mytorch_run(program, &in, &out), 0) << mytorch_last_error();
    EXPECT_TRUE(same_bits(on_host, expected));
  }
  const mytorch_tensor wrong = {given.raw_mutable_data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
  mytorch_tensor out = {};
  EXPECT_NE(mytorch_run(program, &wrong, &out), 0);
  EXPECT_NE(std::string(mytorch_last_error()).find("is on cpu"), std::string::npos);
  mytorch_free(program);
}

}  // namespace
}  // namespace mytorch::testing
