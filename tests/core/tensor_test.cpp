// Tensor handles: their properties, and access to their memory.
#include "mytorch/tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

std::vector<int64_t> list(IntList values) { return values.vec(); }

TEST(TensorTest, ReportsItsGeometry) {
  const int64_t sizes[] = {2, 3, 4};
  const Tensor x = Tensor::adopt(new_tensor(sizes, 3, kFloat64, kCPU, 0));
  EXPECT_TRUE(x.defined());
  EXPECT_EQ(x.dim(), 3);
  EXPECT_EQ(list(x.sizes()), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(list(x.strides()), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(x.numel(), 24);
  EXPECT_EQ(x.dtype(), kFloat64);
  EXPECT_EQ(x.device(), kCPU);
  EXPECT_EQ(x.element_size(), 8);
  EXPECT_EQ(x.storage_offset(), 0);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_TRUE(x.is_floating_point());
  EXPECT_FALSE(x.is_view());
  EXPECT_EQ(x.size(-1), 4);
  EXPECT_EQ(x.stride(-3), 12);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw_data()) % 64, 0u);
  expect_error(ErrorCode::kShape, {"[size]", "dim 3", "-3 to 2"}, [&] { x.size(3); });
  expect_error(ErrorCode::kShape, {"[stride]", "dim -4"}, [&] { x.stride(-4); });
}

TEST(TensorTest, ScalarsAndEmptyTensors) {
  const Tensor scalar = Tensor::adopt(new_tensor(nullptr, 0, kInt16, kCPU, 0));
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_TRUE(scalar.is_contiguous());
  expect_error(ErrorCode::kShape, {"-1 to 0"}, [&] { scalar.size(1); });
  const int64_t size = int64_t{1} << 29;
  const int64_t sizes[] = {0, size, size};
  const Tensor empty = Tensor::adopt(new_tensor(sizes, 3, kFloat32, kCPU, 0));
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(empty.is_contiguous());
  EXPECT_EQ(list(empty.sizes()), (std::vector<int64_t>{0, size, size}));
}

TEST(TensorTest, MayHaveManyDimensions) {
  const std::vector<int64_t> sizes(20, 1);
  const Tensor x = Tensor::adopt(new_tensor(sizes.data(), 20, kFloat32, kCPU, 0));
  EXPECT_EQ(x.dim(), 20);
  EXPECT_EQ(list(x.sizes()), sizes);
  EXPECT_EQ(list(x.strides()), sizes);
  const Tensor view = Tensor::adopt(new_view(x.impl(), sizes, sizes, 0));
  EXPECT_EQ(list(view.sizes()), sizes);
}

TEST(TensorTest, UseOfAnUndefinedTensorIsAnError) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(none.impl(), nullptr);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { none.sizes(); }, [&] { none.dtype(); }, [&] { none.numel(); },
           [&] { none.version(); }, [&] { none.const_data<float>(); }, [&] { none.item(); },
           [&] { none.detach(); }, [&] { none.requires_grad_(); }, [&] { none.backward(); }}) {
    expect_error(ErrorCode::kValue, {"undefined"}, call);
  }
  Tensor moved = tensor({1.0});
  const Tensor taken = std::move(moved);
  expect_error(ErrorCode::kValue, {"moved from"}, [&] { moved.sizes(); });  // NOLINT
}

TEST(TensorTest, CopiesShareAndCount) {
  Tensor a = tensor({1.0, 2, 3});
  TensorImpl* impl = a.impl();
  EXPECT_EQ(impl->refs.load(), 1u);
  {
    const Tensor b = a;
    const Tensor c(b);
    EXPECT_EQ(impl->refs.load(), 3u);
    EXPECT_TRUE(c.is_same(a));
    b.data<float>()[0] = 7;
  }
  EXPECT_EQ(impl->refs.load(), 1u);
  EXPECT_EQ(a.const_data<float>()[0], 7);
  a = *&a;  // itself
  EXPECT_EQ(a.impl(), impl);
  Tensor d = tensor({4.0});
  std::swap(a, d);
  EXPECT_EQ(d.impl(), impl);
  EXPECT_FALSE(a.is_same(d));
}

TEST(TensorTest, DataIsTypedAndMarksTheStorageEscaped) {
  const Tensor x = tensor({1.0, 2});
  auto escaped = [](const Tensor& t) {
    return (t.impl()->storage->abi.flags & MT_STORAGE_ESCAPED) != 0;
  };
  x.const_data<float>();
  x.raw_data();
  EXPECT_FALSE(escaped(x));  // these give no write access
  expect_error(ErrorCode::kType, {"float32", "float64", "to(float64)"},
               [&] { x.const_data<double>(); });
  expect_error(ErrorCode::kType, {"float32", "int32"}, [&] { x.data<int32_t>(); });
  EXPECT_FALSE(escaped(x));
  x.data<float>();
  EXPECT_TRUE(escaped(x));
  const Tensor y = tensor({1.0, 2});
  y.raw_mutable_data();
  EXPECT_TRUE(escaped(y));
}

TEST(TensorTest, ConvertsGivenValues) {
  const Tensor halves = tensor({0.5, -1.5}, kFloat16);
  EXPECT_EQ(static_cast<float>(halves.const_data<Half>()[1]), -1.5f);
  const Tensor bools = tensor({0, 2, -1}, kBool);
  EXPECT_EQ(std::vector<bool>(bools.const_data<bool>(), bools.const_data<bool>() + 3),
            (std::vector<bool>{false, true, true}));
  EXPECT_EQ(tensor(std::vector<int64_t>{1, 2}).dtype(), kInt64);
  EXPECT_EQ(tensor(std::vector<float>{}).numel(), 0);
  EXPECT_EQ(tensor(std::vector<double>{1e300}, kFloat64).const_data<double>()[0], 1e300);
}

TEST(FromBlobTest, UsesTheCallersMemory) {
  float memory[6] = {0, 1, 2, 3, 4, 5};
  int released = 0;
  {
    const Tensor x = from_blob(memory, {2, 2}, {3, 2}, [&](void*) { ++released; });
    EXPECT_EQ(x.raw_data(), memory);
    EXPECT_FALSE(x.is_contiguous());
    EXPECT_EQ(x.impl()->storage->bytes, 6 * sizeof(float));
    // Writes through the pointer cannot be counted.
    EXPECT_NE(x.impl()->storage->abi.flags & MT_STORAGE_ESCAPED, 0u);
    const Tensor keeps = x.detach();
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(from_blob(static_cast<float*>(nullptr), {0, 3}).numel(), 0);
}

TEST(FromBlobTest, RejectsInvalidGeometry) {
  float memory[4] = {};
  expect_error(ErrorCode::kShape, {"[from_blob]", "2 sizes", "1 strides"}, [&] {
    from_blob(memory, {2, 2}, {1});
  });
  expect_error(ErrorCode::kShape, {"[from_blob]", "negative"},
               [&] { from_blob(memory, {-1}, kFloat32); });
  expect_error(ErrorCode::kShape, {"[from_blob]", "negative"},
               [&] { from_blob(memory, {2}, {-1}); });
  expect_error(ErrorCode::kDevice, {"no backend provides device type 77"},
               [&] { from_blob(memory, {2}, Device(77, 0)); });
}

TEST(OperandTest, IsATensorOrANumberOrAbsent) {
  const Tensor x = tensor({1.0});
  EXPECT_FALSE(Operand().present());
  EXPECT_TRUE(Operand(x).is_tensor());
  EXPECT_TRUE(Operand(x).tensor().is_same(x));
  EXPECT_TRUE(Operand(2).is_scalar());
  EXPECT_TRUE(Operand(2).scalar().is_int());
  EXPECT_TRUE(Operand(true).scalar().is_bool());
  EXPECT_FALSE(Operand(Tensor()).present());
  // The view of a kernel: a 0-dim operand on the caller's stack.
  const HostScalar two(Scalar(2.5));
  EXPECT_EQ(two.abi()->dl.ndim, 0);
  EXPECT_EQ(two.abi()->storage, nullptr);
  EXPECT_NE(two.abi()->flags & MT_TENSOR_HOST, 0u);
  EXPECT_EQ(*static_cast<const double*>(two.abi()->dl.data), 2.5);
  EXPECT_EQ(from_abi(HostScalar(Scalar(true)).abi()->dl.dtype), kBool);
}

TEST(ListTest, SingleNumberConvertsToAList) {
  EXPECT_EQ(IntList(5).vec(), (std::vector<int64_t>{5}));
  EXPECT_EQ(IntList().size(), 0u);
  EXPECT_TRUE(IntList().empty());
  EXPECT_TRUE(IntList({1, 2}) == IntList(std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(IntList({1, 2}) == IntList({1, 3}));
  EXPECT_FALSE(IntList({1, 2}) == IntList(1));
  EXPECT_FALSE(OptionalIntList().has_value());
  EXPECT_FALSE(OptionalIntList(std::nullopt).has_value());
  EXPECT_TRUE(OptionalIntList(IntList()).has_value());  // an empty list is not absent
  EXPECT_EQ(OptionalIntList(3)->vec(), (std::vector<int64_t>{3}));
  const Tensor x = tensor({1.0});
  const std::vector<Tensor> both{x, x};
  const TensorList two(both);
  EXPECT_EQ(two.size(), 2u);
  EXPECT_TRUE(two[1].is_same(x));
}

TEST(ErrorTest, MessagesConcatenateTheirParts) {
  expect_error(ErrorCode::kShape, {"[op] shape (2, 3) and (4,) and ()"}, [] {
    fail(ErrorCode::kShape, "[op] shape ", shape_str({2, 3}), " and ", shape_str(4), " and ",
         shape_str(IntList()));
  });
  EXPECT_EQ(wrap_dim(-1, 3, "op"), 2);
  EXPECT_EQ(wrap_dim(0, 0, "op"), 0);
  EXPECT_EQ(wrap_dim(-1, 0, "op"), 0);
  expect_error(ErrorCode::kShape, {"[op] dim 1", "0 dimensions"}, [] { wrap_dim(1, 0, "op"); });
}

}  // namespace
}  // namespace mytorch
