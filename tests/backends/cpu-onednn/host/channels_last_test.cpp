// A channels-last network: all tensors between its layers stay channels-last, forward and backward,
// without layout conversions.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/frame/layout.h"
#include "dispatcher/table/fields.h"
#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

constexpr int64_t kBatch = 4;

Tensor channels_last(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
}

// A leaf with a copy of the elements of x, with the same strides.
Tensor leaf(const Tensor& x) { return x.detach().clone().requires_grad_(); }

struct Network {
  Tensor conv1 = leaf(randn({32, 3, 3, 3}));
  Tensor scale = leaf(rand({32})), shift = leaf(randn({32}));
  Tensor conv2 = leaf(randn({48, 32, 3, 3})), bias2 = leaf(randn({48}));
  Tensor conv3 = leaf(randn({64, 48, 1, 1}));
  Tensor out = leaf(randn({10, 64})), bias = leaf(randn({10}));

  std::vector<Tensor> parameters() const {
    return {conv1, scale, shift, conv2, bias2, conv3, out, bias};
  }
  // Collects the tensors between the layers.
  std::vector<Tensor> activations;

  Tensor forward(const Tensor& image) {
    activations.clear();
    const auto keep = [&](const Tensor& x) {
      activations.push_back(x);
      return x;
    };
    Tensor x = keep(conv2d(image, conv1, {}, {1, 1}, {1, 1}));
    x = keep(batch_norm(x, scale, shift, {}, {}, true, 0.1, 1e-5));
    x = keep(relu(x));
    x = keep(max_pool2d(x, {3, 3}, {2, 2}, {1, 1}));
    x = keep(conv2d(x, conv2, bias2, {2, 2}, {1, 1}));
    x = keep(relu(x));
    x = keep(avg_pool2d(x, {2, 2}));
    x = keep(conv2d(x, conv3));
    x = keep(add(x, 1));
    x = keep(adaptive_avg_pool2d(x, {1, 1}));
    return linear(flatten(x, 1), out, bias);
  }
};

// Describes the layout conversions of a step: copies by operators, conversions around kernels, and
// tensors in another layout, which a kernel would reorder.
class Copies {
 public:
  template <class Step>
  explicit Copies(Step&& step) {
    const auto before = conversions();
    {
      const Observe observe([this](const KernelCall& call) { see(call); });
      step();
    }
    for (const auto& [op, count] : conversions()) {
      const auto found = before.find(op);
      const uint64_t of_step = count - (found == before.end() ? 0 : found->second);
      if (of_step != 0) text_ += op + " converts " + std::to_string(of_step) + " operands\n";
    }
  }
  const std::string& text() const { return text_; }
  int calls() const { return calls_; }

 private:
  static std::map<std::string, uint64_t> conversions() {
    std::map<std::string, uint64_t> result;
    for (const SlowPaths& paths : slow_paths()) result[paths.op] = paths.conversions;
    return result;
  }
  void see(const KernelCall& call) {
    ++calls_;
    const OpInfo& op = *call.entry->info;
    const bool copies = std::string(op.name) == "copy_";
    const auto look = [&](const mt_tensor* t) {
      const size_t ndim = static_cast<size_t>(t->dl.ndim);
      const IntList sizes(t->dl.shape, ndim), strides(t->dl.strides, ndim);
      if (ndim != 4 || sizes[0] != kBatch) return;  // a parameter
      if (copies) text_ += "copy_ of " + shape_str(sizes) + "\n";
      if (!is_channels_last(sizes, strides)) {
        text_ += std::string(op.name) + " of row-major " + shape_str(sizes) + "\n";
      }
    };
    for_each_input(op, call.args, [&](const mt_tensor*& t, const ArgInfo&) { look(t); });
    for_each_output(op, call.args, [&](const mt_tensor*& t, const OutputInfo&) { look(t); });
  }
  std::string text_;
  int calls_ = 0;
};

TEST(ChannelsLast, ANetworkConvertsNoLayoutBetweenItsLayers) {
  Network network;
  const Tensor image = leaf(channels_last(randn({kBatch, 3, 32, 32})));
  const Tensor target = randn({kBatch, 10});
  const auto step = [&] {
    const Tensor y = network.forward(image);
    mul(sub(y, target), sub(y, target)).sum().backward();
  };
  const Copies copies(step);
  EXPECT_GT(copies.calls(), 30);  // copies are observed at all
  EXPECT_EQ(copies.text(), "");
  for (size_t i = 0; i < network.activations.size(); ++i) {
    EXPECT_TRUE(is_channels_last(network.activations[i])) << "layer " << i;
  }
  EXPECT_TRUE(is_channels_last(image.grad()));
}

TEST(ChannelsLast, ANetworkAgreesWithItsRowMajorTwin) {
  Network network;
  const Tensor pixels = randn({kBatch, 3, 32, 32}), target = randn({kBatch, 10});
  std::vector<std::vector<Tensor>> found;
  for (const Tensor& image : {leaf(pixels), leaf(channels_last(pixels))}) {
    const Tensor y = network.forward(image);
    mul(sub(y, target), sub(y, target)).sum().backward();
    std::vector<Tensor> all = {y.detach(), image.grad()};
    for (const Tensor& p : network.parameters()) {
      all.push_back(p.grad());
      p.set_grad({});
    }
    found.push_back(all);
  }
  for (size_t i = 0; i < found[0].size(); ++i) {
    const double size = found[0][i].abs().max().item().to_double();
    EXPECT_TRUE(allclose(found[1][i], found[0][i], 1e-3, 1e-4 * size)) << "value " << i;
  }
}

}  // namespace
}  // namespace mytorch
