// Larger forms of samples.
#include "conformance/enlarge.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace mytorch::conformance {
namespace {

using Sizes = std::vector<int64_t>;

OpRecord record() {
  OpRecord op;
  op.name = "any";
  op.args = {{"self", "Tensor"}, {"other", "Tensor"}, {"size", "int[]"}, {"groups", "int"}};
  return op;
}

Json sample(const Json& args) { return {{"op", "any"}, {"args", args}}; }

Sizes shape(const Json& sample, const std::string& arg = "self") {
  return sample.at("args").at(arg).at("shape").get<Sizes>();
}

TEST(Enlarge, EqualSizesStayEqualAndAllAreOdd) {
  const Json small = sample({{"self", {{"shape", {2, 3, 1}}}}, {"other", {{"shape", {3, 2}}}}});
  const Json large = enlarged(record(), small, {10000, 100000}, -1).front().sample;
  const Sizes a = shape(large), b = shape(large, "other");
  EXPECT_EQ(a[0], b[1]);
  EXPECT_EQ(a[1], b[0]);
  EXPECT_EQ(a[2], 1);
  EXPECT_LT(a[0], a[1]);
  EXPECT_EQ(a[0] % 2 * (a[1] % 2), 1);
  EXPECT_GT(a[0] * a[1], 9000);
  EXPECT_LE(a[0] * a[1], 10000);
}

TEST(Enlarge, ListsAndIntegersAreTriedAsSizesAndAsOtherNumbers) {
  const Json small = sample({{"self", {{"shape", {2, 3}}}}, {"size", {3, 2, 7}}, {"groups", 2}});
  bool both = false, lists = false, neither = false;
  for (const Larger& larger : enlarged(record(), small, {10000, 1000000}, -1)) {
    const Sizes self = shape(larger.sample);
    const Json& args = larger.sample.at("args");
    const bool mapped = args.at("size") == Json({self[1], self[0], 7});
    both = both || (mapped && args.at("groups") == self[0]);
    lists = lists || (mapped && args.at("groups") == 2);
    neither = neither || (args.at("size") == Json({3, 2, 7}) && args.at("groups") == 2);
  }
  EXPECT_TRUE(both && lists && neither);
}

TEST(Enlarge, OneFamilyKeepsSumsAndDivisibility) {
  const Json small = sample({{"self", {{"shape", {8, 3}}}}, {"other", {{"shape", {5}}}}});
  const std::vector<Larger> found = enlarged(record(), small, {10000, 1000000}, -1);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const Larger& larger) {
    const Sizes a = shape(larger.sample), b = shape(larger.sample, "other");
    return a[0] > 8 && a[0] == a[1] + b[0];
  }));
}

TEST(Enlarge, OneSizeGrowsPast65536) {
  const Json small = sample({{"self", {{"shape", {3, 4}}}}});
  for (const int size : {0, 1}) {
    const Json large = enlarged(record(), small, {400000, 400000}, size).front().sample;
    EXPECT_GT(shape(large)[static_cast<size_t>(size)], 65536);
    EXPECT_EQ(shape(large)[static_cast<size_t>(1 - size)], 2);
  }
}

TEST(Enlarge, IndicesReachTheLargerSize) {
  const Json small = sample(
      {{"self", {{"shape", {5}}}}, {"other", {{"shape", {2}}, {"dtype", "int64"}, {"high", 5}}}});
  const Json large = enlarged(record(), small, {10000, 100000000}, -1).front().sample;
  EXPECT_EQ(large.at("args").at("other").at("high"), shape(large)[0]);
}

TEST(Enlarge, BoundsOfFloatsAreNoSizes) {
  const Json small = sample({{"self", {{"shape", {4, 3}}, {"high", 4}}},
                             {"other", {{"shape", {2}}, {"dtype", "float32"}, {"high", 3}}}});
  const std::vector<Larger> found = enlarged(record(), small, {10000, 100000000}, -1);
  EXPECT_GT(shape(found.front().sample)[0], 4);
  for (const Larger& larger : found) {
    EXPECT_EQ(larger.sample.at("args").at("self").at("high"), 4);
    EXPECT_EQ(larger.sample.at("args").at("other").at("high"), 3);
  }
}

TEST(Enlarge, BoundsOfIndicesWithoutATypeAreSizes) {
  OpRecord op = record();
  op.types["other"] = "index";
  const Json small = sample({{"self", {{"shape", {5}}}}, {"other", {{"shape", {2}}, {"high", 5}}}});
  const Json large = enlarged(op, small, {10000, 100000000}, -1).front().sample;
  EXPECT_EQ(large.at("args").at("other").at("high"), shape(large)[0]);
}

TEST(Enlarge, TheShapeOfValuesCounts) {
  const Json small = sample({{"self", {{"values", {{1, 2, 3}, {4, 5, 6}}}}}});
  EXPECT_EQ(sizes_of(record(), small), (Sizes{2, 3}));
  EXPECT_TRUE(sizes_of(record(), sample({{"self", {{"shape", {0, 3}}}}})).empty());
}

}  // namespace
}  // namespace mytorch::conformance
