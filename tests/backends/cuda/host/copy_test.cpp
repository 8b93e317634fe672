// Copies through the framework, for every layout and pair of dtypes, compared with the CPU.
#include <string>
#include <vector>

#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/permute.h"
#include "mytorch/ops/remainder.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/slice.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/view.h"
#include "mytorch/tensor.h"
#include "tests/backends/cuda/gpu.h"
#include "tests/backends/cuda/host/bytes_of.h"

namespace mytorch::testing {
namespace {

class Copy : public Gpu {};

const ScalarType kTypes[] = {kBool,  kUInt8,   kInt8,     kInt16,   kInt32,
                             kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

// Small integers of either sign, which every type but bool and uint8 represents.
Tensor numbers(int64_t n, ScalarType dtype) {
  Tensor all = arange(0, n, 1, kInt64, kCPU);
  return sub(remainder(mul(all, 37), 101), 40).to(dtype);
}

// Views of n elements, or of some of them.
std::vector<Tensor> layouts(const Tensor& flat) {
  std::vector<Tensor> all = {flat};
  const Tensor matrix = flat.view({70, -1});
  all.push_back(transpose(matrix, 0, 1));
  all.push_back(transpose(flat.view({80, -1}), 0, 1));
  all.push_back(transpose(flat.view({5, 96, -1}), 1, 2));
  all.push_back(slice(matrix, 1, 1));
  all.push_back(slice(matrix, 1, 0, {}, 3));
  all.push_back(transpose(slice(matrix, 0, 5, 60, 2), 0, 1));
  const Tensor box = flat.view({5, 14, 8, -1});
  all.push_back(permute(box, {0, 2, 1, 3}));
  all.push_back(permute(box, {0, 2, 3, 1}));
  all.push_back(permute(box, {3, 1, 2, 0}));
  all.push_back(select(box, 1, 3));
  all.push_back(expand(slice(box, 3, 0, 1), {5, 14, 8, 33}));
  all.push_back(expand(slice(flat, 0, 3, 4), {1001}));
  return all;
}

class CopyOf : public Copy, public ::testing::WithParamInterface<ScalarType> {};

TEST_P(CopyOf, EveryLayoutMatchesTheCpu) {
  const ScalarType dtype = GetParam();
  const int64_t n = 5 * 14 * 8 * 96;
  const Tensor here = numbers(n, dtype);
  const Tensor there = here.to("cuda");
  ASSERT_TRUE(bytes_of(there) == bytes_of(here));
  const auto expected = layouts(here), found = layouts(there);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(bytes_of(found[i].contiguous()) == bytes_of(expected[i])) << "layout " << i;
    // The same layout as a destination.
    if (i + 2 >= expected.size()) continue;  // expanded: not writable
    Tensor to_here = numbers(n, dtype), to_there = numbers(n, dtype).to("cuda");
    Tensor part_here = layouts(to_here)[i], part_there = layouts(to_there)[i];
    part_here.fill_(1);
    part_there.fill_(1);
    EXPECT_TRUE(bytes_of(to_there) == bytes_of(to_here)) << "fill, layout " << i;
    const Tensor source = numbers(part_here.numel(), dtype).view(part_here.sizes());
    part_here.copy_(source);
    part_there.copy_(source);  // from the host
    EXPECT_TRUE(bytes_of(to_there) == bytes_of(to_here)) << "copy_, layout " << i;
  }
}

TEST_P(CopyOf, ConversionToEveryTypeMatchesTheCpu) {
  const int64_t n = 70 * 129;
  const Tensor here = numbers(n, GetParam()), there = here.to("cuda");
  for (const ScalarType to : kTypes) {
    const char* name = dtype_name(to);
    EXPECT_TRUE(bytes_of(there.to(to)) == bytes_of(here.to(to))) << name;
    EXPECT_TRUE(bytes_of(slice(there, 0, 1).to(to)) == bytes_of(slice(here, 0, 1).to(to)))
        << name << ", not aligned to 16 bytes";
    EXPECT_TRUE(bytes_of(transpose(there.view({70, 129}), 0, 1).to(to)) ==
                bytes_of(transpose(here.view({70, 129}), 0, 1).to(to)))
        << name << ", transposed";
  }
}

INSTANTIATE_TEST_SUITE_P(, CopyOf, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_F(Copy, CatMatchesTheCpu) {
  for (const ScalarType dtype : {kInt8, kBFloat16, kFloat32}) {
    std::vector<Tensor> here, there;
    for (int64_t i = 0; i < 70; ++i) {
      here.push_back(numbers(3 * (i % 5) * 8, dtype).view({3, i % 5, 8}));
      there.push_back(here.back().to("cuda"));
    }
    EXPECT_TRUE(bytes_of(cat(there, 1)) == bytes_of(cat(here, 1))) << dtype_name(dtype);
    here.push_back(numbers(24, kFloat64).view({3, 1, 8}));
    there.push_back(here.back().to("cuda"));
    EXPECT_TRUE(bytes_of(cat(there, 1)) == bytes_of(cat(here, 1))) << "mixed types";
  }
}

TEST_F(Copy, AllocationBeyondTheMemoryThrows) {
  const Tensor held = empty({1 << 20}, kFloat32, "cuda");
  try {
    empty({int64_t{1} << 48}, kFloat32, "cuda");
    FAIL() << "more than the device has";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("MiB in use in"), std::string::npos) << error.what();
  }
}

TEST_F(Copy, ItemsReachTheHost) {
  const Tensor x = arange(0, 100, 1, kFloat32, "cuda");
  EXPECT_EQ(select(x, 0, 42).item().to_double(), 42);
  EXPECT_EQ(bytes_of(x), bytes_of(arange(0, 100, 1, kFloat32, kCPU)));
}

}  // namespace
}  // namespace mytorch::testing
