#include "mytorch/nn/summary.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "mytorch/nn/activation.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/recurrent.h"
#include "mytorch/nn/transformer.h"
#include "mytorch/ops/conv2d.h"
#include "mytorch/ops/conv_transpose2d.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::values;

struct Body : Module {
  Sequential layers{Conv2d(2, 4, 3, {.groups = 2, .bias = false}), BatchNorm2d(4), ReLU()};
  Dropout dropout{1.0};
  LazyLinear head{3};
  Body() {
    register_module("layers", layers);
    register_module("dropout", dropout);
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) override {
    return head(dropout(layers(layers[2](x))).flatten(1));
  }
};

TEST(Summary, ListsLayersShapesParametersAndWork) {
  Body model;
  model.layers[1].requires_grad(false);
  const Summary all = summary(model, zeros({5, 2, 6, 6}));
  ASSERT_EQ(all.layers.size(), 7u);
  EXPECT_EQ(all.layers[0].type, "Body");
  const LayerSummary& conv = all.layers[2];
  EXPECT_EQ(conv.path, "layers.0");
  EXPECT_EQ(conv.output_shape, (std::vector<int64_t>{5, 4, 4, 4}));
  EXPECT_EQ(conv.parameters, 36);
  EXPECT_EQ(conv.flops, 2.0 * 5 * 4 * 4 * 4 * 9);
  EXPECT_EQ(conv.output_bytes, 5 * 4 * 4 * 4 * 4);
  EXPECT_EQ(all.layers[4].calls, 2);
  EXPECT_EQ(all.layers[6].type, "Linear");  // no longer lazy
  EXPECT_EQ(all.layers[6].flops, 2.0 * 5 * 3 * 64);
  EXPECT_EQ(all.parameters, 36 + 8 + 3 * 64 + 3);
  EXPECT_EQ(all.trainable_parameters, all.parameters - 8);
  EXPECT_EQ(all.parameter_bytes, 4 * all.parameters);
  EXPECT_EQ(all.flops, conv.flops + all.layers[6].flops);
  EXPECT_TRUE(model.dropout.training());
  EXPECT_EQ(values(static_cast<BatchNorm2d&>(model.layers[1]).num_batches_tracked),
            (std::vector<double>{0}));
  std::ostringstream out;
  out << all;
  EXPECT_NE(
      out.str().find("    0: Conv2d         (5, 4, 4, 4)          36  5.76 K       1.25 KiB\n"),
      std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find("2: ReLU (x2)"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("Total: 239 parameters (231 trainable, 956 B), 7.68 K FLOPs"),
            std::string::npos)
      << out.str();
}

// Products in the forward of a module, beside those of its children.
struct Products : Module {
  Linear fc{4, 3};
  Tensor weight = zeros({5, 3, 7});
  Products() { register_module("fc", fc); }
  Tensor forward(const Tensor& x) override {
    const Tensor rows = fc(x);                                   // (5, 2, 3)
    const Tensor scores = matmul(rows, weight);                  // (5, 2, 7)
    const Tensor square = rows[0].mm(weight[0]);                 // (2, 7)
    const Tensor image = scores.unsqueeze(1);                    // (5, 1, 2, 7)
    const Tensor filtered = conv2d(image, zeros({6, 1, 1, 3}));  // (5, 6, 2, 5)
    const Tensor attended = scaled_dot_product_attention(image, image, image);
    const Tensor back = conv_transpose2d(filtered, zeros({6, 2, 1, 3}));  // (5, 2, 2, 7)
    return back.sum() + filtered.sum() + attended.sum() + square.sum();
  }
};

TEST(Summary, CountsTheProductsOfAForward) {
  Products model;
  const Summary all = summary(model, zeros({5, 2, 4}));
  EXPECT_EQ(all.layers[1].flops, 2.0 * 5 * 2 * 3 * 4);
  const double matrices = 2.0 * 5 * 2 * 7 * 3 + 2.0 * 2 * 7 * 3;
  const double convolution = 2.0 * 5 * 6 * 2 * 5 * 3 + 2.0 * 5 * 6 * 2 * 5 * 2 * 3;
  const double attention = 2.0 * 2 * 5 * 2 * 7 * 2;
  EXPECT_EQ(all.layers[0].flops, matrices + convolution + attention);
  EXPECT_EQ(all.flops, all.layers[0].flops + all.layers[1].flops);
}

TEST(Summary, TellsTheMemoryOfTraining) {
  Sequential model(Linear(3, 4), BatchNorm1d(4));
  model[1].requires_grad(false);
  const Summary all = summary(model, zeros({2, 3}));
  EXPECT_EQ(all.parameter_bytes, 4 * (16 + 8));
  EXPECT_EQ(all.buffer_bytes, 4 * 8 + 8);
  EXPECT_EQ(all.gradient_bytes, 4 * 16);
  EXPECT_NE(all.str().find("96 B of parameters, 40 B of buffers, 64 B of gradients"),
            std::string::npos)
      << all.str();
  EXPECT_NE(all.str().find("of Adam 128 B"), std::string::npos) << all.str();
}

TEST(Summary, RemovesItsHooksIfTheModelThrows) {
  Sequential model(Linear(2, 2), Dropout(1.0));
  expect_error(ErrorCode::kShape, {"Sequential.0"}, [&] { summary(model, zeros({1, 3})); });
  EXPECT_TRUE(model[1].training());
  int calls = 0;
  model[0].register_forward_hook([&](Module&, const Tensor&, const Tensor&) { ++calls; });
  model(zeros({1, 2}));
  EXPECT_EQ(calls, 1);
}

TEST(Summary, CountsAttentionAndRecurrentLayers) {
  constexpr double kLength = 5, kKeys = 7, kBatch = 2, kWidth = 4;
  MultiheadAttention attention(4, 2);
  const Tensor query = zeros({5, 2, 4}), keys = zeros({7, 2, 4});
  const double projections = 2 * kBatch * (kLength + 2 * kKeys) * kWidth * kWidth;
  const double scores = 2 * kBatch * kLength * kKeys * kWidth;
  const Summary all = summary(attention, query, keys, keys);
  EXPECT_EQ(all.layers[0].flops, projections + 2 * scores);  // scores and weighted values
  EXPECT_EQ(all.layers[1].flops, 2 * kBatch * kLength * kWidth * kWidth);

  LSTM lstm(4, 3, {.num_layers = 2, .bidirectional = true});
  const double gates = 2 * (4 * 3 * (4 + 3) + 4 * 3 * (6 + 3));
  EXPECT_EQ(summary(lstm, query).flops, 2 * kBatch * kLength * gates);
}

}  // namespace
}  // namespace mytorch::nn
