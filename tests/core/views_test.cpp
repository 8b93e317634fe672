// Views, the storage that they share, and its lifetime.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "core/runtime/device_registry.h"
#include "mytorch/grad_mode.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

Tensor view_of(const Tensor& x, IntList sizes, IntList strides, int64_t offset) {
  return Tensor::adopt(new_view(x.impl(), sizes, strides, offset));
}

TEST(ViewTest, SharesMemoryAndItsVersion) {
  const Tensor x = tensor({0.0, 1, 2, 3, 4, 5});
  const Tensor odd = view_of(x, {3}, {2}, 1);
  EXPECT_TRUE(odd.is_view());
  EXPECT_FALSE(odd.is_contiguous());
  EXPECT_EQ(odd.storage_offset(), 1);
  EXPECT_EQ(odd.const_data<float>()[2], 3);
  const uint64_t before = x.version();
  odd.impl()->bump_version();
  EXPECT_EQ(x.version(), before + 1);
  odd.data<float>()[0] = 10;
  EXPECT_EQ(x.const_data<float>()[1], 10);
  EXPECT_EQ(odd.impl()->abi.storage, x.impl()->abi.storage);
}

TEST(ViewTest, ViewOfAViewIsAViewOfTheRoot) {
  const Tensor x = tensor({0.0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor a = view_of(x, {4}, {2}, 0);
  const Tensor b = view_of(a, {2}, {4}, 2);
  EXPECT_EQ(b.impl()->base, x.impl());
  EXPECT_EQ(b.storage_offset(), 2);
  EXPECT_EQ(b.const_data<float>()[4], 6);
  // Each view counts one reference to its base; views do not reference each other.
  EXPECT_EQ(x.impl()->refs.load(), 3u);
  EXPECT_EQ(a.impl()->refs.load(), 1u);
}

TEST(ViewTest, TheOffsetOfAnEmptyViewMayExceedItsStorage) {
  const Tensor x = tensor({0, 1, 2, 3});
  const Tensor none = view_of(x, {0}, {1}, INT64_MAX);
  EXPECT_EQ(none.numel(), 0);
  EXPECT_EQ(none.storage_offset(), 0);
}

TEST(ViewTest, AnEmptyTensorReachesNoMemoryWhateverItsStrides) {
  const Tensor x = tensor({0, 1, 2, 3});
  const Tensor none = view_of(x, {INT64_MAX / 16, 0}, {INT64_MAX, 1}, 0);
  EXPECT_EQ(extent(none.impl()->abi).begin, nullptr);
  EXPECT_EQ(overlap(none.impl()->abi, x.impl()->abi), Overlap::kNone);
}

TEST(ViewTest, StridesOfUnitDimensionsDoNotMatterForContiguity) {
  const Tensor x = tensor({0.0, 1, 2, 3, 4, 5});
  EXPECT_TRUE(view_of(x, {1, 6}, {99, 1}, 0).is_contiguous());
  EXPECT_TRUE(view_of(x, {0, 3}, {5, 7}, 0).is_contiguous());
  EXPECT_FALSE(view_of(x, {3, 2}, {1, 3}, 0).is_contiguous());
  EXPECT_FALSE(view_of(x, {6}, {0}, 0).is_contiguous());
  EXPECT_TRUE(view_of(x, {}, {}, 4).is_contiguous());
}

TEST(ViewTest, OutlivesItsRoot) {
  float memory[4] = {1, 2, 3, 4};
  int released = 0;
  Tensor view;
  {
    const Tensor x = from_blob(memory, {4}, [&](void*) { ++released; });
    view = view_of(x, {2}, {1}, 2);
  }
  EXPECT_EQ(released, 0);
  EXPECT_EQ(view.const_data<float>()[1], 4);
  const Tensor alias = view.detach();
  view = Tensor();
  EXPECT_EQ(released, 0);
  EXPECT_EQ(alias.const_data<float>()[0], 3);
}

TEST(ViewTest, DetachDropsTheBase) {
  const Tensor x = tensor({0.0, 1, 2, 3});
  const Tensor view = view_of(x, {2}, {2}, 1);
  const Tensor alias = view.detach();
  EXPECT_FALSE(alias.is_view());
  EXPECT_EQ(alias.storage_offset(), 1);
  EXPECT_EQ(alias.raw_data(), view.raw_data());
  EXPECT_EQ(alias.strides().vec(), view.strides().vec());
  // Writes through either tensor are counted in the shared version.
  alias.impl()->bump_version();
  EXPECT_EQ(view.version(), alias.version());
  EXPECT_EQ(x.impl()->refs.load(), 2u);
  EXPECT_EQ(x.impl()->storage->refs.load(), 2u);
}

TEST(ViewTest, UntrackedInInferenceMode) {
  const Tensor x = tensor({0.0, 1, 2, 3});
  Tensor view, made;
  {
    const InferenceMode inference;
    view = view_of(x, {2}, {1}, 0);
    made = tensor({1.0});
  }
  EXPECT_FALSE(view.is_view());
  EXPECT_FALSE(view.impl()->inference);  // it views memory of an ordinary tensor
  EXPECT_TRUE(made.impl()->inference);
  EXPECT_EQ(x.impl()->storage->refs.load(), 2u);
  const Tensor later = view_of(made, {1}, {1}, 0);
  EXPECT_TRUE(later.impl()->inference);
  EXPECT_FALSE(later.is_view());
}

TEST(ViewTest, RecordsTheGradientModeOfItsCreation) {
  const Tensor x = tensor({0.0, 1, 2, 3});
  const Tensor recorded = view_of(x, {2}, {1}, 0);
  EXPECT_FALSE(recorded.impl()->no_grad_view);
  const NoGradGuard no_grad;
  const Tensor untracked = view_of(x, {2}, {1}, 0);
  EXPECT_TRUE(untracked.impl()->no_grad_view);
  const EnableGradGuard again;
  EXPECT_TRUE(view_of(untracked, {1}, {1}, 0).impl()->no_grad_view);
}

TEST(ViewTest, FollowsTheLayersOfItsBase) {
  const Tensor x = tensor({0.0, 1});
  const Tensor view = view_of(x, {1}, {1}, 0);
  EXPECT_EQ(layer_flags(view.impl()), 0u);
  x.impl()->layer_flags = kLayerCapture;
  EXPECT_EQ(layer_flags(view.impl()), uint32_t{kLayerCapture});
  x.impl()->layer_flags = 0;
}

TEST(StorageTest, IdsAreNeverReused) {
  std::vector<uint64_t> ids;
  auto take = [](int n) {
    std::vector<uint64_t> found;
    for (int i = 0; i < n; ++i) found.push_back(tensor({1.0}).impl()->storage->abi.id);
    return found;
  };
  std::vector<uint64_t> other;
  std::thread thread([&] { other = take(100); });
  for (uint64_t id : take(100)) ids.push_back(id);
  thread.join();
  ids.insert(ids.end(), other.begin(), other.end());
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  EXPECT_NE(ids.front(), 0u);
}

TEST(StorageTest, NewTensorsHaveNotBeenWritten) {
  EXPECT_EQ(tensor({1.0}).version(), 0u);
  // A block reused from the pool starts at version 0.
  tensor({1.0}).impl()->bump_version();
  EXPECT_EQ(tensor({1.0}).version(), 0u);
}

// A tensor may be created on one thread and destroyed on another.
TEST(StorageTest, CanBeReleasedOnAnotherThread) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 1000; ++i) {
    const int64_t size = i * 17 % 5000;
    tensors.push_back(Tensor::adopt(new_tensor(&size, 1, kFloat32, kCPU, 0)));
  }
  std::thread([given = std::move(tensors)]() mutable {
    const std::vector<Tensor> more(given);
    given.clear();
  }).join();
}

}  // namespace
}  // namespace mytorch
