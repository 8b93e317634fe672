// The parameters of recurrent networks and their cells.
#include "ops/recurrent/parameters.h"

#include "ops/check.h"

namespace mytorch::recurrent {
namespace {

int64_t gates_of(Kind kind) { return kind == Kind::kLSTM ? 4 : kind == Kind::kGRU ? 3 : 1; }

}  // namespace

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

void check_two_states(TensorList hx, const char* op) {
  check_value(hx.size() == 2, op, "hx has ", hx.size(),
              " tensors: give the hidden and the cell state");
}

}  // namespace mytorch::recurrent
