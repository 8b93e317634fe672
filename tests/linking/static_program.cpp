// The whole framework in one program, with a linked backend that is registered by its init
// function. No shared library is loaded.
#include <cstdio>
#include <cstdlib>

#include "mytorch/backends.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/sum.h"
#include "mytorch/tensor.h"

extern "C" int mytorch_reference_init(const mt_host* host, mt_backend* backend);

int main() {
  setenv("MYTORCH_BACKEND_PATH", "", 1);
  mytorch::register_backend(&mytorch_reference_init);
  const mytorch::Prefer reference("cpu", "reference");
  const mytorch::Tensor x = mytorch::tensor({1.0, 2, 3}).requires_grad_();
  mytorch::sum(x * x).backward();
  const float* grad = x.grad().const_data<float>();
  std::printf("%g %g %g\n", grad[0], grad[1], grad[2]);
  return grad[0] == 2 && grad[1] == 4 && grad[2] == 6 ? 0 : 1;
}
