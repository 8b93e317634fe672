#include "graph/formats/parse.h"

#include <cmath>
#include <random>
#include <string>

#include "graph/capture/capture.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/functional.h"
#include "tests/autograd/util.h"
#include "tests/graph/device.h"

namespace mytorch::graph {
namespace {

namespace F = nn::functional;

template <class F>
Graph recorded(const std::vector<Tensor>& arguments, const F& f) {
  OperatorCapture capture(arguments);
  return capture.finish(f()).graph;
}

void expect_round_trip(const Graph& graph) {
  const std::string text = to_text(graph);
  const Graph back = parse_text(text);
  EXPECT_EQ(to_text(back), text);
  ASSERT_EQ(back.nodes.size(), graph.nodes.size()) << text;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode &a = graph.nodes[i], &b = back.nodes[i];
    EXPECT_EQ(a.entry, b.entry);
    EXPECT_EQ(a.form, b.form);
    EXPECT_EQ(a.grad_mode, b.grad_mode) << to_text(graph, a);
    const uint32_t all = (1u << a.results.size()) - 1;
    EXPECT_TRUE(!a.op().derived || (a.wanted & all) == (b.wanted & all)) << to_text(graph, a);
    ASSERT_EQ(a.args.size(), b.args.size());
    for (size_t k = 0; k < a.args.size(); ++k) {
      EXPECT_EQ(a.args[k].kind, b.args[k].kind);
      EXPECT_EQ(a.args[k].values, b.args[k].values);
      EXPECT_EQ(a.args[k].constant.type_name(), b.args[k].constant.type_name())
          << to_text(graph, a);
    }
  }
  EXPECT_EQ(back.arguments, graph.arguments);
  EXPECT_EQ(back.results, graph.results);
  const auto check = [&](ValueId id) {
    const ValueInfo &a = graph.values[id], &b = back.values[id];
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.sizes, b.sizes);
    EXPECT_EQ(a.strides, b.strides);
    EXPECT_EQ(a.offset, b.offset);
    EXPECT_EQ(graph.buffer_of(id).origin, back.buffer_of(id).origin) << "%" << id << "\n" << text;
  };
  for (const GraphNode& node : graph.nodes) {
    node.for_each_operand(check);
    node.for_each_result(check);
  }
}

TEST(ParseGraph, ATrainingStepRoundTrips) {
  nn::Sequential net(nn::Linear(6, 8), nn::Dropout(0.5), nn::GELU(), nn::LayerNorm(8),
                     nn::Linear(8, 4));
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  const Tensor x = randn({5, 6}), y = randint(0, 4, {5});
  expect_round_trip(recorded({x, y}, [&] {
    optimizer.zero_grad();
    const Tensor loss = F::cross_entropy(net(x), y);
    loss.backward();
    optimizer.step();
    return std::vector<Tensor>{loss.detach()};
  }));
}

TEST(ParseGraph, ConvolutionsViewsAndListsRoundTrip) {
  nn::Sequential net(nn::Conv2d(3, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2));
  const Tensor x = channels_last(randn({2, 3, 9, 9})), total = zeros({3, 1, 5});
  expect_round_trip(recorded({x, x}, [&] {
    const NoGradGuard no_grad;
    const Tensor y = net(x);
    const std::vector<Tensor> parts = split(y, 2, 1);
    const Tensor joined = cat({parts[1], parts[0]}, 1).transpose(1, 2);
    total.select(0, 1).add_(2.5);
    total.add_(1, -0.5);
    const Tensor picked = joined.index_select(0, tensor({1, 0, 1}));
    return std::vector<Tensor>{picked,   full({2}, INFINITY), joined.to(kFloat64) * NAN,
                               Tensor(), total.select(0, 1),  x};
  }));
}

TEST(ParseGraph, NumbersStringsAndHeadersRoundTrip) {
  const std::string text =
      "graph(%0: float32[2, 3], %1: float32[3] in %0 + 3, %7: complex64[2; 3]) {\n"
      "  %3: float32[4, 1; 1, 9] = outside(1)\n"
      "  %4: float32[4, 1] = grad(outside 1)\n"
      "  %6: float32[2] = memory(64)\n"
      "  fill_(%6, -1.5e-300)\n"
      "  %5: float32[2] in %3 + 2\n"
      "  grad_mode(false)\n"
      "  %8: float32[2] = add.Tensor(%5, %6, 3)\n"
      "  %9: complex64[2] = mul.Tensor(%7, (0.5, -inf))\n"
      "  add_.Tensor(%5, nan, 1e+20)\n"
      "  grad_mode(true)\n"
      "  %10: float32[2], %11: int64[2] = sort(%8, -1, true)\n"
      "  grad(outside 1) = %4\n"
      "  grad(argument 0) = none\n"
      "  return %8, %9, none\n"
      "}\n";
  try {
    EXPECT_EQ(to_text(parse_text(text)), text);
  } catch (const Error& error) {
    FAIL() << error.what();
  }
  // Blanks, comments and broken lists.
  EXPECT_EQ(to_text(parse_text("# a graph\ngraph ( %0 : float32 [ 2 ] )\n{\n\n %1:float32[2]="
                               "relu(\n%0 ) # why\n return %1 }\n# end")),
            "graph(%0: float32[2]) {\n  %1: float32[2] = relu(%0)\n  return %1\n}\n");
}

// Released schemas stay readable: abi/ops.lock has their hashes.
TEST(ParseGraph, OlderSchemasTakeDefaults) {
  const std::string text =
      "graph(%0: float32[1, 4, 3, 3], %1: float32[1, 2, 5, 5]) {\n"
      "  %2: float32[4, 2, 3, 3] = convolution_backward_weight(%0, %1, [4, 2, 3, 3], [1, 1], "
      "[0, 0], [1, 1], false, [0, 0], 1)\n"
      "  return %2\n}\n";
  const Schemas older = {{"convolution_backward_weight", 0x8641229bcf12bff6}};
  const Graph graph = parse_text(text, &older);
  ASSERT_EQ(graph.nodes[0].args.size(), 10u);
  EXPECT_TRUE(graph.nodes[0].args[9].constant.is_none());
  EXPECT_THROW(parse_text(text), Error);
  // What this version writes says all arguments.
  const Schemas now = schemas_of(graph);
  EXPECT_NE(now.at("convolution_backward_weight"), older.at("convolution_backward_weight"));
  EXPECT_EQ(parse_text(to_text(graph), &now).nodes[0].args.size(), 10u);
  const Schemas newer = {{"convolution_backward_weight", 1}};
  try {
    parse_text(text, &newer);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("by a newer version"), std::string::npos)
        << error.what();
  }
}

struct Refused {
  const char* text;
  const char* message;
};

class ParseGraphErrors : public ::testing::TestWithParam<Refused> {};

TEST_P(ParseGraphErrors, NameLineAndColumn) {
  try {
    parse_text(GetParam().text);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kValue);
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos)
        << error.what();
  }
}

#define BODY(line) "graph(%0: float32[2]) {\n  " line "\n  return %0\n}\n"
INSTANTIATE_TEST_SUITE_P(
    All, ParseGraphErrors,
    ::testing::Values(
        Refused{"", "line 1, column 1: the end of the text stands where 'graph(' belongs"},
        Refused{BODY("%1: float32[2] = rellu(%0)"),
                "line 2, column 20: there is no operator 'rellu'"},
        Refused{BODY("%1: float32[2] = relu(%2)"), "line 2, column 25: %2 is not defined here"},
        Refused{BODY("%1: float32[2] = relu(%1)"), "line 2, column 25: %1 is not defined here"},
        Refused{BODY("%1: float32[2] = relu(%0, 3)"), "relu has 1 arguments here"},
        Refused{BODY("%1: float32[2] = add.Tensor(%0)"), "and 1 are given: add.Tensor("},
        Refused{BODY("%1: float33[2] = relu(%0)"), "line 2, column 7: 'float33' is no type"},
        Refused{BODY("%0: float32[3] = relu(%0)"), "%0 is defined already, with another type"},
        Refused{BODY("%99999999: float32[2] = relu(%0)"), "number them from %0 on"},
        Refused{BODY("%1: float32[2, 3; 1] = relu(%0)"), "write one stride for each size"},
        Refused{BODY("%1: float32[9223372036854775807, 9] = relu(%0)"), "too many elements"},
        Refused{BODY("%1: float32[2; -1] = relu(%0)"), "column 18: a stride is -1"},
        Refused{BODY("%1: float32[2] in %0 + 1"), "%1 leaves the memory of argument 0"},
        Refused{BODY("%1: float32[2] in %0 + 9223372036854775807"), "leaves its memory"},
        Refused{BODY("%1: bool[2] in %0"), "has no view of type bool"},
        Refused{"graph(%0: uint8[2], %1: bool[2] in %0) {\n  return\n}\n",
                "line 1, column 21: memory of type uint8 has no view of type bool"},
        Refused{BODY("%1: float32[2]"), "stands where '=' and a call belong"},
        Refused{BODY("%1: float32[2] = memory(8)\n  %2: float32[2] = relu(%1)"),
                "line 3, column 25: %1 is memory that holds nothing yet"},
        Refused{BODY("%1: float32[2] = memory(4)\n  fill_(%1, 1)"),
                "write memory of at least 8 bytes"},
        Refused{BODY("%1: int64[1, 2] = nonzero(%0)"), "depends on values"},
        Refused{BODY("%1: float32[2] = sort(%0, 0, true)"), "gives 2 results, and 1 are written"},
        Refused{BODY("%1: float32[2] = add_.Tensor(%0, 1, 1)"), "write the call alone"},
        Refused{BODY("add_.Tensor(1, %0, 1)"), "stands where '%' belongs"},
        Refused{BODY("%1: float32[2] = transpose_out.int(%0, %0, 0, 0)"), "transpose"},
        Refused{BODY("%1: float32[2] = sum.dim_IntList(%0, [1, x], false, none)"),
                "'x' stands where an item belongs"},
        Refused{BODY("%1: float32[2] = relu(%0) %2"), "follows a complete line"},
        Refused{BODY("grad(argument 1) = %0"), "no argument 1"},
        Refused{BODY("%1: float32[2] = outside(0)\n  %2: float32[2] = outside(0)"),
                "outside(0) is defined above"},
        Refused{"graph(%0: float32[2]) {\n", "the text ends before the line 'return'"},
        Refused{"graph() {\n  return\n}\nx", "line 4, column 1: 'x' follows the end"}));

// The graphs above with bytes of them changed are refused, or read back as they are written.
TEST(ParseGraph, DamagedTextsAreErrors) {
  nn::Linear net(6, 4);
  const Tensor x = randn({5, 6}), y = randint(0, 4, {5});
  const std::string whole = to_text(recorded({x, y}, [&] {
    F::cross_entropy(net(x), y).backward();
    return std::vector<Tensor>{};
  }));
  std::mt19937_64 random(7);
  const std::string letters = "0123456789%[](){}:;,.+-= \n\"\\_#xenf";
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = letters[random() % letters.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, whole.substr(random() % whole.size(), random() % 40));
          break;
        default:
          text.insert(at, "9223372036854775807");
          break;
      }
    }
    try {
      const std::string once = to_text(parse_text(text));
      ASSERT_EQ(to_text(parse_text(once)), once) << text;
      ++read;
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
  EXPECT_GT(read, 100);
}

TEST(ParseGraph, SymbolsStandForSizes) {
  const std::string text =
      "graph(%0: float32[n = 4, t = 6]) {\n"
      "  %1: float32[n*t - n] = view(%0, [n*t - n])\n"
      "  %2: float32[t over 2] in %1 + n = as_strided(%1, [t over 2], [1], n)\n"
      "  %3: float32[t over 2] = mul.Tensor(%2, float32 1./sqrt(n*t))\n"
      "  return %3\n}\n";
  std::vector<SizeSymbol> symbols;
  const Graph graph = parse_text(text, nullptr, &symbols);
  ASSERT_EQ(symbols.size(), 2u);
  EXPECT_EQ(symbols[1].name, "t");
  EXPECT_EQ(symbols[1].dim, 1u);
  EXPECT_EQ(graph.values[1].sizes[0], 20);
  symbols[0].size = 3, symbols[1].size = 8;
  const Graph other = parse_text(text, nullptr, &symbols);
  EXPECT_EQ(other.values[0].sizes, (Dims{3, 8}));
  EXPECT_EQ(other.values[1].sizes[0], 21);
  EXPECT_EQ(other.values[2].sizes[0], 4);
  EXPECT_EQ(other.values[2].offset, 3);
  EXPECT_EQ(std::get<Scalar>(other.nodes[2].args[1].constant.variant()).to_double(),
            static_cast<double>(static_cast<float>(1 / std::sqrt(24.))));
  symbols[1].size = 7;  // 7 over 2
  EXPECT_THROW(parse_text(text, nullptr, &symbols), Error);
  symbols[0].size = INT64_MAX;
  EXPECT_THROW(parse_text(text, nullptr, &symbols), Error);
  EXPECT_THROW(parse_text("graph(%0: float32[n = 4, n = 5]) {\n  return %0\n}"), Error);
  EXPECT_THROW(parse_text("graph(%0: float32[4, n]) {\n  return %0\n}"), Error);
}

}  // namespace
}  // namespace mytorch::graph
