#include "backends/cuda/programs/compile.h"

#include "backends/cuda/programs/program.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {

void compile_program(const mt_program& program, mt_dtype compute,
                     std::span<const mt_dtype> /*types*/, mt_kernel_entry& kernel) {
  if (!Program(program).takes(code_of(compute))) throw sdk::Declined{};
  (program.fold == nullptr ? compile_pointwise : compile_reduce)(program, kernel);
  if (sdk::is_complex(compute)) kernel.flags |= MT_TAKES_COMPLEX;
}

}  // namespace mytorch::cuda
