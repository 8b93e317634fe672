#include "mytorch/dlpack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "mytorch/autograd/vmap.h"
#include "mytorch/compile.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "tests/core/same_bits.h"
#include "tests/nn/data/expect_error.h"

// As dlpack.h 1.0 of the DLPack project has them; written from its specification, so that nothing
// here is shared with what is tested.
struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

namespace mytorch {
namespace dlpack_test {

using testing::expect_error;

using List = std::vector<int64_t>;
enum : int32_t { kDLCPU = 1, kDLCUDAHost = 3, kDLMetal = 8 };
enum : uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6
};
constexpr uint64_t kReadOnly = 1, kCopied = 2;

void release(DLManagedTensor* managed) { managed->deleter(managed); }
void release(DLManagedTensorVersioned* managed) { managed->deleter(managed); }

// An array of another library, which counts how often it is released.
template <class Managed>
struct Producer {
  Managed managed{};
  List sizes, strides;
  int released = 0;

  Producer(void* data, DLDataType dtype, List sizes_, List strides_ = {})
      : sizes(std::move(sizes_)), strides(std::move(strides_)) {
    managed.dl_tensor = {data,  {kDLCPU, 0},  static_cast<int32_t>(sizes.size()),
                         dtype, sizes.data(), strides.empty() ? nullptr : strides.data(),
                         0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Producer*>(self->manager_ctx)->released; };
    if constexpr (requires { managed.version; }) managed.version = {1, 3};
  }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;
};
using Versioned = Producer<DLManagedTensorVersioned>;
using Unversioned = Producer<DLManagedTensor>;
constexpr DLDataType kF32 = {kDLFloat, 32, 1};

// ---- export ----

TEST(Dlpack, ExportsDescribeTensors) {
  const Tensor x = arange(24, kFloat32).reshape({2, 3, 4}).transpose(0, 2);
  DLManagedTensorVersioned* const managed = to_dlpack(x);
  const DLTensor& dl = managed->dl_tensor;
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  EXPECT_EQ(dl.data, x.raw_data());
  EXPECT_EQ(dl.byte_offset, 0u);
  EXPECT_EQ(dl.device.device_type, kDLCPU);
  EXPECT_EQ(dl.device.device_id, 0);
  EXPECT_EQ(dl.ndim, 3);
  EXPECT_EQ(List(dl.shape, dl.shape + 3), (List{4, 3, 2}));
  EXPECT_EQ(List(dl.strides, dl.strides + 3), (List{1, 4, 12}));
  release(managed);
}

TEST(Dlpack, ExportsHaveTheCodesOfTheTypes) {
  const std::pair<ScalarType, DLDataType> rows[] = {
      {kBool, {kDLBool, 8, 1}},          {kUInt8, {kDLUInt, 8, 1}},
      {kInt8, {kDLInt, 8, 1}},           {kInt16, {kDLInt, 16, 1}},
      {kInt32, {kDLInt, 32, 1}},         {kInt64, {kDLInt, 64, 1}},
      {kFloat16, {kDLFloat, 16, 1}},     {kBFloat16, {kDLBfloat, 16, 1}},
      {kFloat32, {kDLFloat, 32, 1}},     {kFloat64, {kDLFloat, 64, 1}},
      {kComplex64, {kDLComplex, 64, 1}}, {kComplex128, {kDLComplex, 128, 1}}};
  EXPECT_EQ(std::size(rows), static_cast<size_t>(kNumScalarTypes));
  for (const auto& [type, code] : rows) {
    DLManagedTensor* const managed = to_dlpack_unversioned(ones({3}, type));
    const DLDataType found = managed->dl_tensor.dtype;
    EXPECT_EQ(found.code, code.code) << dtype_name(type);
    EXPECT_EQ(found.bits, code.bits) << dtype_name(type);
    EXPECT_EQ(found.lanes, 1) << dtype_name(type);
    release(managed);
  }
}

TEST(Dlpack, StridesThatMeanNothingAreThoseOfRows) {
  const Tensor x = zeros({4, 5}).narrow(1, 2, 1);  // strides 5, 1
  DLManagedTensorVersioned* managed = to_dlpack(x.transpose(0, 1));
  EXPECT_EQ(List(managed->dl_tensor.strides, managed->dl_tensor.strides + 2), (List{4, 5}));
  release(managed);
  managed = to_dlpack(zeros({2, 0, 3}).transpose(0, 2));
  EXPECT_EQ(List(managed->dl_tensor.strides, managed->dl_tensor.strides + 3), (List{2, 2, 1}));
  release(managed);
  managed = to_dlpack(zeros({}));
  EXPECT_EQ(managed->dl_tensor.ndim, 0);
  release(managed);
}

TEST(Dlpack, ExportsKeepTheElements) {
  Tensor x = full({3}, 7.0);
  DLManagedTensorVersioned* const managed = to_dlpack(x);
  x = Tensor();
  const auto* const data = static_cast<const float*>(managed->dl_tensor.data);
  EXPECT_EQ(data[2], 7);
  release(managed);
}

TEST(Dlpack, ExportsDoNotFollowTheTensorsData) {
  const Tensor x = full({2, 3}, 5.0), data = ones({3, 2}).transpose(0, 1);
  DLManagedTensorVersioned* const managed = to_dlpack(x);
  x.set_data(data);
  EXPECT_EQ(managed->dl_tensor.strides[0], 3);
  EXPECT_EQ(static_cast<const float*>(managed->dl_tensor.data)[5], 5);
  release(managed);
}

TEST(Dlpack, CopiesAreMadeWhereTheyAreAsked) {
  const Tensor x = ones({2});
  DLManagedTensorVersioned* managed = to_dlpack(x, {.copy = true});
  EXPECT_NE(managed->dl_tensor.data, x.raw_data());
  EXPECT_EQ(managed->flags, kCopied);
  static_cast<float*>(managed->dl_tensor.data)[0] = 5;
  EXPECT_EQ(x[0].item<float>(), 1);
  release(managed);
  managed = to_dlpack(x, {.device = kCPU, .copy = false});
  EXPECT_EQ(managed->dl_tensor.data, x.raw_data());
  release(managed);
}

TEST(Dlpack, ReadOnlyMemoryIsMarked) {
  const float memory[] = {1, 2};
  const Tensor x = from_blob(memory, {2});
  DLManagedTensorVersioned* const managed = to_dlpack(x);
  EXPECT_EQ(managed->flags, kReadOnly);
  EXPECT_EQ(managed->dl_tensor.data, memory);
  release(managed);
  expect_error(ErrorCode::kValue, {"[to_dlpack_unversioned]", "const", "copy = true"},
               [&] { to_dlpack_unversioned(x); });
  DLManagedTensor* const copy = to_dlpack_unversioned(x, {.copy = true});
  EXPECT_NE(copy->dl_tensor.data, memory);
  release(copy);
}

TEST(Dlpack, WhatCannotBeExportedSaysWhy) {
  expect_error(ErrorCode::kValue, {"undefined"}, [] { to_dlpack(Tensor()); });
  const Tensor w = ones({2}).requires_grad_();
  expect_error(ErrorCode::kValue, {"[to_dlpack]", "requires a gradient", "detach()"},
               [&] { to_dlpack(w); });
  expect_error(ErrorCode::kValue, {"[to_dlpack]", "detach()"}, [&] { to_dlpack(w * 2); });
  release(to_dlpack(w.detach()));
  expect_error(ErrorCode::kUnsupported, {"to_dlpack", "vmap"}, [] {
    const auto exports = [](const Tensor& x) {
      to_dlpack(x);
      return x;
    };
    autograd::vmap(exports)(ones({2, 3}));
  });
  // The graph would compute the elements later.
  auto compiled = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    release(to_dlpack(y));
    return y;
  });
  expect_error(ErrorCode::kUnsupported, {"data"}, [&] { compiled(ones({2})); });
}

// ---- import ----

TEST(Dlpack, ImportsShareTheElements) {
  float memory[] = {0, 1, 2, 3, 4, 5};
  Versioned producer(memory, kF32, {3, 2}, {1, 3});
  {
    const Tensor x = from_dlpack(&producer.managed);
    EXPECT_EQ(x.raw_data(), memory);
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    const Tensor part = x[0];
    x.add_(10);
    EXPECT_EQ(memory[5], 15);
    EXPECT_EQ(part[1].item<float>(), 13);
    EXPECT_EQ(producer.released, 0);
  }
  EXPECT_EQ(producer.released, 1);
}

TEST(Dlpack, ImportsWithoutAVersionDoTheSame) {
  int32_t memory[] = {1, 2, 3, 4};
  Unversioned producer(memory, {kDLInt, 32, 1}, {2, 2});
  Tensor x = from_dlpack(&producer.managed);
  EXPECT_EQ(x.dtype(), kInt32);
  EXPECT_EQ(x[1].to_vector<int32_t>(), (std::vector<int32_t>{3, 4}));
  x = Tensor();
  EXPECT_EQ(producer.released, 1);
}

TEST(Dlpack, ADeleterIsOptional) {
  float memory[] = {1};
  Versioned producer(memory, kF32, {1});
  producer.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&producer.managed).item<float>(), 1);
}

TEST(Dlpack, StridesThatMeanNothingAreNotRead) {
  float memory[] = {1, 2, 3};
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  Versioned producer(memory, kF32, {1, 3, 1}, {kHuge, 1, kLeast});
  const Tensor x = from_dlpack(&producer.managed, false);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(x.flatten().to_vector<float>(), (std::vector<float>{1, 2, 3}));
  for (void* const data : {static_cast<void*>(memory), static_cast<void*>(nullptr)}) {
    Versioned empty(data, kF32, {2, 0, 3}, {0, kLeast, -7});
    const Tensor none = from_dlpack(&empty.managed, false);
    EXPECT_EQ(none.sizes(), IntList({2, 0, 3}));
    EXPECT_TRUE(none.is_contiguous());
    EXPECT_EQ(none.sum().item<float>(), 0);
  }
}

TEST(Dlpack, OffsetsAndRepeatedElements) {
  double memory[] = {1, 2, 3, 4};
  Versioned producer(memory, {kDLFloat, 64, 1}, {2, 3}, {0, 1});
  producer.managed.dl_tensor.byte_offset = sizeof(double);
  const Tensor x = from_dlpack(&producer.managed, false);
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{2, 3, 4, 2, 3, 4}));
  Versioned scalar(memory + 3, {kDLFloat, 64, 1}, {});
  EXPECT_EQ(from_dlpack(&scalar.managed).item<double>(), 4);
}

TEST(Dlpack, ReadOnlyMemoryIsNotWritten) {
  float memory[] = {1, 2};
  Versioned producer(memory, kF32, {2});
  producer.managed.flags = kReadOnly;
  const Tensor x = from_dlpack(&producer.managed);
  expect_error(ErrorCode::kValue, {"const"}, [&] { x.add_(1); });
  EXPECT_EQ((x + 1).to_vector<float>(), (std::vector<float>{2, 3}));
  Versioned again(memory, kF32, {2});
  again.managed.flags = kReadOnly;
  const Tensor copy = from_dlpack(&again.managed, true);
  EXPECT_EQ(again.released, 1);
  copy.add_(1);
  EXPECT_EQ(memory[0], 1);
}

TEST(Dlpack, NegativeStridesAreCopied) {
  float memory[] = {1, 2, 3, 4, 5, 6};
  for (const bool shares : {true, false}) {
    // As x[::-1, ::-1].T of a (2, 3) array.
    Versioned producer(memory + 5, kF32, {3, 2}, {-1, -3});
    if (shares) {
      expect_error(ErrorCode::kValue, {"[from_dlpack]", "negative strides", "copy"},
                   [&] { from_dlpack(&producer.managed, false); });
    } else {
      const Tensor x = from_dlpack(&producer.managed);
      EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{6, 3, 5, 2, 4, 1}));
      x.zero_();
      EXPECT_EQ(memory[0], 1);
    }
    EXPECT_EQ(producer.released, 1);
  }
}

TEST(Dlpack, ElementsThatAreNotAlignedAreCopied) {
  alignas(16) char memory[1 + 4 * 16];
  const std::complex<double> numbers[] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  std::memcpy(memory + 1, numbers, sizeof(numbers));
  for (const List& strides : {List{1, 2}, List{-1, 2}, List{2, 1}}) {
    const bool negative = strides[0] < 0;
    Versioned producer(memory + (negative ? 17 : 1), {kDLComplex, 128, 1}, {2, 2}, strides);
    const Tensor x = from_dlpack(&producer.managed);
    EXPECT_EQ(producer.released, 1);
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        const auto at = static_cast<size_t>((negative ? 1 : 0) + i * strides[0] + j * strides[1]);
        EXPECT_EQ(x[i][j].item<std::complex<double>>(), numbers[at]);
      }
    }
    x.requires_grad_();
  }
  // Components of 8 bytes are aligned.
  Versioned producer(memory + 8, {kDLComplex, 128, 1}, {1});
  EXPECT_EQ(from_dlpack(&producer.managed, false).raw_data(), memory + 8);
  Versioned refused(memory + 1, kF32, {2});
  expect_error(ErrorCode::kValue, {"not aligned"}, [&] { from_dlpack(&refused.managed, false); });
  EXPECT_EQ(refused.released, 1);
}

TEST(Dlpack, PinnedHostMemoryIsMemoryOfTheCpu) {
  float memory[] = {3};
  Versioned producer(memory, kF32, {1});
  producer.managed.dl_tensor.device = {kDLCUDAHost, 1};
  EXPECT_EQ(from_dlpack(&producer.managed).device(), kCPU);
}

template <class Change>
void refuses(ErrorCode code, std::initializer_list<std::string> parts, DLDataType dtype,
             const Change& change) {
  double memory[4] = {};
  Versioned producer(memory, dtype, {2, 2}, {2, 1});
  change(producer.managed);
  expect_error(code, parts, [&] { from_dlpack(&producer.managed); });
  EXPECT_EQ(producer.released, 1);
}

TEST(Dlpack, WhatCannotBeImportedSaysWhyAndIsReleased) {
  const auto as_it_is = [](DLManagedTensorVersioned&) {};
  refuses(ErrorCode::kType, {"[from_dlpack]", "uint16", "convert"}, {kDLUInt, 16, 1}, as_it_is);
  refuses(ErrorCode::kType, {"float32 in vectors of 4"}, {kDLFloat, 32, 4}, as_it_is);
  refuses(ErrorCode::kType, {"8 bits with DLPack's code 10"}, {10, 8, 1}, as_it_is);
  refuses(ErrorCode::kDevice, {"Metal", "type 8", "CPU"}, kF32,
          [](auto& m) { m.dl_tensor.device.device_type = kDLMetal; });
  refuses(ErrorCode::kUnsupported, {"version 2.1", "max_version"}, kF32, [](auto& m) {
    m.version = {2, 1};
  });
  refuses(ErrorCode::kValue, {"null pointer"}, kF32, [](auto& m) { m.dl_tensor.data = nullptr; });
  refuses(ErrorCode::kShape, {"negative"}, kF32, [](auto& m) { m.dl_tensor.shape[0] = -1; });
  refuses(ErrorCode::kShape, {"65 dimensions"}, kF32, [](auto& m) { m.dl_tensor.ndim = 65; });
  refuses(ErrorCode::kShape, {"-1 dimensions"}, kF32, [](auto& m) { m.dl_tensor.ndim = -1; });
  refuses(ErrorCode::kShape, {"without sizes"}, kF32, [](auto& m) { m.dl_tensor.shape = nullptr; });
  for (const int64_t size : {int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    refuses(ErrorCode::kShape, {"too many elements"}, kF32,
            [&](auto& m) { m.dl_tensor.shape[0] = size; });
  }
  for (const int64_t stride :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    refuses(ErrorCode::kShape, {"[from_dlpack]", "beyond any memory"}, {kDLUInt, 8, 1},
            [&](auto& m) { m.dl_tensor.strides[0] = stride; });
  }
}

// ---- both ----

TEST(Dlpack, EveryTypeAndLayoutComesBack) {
  for (int type = 0; type < kNumScalarTypes; ++type) {
    const auto dtype = static_cast<ScalarType>(type);
    const Tensor x = arange(24).reshape({2, 3, 4}).to(dtype);
    for (const Tensor& each : {x, x.transpose(0, 2), x.slice(2, 0, 4, 3), x.narrow(1, 0, 0),
                               x[1][2][3], x.narrow(0, 1, 1), x[0].expand({5, 3, 4})}) {
      const Tensor back = from_dlpack(to_dlpack(each), false);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.sizes(), each.sizes());
      if (each.numel() > 0) {
        EXPECT_EQ(back.raw_data(), each.raw_data());
      }
      expect_same(back, each);
      expect_same(from_dlpack(to_dlpack_unversioned(each), true), each);
    }
  }
}

}  // namespace dlpack_test
}  // namespace mytorch
