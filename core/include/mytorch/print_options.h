// The format of printed tensors.
#pragma once

#include <cstdint>
#include <optional>

namespace mytorch {

struct PrintOptions {
  int precision = 4;         // digits after the decimal point
  int64_t threshold = 1000;  // tensors of more elements are abbreviated
  int64_t edge_items = 3;    // elements shown at either end of an abbreviated dimension
  int line_width = 0;        // in characters; 0: that of the terminal, else 80
  // Scientific notation; if absent, it is chosen by the range of the values.
  std::optional<bool> sci_mode;
};

// Set and get the format for all threads. Throws Error(kValue) for negative numbers.
void set_print_options(const PrintOptions& options);
PrintOptions print_options();

}  // namespace mytorch
