// The layers that a call enters: one column each, for every meaning and form of a record.
#include "dispatcher/table/layers.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <utility>
#include <vector>

#include "dispatcher/custom/custom.h"
#include "mytorch/backends.h"
#include "mytorch/generated/operators.h"
#include "mytorch/grad_mode.h"
#include "mytorch/operator.h"
#include "mytorch/ops.h"
#include "mytorch/ops/relu_grad.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::Values;
using testing::values;

using Layers = std::vector<uint32_t>;
const Layers kAllLayers = {kLayerAutocast, kLayerAutograd, kLayerCapture};

// The layers whose wrappers ran, in order.
Layers entered;

// Sets the layers that every call of this thread enters, for the lifetime of this object.
class Wanted {
 public:
  explicit Wanted(uint32_t layers) : saved_(std::exchange(thread_state.wanted, layers)) {}
  ~Wanted() { thread_state.wanted = saved_; }

 private:
  uint32_t saved_;
};

// For the lifetime of this object, each column has a wrapper of the form that records its layer and
// continues.
template <class Op, Form form, class Type = decltype(Below<Op, form>::call)>
class Wrapped;
template <class Op, Form form, class R, class... P>
class Wrapped<Op, form, R(P...)> {
 public:
  Wrapped() {
    for (int layer = 0; layer < kNumLayers; ++layer) {
      saved_[layer] = Op::entry.wrappers[layer][form];
    }
    Layered<Op, form>::template wrap<kLayerAutocast>(wrapper<kLayerAutocast>);
    Layered<Op, form>::template wrap<kLayerAutograd>(wrapper<kLayerAutograd>);
    Layered<Op, form>::template wrap<kLayerCapture>(wrapper<kLayerCapture>);
  }
  ~Wrapped() {
    for (int layer = 0; layer < kNumLayers; ++layer) {
      Op::entry.wrappers[layer][form] = saved_[layer];
    }
  }

 private:
  template <uint32_t layer>
  static R wrapper(P... args) {
    entered.push_back(layer);
    EXPECT_TRUE(layers_wanted(layer));
    EXPECT_EQ(wanted_layers(0) & (layer - 1), 0u) << "the layers above are masked";
    return Layered<Op, form>::template next<layer>(static_cast<P&&>(args)...);
  }

  void* saved_[kNumLayers];
};

// Returns the layers that `call` enters if all are wanted. The result of the call must not depend
// on them.
template <class Op, Form form>
Layers layers_of(const std::function<Tensor()>& call, uint32_t wanted = ~0u) {
  const Values plain = values(call());
  entered.clear();
  const Wrapped<Op, form> wrapped;
  Tensor result;
  {
    const Wanted layers(wanted);
    result = call();
  }
  EXPECT_EQ(values(result), plain);
  return entered;
}
constexpr uint32_t kNoGradients = kLayerAutocast | kLayerCapture;
const Layers kOthers = {kLayerAutocast, kLayerCapture};

Tensor sample() { return tensor({1.0, 2.0, -3.0, 4.0}).view({2, 2}); }

TEST(Layers, FunctionsOfEveryMeaningEnterThemInOrder) {
  EXPECT_EQ((layers_of<ops::add_Tensor, kFunction>([] { return add(sample(), sample(), 2); })),
            kAllLayers);
  EXPECT_EQ((layers_of<ops::sum_dim_IntList, kFunction>([] { return sum(sample(), IntList(1)); })),
            kAllLayers);
  EXPECT_EQ((layers_of<ops::max_dim, kFunction>([] { return std::get<0>(max(sample(), 1)); })),
            kAllLayers);
  EXPECT_EQ((layers_of<ops::transpose_int, kFunction>([] { return transpose(sample(), 0, 1); })),
            kAllLayers);
  EXPECT_EQ((layers_of<ops::softmax_int, kFunction>([] { return softmax(sample(), 1); })),
            kAllLayers);
  EXPECT_EQ((layers_of<ops::bmm, kFunction>([] {
              return bmm(sample().view({1, 2, 2}), sample().view({1, 2, 2}));
            })),
            kAllLayers);
}

TEST(Layers, RecordsWithoutGradientEnterThemToo) {
  EXPECT_EQ((layers_of<ops::eq_Tensor, kFunction>([] { return eq(sample(), 2); })), kAllLayers);
  EXPECT_EQ((layers_of<ops::nonzero, kFunction>([] { return nonzero(sample()); })), kAllLayers);
}

TEST(Layers, DecomposingCompositesEnterThemToo) {
  EXPECT_EQ((layers_of<ops::vstack, kFunction>([] {
              return vstack({sample(), sample()});
            })),
            kAllLayers);
  EXPECT_EQ((layers_of<ops::split_Tensor, kFunction>([] { return split(sample(), 1)[1]; })),
            kAllLayers);
}

TEST(Layers, DerivedGradientsEnterThemToo) {
  EXPECT_EQ((layers_of<ops::relu_grad, kFunction>([] { return relu_grad(sample(), sample()); })),
            kAllLayers);
}

TEST(Layers, InPlaceFormsEnterThem) {
  EXPECT_EQ((layers_of<ops::add_Tensor, kInplace>([] { return sample().add_(1); })), kAllLayers);
  EXPECT_EQ((layers_of<ops::tril, kInplace>([] { return tril_(sample()); })), kAllLayers);
}

TEST(Layers, RecordsThatWriteEnterThem) {
  EXPECT_EQ((layers_of<ops::copy_, kFunction>([] { return copy_(sample(), sample().mul(2)); })),
            kAllLayers);
  EXPECT_EQ((layers_of<ops::zero_, kFunction>([] { return zero_(sample()); })), kAllLayers);
}

TEST(Layers, OutFormsEnterAllButAutograd) {
  const auto into = [](const std::function<void(const Tensor&)>& call) {
    return [call] {
      const Tensor out = zeros({2, 2});
      call(out);
      return out;
    };
  };
  EXPECT_EQ((layers_of<ops::add_Tensor, kOut>(into([](auto& out) { add_out(out, sample(), 1); }),
                                              kNoGradients)),
            kOthers);
  EXPECT_EQ((layers_of<ops::eq_Tensor, kOut>(into([](auto& out) { eq_out(out, sample(), 1); }),
                                             kNoGradients)),
            kOthers);
  EXPECT_EQ((layers_of<ops::sum_dim_IntList, kOut>(
                into([](auto& out) {
                  sum_out(out.view({4}), sample().view({1, 4}), IntList(0));
                }),
                kNoGradients)),
            kOthers);
  EXPECT_EQ((layers_of<ops::softmax_int, kOut>(
                into([](auto& out) { softmax_out(out, sample(), 1); }), kNoGradients)),
            kOthers);
  EXPECT_EQ(
      (layers_of<ops::vstack, kOut>(
          into([](auto& out) {
            vstack_out(out, {sample().view({4}).slice(0, 0, 2), sample().view({4}).slice(0, 2, 4)});
          }),
          kNoGradients)),
      kOthers);
}

TEST(Layers, ListWritesEnterAllButAutograd) {
  EXPECT_EQ((layers_of<ops::sgd_steps_, kFunction>(
                [] {
                  const Tensor parameter = sample();
                  sgd_steps_({parameter}, {sample()}, {}, 0.25);
                  return parameter;
                },
                kNoGradients)),
            kOthers);
}

TEST(Layers, OnlyAutogradRefusesOutForms) {
  const Tensor out = zeros({2, 2});
  const Tensor flagged = sample().requires_grad_();
  expect_error(ErrorCode::kValue, {"[add]", "out="}, [&] { add_out(out, flagged, 1); });
  expect_error(ErrorCode::kValue, {"[eq]", "out="}, [&] { eq_out(out, flagged, 1); });
  const Wrapped<ops::add_Tensor, kOut> wrapped;
  entered.clear();
  {
    const Wanted layers(kNoGradients);
    const NoGradGuard no_grad;
    add_out(out, flagged, 1);
  }
  EXPECT_EQ(entered, kOthers);
  EXPECT_EQ(values(out), (Values{2, 3, -2, 5}));
}

TEST(Layers, TensorsCallForAutogradBelowAutocast) {
  const Tensor flagged = sample().requires_grad_();
  const Wrapped<ops::add_Tensor, kFunction> wrapped;
  entered.clear();
  add(sample(), flagged);
  EXPECT_EQ(entered, (Layers{kLayerAutograd}));
  entered.clear();
  const Wanted layers(kNoGradients);
  add(sample(), flagged);
  EXPECT_EQ(entered, kAllLayers);
}

TEST(Layers, AutogradGoesOnToCapture) {
  // The wrapper of autograd stands before the capture wrapper of this test.
  static Layers noted;
  noted.clear();
  using Add = Layered<ops::add_Tensor, kFunction>;
  Add::wrap<kLayerCapture>([](const Tensor& self, const Operand& other, const Scalar& alpha) {
    noted.push_back(kLayerCapture);
    return Add::next<kLayerCapture>(self, other, alpha);
  });
  {
    const Wanted layers(kLayerCapture);
    const Tensor result = add(sample().requires_grad_(), 1);
    EXPECT_EQ(result.grad_fn(), "AddBackward");
  }
  Add::wrap<kLayerCapture>(nullptr);
  EXPECT_EQ(noted, (Layers{kLayerCapture}));
}

TEST(Layers, OperatorsOfWhichACallConsistsDoNotEnterThem) {
  const Wrapped<ops::vstack, kFunction> outer;
  const Wrapped<ops::cat, kFunction> inner;
  entered.clear();
  {
    const Wanted layers(~0u);
    vstack({sample(), sample()});
  }
  EXPECT_EQ(entered, kAllLayers);
}

TEST(Layers, CallsByNameEnterThem) {
  const auto call_add = [] { return call("add", {sample(), 1}, {{"alpha", 2}})[0].tensor(); };
  EXPECT_EQ((layers_of<ops::add_Tensor, kFunction>(call_add)), kAllLayers);
  const auto call_grad = [] { return call("relu_grad", {sample(), sample()})[0].tensor(); };
  EXPECT_EQ((layers_of<ops::relu_grad, kFunction>(call_grad)), kAllLayers);
}

std::vector<Value> noting_custom(const CustomOperator& op, const std::vector<Value>& args) {
  entered.push_back(kLayerCapture);
  return next_custom(kLayerCapture, op, args);
}

TEST(Layers, OperatorsRegisteredAtRunTimeEnterThem) {
  register_operator({.schema = "layers::twice(Tensor x) -> Tensor",
                     .doc = "Twice x.",
                     .gradient = "none",
                     .body = [](const std::vector<Value>& args) -> std::vector<Value> {
                       return {args[0].tensor().mul(2)};
                     }});
  const auto twice = [] { return call("layers::twice", {sample()})[0].tensor(); };
  OpEntry& entry = *find_op("layers::twice");
  entry.wrappers[std::countr_zero(uint32_t{kLayerCapture})][kFunction] =
      reinterpret_cast<void*>(noting_custom);
  entered.clear();
  twice();
  EXPECT_EQ(entered, Layers());
  const Wanted layers(kLayerCapture);
  EXPECT_EQ(values(twice()), (Values{2, 4, -6, 8}));
  EXPECT_EQ(entered, (Layers{kLayerCapture}));
}

}  // namespace
}  // namespace mytorch
