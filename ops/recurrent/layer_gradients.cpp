// The gradients of layers of recurrent networks.
//
// Backward keeps the gradients of the gates of all steps, so that one product gives the gradient of
// each weight.
#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/tensor/batched.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/gru_gates_backward.h"
#include "mytorch/ops/gru_gates_grad.h"
#include "mytorch/ops/lstm_gates_backward.h"
#include "mytorch/ops/lstm_gates_grad.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/relu_grad.h"
#include "mytorch/ops/tanh_grad.h"
#include "ops/gradients.h"
#include "ops/recurrent/steps.h"

namespace mytorch {

using namespace recurrent;

namespace {

// Returns the states before all steps, in the order of rows.
Tensor all_before(const Steps& steps, const Tensor& states, const Tensor& initial, bool reverse) {
  std::vector<Tensor> parts(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) parts[i] = before(steps, i, states, initial);
  if (reverse) std::reverse(parts.begin(), parts.end());
  return mytorch::cat(parts, 0);
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

}  // namespace

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
                              const Tensor& weight_hh, const Tensor& /*bias_hh*/,
                              const Tensor& output, const Tensor& sums, IntList batch_sizes,
                              bool reverse, const bool* wanted) {
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
}  // namespace mytorch
