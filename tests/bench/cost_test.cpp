#include "bench/harness/cost.h"

#include <gtest/gtest.h>

#include "bench/harness/arguments.h"
#include "bench/harness/cases.h"
#include "mytorch/call.h"
#include "mytorch/error.h"
#include "mytorch/tensor.h"

namespace mytorch::bench {
namespace {

using nlohmann::json;

double value_of(const char* text, const Facts& facts = {}) {
  return evaluate(json::parse(text), facts);
}

TEST(Cost, EvaluatesArithmetic) {
  EXPECT_EQ(value_of("3"), 3);
  EXPECT_EQ(value_of("true"), 1);
  EXPECT_EQ(value_of(R"(["+", 1, ["*", 2, 3]])"), 7);
  EXPECT_EQ(value_of(R"(["-", 0, 4])"), -4);
  EXPECT_EQ(value_of(R"(["/", 7, 2])"), 3.5);
  EXPECT_EQ(value_of(R"(["//", 7, 2])"), 3);
  EXPECT_EQ(value_of(R"(["<", 1, 2])"), 1);
  EXPECT_EQ(value_of(R"(["if", ["==", 1, 2], 10, 20])"), 20);
  EXPECT_EQ(value_of(R"(["and", 1, ["not", 0]])"), 1);
  EXPECT_EQ(value_of(R"(["or", 0, 0])"), 0);
}

TEST(Cost, UsesFactsOfArguments) {
  Facts facts;
  facts["x"].shape = {2, 3, 4};
  facts["x"].nbytes = 96;
  facts["groups"].number = 8;
  facts["stride"].list = {5, 6};
  facts["bias"].present = false;
  EXPECT_EQ(value_of(R"(["numel", "x"])", facts), 24);
  EXPECT_EQ(value_of(R"(["nbytes", "x"])", facts), 96);
  EXPECT_EQ(value_of(R"(["ndim", "x"])", facts), 3);
  EXPECT_EQ(value_of(R"(["size", "x", 1])", facts), 3);
  EXPECT_EQ(value_of(R"(["size", "x", ["-", 0, 1]])", facts), 4);
  EXPECT_EQ(value_of(R"(["item", "stride", 1])", facts), 6);
  EXPECT_EQ(value_of(R"(["len", "stride"])", facts), 2);
  EXPECT_EQ(value_of(R"(["arg", "groups"])", facts), 8);
  EXPECT_EQ(value_of(R"(["absent", "bias"])", facts), 1);
  EXPECT_EQ(value_of(R"(["numel", "bias"])", facts), 0);
}

struct BadCost {
  const char* name;
  const char* cost;
};

class BadCosts : public ::testing::TestWithParam<BadCost> {};

TEST_P(BadCosts, AreRefused) {
  Facts facts;
  facts["x"].shape = {2};
  EXPECT_THROW(value_of(GetParam().cost, facts), Error);
}

INSTANTIATE_TEST_SUITE_P(Cost, BadCosts,
                         ::testing::Values(BadCost{"UnknownName", R"(["numel", "y"])"},
                                           BadCost{"IndexOutOfRange", R"(["size", "x", 1])"},
                                           BadCost{"UnknownOperation", R"(["power", 1, 2])"},
                                           BadCost{"Empty", "[]"},
                                           BadCost{"MissingOperand", R"(["+", 1])"},
                                           BadCost{"String", R"("x")"},
                                           BadCost{"MissingName", R"(["numel"])"}),
                         [](const auto& info) { return info.param.name; });

class OfRecords : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    catalog_ = new auto(conformance::load_catalog(conformance::share_folder()));
  }
  static Case named(const std::string& op, const char* args) {
    Case c;
    c.record = find_record(*catalog_, op).record;
    c.args = Json::parse(args);
    return c;
  }
  struct Called {
    std::vector<Value> args, results;
  };
  static Called run(const Case& c) {
    Called called;
    called.args = make_arguments(c);
    std::vector<NamedValue> by_name;
    for (size_t i = 0; i < called.args.size(); ++i) {
      by_name.emplace_back(c.record->args[i].name, called.args[i]);
    }
    called.results = call(c.record->name, {}, by_name);
    return called;
  }
  static Bytes bytes_of(const std::string& op, const char* args) {
    const Case c = named(op, args);
    const Called called = run(c);
    return call_bytes(*c.record, called.args, called.results, false);
  }
  static double flops_of(const std::string& op, const char* args) {
    const Case c = named(op, args);
    const Called called = run(c);
    return evaluate(c.record->cost.at("flops"), facts_of(*c.record, called.args, called.results));
  }
  static inline std::vector<OpRecord>* catalog_ = nullptr;
};

TEST_F(OfRecords, BytesCountDistinctElementsOfOperandsAndResults) {
  const Bytes add =
      bytes_of("add.Tensor", R"({"self": {"shape": [10, 3]}, "other": {"shape": [3]}})");
  EXPECT_EQ(add.read, 4 * 33);
  EXPECT_EQ(add.written, 4 * 30);
  // A broadcast operand counts with the size of its memory.
  const Bytes wide = bytes_of(
      "mul.Tensor",
      R"({"self": {"shape": [10, 3]}, "other": {"shape": [10, 3], "layout": "broadcast"}})");
  EXPECT_EQ(wide.read, 4 * 33);
  // Two operands that share memory count once.
  const Bytes turned = bytes_of("add.Tensor", R"({"self": {"shape": [8, 8]},
                        "other": {"shape": [8, 8], "layout": "transposed", "of": "self"}})");
  EXPECT_EQ(turned.read, 4 * 64);
  EXPECT_EQ(turned.written, 4 * 64);
  // An argument that is only written does not count as read.
  const Bytes copy = bytes_of("copy_", R"({"self": {"shape": [7]}, "src": {"shape": [7]}})");
  EXPECT_EQ(copy.read, 28);
  EXPECT_EQ(copy.written, 28);
  const Bytes view = bytes_of("view", R"({"self": {"shape": [6]}, "size": [2, 3]})");
  EXPECT_EQ(view.written, 0);
  // Only the selected rows of a table count.
  const Bytes rows = bytes_of("embedding", R"({"weight": {"shape": [1000, 4]},
                                               "indices": {"shape": [5], "low": 0, "high": 1000}})");
  EXPECT_EQ(rows.total(), 8 * 5 + 2 * 4 * 5 * 4);
}

TEST_F(OfRecords, FlopsOfProductsAndConvolutions) {
  EXPECT_EQ(flops_of("mm", R"({"self": {"shape": [2, 3]}, "mat2": {"shape": [3, 5]}})"),
            2 * 2 * 3 * 5);
  const char* forward = R"({"input": {"shape": [2, 4, 8, 8]}, "weight": {"shape": [6, 4, 3, 3]},
      "bias": null, "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": false,
      "output_padding": [0, 0], "groups": 1})";
  const double flops = 2.0 * 2 * 6 * 8 * 8 * 4 * 9;
  EXPECT_EQ(flops_of("convolution", forward), flops);
  const char* input = R"({"grad_output": {"shape": [2, 6, 8, 8]}, "weight": {"shape": [6, 4, 3, 3]},
      "input_size": [2, 4, 8, 8], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1],
      "transposed": false, "output_padding": [0, 0], "groups": 1})";
  EXPECT_EQ(flops_of("convolution_backward_input", input), flops);
  const char* weight = R"({"grad_output": {"shape": [2, 6, 8, 8]}, "input": {"shape": [2, 4, 8, 8]},
      "weight_size": [6, 4, 3, 3], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1],
      "transposed": false, "output_padding": [0, 0], "groups": 1})";
  EXPECT_EQ(flops_of("convolution_backward_weight", weight), flops);
  // In a transposed convolution, each input element meets every weight of its channel.
  const char* transposed = R"({"input": {"shape": [2, 6, 4, 4]}, "weight": {"shape": [6, 4, 3, 3]},
      "bias": null, "stride": [2, 2], "padding": [0, 0], "dilation": [1, 1], "transposed": true,
      "output_padding": [0, 0], "groups": 1})";
  EXPECT_EQ(flops_of("convolution", transposed), 2.0 * 2 * 6 * 4 * 4 * 4 * 9);
}

}  // namespace
}  // namespace mytorch::bench
