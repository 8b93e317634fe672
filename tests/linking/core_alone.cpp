// Links core without the rooms above it: tensors and views work, and requires_grad_() gives a clear
// error.
#include <cstdio>

#include "mytorch/tensor.h"

int main() {
  float memory[] = {1, 2, 3, 4};
  const mytorch::Tensor x = mytorch::from_blob(memory, {4});
  const mytorch::Tensor half = mytorch::Tensor::adopt(mytorch::new_view(x.impl(), {2}, {2}, 1));
  if (half.const_data<float>()[2] != 4 || x.numel() != 4) return 1;
  try {
    x.requires_grad_();
  } catch (const mytorch::Error& error) {
    std::printf("%s\n", error.what());
    return 0;
  }
  return 1;
}
