// Strides and overlaps, compared with an enumeration of all elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "mytorch/tensor.h"
#include "mytorch/tensor_impl.h"

namespace mytorch {
namespace {

using List = std::vector<int64_t>;

List contiguous_strides_of(const List& sizes) {
  List strides(sizes.size());
  contiguous_strides(sizes.data(), static_cast<int>(sizes.size()), strides.data());
  return strides;
}

TEST(StridesTest, ContiguityIgnoresSizesOfOneAndZero) {
  EXPECT_EQ(contiguous_strides_of({2, 3, 4}), (List{12, 4, 1}));
  EXPECT_EQ(contiguous_strides_of({}), List{});
  EXPECT_EQ(contiguous_strides_of({2, 0, 4}), (List{4, 4, 1}));  // a size of 0 counts as 1
  EXPECT_TRUE(is_contiguous({2, 3}, {3, 1}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_TRUE(is_contiguous({1, 3}, {77, 1}));
  EXPECT_TRUE(is_contiguous({3, 1}, {1, 77}));
  EXPECT_TRUE(is_contiguous({2, 0}, {9, 9}));
  EXPECT_FALSE(is_contiguous({2}, {0}));
  EXPECT_TRUE(is_contiguous({}, {}));
  EXPECT_EQ(count({2, 0, 5}), 0);
  EXPECT_EQ(count(IntList()), 1);
}

// A random geometry within 64 elements of memory.
struct Geometry {
  List sizes;
  List strides;
  int64_t offset;

  // Returns the memory index of each element, in row-major order.
  List elements() const {
    List found{offset};
    for (size_t d = 0; d < sizes.size(); ++d) {
      List next;
      for (int64_t at : found) {
        for (int64_t i = 0; i < sizes[d]; ++i) next.push_back(at + i * strides[d]);
      }
      found = next;
    }
    return found;
  }
};

class RandomGeometries {
 public:
  explicit RandomGeometries(uint64_t seed) : random_(seed) {}
  Geometry next() {
    while (true) {
      Geometry g;
      const int ndim = below(4);
      int64_t last = 0;
      for (int d = 0; d < ndim; ++d) {
        g.sizes.push_back(below(8) == 0 ? 0 : 1 + below(4));
        g.strides.push_back(below(9));
        last += std::max<int64_t>(g.sizes.back() - 1, 0) * g.strides.back();
      }
      if (last >= 64) continue;
      g.offset = below(static_cast<int>(64 - last));
      return g;
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  std::mt19937_64 random_;
};

class OverlapTest : public ::testing::Test {
 protected:
  Tensor make(const Geometry& g) const {
    return Tensor::adopt(new_view(memory_.impl(), g.sizes, g.strides, g.offset));
  }
  Tensor memory_ = tensor(std::vector<float>(64));
};

TEST_F(OverlapTest, WithinOneTensorIsNeverMissed) {
  RandomGeometries random(1);
  int overlapping = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const Geometry g = random.next();
    const List elements = g.elements();
    const bool twice =
        std::set<int64_t>(elements.begin(), elements.end()).size() != elements.size();
    const bool said = has_internal_overlap(*make(g).impl());
    // An overlap is never missed. Interleaved patterns may be reported without one, as in ATen.
    ASSERT_LE(twice, said) << "case " << i;
    overlapping += twice;
    refused += said;
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_LT(refused, overlapping * 5 / 4);
}

TEST_F(OverlapTest, BetweenTwoTensorsIsNeverMissed) {
  RandomGeometries random(2);
  int counts[3] = {};
  for (int i = 0; i < 20000; ++i) {
    const Geometry a = random.next();
    const Geometry b = i % 10 == 0 ? a : random.next();
    List x = a.elements();
    List y = b.elements();
    const bool same = x == y && a.sizes == b.sizes;
    const Overlap said = overlap(make(a).impl()->abi, make(b).impl()->abi);
    std::sort(x.begin(), x.end());
    std::sort(y.begin(), y.end());
    List both;
    std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
    if (!both.empty()) {
      ASSERT_NE(said, Overlap::kNone) << "case " << i;
    }
    if (said == Overlap::kExact) {
      ASSERT_TRUE(same) << "case " << i;
    }
    if (same && !x.empty()) {
      ASSERT_EQ(said, Overlap::kExact) << "case " << i;
    }
    if (x.empty() || y.empty()) {
      ASSERT_EQ(said, Overlap::kNone) << "case " << i;
    }
    ++counts[static_cast<int>(said)];
  }
  for (int n : counts) EXPECT_GT(n, 500);
}

// Queries, keys and values in one tensor (B, L, 3, H, D), each as (B, H, L, D).
TEST_F(OverlapTest, PartsOfAPackedTensorAreApart) {
  const auto part = [&](int64_t offset, int64_t width = 2) {  // B = 2, L = 3, H = 2, D = 2
    return make({{2, 2, 3, width}, {30, 2, 10, 1}, offset});
  };
  const auto between = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(overlap(a.impl()->abi, b.impl()->abi), overlap(b.impl()->abi, a.impl()->abi));
    return overlap(a.impl()->abi, b.impl()->abi);
  };
  EXPECT_EQ(between(part(0), part(4)), Overlap::kNone);
  EXPECT_EQ(between(part(0), part(6)), Overlap::kNone);
  EXPECT_EQ(between(part(0, 1), part(1, 1)), Overlap::kNone);
  EXPECT_EQ(between(part(0), part(3)), Overlap::kPartial);
  EXPECT_EQ(between(part(0), part(10)), Overlap::kPartial);
  EXPECT_EQ(between(part(0), part(0)), Overlap::kExact);
}

TEST_F(OverlapTest, SlicesOfColumnsAreApart) {
  const auto columns = [&](int64_t first, int64_t count) {  // of an 8 x 8 matrix
    return make({{8, count}, {8, 1}, first});
  };
  const auto between = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(overlap(a.impl()->abi, b.impl()->abi), overlap(b.impl()->abi, a.impl()->abi));
    return overlap(a.impl()->abi, b.impl()->abi);
  };
  EXPECT_EQ(between(columns(0, 4), columns(4, 4)), Overlap::kNone);
  EXPECT_EQ(between(columns(0, 3), columns(3, 5)), Overlap::kNone);
  EXPECT_EQ(between(columns(0, 4), columns(3, 4)), Overlap::kPartial);
  EXPECT_EQ(between(columns(2, 2), columns(2, 2)), Overlap::kExact);
  // The last rows of some columns, and the first rows of others.
  EXPECT_EQ(between(make({{4, 2}, {8, 1}, 32}), make({{8, 2}, {8, 1}, 6})), Overlap::kNone);
}

TEST_F(OverlapTest, OtherMemoryAndOtherTypesAreNotExact) {
  const Tensor other = tensor(std::vector<float>(64));
  EXPECT_EQ(overlap(memory_.impl()->abi, other.impl()->abi), Overlap::kNone);
  // The same bytes as elements of another type.
  Tensor bits = memory_.detach();
  bits.impl()->abi.dl.dtype = to_abi(kInt32);
  EXPECT_EQ(overlap(memory_.impl()->abi, bits.impl()->abi), Overlap::kPartial);
  // Numbers have no storage.
  EXPECT_EQ(overlap(*HostScalar(Scalar(1)).abi(), *HostScalar(Scalar(1)).abi()), Overlap::kNone);
}

}  // namespace
}  // namespace mytorch
