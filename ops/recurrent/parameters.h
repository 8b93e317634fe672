// The parameters of recurrent networks and their cells.
#pragma once

#include <cstdint>

#include "mytorch/tensor.h"

namespace mytorch::recurrent {

enum class Kind { kTanh, kReLU, kGRU, kLSTM };

// The parameters of one layer and direction; those that it lacks are undefined.
struct Parameters {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};

// Checks the weights for inputs of size `in` and states of size `width`.
void check_parameters(Kind kind, const Parameters& p, int64_t in, int64_t width, int64_t hidden,
                      const Tensor& input, const char* op);

// Checks that an LSTM has a hidden and a cell state.
void check_two_states(TensorList hx, const char* op);

}  // namespace mytorch::recurrent
