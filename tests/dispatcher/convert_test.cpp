// Conversion of operands for kernels that take only contiguous operands of one type and shape.
#include "mytorch/abi_ops/atan2.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/abi_ops/hypot.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backends.h"
#include "mytorch/ops/atan2.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/fmin.h"
#include "mytorch/ops/fmod.h"
#include "mytorch/ops/hypot.h"
#include "mytorch/ops/maximum.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::add_backend_with;
using testing::expect_error;
using testing::FakeDevice;
using testing::floats;
using testing::numel;
using testing::slow_paths_of;
using testing::TestKernel;
using testing::Values;
using testing::values;

// A device whose only kernels copy and fill.
FakeDevice& copies() {
  static FakeDevice& device = FakeDevice::create(
      {"copies", 1, [](const std::string& op) { return op == "copy_" || op == "fill_"; },
       [](const mt_program&) { return false; }});
  return device;
}

Tensor on_copies(const Tensor& x) { return x.to(copies().device()); }
Tensor matrix() { return on_copies(tensor({1.0, 2, 3, 4, 5, 6}).view({2, 3})); }

// out = self - 10 * other, for contiguous, non-overlapping float32 operands of one shape. Any other
// operand fails the test.
int simple(mt_ctx*, const void* given) {
  const auto& args = *static_cast<const mt_args_hypot*>(given);
  for (const mt_tensor* t : {args.self, args.other, args.out}) {
    EXPECT_NE(t->flags & MT_TENSOR_CONTIGUOUS, 0u);
    EXPECT_TRUE(same_dtype(t->dl.dtype, to_abi(kFloat32)));
    EXPECT_EQ(numel(t), numel(args.out));
  }
  EXPECT_NE(args.out->dl.data, args.self->dl.data);
  EXPECT_NE(args.out->dl.data, args.other->dl.data);
  const float* a = floats(args.self);
  const float* b = floats(args.other);
  for (int64_t i = 0; i < numel(args.out); ++i) floats(args.out)[i] = a[i] - 10 * b[i];
  return MT_OK;
}

// The kernel is registered for hypot: two tensors, promotion to float.
class SimpleKernelTest : public ::testing::Test {
 protected:
  SimpleKernelTest() {
    copies();
    static const bool registered = [] {
      add_backend_with("simple", "copies",
                       {{"hypot", "simple", 0, 0, simple}, {"maximum", "simple", 0, 0, simple}});
      return true;
    }();
    (void)registered;
    before_ = slow_paths_of("hypot").conversions;
  }
  uint64_t conversions() const { return slow_paths_of("hypot").conversions - before_; }
  uint64_t before_ = 0;
};

TEST_F(SimpleKernelTest, GetsTheSimpleCaseAsItIs) {
  EXPECT_EQ(values(hypot(matrix(), matrix())), (Values{-9, -18, -27, -36, -45, -54}));
  EXPECT_EQ(conversions(), 0u);
}

TEST_F(SimpleKernelTest, GetsContiguousCopiesOfStridedOperands) {
  const Tensor turned = matrix().t();
  const Tensor y = hypot(turned, turned);
  EXPECT_EQ(values(y), (Values{-9, -36, -18, -45, -27, -54}));
  EXPECT_EQ(y.strides().vec(), turned.strides().vec());  // the result keeps ATen's stride order
  EXPECT_EQ(conversions(), 3u);                          // two inputs and the output
}

TEST_F(SimpleKernelTest, GetsBroadcastOperandsSpread) {
  const Tensor row = on_copies(tensor({1.0, 2, 3}));
  EXPECT_EQ(values(hypot(matrix(), row)), (Values{-9, -18, -27, -6, -15, -24}));
  EXPECT_EQ(conversions(), 1u);
}

TEST_F(SimpleKernelTest, GetsTheComputationType) {
  const Tensor integers = on_copies(tensor(std::vector<int64_t>{1, 2, 3}));
  const Tensor y = hypot(integers, on_copies(tensor({1.0, 1, 1})));
  EXPECT_EQ(y.dtype(), kFloat32);
  EXPECT_EQ(values(y), (Values{-9, -8, -7}));
  EXPECT_EQ(conversions(), 1u);
}

TEST_F(SimpleKernelTest, NumbersBecomeTensors) {
  EXPECT_EQ(values(maximum(matrix(), 1)), (Values{-9, -8, -7, -6, -5, -4}));
}

TEST_F(SimpleKernelTest, WritesAStridedOutThroughACopy) {
  const Tensor memory = on_copies(tensor({0.0, 0, 0, 0, 0, 0, 7, 7}));
  const Tensor out = Tensor::adopt(new_view(memory.impl(), {3}, {2}, 0));
  const Tensor x = on_copies(tensor({1.0, 2, 3}));
  hypot_out(out, x, x);
  EXPECT_EQ(values(memory), (Values{-9, 0, -18, 0, -27, 0, 7, 7}));
  EXPECT_EQ(conversions(), 1u);
}

TEST_F(SimpleKernelTest, WritesAnOutOfAnotherType) {
  const Tensor out = on_copies(tensor({0, 0, 0}, kFloat64));
  const Tensor x = on_copies(tensor({1.0, 2, 3}));
  hypot_out(out, x, x);
  EXPECT_EQ(values(out), (Values{-9, -18, -27}));
}

TEST_F(SimpleKernelTest, NeverSeesItsOutputAmongItsInputs) {
  const Tensor x = on_copies(tensor({1.0, 2, 3}));
  const Tensor one = on_copies(tensor({1.0, 1, 1}));
  const uint64_t version = x.version();
  hypot_out(x, x, one);
  EXPECT_EQ(values(x), (Values{-9, -8, -7}));
  EXPECT_EQ(x.version(), version + 1);
  EXPECT_EQ(conversions(), 1u);
  hypot_out(x, one, x);
  EXPECT_EQ(values(x), (Values{91, 81, 71}));
}

TEST_F(SimpleKernelTest, OutOfMemoryOnTheWay) {
  const Tensor turned = matrix().t();
  const Tensor out = on_copies(tensor({7.0, 7, 7, 7, 7, 7})).view({3, 2});
  const int64_t blocks = copies().calls().blocks;
  copies().let_fail("allocate");
  expect_error(ErrorCode::kOutOfMemory, {"copies:0", "24 bytes"},
               [&] { hypot_out(out, turned, turned); });
  copies().let_fail("");
  EXPECT_EQ(copies().calls().blocks, blocks);
  EXPECT_EQ(values(out), Values(6, 7));
}

// A kernel that accepts everything except aliasing.
TEST_F(SimpleKernelTest, AliasesAreAFlagOfTheirOwn) {
  add_backend_with("no-alias", "copies",
                   {{"fmin", "no alias", 9,
                     MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES, simple}});
  const Tensor x = on_copies(tensor({1.0, 2, 3}));
  EXPECT_EQ(values(fmin(x, x)), (Values{-9, -18, -27}));
  fmin_out(x, x, x);
  EXPECT_EQ(values(x), (Values{-9, -18, -27}));
  EXPECT_EQ(slow_paths_of("fmin").conversions, 1u);
}

TEST_F(SimpleKernelTest, IsAskedAboutTheCallThatItWouldGet) {
  static int asked = 0;
  add_backend_with("asks", "copies",
                   {{"atan2", "asks", 5, 0,
                     [](mt_ctx*, const void* args) {
                       return testing::fill_out(static_cast<const mt_args_atan2*>(args)->out, 1);
                     },
                     [](const void* given) {
                       const auto& args = *static_cast<const mt_args_atan2*>(given);
                       EXPECT_NE(args.self->flags & MT_TENSOR_CONTIGUOUS, 0u);
                       ++asked;
                       return numel(args.self) == 6 ? nullptr : "not six";
                     }}});
  EXPECT_EQ(values(atan2(matrix().t(), matrix().t())), Values(6, 1));
  EXPECT_EQ(asked, 1);
  // If the kernel then declines, nothing has been written.
  const Tensor out = on_copies(tensor({5.0, 5, 5}));
  expect_error(ErrorCode::kUnsupported, {"asks/asks: not six"}, [&] {
    atan2_out(out, on_copies(tensor({1.0, 2, 3})), 1.0);
  });
  EXPECT_EQ(values(out), Values(3, 5));
}

// Reductions and primitives receive contiguous operands of the compute type, also in tensor lists.
TEST(SimpleKernelsTest, ListsOfTensors) {
  copies();
  add_backend_with("cats", "copies", {{"cat", "rows", 0, 0, [](mt_ctx*, const void* given) {
                                         const auto& args = *static_cast<const mt_args_cat*>(given);
                                         float* to = floats(args.out);
                                         for (int64_t i = 0; i < args.tensors.size; ++i) {
                                           const mt_tensor* t = args.tensors.data[i];
                                           EXPECT_NE(t->flags & MT_TENSOR_CONTIGUOUS, 0u);
                                           to = std::copy_n(floats(t), numel(t), to);
                                         }
                                         return int{MT_OK};
                                       }}});
  const Tensor turned = matrix().t();
  const std::vector<Tensor> list = {turned, matrix().view({3, 2})};
  const TensorImpl* const first = list[0].impl();
  EXPECT_EQ(values(cat(list)), (Values{1, 4, 2, 5, 3, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(list[0].impl(), first);  // the caller's list is unchanged
  EXPECT_EQ(slow_paths_of("cat").conversions, 1u);
  // If the kernel declines, the next one receives the original arguments.
  static const void* seen = nullptr;
  add_backend_with(
      "cats-again", "copies",
      {{"cat", "declines", 9, 0, [](mt_ctx*, const void*) { return int{MT_DECLINED}; }},
       {"cat", "looks", 8, MT_TAKES_STRIDED, [](mt_ctx*, const void* given) {
          seen = static_cast<const mt_args_cat*>(given)->tensors.data[0]->dl.data;
          return int{MT_DECLINED};
        }}});
  EXPECT_EQ(values(cat(list)), (Values{1, 4, 2, 5, 3, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(seen, turned.raw_data());
}

TEST(SimpleKernelsTest, WrittenArgumentsAreCopiedBack) {
  copies();
  add_backend_with("fills", "copies", {{"uniform_", "counts", 0, 0, [](mt_ctx*, const void* given) {
                                          const auto& args =
                                              *static_cast<const mt_args_uniform_*>(given);
                                          EXPECT_NE(args.self->flags & MT_TENSOR_CONTIGUOUS, 0u);
                                          for (int64_t i = 0; i < numel(args.self); ++i) {
                                            floats(args.self)[i] += static_cast<float>(i);
                                          }
                                          return int{MT_OK};
                                        }}});
  const Tensor memory = on_copies(tensor({10.0, 20, 30, 40}));
  const Tensor odd = Tensor::adopt(new_view(memory.impl(), {2}, {2}, 1));
  odd.uniform_();
  EXPECT_EQ(values(memory), (Values{10, 20, 30, 41}));
  EXPECT_EQ(slow_paths_of("uniform_").conversions, 1u);
}

TEST(SimpleKernelsTest, KeepsTheErrorOfAKernel) {
  copies();
  add_backend_with("breaks", "copies",
                   {{"fmod.Tensor", "breaks", 0, 0, [](mt_ctx* ctx, const void*) {
                       ctx->set_error(ctx, MT_ERROR_VALUE, "it broke");
                       return int{MT_ERROR_VALUE};
                     }}});
  const Tensor turned = matrix().t();
  expect_error(ErrorCode::kValue, {"[fmod] it broke"}, [&] { fmod(turned, turned); });
}

}  // namespace
}  // namespace mytorch
