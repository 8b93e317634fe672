// The autograd wrappers and nodes of operators. Code generation emits only data for each operator:
//
//   struct alignas(16) Node_mul_Tensor final : NodeOf<Node_mul_Tensor> {
//     SavedTensor self_;
//     SavedOperand other_;
//     static constexpr const char* kName = "MulBackward";
//     using Edges = List<EdgeTo<0>, EdgeTo<1>>;
//     using Saves = List<SavedArgument<&Node_mul_Tensor::self_, 0, 0b10>,
//                        SavedArgument<&Node_mul_Tensor::other_, 1, 0b01>>;
//     void apply(Tensor* grads, Tensor* out) override { ... }  // the gradient formulas
//   };
//   install<Node_mul_Tensor, ops::mul_Tensor>();
//
// Arguments and results are identified by their numbers.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "autograd/generated.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/table/layers.h"

namespace mytorch::autograd {

template <class... T>
struct List {};

// ---- edges ----

// An edge to the producer of a tensor argument.
template <int argument>
struct EdgeTo {
  static constexpr int arg = argument;
  template <class Node>
  static constexpr uint32_t count(const Node&) {
    return 1;
  }
  template <class Node>
  static void note_count(Node&, const auto&) {}
  static uint32_t count_of(const auto&) { return 1; }
  static void set(Node& node, uint32_t at, const auto& tensor) { node.edge(at, tensor); }
};
// Edges to the producers of the tensors of a list. The node stores their number.
template <int argument, auto length>
struct EdgesTo {
  static constexpr int arg = argument;
  template <class Node>
  static uint32_t count(const Node& node) {
    return node.*length;
  }
  template <class Node>
  static void note_count(Node& node, TensorList list) {
    node.*length = count_of(list);
  }
  static uint32_t count_of(TensorList list) { return static_cast<uint32_t>(list.size()); }
  static void set(Node& node, uint32_t at, TensorList list) { node.edges_from(at, list); }
};

template <class... E, class Args>
[[gnu::always_inline]] inline bool wants_recording(List<E...>, const Args& args) {
  return any_requires_grad(std::get<E::arg>(args)...);
}
template <class... E, class Args>
[[gnu::always_inline]] inline bool write_wants_recording(List<E...>, const Tensor& written,
                                                         const Args& args) {
  return any_requires_grad_write(written, std::get<E::arg>(args)...);
}

template <class Node, class... E, class Args>
[[gnu::always_inline]] inline NodePtr<Node> make_recorded(List<E...>, uint32_t num_results,
                                                          const Args& args) {
  auto node = make_node<Node>((0u + ... + E::count_of(std::get<E::arg>(args))), num_results);
  (E::note_count(*node, std::get<E::arg>(args)), ...);
  uint32_t at = 0;
  ((E::set(*node, at, std::get<E::arg>(args)), at += E::count(*node)), ...);
  return node;
}

// Returns whether the node has one of the edges whose bits are set in `which`.
template <uint32_t which, class Node, class... E>
[[gnu::always_inline]] inline bool has_edge_of(List<E...>, const Node& node) {
  uint32_t at = 0;
  uint32_t bit = 1;
  bool found = false;
  ((found = found || ((which & bit) != 0 && node.has_edge(at)), at += E::count(node), bit <<= 1),
   ...);
  return found;
}

// ---- arguments ----

inline void require_one(const OpInfo& op, size_t arg, const Tensor& given) {
  if (!given.defined() && !op.args[arg].optional) required_slow(op, op.args[arg].name);
}
inline void require_one(const OpInfo& op, size_t arg, const Operand& given) {
  if (!given.present() && !op.args[arg].optional) required_slow(op, op.args[arg].name);
}
template <class T>
void require_one(const OpInfo&, size_t, const T&) {}

// Throws Error(kValue) for an undefined tensor that is not optional. The form below the layers
// checks this too, but an in-place form saves its arguments before.
template <class Op, class... P, size_t... i>
void require_given(const std::tuple<const P&...>& args, std::index_sequence<i...>) {
  (require_one(Op::info, i, std::get<i>(args)), ...);
}

// ---- saved values ----

template <auto member, class Node>
auto& member_of(Node& node) {
  return node.*member;
}

struct KeepsNothing {
  static void save_argument(auto&, const auto&, const Tensor*) {}
  static void save_result(auto&, const auto&) {}
  static void release(auto&) {}
};

template <int i, class Result>
const auto& nth_result(const Result& result) {
  if constexpr (std::is_same_v<Result, Tensor>) {
    return result;
  } else {
    return std::get<i>(result);
  }
}

// Saves an argument if the node has one of the edges `readers`; 0: always. A list is saved as a
// whole.
template <auto member, int arg, uint32_t readers = 0>
struct SavedArgument : KeepsNothing {
  template <class Node>
  [[gnu::always_inline]] static void save_argument(Node& node, const auto& args,
                                                   const Tensor* written) {
    if constexpr (readers != 0) {
      if (!has_edge_of<readers>(typename Node::Edges(), node)) return;
    }
    auto& saved = node.*member;
    using Value = std::remove_cvref_t<decltype(saved)>;
    if constexpr (std::is_same_v<Value, SavedTensorList>) {
      saved = Value(std::get<arg>(args));
    } else {
      saved = written != nullptr ? Value::before_write(std::get<arg>(args), *written)
                                 : Value(std::get<arg>(args));
    }
  }
  static void release(auto& node) { (node.*member).release(); }
};

// Saves a result. A result without a gradient has no history and so creates no cycle.
template <auto member, int result, bool has_gradient>
struct SavedResult : KeepsNothing {
  static void save_result(auto& node, const auto& results) {
    const Tensor& value = nth_result<result>(results);
    node.*member = has_gradient ? SavedTensor::output(value, &node, result) : SavedTensor(value);
  }
  static void release(auto& node) { (node.*member).release(); }
};

// Saves an argument that is not a tensor.
template <auto member, int arg>
struct KeptArgument : KeepsNothing {
  static void save_argument(auto& node, const auto& args, const Tensor*) {
    node.*member = keep(std::get<arg>(args));
  }
};

// Saves a fact about an argument or a result, such as its shape.
template <auto member, int arg, class Fact>
struct KeptFact : KeepsNothing {
  static void save_argument(auto& node, const auto& args, const Tensor*) {
    node.*member = Fact()(std::get<arg>(args));
  }
};
template <auto member, int result, class Fact>
struct KeptResultFact : KeepsNothing {
  static void save_result(auto& node, const auto& results) {
    node.*member = Fact()(nth_result<result>(results));
  }
};

template <class... S, class Node, class Args>
[[gnu::always_inline]] inline void save_arguments(List<S...>, Node& node, const Args& args,
                                                  [[maybe_unused]] const Tensor* written) {
  (S::save_argument(node, args, written), ...);
}
template <class... S, class Node, class Result>
[[gnu::always_inline]] inline void save_results(List<S...>, Node& node, const Result& results) {
  (S::save_result(node, results), ...);
}

// ---- nodes ----

template <class Derived>
struct NodeOf : GeneratedNode {
  using Saves = List<>;
  using NoGradient = std::integer_sequence<int>;  // arguments that must not require a gradient
  static constexpr uint32_t kHistory = 1;         // a bit per result that gets a history
  static constexpr bool kView = false;
  static constexpr bool kIsPart = false;  // the result is a part of the first argument
  static constexpr const char* kInplaceName = "";

  NodeOf() : GeneratedNode(Derived::kIsPart) {}
  const char* name() const override { return Derived::kName; }
  void release_saved() override { release_each(typename Derived::Saves()); }

 private:
  template <class... S>
  void release_each(List<S...>) {
    (S::release(static_cast<Derived&>(*this)), ...);
  }
};

// ---- wrappers ----

// Autograd's wrapper of one form.
template <class Node, class Op, Form form, class Type = decltype(Below<Op, form>::call)>
struct Recorded;
template <class Node, class Op, Form form, class R, class... P>
struct Recorded<Node, Op, form, R(P...)> {
  static R call(P... args) {
    const std::tuple<const P&...> all(args...);
    refuse(all, typename Node::NoGradient());
    if constexpr (form == kInplace && lacks_first(typename Node::NoGradient())) {
      return write_wants_recording(Edges(), std::get<0>(all), all)
                 ? assign(args...)
                 : Layered<Op, form>::template next<kLayerAutograd>(args...);
    } else if constexpr (std::is_reference_v<R>) {
      return write(all, args...);
    } else {
      R result = Layered<Op, form>::template next<kLayerAutograd>(args...);
      if (wants_recording(Edges(), all)) record(result, all);
      return result;
    }
  }

 private:
  using Edges = typename Node::Edges;
  using Args = std::tuple<const P&...>;

  [[gnu::always_inline]] static void record(const R& result, const Args& args) {
    auto node = make_recorded<Node>(Edges(), number_of(result), args);
    save_arguments(typename Node::Saves(), *node, args, nullptr);
    if constexpr (Node::kView) {
      as_view(result, std::get<0>(args), node);
    } else {
      set_histories(result, node);
    }
    save_results(typename Node::Saves(), *node, result);
  }

  // In-place forms, and operators that write their first argument.
  [[gnu::always_inline]] static R write(const Args& all, P... args) {
    const Tensor& self = std::get<0>(all);
    NodePtr<Node> node;
    if (write_wants_recording(Edges(), self, all)) {
      require_given<Op>(all, std::index_sequence_for<P...>());
      check_inplace(self, Node::kInplaceName);
      node = make_recorded<Node>(Edges(), 1, all);
      save_arguments(typename Node::Saves(), *node, all, &self);
    }
    Layered<Op, form>::template next<kLayerAutograd>(args...);
    if (node) {
      rebase_history(self, node);
      save_results(typename Node::Saves(), *node, self);
    }
    return self;
  }

  // In-place forms whose first argument has no gradient, and so no edge that rebase_history could
  // lead to its base: the function and a copy.
  template <class Self, class... Rest>
  static const Tensor& assign(const Self& self, const Rest&... rest) {
    const LayerMask masked(kLayerAutocast);
    assign_inplace(Op::info, self, Layered<Op, kFunction>::call(self.clone(), rest...));
    return self;
  }
  template <int... arg>
  static constexpr bool lacks_first(std::integer_sequence<int, arg...>) {
    return ((arg == 0) || ...);
  }

  template <int... arg>
  [[gnu::always_inline]] static void refuse(const Args& args, std::integer_sequence<int, arg...>) {
    if constexpr (sizeof...(arg) > 0) {
      if (thread_state.grad_mode) (refuse_gradient(std::get<arg>(args), Op::info, arg), ...);
    }
  }

  static uint32_t number_of(const Tensor&) { return 1; }
  template <class... T>
  static uint32_t number_of(const std::tuple<T...>&) {
    return sizeof...(T);
  }
  static uint32_t number_of(const std::vector<Tensor>& results) {
    return static_cast<uint32_t>(results.size());
  }

  static void set_histories(const Tensor& result, autograd::Node* node) {
    set_history(result, node, 0);
  }
  template <class... T>
  static void set_histories(const std::tuple<T...>& results, autograd::Node* node) {
    set_each(results, node, std::index_sequence_for<T...>());
  }
  template <class Results, size_t... i>
  [[gnu::always_inline]] static void set_each(const Results& results, autograd::Node* node,
                                              std::index_sequence<i...>) {
    ((Node::kHistory >> i & 1 ? set_history(std::get<i>(results), node, i) : void()), ...);
  }
  static void set_histories(const std::vector<Tensor>& results, autograd::Node* node) {
    for (size_t i = 0; i < results.size(); ++i) {
      set_history(results[i], node, static_cast<uint32_t>(i));
    }
  }
};

// Installs autograd's wrappers of an operator's forms. Autograd refuses the out= form.
template <class Node, class Op>
void install() {
  Layered<Op, kFunction>::template wrap<kLayerAutograd>(Recorded<Node, Op, kFunction>::call);
  if constexpr (Op::inplace) {
    Layered<Op, kInplace>::template wrap<kLayerAutograd>(Recorded<Node, Op, kInplace>::call);
  }
}

// Installs the wrapper of a derived gradient.
template <class Op>
void install_decomposed() {
  Layered<Op, kFunction>::template wrap<kLayerAutograd>(Decomposed<Op>::call);
}

}  // namespace mytorch::autograd
