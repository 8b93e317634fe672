// Recurrent networks: RNN, GRU and LSTM over sequences of equal lengths, or packed ones.
//
// One product computes the gates' parts of the inputs of all steps of a layer. A step is one
// product of the hidden states, added to these in memory, and one pointwise operator. Backward
// keeps the gradients of the gates of all steps, so that one product gives the gradient of each
// weight.
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/tensor/batched.h"
#include "core/types/dims.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/dropout.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/gru_gates.h"
#include "mytorch/ops/gru_gates_backward.h"
#include "mytorch/ops/gru_gates_grad.h"
#include "mytorch/ops/gru_layer.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/lstm_gates.h"
#include "mytorch/ops/lstm_gates_backward.h"
#include "mytorch/ops/lstm_gates_grad.h"
#include "mytorch/ops/lstm_layer.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/relu_grad.h"
#include "mytorch/ops/rnn_layer.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/tanh_grad.h"
#include "ops/gradients.h"
#include "ops/spec.h"

namespace mytorch {
namespace {

// ---- the steps of a layer ----

// A step in the order of computation. The rows of all steps are consecutive in memory, in the order
// of time. The states of the first `carried` rows come from the step before; the others begin here,
// with the initial state.
struct Step {
  int64_t first, rows, carried;

  Tensor of(const Tensor& all) const { return all.narrow(0, first, rows); }
};
using Steps = std::vector<Step>;

Steps make_steps(IntList batch_sizes, bool reverse) {
  Steps steps;
  steps.reserve(batch_sizes.size());
  int64_t first = 0;
  for (const int64_t rows : batch_sizes) {
    steps.push_back({first, rows, 0});
    first += rows;
  }
  if (reverse) std::reverse(steps.begin(), steps.end());
  for (size_t i = 1; i < steps.size(); ++i) {
    steps[i].carried = std::min(steps[i].rows, steps[i - 1].rows);
  }
  return steps;
}

// Returns the states before step i, given those after all steps and the initial ones.
Tensor before(const Steps& steps, size_t i, const Tensor& states, const Tensor& initial) {
  const Step& step = steps[i];
  const int64_t starting = step.rows - step.carried;
  if (step.carried == 0) return initial.narrow(0, 0, starting);
  const Tensor carried = states.narrow(0, steps[i - 1].first, step.carried);
  return starting == 0 ? carried
                       : mytorch::cat({carried, initial.narrow(0, step.carried, starting)}, 0);
}

// Returns the states before all steps, in the order of rows.
Tensor all_before(const Steps& steps, const Tensor& states, const Tensor& initial, bool reverse) {
  std::vector<Tensor> parts(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) parts[i] = before(steps, i, states, initial);
  if (reverse) std::reverse(parts.begin(), parts.end());
  return mytorch::cat(parts, 0);
}

// Returns the state of each sequence after its last step.
Tensor last_states(const Steps& steps, const Tensor& states) {
  std::vector<Tensor> parts;
  for (size_t i = steps.size(); i-- > 0;) {
    const int64_t carried = i + 1 < steps.size() ? steps[i + 1].carried : 0;
    const int64_t ending = steps[i].rows - carried;
    if (ending > 0) parts.push_back(states.narrow(0, steps[i].first + carried, ending));
  }
  if (parts.empty()) return states.narrow(0, 0, 0);
  return parts.size() == 1 ? parts[0] : mytorch::cat(parts, 0);
}

// Returns a copy of a matrix that all steps multiply by. Its rows are contiguous and a cache line
// more than their length apart: rows at a distance of a power of two share few sets of a cache, and
// a product would copy the matrix again in each step.
Tensor spread_rows(const Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const int64_t line = 64 / matrix.itemsize();
  const Tensor memory = mytorch::empty({rows, columns + line}, matrix.dtype(), matrix.device());
  Tensor copy = memory.narrow(1, 0, columns);
  mytorch::copy_(copy, matrix);
  return copy;
}

// Whether backward must not write into tensors that it allocates: autograd records, or vmap runs
// it.
bool writes_nothing(std::initializer_list<Tensor> tensors) {
  return grad_enabled() || std::any_of(tensors.begin(), tensors.end(), [](const Tensor& x) {
           return x.defined() && is_batched(x.impl());
         });
}

Tensor plus(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return a + b;
}

// The gradient of a state during backward, which visits the steps in reverse order.
class StateGradient {
 public:
  // `arriving` is the gradient of the states after all steps, or undefined.
  StateGradient(const Steps& steps, const Tensor& arriving, const Tensor& initial)
      : steps_(steps), arriving_(arriving), initial_(initial) {
    if (!steps.empty()) current_ = of(steps.size() - 1);
  }

  // Returns the gradient of the state after step i.
  Tensor after(size_t i) const {
    if (current_.defined()) return current_;
    return grads::zeros_like_shape(initial_, {steps_[i].rows, initial_.size(1)});
  }

  // Whether all rows of step i come from all rows of the step before, whose own gradient can be
  // added by the product that computes that of step i.
  Tensor addend(size_t i) const {
    const bool whole =
        i > 0 && steps_[i].carried == steps_[i].rows && steps_[i - 1].rows == steps_[i].rows;
    return whole ? of(i - 1) : Tensor();
  }

  // Takes the gradient of the state before step i. `added`: addend(i) is a part of it.
  void pass(size_t i, const Tensor& gradient, bool added = false) {
    const Step& step = steps_[i];
    if (step.carried < step.rows) {
      starting_.push_back(gradient.narrow(0, step.carried, step.rows - step.carried));
    }
    if (i == 0) return;
    if (added) {
      current_ = gradient;
      return;
    }
    const Tensor carried =
        step.carried < step.rows ? gradient.narrow(0, 0, step.carried) : gradient;
    current_ = plus(of(i - 1), grads::padded_to(carried, {steps_[i - 1].rows, gradient.size(1)}));
  }

  // Returns the gradient of the initial state.
  Tensor initial() {
    std::reverse(starting_.begin(), starting_.end());
    return starting_.empty() ? grads::zeros_like_shape(initial_, initial_.sizes())
                             : mytorch::cat(starting_, 0);
  }

 private:
  Tensor of(size_t i) const { return arriving_.defined() ? steps_[i].of(arriving_) : Tensor(); }

  const Steps& steps_;
  Tensor arriving_, initial_, current_;
  std::vector<Tensor> starting_;
};

// The gradients of the gates of all steps.
class GateGradients {
 public:
  // The steps write rows of one tensor, or if they are `separate`, give tensors that are joined at
  // the end, which autograd can record.
  GateGradients(const Steps& steps, int64_t columns, const Tensor& like, bool separate)
      : steps_(steps), separate_(separate), parts_(steps.size()) {
    const int64_t rows = std::max(end(steps.front()), end(steps.back()));
    if (!separate) all_ = mytorch::empty({rows, columns}, like.dtype(), like.device());
  }

  // Returns the rows to be written for step i, unless the steps are separate.
  Tensor place(size_t i) const { return steps_[i].of(all_); }
  void set(size_t i, Tensor rows) { parts_[i] = std::move(rows); }
  // Adds the gradient that arrives at the sums of step i, if there is one, to the last columns.
  void add(size_t i, const Tensor& arriving) {
    if (!arriving.defined()) return;
    const Tensor rows = steps_[i].of(arriving);
    const int64_t first = at(i).size(1) - rows.size(1);
    const Tensor last = at(i).narrow(1, first, rows.size(1));
    if (separate_) {
      parts_[i] = mytorch::cat({at(i).narrow(1, 0, first), last + rows}, 1);
    } else {
      mytorch::add_out(last, last, rows);
    }
  }
  Tensor at(size_t i) const { return separate_ ? parts_[i] : place(i); }
  Tensor all(bool reverse) {
    if (!separate_) return all_;
    if (reverse) std::reverse(parts_.begin(), parts_.end());
    return mytorch::cat(parts_, 0);
  }

 private:
  static int64_t end(const Step& step) { return step.first + step.rows; }

  const Steps& steps_;
  bool separate_;
  Tensor all_;
  std::vector<Tensor> parts_;
};

// ---- arguments ----

void check_state(const Tensor& state, const char* name, int64_t rows, int64_t columns,
                 const Tensor& like, const char* op) {
  check_shape(state.dim() == 2 && state.size(0) == rows && state.size(1) == columns, op, name,
              " has shape ", state.sizes(), ", expected ", shape_str({rows, columns}));
  check_same_type(like, "the input", state, name, op);
}

// Checks the arguments of a layer: the sizes of steps, and those of gates and weight for `parts`
// gates of the size of the state.
void check_layer(const Tensor& gates, const Tensor& hx, const Tensor& weight_hh,
                 IntList batch_sizes, int64_t parts, const char* op) {
  check_floating(gates, "gates", op);
  check_value(!batch_sizes.empty(), op, "batch_sizes is empty: give the rows of each step");
  int64_t rows = 0;
  for (size_t t = 0; t < batch_sizes.size(); ++t) {
    check_value(batch_sizes[t] >= 0 && (t == 0 || batch_sizes[t] <= batch_sizes[t - 1]), op,
                "batch_sizes[", t, "] is ", batch_sizes[t],
                ": sizes are positive and do not increase");
    rows += batch_sizes[t];
    check_value(rows >= 0 && rows <= (gates.dim() > 0 ? gates.size(0) : 0), op,
                "batch_sizes has more rows in total than gates of shape ", gates.sizes());
  }
  check_shape(hx.dim() == 2, op, "hx has shape ", hx.sizes(), ", expected (N, H)");
  const int64_t n = hx.size(1);
  check_shape(gates.dim() == 2 && gates.size(0) == rows && gates.size(1) == parts * n, op,
              "gates have shape ", gates.sizes(), ", expected (rows of all steps, ", parts,
              " H) = ", shape_str({rows, parts * n}));
  check_state(hx, "hx", batch_sizes[0], n, gates, op);
  check_shape(weight_hh.dim() == 2 && weight_hh.size(0) == parts * n && weight_hh.size(1) == n, op,
              "weight_hh has shape ", weight_hh.sizes(), ", expected ", shape_str({parts * n, n}));
  check_same_type(gates, "gates", weight_hh, "weight_hh", op);
}

Tensor new_rows(const Tensor& gates, int64_t columns) {
  return mytorch::empty({gates.size(0), columns}, gates.dtype(), gates.device());
}

}  // namespace

// ---- layers ----

namespace composite {

Tensors<3> lstm_layer(const Tensor& gates, const Tensor& hx, const Tensor& cx,
                      const Tensor& weight_hh, IntList batch_sizes, bool reverse) {
  constexpr const char* kOp = "lstm_layer";
  check_layer(gates, hx, weight_hh, batch_sizes, 4, kOp);
  const int64_t n = hx.size(1);
  check_state(cx, "cx", hx.size(0), n, gates, kOp);
  const Steps steps = make_steps(batch_sizes, reverse);
  const Tensor output = new_rows(gates, n), cells = new_rows(gates, n);
  const Tensor sums = new_rows(gates, 4 * n), weight = spread_rows(weight_hh.t());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Tensor sum = steps[i].of(sums);
    mytorch::addmm_out(sum, steps[i].of(gates), before(steps, i, output, hx), weight);
    const auto gate = [&](int64_t k) { return sum.narrow(1, k * n, n); };
    mytorch::lstm_gates_out(steps[i].of(output), steps[i].of(cells), gate(0), gate(1), gate(2),
                            gate(3), before(steps, i, cells, cx));
  }
  return {output, cells, sums};
}

Tensors<2> gru_layer(const Tensor& gates, const Tensor& hx, const Tensor& weight_hh,
                     const Tensor& bias_hh, IntList batch_sizes, bool reverse) {
  constexpr const char* kOp = "gru_layer";
  check_layer(gates, hx, weight_hh, batch_sizes, 3, kOp);
  const int64_t n = hx.size(1);
  if (bias_hh.defined()) {
    check_shape(bias_hh.dim() == 1 && bias_hh.size(0) == n, kOp, "bias_hh has shape ",
                bias_hh.sizes(), ", expected ", shape_str({n}));
    check_same_type(gates, "gates", bias_hh, "bias_hh", kOp);
  }
  const Steps steps = make_steps(batch_sizes, reverse);
  const Tensor output = new_rows(gates, n), sums = new_rows(gates, 3 * n);
  const Tensor weight = spread_rows(weight_hh.t());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Tensor sum = steps[i].of(sums), own = steps[i].of(gates);
    const Tensor hidden = before(steps, i, output, hx);
    const auto gate = [&](const Tensor& x, int64_t k) { return x.narrow(1, k * n, n); };
    mytorch::copy_(sum.narrow(1, 0, 2 * n), own.narrow(1, 0, 2 * n));
    Tensor product = gate(sum, 2);
    if (bias_hh.defined()) {
      mytorch::copy_(product, bias_hh);
    } else {
      mytorch::fill_(product, 0);
    }
    mytorch::addmm_out(sum, sum, hidden, weight);
    mytorch::gru_gates_out(steps[i].of(output), gate(sum, 0), gate(sum, 1), gate(own, 2), product,
                           hidden);
  }
  return {output, sums};
}

Tensor rnn_layer(const Tensor& gates, const Tensor& hx, const Tensor& weight_hh,
                 IntList batch_sizes, bool relu, bool reverse) {
  check_layer(gates, hx, weight_hh, batch_sizes, 1, "rnn_layer");
  const Steps steps = make_steps(batch_sizes, reverse);
  const Tensor output = new_rows(gates, hx.size(1)), weight = spread_rows(weight_hh.t());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Tensor sum = steps[i].of(output);
    mytorch::addmm_out(sum, steps[i].of(gates), before(steps, i, output, hx), weight);
    if (relu) {
      mytorch::relu_out(sum, sum);
    } else {
      mytorch::tanh_out(sum, sum);
    }
  }
  return output;
}

}  // namespace composite

namespace grads {

Tensors<4> lstm_layer_backward(const Tensor* grads, const Tensor& hx, const Tensor& cx,
                               const Tensor& weight_hh, const Tensor& output, const Tensor& cells,
                               const Tensor& sums, IntList batch_sizes, bool reverse,
                               const bool* wanted) {
  const Steps steps = make_steps(batch_sizes, reverse);
  const int64_t n = hx.size(1);
  const bool separate = writes_nothing({grads[0], grads[1], grads[2], hx, cx, weight_hh, sums});
  GateGradients gates(steps, 4 * n, sums, separate);
  StateGradient hidden(steps, grads[0], hx), cell(steps, grads[1], cx);
  const Tensor weight = separate ? weight_hh : spread_rows(weight_hh);
  for (size_t i = steps.size(); i-- > 0;) {
    const Tensor sum = steps[i].of(sums), c = before(steps, i, cells, cx);
    const Tensor dh = hidden.after(i), dc = cell.after(i);
    const auto gate = [&](const Tensor& x, int64_t k) { return x.narrow(1, k * n, n); };
    if (separate) {
      const auto [input, forget, candidate, out, d] = mytorch::lstm_gates_grad(
          dh, dc, gate(sum, 0), gate(sum, 1), gate(sum, 2), gate(sum, 3), c);
      gates.set(i, mytorch::cat({input, forget, candidate, out}, 1));
      cell.pass(i, d);
    } else {
      const Tensor to = gates.place(i), d = mytorch::empty(c.sizes(), c.dtype(), c.device());
      mytorch::lstm_gates_backward_out(gate(to, 0), gate(to, 1), gate(to, 2), gate(to, 3), d, dh,
                                       dc, gate(sum, 0), gate(sum, 1), gate(sum, 2), gate(sum, 3),
                                       c);
      cell.pass(i, d);
    }
    gates.add(i, grads[2]);
    if (i == 0 && !wanted[1]) break;
    const Tensor addend = hidden.addend(i);
    hidden.pass(i,
                addend.defined() ? mytorch::addmm(addend, gates.at(i), weight)
                                 : mytorch::mm(gates.at(i), weight),
                addend.defined());
  }
  const Tensor d = gates.all(reverse);
  return {d, wanted[1] ? hidden.initial() : Tensor(), wanted[2] ? cell.initial() : Tensor(),
          wanted[3] ? mytorch::mm(d.t(), all_before(steps, output, hx, reverse)) : Tensor()};
}

// The columns of the gates' gradients are those of the candidate, then those of the sums.
Tensors<4> gru_layer_backward(const Tensor* grads, const Tensor& gates, const Tensor& hx,
                              const Tensor& weight_hh, const Tensor& bias_hh, const Tensor& output,
                              const Tensor& sums, IntList batch_sizes, bool reverse,
                              const bool* wanted) {
  const Steps steps = make_steps(batch_sizes, reverse);
  const int64_t n = hx.size(1);
  const bool separate = writes_nothing({grads[0], grads[1], gates, hx, weight_hh, sums});
  GateGradients all(steps, 4 * n, sums, separate);
  StateGradient state(steps, grads[0], hx);
  const Tensor weight = separate ? weight_hh : spread_rows(weight_hh);
  for (size_t i = steps.size(); i-- > 0;) {
    const Tensor sum = steps[i].of(sums), h = before(steps, i, output, hx), dh = state.after(i);
    const auto gate = [&](const Tensor& x, int64_t k) { return x.narrow(1, k * n, n); };
    const Tensor candidate = gate(steps[i].of(gates), 2);
    Tensor direct;
    if (separate) {
      const auto [reset, update, proposed, product, d] =
          mytorch::gru_gates_grad(dh, gate(sum, 0), gate(sum, 1), candidate, gate(sum, 2), h);
      all.set(i, mytorch::cat({proposed, reset, update, product}, 1));
      direct = d;
    } else {
      const Tensor to = all.place(i);
      direct = mytorch::empty(h.sizes(), h.dtype(), h.device());
      mytorch::gru_gates_backward_out(gate(to, 1), gate(to, 2), gate(to, 0), gate(to, 3), direct,
                                      dh, gate(sum, 0), gate(sum, 1), candidate, gate(sum, 2), h);
    }
    all.add(i, grads[1]);
    if (i == 0 && !wanted[1]) break;
    state.pass(i, mytorch::addmm(direct, all.at(i).narrow(1, n, 3 * n), weight));
  }
  const Tensor d = all.all(reverse), d_sums = d.narrow(1, n, 3 * n);
  return {wanted[0] ? mytorch::cat({d.narrow(1, n, 2 * n), d.narrow(1, 0, n)}, 1) : Tensor(),
          wanted[1] ? state.initial() : Tensor(),
          wanted[2] ? mytorch::mm(d_sums.t(), all_before(steps, output, hx, reverse)) : Tensor(),
          wanted[3] ? d.narrow(1, 3 * n, n).sum(0) : Tensor()};
}

Tensors<3> rnn_layer_backward(const Tensor& grad, const Tensor& hx, const Tensor& weight_hh,
                              const Tensor& output, IntList batch_sizes, bool relu, bool reverse,
                              const bool* wanted) {
  const Steps steps = make_steps(batch_sizes, reverse);
  GateGradients gates(steps, hx.size(1), output, true);
  StateGradient state(steps, grad, hx);
  const Tensor weight =
      writes_nothing({grad, hx, weight_hh, output}) ? weight_hh : spread_rows(weight_hh);
  for (size_t i = steps.size(); i-- > 0;) {
    const Tensor h = steps[i].of(output), dh = state.after(i);
    gates.set(i, relu ? mytorch::relu_grad(dh, h) : mytorch::tanh_grad(dh, h));
    if (i == 0 && !wanted[1]) break;
    const Tensor addend = state.addend(i);
    state.pass(i,
               addend.defined() ? mytorch::addmm(addend, gates.at(i), weight)
                                : mytorch::mm(gates.at(i), weight),
               addend.defined());
  }
  const Tensor d = gates.all(reverse);
  return {d, wanted[1] ? state.initial() : Tensor(),
          wanted[2] ? mytorch::mm(d.t(), all_before(steps, output, hx, reverse)) : Tensor()};
}

}  // namespace grads

// ---- networks ----

namespace {

enum class Kind { kTanh, kReLU, kGRU, kLSTM };

int64_t gates_of(Kind kind) { return kind == Kind::kLSTM ? 4 : kind == Kind::kGRU ? 3 : 1; }

// The parameters of one layer and direction; those that it lacks are undefined.
struct Parameters {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};

// Checks the weights for inputs of size `in` and states of size `width`.
void check_parameters(Kind kind, const Parameters& p, int64_t in, int64_t width, int64_t hidden,
                      const Tensor& input, const char* op) {
  const int64_t rows = gates_of(kind) * hidden;
  const auto check = [&](const Tensor& x, const char* name, IntList sizes) {
    if (!x.defined()) return;
    check_shape(x.sizes() == sizes, op, name, " has shape ", x.sizes(), ", expected ",
                shape_str(sizes), " for inputs of size ", in, " and states of size ", width);
    check_same_type(input, "input", x, name, op);
  };
  check(p.w_ih, "w_ih", {rows, in});
  check(p.w_hh, "w_hh", {rows, width});
  check(p.b_ih, "b_ih", {rows});
  check(p.b_hh, "b_hh", {rows});
  check(p.w_hr, "w_hr", {width, hidden});
}

struct Outcome {
  Tensor output, hidden, cell;
};

// Runs the steps of an LSTM whose hidden states are projections.
Outcome projected(const Tensor& gates, const Tensor& hx, const Tensor& cx, const Parameters& p,
                  const Steps& steps, bool reverse) {
  const size_t count = steps.size();
  std::vector<Tensor> hidden(count), cells(count);
  const auto previous = [&](const std::vector<Tensor>& states, size_t i, const Tensor& initial) {
    const int64_t carried = steps[i].carried, starting = steps[i].rows - carried;
    if (carried == 0) return initial.narrow(0, 0, starting);
    const Tensor part = states[i - 1].narrow(0, 0, carried);
    return starting == 0 ? part : mytorch::cat({part, initial.narrow(0, carried, starting)}, 0);
  };
  for (size_t i = 0; i < count; ++i) {
    const Tensor sum = mytorch::addmm(steps[i].of(gates), previous(hidden, i, hx), p.w_hh.t());
    const std::vector<Tensor> gate = sum.chunk(4, 1);
    Tensor wide;
    std::tie(wide, cells[i]) =
        mytorch::lstm_gates(gate[0], gate[1], gate[2], gate[3], previous(cells, i, cx));
    hidden[i] = mytorch::linear(wide, p.w_hr);
  }
  const auto joined = [&](std::vector<Tensor>& states) {
    if (reverse) std::reverse(states.begin(), states.end());
    return mytorch::cat(states, 0);
  };
  const Tensor output = joined(hidden), all_cells = joined(cells);
  return {output, last_states(steps, output), last_states(steps, all_cells)};
}

// Runs one layer in one direction. `x` are the rows of all steps.
Outcome run_direction(Kind kind, const Tensor& x, const Tensor& hx, const Tensor& cx,
                      const Parameters& p, const Dims& batch_sizes, bool reverse) {
  const IntList sizes = as_list(batch_sizes);
  const Steps steps = make_steps(sizes, reverse);
  if (kind == Kind::kGRU) {
    Tensor bias, own;
    if (p.b_ih.defined()) {
      const int64_t n = hx.size(1);
      own = p.b_hh.narrow(0, 2 * n, n);
      bias = p.b_ih + grads::padded_to(p.b_hh.narrow(0, 0, 2 * n), {3 * n});
    }
    const Tensor output = std::get<0>(
        mytorch::gru_layer(mytorch::linear(x, p.w_ih, bias), hx, p.w_hh, own, sizes, reverse));
    return {output, last_states(steps, output), {}};
  }
  const Tensor bias = p.b_ih.defined() ? p.b_ih + p.b_hh : Tensor();
  const Tensor gates = mytorch::linear(x, p.w_ih, bias);
  if (p.w_hr.defined()) return projected(gates, hx, cx, p, steps, reverse);
  if (kind == Kind::kLSTM) {
    const auto [output, cells, sums] = mytorch::lstm_layer(gates, hx, cx, p.w_hh, sizes, reverse);
    return {output, last_states(steps, output), last_states(steps, cells)};
  }
  const Tensor output = mytorch::rnn_layer(gates, hx, p.w_hh, sizes, kind == Kind::kReLU, reverse);
  return {output, last_states(steps, output), {}};
}

struct Network {
  Kind kind;
  const char* op;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional;
};

// Runs all layers. `data` are the rows of all steps; `cx` is undefined unless the network is an
// LSTM.
Outcome run(const Network& network, const Tensor& data, const Dims& batch_sizes, const Tensor& hx,
            const Tensor& cx, TensorList params) {
  const char* op = network.op;
  const bool lstm = network.kind == Kind::kLSTM;
  check_floating(data, "input", op);
  check_value(network.num_layers > 0, op, "num_layers is ", network.num_layers);
  check_value(network.dropout >= 0 && network.dropout <= 1, op, "dropout is ", network.dropout,
              ": give a probability");
  const int64_t directions = network.bidirectional ? 2 : 1;
  const auto count = static_cast<int64_t>(params.size());
  check_value(network.num_layers <= count, op, network.num_layers, " layers need more than ", count,
              " parameters");
  const int64_t rows = network.num_layers * directions;
  const int64_t batch = batch_sizes[0];
  const auto check_states = [&](const Tensor& x, const char* name) {
    check_shape(x.dim() == 3 && x.size(0) == rows && x.size(1) == batch, op, name, " has shape ",
                x.sizes(), ", expected (layers * directions, N, size) = (", rows, ", ", batch,
                ", size)");
    check_same_type(data, "input", x, name, op);
  };
  check_states(hx, lstm ? "the hidden state" : "hx");
  if (lstm) check_states(cx, "the cell state");
  const int64_t width = hx.size(2), hidden = lstm ? cx.size(2) : width;
  const bool projects = width != hidden;
  const int64_t each = 2 + (network.has_biases ? 2 : 0) + (projects ? 1 : 0);
  check_value(count == rows * each, op, "params has ", count, " tensors, but ", rows,
              " layers and directions have ", each, " each");
  Tensor x = data;
  std::vector<Tensor> last_hidden, last_cells;
  for (int64_t layer = 0; layer < network.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t row = layer * directions + direction;
      const auto param = [&](int64_t i) { return params[static_cast<size_t>(row * each + i)]; };
      Parameters p{param(0), param(1), {}, {}, {}};
      if (network.has_biases) {
        p.b_ih = param(2);
        p.b_hh = param(3);
      }
      if (projects) p.w_hr = param(each - 1);
      check_parameters(network.kind, p, x.size(1), width, hidden, data, op);
      Outcome done =
          run_direction(network.kind, x, hx.select(0, row), lstm ? cx.select(0, row) : Tensor(), p,
                        batch_sizes, direction == 1);
      outputs.push_back(std::move(done.output));
      last_hidden.push_back(std::move(done.hidden));
      if (lstm) last_cells.push_back(std::move(done.cell));
    }
    x = directions == 1 ? outputs[0] : mytorch::cat(outputs, 1);
    if (network.dropout > 0 && network.train && layer + 1 < network.num_layers) {
      x = mytorch::dropout(x, network.dropout, true);
    }
  }
  return {x, mytorch::stack(last_hidden), lstm ? mytorch::stack(last_cells) : Tensor()};
}

// Runs a network over (L, N, I), or (N, L, I) if `batch_first`.
Outcome run_input(const Network& network, const Tensor& input, const Tensor& hx, const Tensor& cx,
                  TensorList params, bool batch_first) {
  check_shape(input.dim() == 3, network.op, "input has shape ", input.sizes(), ", expected ",
              batch_first ? "(N, L, I)" : "(L, N, I)");
  const Tensor x = batch_first ? input.transpose(0, 1) : input;
  const int64_t steps = x.size(0), batch = x.size(1);
  check_shape(steps > 0, network.op, "input of shape ", input.sizes(), " has no steps");
  Outcome done =
      run(network, x.reshape({steps * batch, x.size(2)}), Dims(steps, batch), hx, cx, params);
  done.output = done.output.view({steps, batch, done.output.size(1)});
  if (batch_first) done.output = done.output.transpose(0, 1);
  return done;
}

Outcome run_data(const Network& network, const Tensor& data, const Tensor& batch_sizes,
                 const Tensor& hx, const Tensor& cx, TensorList params) {
  const char* op = network.op;
  check_shape(data.dim() == 2, op, "data has shape ", data.sizes(), ", expected (rows, I)");
  check_type(batch_sizes.dtype() == kInt64, op, "batch_sizes is ", batch_sizes.dtype(),
             ": it must be int64");
  check_shape(batch_sizes.dim() == 1 && batch_sizes.size(0) > 0, op, "batch_sizes has shape ",
              batch_sizes.sizes(), ": give the number of rows of each step");
  check_value(batch_sizes.device().is_cpu(), op, "batch_sizes is on ", batch_sizes.device().str(),
              ": it must be on the CPU");
  const Tensor listed = batch_sizes.contiguous();
  const auto* sizes = listed.const_data<int64_t>();
  Dims steps(sizes, sizes + listed.numel());
  int64_t rows = 0;
  for (size_t t = 0; t < steps.size(); ++t) {
    check_value(steps[t] > 0 && (t == 0 || steps[t] <= steps[t - 1]), op, "batch_sizes[", t,
                "] is ", steps[t], ": sizes are positive and do not increase");
    check_value(steps[t] <= data.size(0) - rows, op,
                "batch_sizes has more rows in total than "
                "data of shape ",
                data.sizes());
    rows += steps[t];
  }
  check_shape(rows == data.size(0), op, "data of shape ", data.sizes(), " has more rows than the ",
              rows, " of batch_sizes");
  return run(network, data, steps, hx, cx, params);
}

// Checks the arguments of one step and returns its parameters.
Parameters cell_parameters(Kind kind, const Tensor& input, const Tensor& hx, const Tensor& w_ih,
                           const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh,
                           const char* op) {
  check_floating(input, "input", op);
  check_shape((input.dim() == 1 || input.dim() == 2) && hx.dim() == input.dim(), op, "input ",
              input.sizes(), " and state ", hx.sizes(), " are not (N, I) and (N, H)");
  check_shape(input.dim() == 1 || input.size(0) == hx.size(0), op, "input ", input.sizes(),
              " and state ", hx.sizes(), " have different batches");
  check_same_type(input, "input", hx, "the state", op);
  const Parameters p{w_ih, w_hh, b_ih, b_hh, {}};
  check_parameters(kind, p, input.size(-1), hx.size(-1), hx.size(-1), input, op);
  return p;
}

Tensor rnn_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                const Tensor& b_ih, const Tensor& b_hh, bool relu, const char* op) {
  const Parameters p = cell_parameters(Kind::kTanh, input, hx, w_ih, w_hh, b_ih, b_hh, op);
  const Tensor sum = mytorch::linear(input, p.w_ih, p.b_ih) + mytorch::linear(hx, p.w_hh, p.b_hh);
  return relu ? mytorch::relu(sum) : mytorch::tanh(sum);
}

void check_two_states(TensorList hx, const char* op) {
  check_value(hx.size() == 2, op, "hx has ", hx.size(),
              " tensors: give the hidden and the cell state");
}

}  // namespace

namespace composite {

Tensors<2> lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  constexpr const char* kOp = "lstm_cell";
  check_two_states(hx, kOp);
  const Parameters p = cell_parameters(Kind::kLSTM, input, hx[0], w_ih, w_hh, b_ih, b_hh, kOp);
  check_shape(hx[1].sizes() == hx[0].sizes(), kOp, "the cell state has shape ", hx[1].sizes(),
              ", but the hidden state has shape ", hx[0].sizes());
  check_same_type(input, "input", hx[1], "the cell state", kOp);
  const Tensor sum =
      mytorch::linear(input, p.w_ih, p.b_ih) + mytorch::linear(hx[0], p.w_hh, p.b_hh);
  const std::vector<Tensor> gate = sum.chunk(4, -1);
  return mytorch::lstm_gates(gate[0], gate[1], gate[2], gate[3], hx[1]);
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                const Tensor& b_ih, const Tensor& b_hh) {
  const Parameters p = cell_parameters(Kind::kGRU, input, hx, w_ih, w_hh, b_ih, b_hh, "gru_cell");
  const Tensor own = mytorch::linear(input, p.w_ih, p.b_ih);
  const Tensor product = mytorch::linear(hx, p.w_hh, p.b_hh);
  const int64_t n = hx.size(-1);
  const Tensor sum = own.narrow(-1, 0, 2 * n) + product.narrow(-1, 0, 2 * n);
  return mytorch::gru_gates(sum.narrow(-1, 0, n), sum.narrow(-1, n, n), own.narrow(-1, 2 * n, n),
                            product.narrow(-1, 2 * n, n), hx);
}

Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  return rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, false, "rnn_tanh_cell");
}

Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh) {
  return rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, true, "rnn_relu_cell");
}

Tensors<3> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases,
                int64_t num_layers, double dropout, bool train, bool bidirectional,
                bool batch_first) {
  check_two_states(hx, "lstm");
  Outcome done =
      run_input({Kind::kLSTM, "lstm", has_biases, num_layers, dropout, train, bidirectional}, input,
                hx[0], hx[1], params, batch_first);
  return {done.output, done.hidden, done.cell};
}

Tensors<3> lstm(const Tensor& data, const Tensor& batch_sizes, TensorList hx, TensorList params,
                bool has_biases, int64_t num_layers, double dropout, bool train,
                bool bidirectional) {
  check_two_states(hx, "lstm");
  Outcome done =
      run_data({Kind::kLSTM, "lstm", has_biases, num_layers, dropout, train, bidirectional}, data,
               batch_sizes, hx[0], hx[1], params);
  return {done.output, done.hidden, done.cell};
}

Tensors<2> gru(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
               int64_t num_layers, double dropout, bool train, bool bidirectional,
               bool batch_first) {
  Outcome done =
      run_input({Kind::kGRU, "gru", has_biases, num_layers, dropout, train, bidirectional}, input,
                hx, {}, params, batch_first);
  return {done.output, done.hidden};
}

Tensors<2> gru(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
               bool has_biases, int64_t num_layers, double dropout, bool train,
               bool bidirectional) {
  Outcome done =
      run_data({Kind::kGRU, "gru", has_biases, num_layers, dropout, train, bidirectional}, data,
               batch_sizes, hx, {}, params);
  return {done.output, done.hidden};
}

Tensors<2> rnn_tanh(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                    int64_t num_layers, double dropout, bool train, bool bidirectional,
                    bool batch_first) {
  Outcome done =
      run_input({Kind::kTanh, "rnn_tanh", has_biases, num_layers, dropout, train, bidirectional},
                input, hx, {}, params, batch_first);
  return {done.output, done.hidden};
}

Tensors<2> rnn_tanh(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx,
                    TensorList params, bool has_biases, int64_t num_layers, double dropout,
                    bool train, bool bidirectional) {
  Outcome done =
      run_data({Kind::kTanh, "rnn_tanh", has_biases, num_layers, dropout, train, bidirectional},
               data, batch_sizes, hx, {}, params);
  return {done.output, done.hidden};
}

Tensors<2> rnn_relu(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                    int64_t num_layers, double dropout, bool train, bool bidirectional,
                    bool batch_first) {
  Outcome done =
      run_input({Kind::kReLU, "rnn_relu", has_biases, num_layers, dropout, train, bidirectional},
                input, hx, {}, params, batch_first);
  return {done.output, done.hidden};
}

Tensors<2> rnn_relu(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx,
                    TensorList params, bool has_biases, int64_t num_layers, double dropout,
                    bool train, bool bidirectional) {
  Outcome done =
      run_data({Kind::kReLU, "rnn_relu", has_biases, num_layers, dropout, train, bidirectional},
               data, batch_sizes, hx, {}, params);
  return {done.output, done.hidden};
}

}  // namespace composite
}  // namespace mytorch
